/*
 * Of base/ alone: the one UTF-8 decoder, for those who walk text piece by piece. Thread: any.
 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

/* Decodes the character at the front of `bytes` (at least one). Returns its length and *point, or, for an invalid
 * sequence, the length of its maximal subpart (1 to 3) and *point = -1. */
size_t utf8_decode(const uint8_t *bytes, size_t length, int32_t *point);
/* How many bytes at the front are valid UTF-8. */
size_t utf8_valid_run(const uint8_t *bytes, size_t length);

#endif
