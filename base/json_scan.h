/*
 * Of base/json.c alone: a strict reader of JSON's grammar that rewrites the text for cJSON. What cJSON cannot tell
 * apart or would lose is kept in strings:
 *   - a string or name becomes "LLLLLLLL…": eight hexadecimal digits of its decoded length in bytes, then its own
 * characters, with U+0000 spelled as U+0001 '0' and U+0001 as U+0001 '1';
 *   - a number becomes "#…": its own spelling.
 * Thread: any.
 */
#ifndef BASE_JSON_SCAN_H
#define BASE_JSON_SCAN_H

#include "base/buffer.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  JSON_LENGTH_DIGITS = 8,
  JSON_NUMBER_MARK = '#',
  JSON_ESCAPE_MARK = 1, /* U+0001 */
};

/* Appends the rewritten text to `out`. *marked: some string has a JSON_ESCAPE_MARK. Returns 0, or -1 and
 * REASON_INVALID_JSON (the detail tells line and column), or REASON_INTERNAL without memory. */
int json_scan(const char *text, size_t length, size_t most_values, struct buffer *out, bool *marked,
              struct error **err);

#endif
