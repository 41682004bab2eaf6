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

/* Writes four digits for three bytes. */
static void encode_group(uint8_t *at, const uint8_t bytes[static 3], const char *alphabet) {
  uint32_t bits = (uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 8 | bytes[2];
  at[0] = (uint8_t)alphabet[bits >> 18];
  at[1] = (uint8_t)alphabet[bits >> 12 & 63];
  at[2] = (uint8_t)alphabet[bits >> 6 & 63];
  at[3] = (uint8_t)alphabet[bits & 63];
}

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
  for (; length >= 3; length -= 3, bytes += 3, at += 4)
    encode_group(at, bytes, alphabet);
  if (rest > 0) {
    uint8_t last[3] = {bytes[0], rest == 2 ? bytes[1] : 0}, digits[4];
    encode_group(digits, last, alphabet);
    memset(digits + rest + 1, '=', 3 - rest);
    memcpy(at, digits, padded ? 4 : rest + 1);
  }
  buffer_commit(out, text_length);
  return 0;
}

/* One more than the value of each byte as a digit; 0 for none. */
#define DIGITS(plus, slash)                                                                                            \
  {                                                                                                                    \
    ['A'] = 1, ['B'] = 2, ['C'] = 3, ['D'] = 4, ['E'] = 5, ['F'] = 6, ['G'] = 7, ['H'] = 8, ['I'] = 9, ['J'] = 10,     \
    ['K'] = 11, ['L'] = 12, ['M'] = 13, ['N'] = 14, ['O'] = 15, ['P'] = 16, ['Q'] = 17, ['R'] = 18, ['S'] = 19,        \
    ['T'] = 20, ['U'] = 21, ['V'] = 22, ['W'] = 23, ['X'] = 24, ['Y'] = 25, ['Z'] = 26, ['a'] = 27, ['b'] = 28,        \
    ['c'] = 29, ['d'] = 30, ['e'] = 31, ['f'] = 32, ['g'] = 33, ['h'] = 34, ['i'] = 35, ['j'] = 36, ['k'] = 37,        \
    ['l'] = 38, ['m'] = 39, ['n'] = 40, ['o'] = 41, ['p'] = 42, ['q'] = 43, ['r'] = 44, ['s'] = 45, ['t'] = 46,        \
    ['u'] = 47, ['v'] = 48, ['w'] = 49, ['x'] = 50, ['y'] = 51, ['z'] = 52, ['0'] = 53, ['1'] = 54, ['2'] = 55,        \
    ['3'] = 56, ['4'] = 57, ['5'] = 58, ['6'] = 59, ['7'] = 60, ['8'] = 61, ['9'] = 62, [plus] = 63, [slash] = 64,     \
  }
static const uint8_t standard_digits[256] = DIGITS('+', '/');
static const uint8_t url_digits[256] = DIGITS('-', '_');

static const uint32_t BAD_DIGIT = UINT32_C(1) << 31;

/* Writes three bytes for four digits; *bad gets BAD_DIGIT if one is none. Returns the bytes as a number. */
static uint32_t decode_group(uint8_t *at, const uint8_t digits[static 4], const uint8_t table[static 256],
                             uint32_t *bad) {
  uint32_t a = table[digits[0]] - 1u, b = table[digits[1]] - 1u, c = table[digits[2]] - 1u, d = table[digits[3]] - 1u;
  uint32_t bits = a << 18 | b << 12 | c << 6 | d;
  *bad |= a | b | c | d;
  at[0] = (uint8_t)(bits >> 16);
  at[1] = (uint8_t)(bits >> 8);
  at[2] = (uint8_t)bits;
  return bits;
}

/* `length` digits without padding. */
static int decode(struct buffer *out, const char *text, size_t length, const uint8_t table[static 256]) {
  if (length == 0)
    return 0;
  size_t rest = length % 4;
  if (rest == 1)
    return -1;
  size_t size = length / 4 * 3 + (rest == 0 ? 0 : rest - 1);
  uint8_t *start = buffer_reserve(out, size), *at = start;
  if (start == NULL)
    return -1;
  uint32_t bad = 0;
  const uint8_t *digits = (const uint8_t *)text;
  for (; length >= 4; length -= 4, digits += 4, at += 3)
    decode_group(at, digits, table, &bad);
  if (rest > 0) {
    uint8_t last[4] = {digits[0], digits[1], rest == 3 ? digits[2] : (uint8_t)'A', 'A'}, bytes[3];
    uint32_t bits = decode_group(bytes, last, table, &bad);
    memcpy(at, bytes, rest - 1);
    /* Bits behind the last byte must be zero, else two texts would stand for the same bytes. */
    bad |= (bits & (rest == 3 ? 0xFFu : 0xFFFFu)) != 0 ? BAD_DIGIT : 0;
  }
  if ((bad & BAD_DIGIT) != 0) {
    *start = '\0'; /* where the NUL behind the buffer's bytes was */
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
  return decode(out, text, length - padding, standard_digits);
}

int text_base64url(struct buffer *out, const void *bytes, size_t length) {
  return encode(out, bytes, length, url_alphabet, false);
}

int text_unbase64url(struct buffer *out, const char *text, size_t length) {
  return decode(out, text, length, url_digits);
}
