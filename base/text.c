/*
 * UTF-8: checking, counting, repairing. One decoder, utf8_decode, knows the rules; everything else walks with it and
 * runs over plain ASCII eight bytes at a time.
 */
#include "base/text.h"
#include "base/utf8.h"
#include <string.h>

/* Bytes of ASCII at the front. */
static size_t ascii_run(const uint8_t *bytes, size_t length) {
  size_t i = 0;
  for (; length - i >= 8; i += 8) {
    uint64_t eight;
    memcpy(&eight, bytes + i, sizeof eight);
    if ((eight & UINT64_C(0x8080808080808080)) != 0)
      break;
  }
  while (i < length && bytes[i] < 0x80)
    i++;
  return i;
}

/* What a first byte of a longer sequence promises: its length, and the range its second byte must be in (RFC 3629,
 * section 4; the narrow ranges keep out overlong forms, surrogates and what is above U+10FFFF). False: no such byte. */
static bool lead_byte(uint8_t byte, size_t *length, uint8_t *low, uint8_t *high) {
  *low = 0x80;
  *high = 0xBF;
  if (byte >= 0xC2 && byte <= 0xDF) {
    *length = 2;
  } else if (byte >= 0xE0 && byte <= 0xEF) {
    *length = 3;
    if (byte == 0xE0)
      *low = 0xA0;
    if (byte == 0xED)
      *high = 0x9F;
  } else if (byte >= 0xF0 && byte <= 0xF4) {
    *length = 4;
    if (byte == 0xF0)
      *low = 0x90;
    if (byte == 0xF4)
      *high = 0x8F;
  } else {
    return false;
  }
  return true;
}

size_t utf8_decode(const uint8_t *bytes, size_t length, int32_t *point) {
  if (bytes[0] < 0x80) {
    *point = bytes[0];
    return 1;
  }
  size_t wanted;
  uint8_t low, high;
  *point = -1;
  if (!lead_byte(bytes[0], &wanted, &low, &high))
    return 1;
  int32_t value = bytes[0] & (0x7F >> wanted);
  for (size_t i = 1; i < wanted; i++) {
    if (i == length || bytes[i] < low || bytes[i] > high)
      return i;
    value = value << 6 | (bytes[i] & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  *point = value;
  return wanted;
}

size_t utf8_valid_run(const uint8_t *bytes, size_t length) {
  size_t i = 0;
  while (i < length) {
    i += ascii_run(bytes + i, length - i);
    if (i == length)
      break;
    int32_t point;
    size_t step = utf8_decode(bytes + i, length - i, &point);
    if (point < 0)
      break;
    i += step;
  }
  return i;
}

bool text_valid(const void *bytes, size_t length) {
  return utf8_valid_run(bytes, length) == length;
}

size_t text_characters(const void *bytes, size_t length) {
  const uint8_t *at = bytes;
  size_t count = 0;
  for (size_t i = 0; i < length; i++)
    count += (at[i] & 0xC0) != 0x80;
  return count;
}

static bool white_space(int32_t point) {
  return (point >= 0x09 && point <= 0x0D) || point == 0x20 || point == 0x85 || point == 0xA0 || point == 0x1680 ||
         (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 || point == 0x202F ||
         point == 0x205F || point == 0x3000;
}

bool text_blank(const void *bytes, size_t length) {
  const uint8_t *at = bytes;
  for (size_t i = 0; i < length;) {
    int32_t point;
    i += utf8_decode(at + i, length - i, &point);
    if (!white_space(point))
      return false;
  }
  return true;
}

int text_repair(struct buffer *out, const void *bytes, size_t length) {
  const uint8_t *at = bytes;
  size_t before = out->length;
  for (size_t i = 0; i < length;) {
    size_t run = utf8_valid_run(at + i, length - i);
    bool good = buffer_append(out, at + i, run) == 0;
    i += run;
    if (good && i < length) {
      int32_t point;
      i += utf8_decode(at + i, length - i, &point);
      good = buffer_append(out, UTF8_REPLACEMENT, 3) == 0;
    }
    if (!good) {
      buffer_truncate(out, before);
      return -1;
    }
  }
  return 0;
}
