/*
 * UTF-8, hexadecimal and base64. No allocation except into a buffer. Thread: any.
 */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include "base/buffer.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* UTF-8 as RFC 3629: no surrogates, nothing above U+10FFFF, no overlong form. */
bool text_valid(const void *bytes, size_t length);
/* Code points of valid UTF-8. */
size_t text_characters(const void *bytes, size_t length);
/* Nothing but white space (Unicode's White_Space), or empty. */
bool text_blank(const void *bytes, size_t length);
/* Appends with each invalid sequence as U+FFFD, the way the WHATWG decoder counts them ("maximal subparts").
 * Returns 0, or -1 if the buffer is full. */
int text_repair(struct buffer *out, const void *bytes, size_t length);

/* Lower case; writes 2 * length characters and a NUL. */
void text_hex(const uint8_t *bytes, size_t length, char *out);
/* Lower case only, exactly 2 * length characters. Returns 0, or -1. */
int text_unhex(const char *text, size_t text_length, uint8_t *out, size_t length);

/* Base64 of RFC 4648: standard alphabet with padding, or the URL alphabet without. The readers accept the canonical
 * form alone (no white space, trailing bits zero). They append to the buffer and return 0, or -1. */
int text_base64(struct buffer *out, const void *bytes, size_t length);
int text_unbase64(struct buffer *out, const char *text, size_t length);
int text_base64url(struct buffer *out, const void *bytes, size_t length);
int text_unbase64url(struct buffer *out, const char *text, size_t length);

#endif
