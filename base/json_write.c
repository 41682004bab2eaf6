/*
 * JSON strings, written straight into a buffer. The spelling is one that JavaScript's JSON.stringify and Go's
 * encoding/json (without HTML escaping) agree on, except for U+2028 and U+2029: Go always escapes them, and so does
 * this, because a text that a script engine may read as a line's end is better not sent raw.
 */
#include "base/json.h"
#include "base/utf8.h"
#include <string.h>

/* The letter behind the backslash, or 0 where there is no short form. */
static char short_escape(uint8_t byte) {
  switch (byte) {
  case '"':
  case '\\':
    return (char)byte;
  case '\b':
    return 'b';
  case '\f':
    return 'f';
  case '\n':
    return 'n';
  case '\r':
    return 'r';
  case '\t':
    return 't';
  default:
    return 0;
  }
}

#define EIGHT(byte) (UINT64_C(0x0101010101010101) * (byte))

/* A word with a bit set if one of the eight bytes is below `limit` (at most 0x80). */
static uint64_t any_below(uint64_t eight, uint8_t limit) {
  return (eight - EIGHT(limit)) & ~eight & EIGHT(0x80);
}

static uint64_t any_equal(uint64_t eight, uint8_t byte) {
  return any_below(eight ^ EIGHT(byte), 1);
}

static bool plain(uint8_t byte) {
  return byte >= 0x20 && byte != '"' && byte != '\\' && byte != 0xE2;
}

/* Bytes at the front that stand for themselves; E2 may begin U+2028 or U+2029. Eight at a time: output of megabytes
 * comes through here. */
static size_t plain_run(const uint8_t *bytes, size_t length) {
  size_t i = 0;
  for (; length - i >= 8; i += 8) {
    uint64_t eight;
    memcpy(&eight, bytes + i, sizeof eight);
    if ((any_below(eight, 0x20) | any_equal(eight, '"') | any_equal(eight, '\\') | any_equal(eight, 0xE2)) != 0)
      break;
  }
  while (i < length && plain(bytes[i]))
    i++;
  return i;
}

static bool line_separator(const uint8_t *bytes, size_t length) {
  return length >= 3 && bytes[0] == 0xE2 && bytes[1] == 0x80 && (bytes[2] == 0xA8 || bytes[2] == 0xA9);
}

/* Appends the character at the front, which needs a look; *used is its length. */
static int write_special(struct buffer *out, const uint8_t *bytes, size_t length, size_t *used) {
  *used = 1;
  if (line_separator(bytes, length)) {
    *used = 3;
    return buffer_append_string(out, bytes[2] == 0xA8 ? "\\u2028" : "\\u2029");
  }
  if (bytes[0] == 0xE2)
    return buffer_append_byte(out, bytes[0]);
  char escape = short_escape(bytes[0]);
  if (escape != 0)
    return buffer_append(out, (const char[]){'\\', escape}, 2);
  static const char digits[] = "0123456789abcdef";
  return buffer_append(out, (const char[]){'\\', 'u', '0', '0', digits[bytes[0] >> 4], digits[bytes[0] & 15]}, 6);
}

static int write_valid(struct buffer *out, const uint8_t *bytes, size_t length) {
  for (size_t i = 0; i < length;) {
    size_t run = plain_run(bytes + i, length - i);
    if (buffer_append(out, bytes + i, run) != 0)
      return -1;
    i += run;
    if (i == length)
      break;
    size_t used;
    if (write_special(out, bytes + i, length - i, &used) != 0)
      return -1;
    i += used;
  }
  return 0;
}

static int write_text(struct buffer *out, const uint8_t *bytes, size_t length) {
  bool good = true;
  for (size_t i = 0; good && i < length;) {
    size_t run = utf8_valid_run(bytes + i, length - i);
    good = write_valid(out, bytes + i, run) == 0;
    i += run;
    if (good && i < length) {
      int32_t point;
      i += utf8_decode(bytes + i, length - i, &point);
      good = buffer_append(out, UTF8_REPLACEMENT, sizeof UTF8_REPLACEMENT - 1) == 0;
    }
  }
  return good ? 0 : -1;
}

int json_write_escaped(struct buffer *out, const char *text, size_t length) {
  size_t before = out->length;
  if (write_text(out, (const uint8_t *)text, length) == 0)
    return 0;
  buffer_truncate(out, before);
  return -1;
}

int json_write_string(struct buffer *out, const char *text, size_t length) {
  size_t before = out->length;
  if (buffer_append_byte(out, '"') == 0 && write_text(out, (const uint8_t *)text, length) == 0 &&
      buffer_append_byte(out, '"') == 0)
    return 0;
  buffer_truncate(out, before);
  return -1;
}
