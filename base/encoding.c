/*
 * Hexadecimal and base64. Only one text stands for given bytes: the readers refuse every other spelling, so that a
 * token or a digest cannot be written in two ways.
 */
#include "base/text.h"
#include <string.h>

void text_hex(const uint8_t *bytes, size_t length, char *out) {
  static const char digits[] = "0123456789abcdef";
  for (size_t i = 0; i < length; i++) {
    out[2 * i] = digits[bytes[i] >> 4];
    out[2 * i + 1] = digits[bytes[i] & 15];
  }
  out[2 * length] = '\0';
}

static int hex_value(char digit) {
  if (digit >= '0' && digit <= '9')
    return digit - '0';
  return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

int text_unhex(const char *text, size_t text_length, uint8_t *out, size_t length) {
  if (length > SIZE_MAX / 2 || text_length != 2 * length)
    return -1;
  for (size_t i = 0; i < length; i++) {
    int high = hex_value(text[2 * i]), low = hex_value(text[2 * i + 1]);
    if (high < 0 || low < 0)
      return -1;
    out[i] = (uint8_t)(high << 4 | low);
  }
  return 0;
}

static const char standard_alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char url_alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static int encode(struct buffer *out, const uint8_t *bytes, size_t length, const char *alphabet, bool padded) {
  if (length == 0)
    return 0;
  if (length > SIZE_MAX / 4 * 3 - 3)
    return -1;
  size_t rest = length % 3;
  size_t text_length = length / 3 * 4 + (rest == 0 ? 0 : padded ? 4 : rest + 1);
  uint8_t *at = buffer_reserve(out, text_length);
  if (at == NULL)
    return -1;
  size_t i = 0;
  for (; length - i >= 3; i += 3) {
    uint32_t bits = (uint32_t)bytes[i] << 16 | (uint32_t)bytes[i + 1] << 8 | bytes[i + 2];
    for (int shift = 18; shift >= 0; shift -= 6)
      *at++ = (uint8_t)alphabet[bits >> shift & 63];
  }
  if (rest > 0) {
    uint32_t bits = (uint32_t)bytes[i] << 16 | (rest == 2 ? (uint32_t)bytes[i + 1] << 8 : 0);
    *at++ = (uint8_t)alphabet[bits >> 18];
    *at++ = (uint8_t)alphabet[bits >> 12 & 63];
    if (rest == 2)
      *at++ = (uint8_t)alphabet[bits >> 6 & 63];
    for (size_t i_pad = rest; padded && i_pad < 3; i_pad++)
      *at++ = '=';
  }
  buffer_commit(out, text_length);
  return 0;
}

/* Six bits of a digit, or 64. `plus` and `slash` are the alphabet's last two. */
static uint32_t digit_value(char digit, char plus, char slash) {
  if (digit >= 'A' && digit <= 'Z')
    return (uint32_t)(digit - 'A');
  if (digit >= 'a' && digit <= 'z')
    return (uint32_t)(digit - 'a' + 26);
  if (digit >= '0' && digit <= '9')
    return (uint32_t)(digit - '0' + 52);
  return digit == plus ? 62 : digit == slash ? 63 : 64;
}

/* The value of each byte as a digit, 64 for none. */
static void digit_table(uint8_t table[static 256], const char *alphabet) {
  for (int i = 0; i < 256; i++)
    table[i] = (uint8_t)digit_value((char)i, alphabet[62], alphabet[63]);
}

/* `length` digits without padding. */
static int decode(struct buffer *out, const char *text, size_t length, const char *alphabet) {
  if (length == 0)
    return 0;
  size_t rest = length % 4;
  if (rest == 1)
    return -1;
  size_t size = length / 4 * 3 + (rest == 0 ? 0 : rest - 1);
  uint8_t *at = buffer_reserve(out, size);
  if (at == NULL)
    return -1;
  uint8_t table[256];
  digit_table(table, alphabet);
  uint32_t bad = 0;
  size_t i = 0;
  const uint8_t *digits = (const uint8_t *)text;
  for (; length - i >= 4; i += 4) {
    uint32_t a = table[digits[i]], b = table[digits[i + 1]], c = table[digits[i + 2]], d = table[digits[i + 3]];
    bad |= a | b | c | d;
    uint32_t bits = a << 18 | b << 12 | c << 6 | d;
    *at++ = (uint8_t)(bits >> 16);
    *at++ = (uint8_t)(bits >> 8);
    *at++ = (uint8_t)bits;
  }
  if (rest > 0) {
    uint32_t a = table[digits[i]], b = table[digits[i + 1]], c = rest == 3 ? table[digits[i + 2]] : 0;
    bad |= a | b | c;
    uint32_t bits = a << 18 | b << 12 | c << 6;
    *at++ = (uint8_t)(bits >> 16);
    if (rest == 3)
      *at++ = (uint8_t)(bits >> 8);
    /* Bits behind the last byte must be zero, else two texts would stand for the same bytes. */
    if ((bits & (rest == 3 ? 0xFFu : 0xFFFFu)) != 0)
      bad = 64;
  }
  if ((bad & 64) != 0) {
    *buffer_reserve(out, 0) = '\0'; /* the NUL behind the buffer's bytes was overwritten */
    return -1;
  }
  buffer_commit(out, size);
  return 0;
}

int text_base64(struct buffer *out, const void *bytes, size_t length) {
  return encode(out, bytes, length, standard_alphabet, true);
}

int text_unbase64(struct buffer *out, const char *text, size_t length) {
  if (length % 4 != 0)
    return -1;
  size_t padding = 0;
  while (padding < 2 && padding < length && text[length - 1 - padding] == '=')
    padding++;
  return decode(out, text, length - padding, standard_alphabet);
}

int text_base64url(struct buffer *out, const void *bytes, size_t length) {
  return encode(out, bytes, length, url_alphabet, false);
}

int text_unbase64url(struct buffer *out, const char *text, size_t length) {
  return decode(out, text, length, url_alphabet);
}
