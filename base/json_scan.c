/*
 * The strict reader in front of cJSON, which by itself takes control characters in strings, numbers such as 01 or 1.,
 * and any nesting up to a thousand. Recursive, since the depth is bounded.
 */
#include "base/json_scan.h"
#include "base/limits.h"
#include "base/text.h"
#include <stdio.h>
#include <string.h>

struct scan {
  const char *start, *at, *end;
  struct buffer *out;
  size_t values, most_values;
  unsigned depth;
  bool marked, no_memory;
  const char *rule; /* what a refused text broke */
};

static int emit(struct scan *scan, const char *text, size_t length) {
  if (buffer_append(scan->out, text, length) == 0)
    return 0;
  scan->no_memory = true;
  return -1;
}

static void skip_white_space(struct scan *scan) {
  while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\t' || *scan->at == '\n' || *scan->at == '\r'))
    scan->at++;
}

/* The next byte, or '\0' at the end: no token of JSON begins with it. */
static char peek(const struct scan *scan) {
  return scan->at < scan->end ? *scan->at : '\0';
}

static bool digit_next(const struct scan *scan) {
  return peek(scan) >= '0' && peek(scan) <= '9';
}

/* Moves over one digit or more. */
static int skip_digits(struct scan *scan) {
  if (!digit_next(scan))
    return -1;
  while (digit_next(scan))
    scan->at++;
  return 0;
}

static int skip_number(struct scan *scan) {
  if (peek(scan) == '-')
    scan->at++;
  if (peek(scan) == '0')
    scan->at++;
  else if (skip_digits(scan) != 0)
    return -1;
  if (peek(scan) == '.') {
    scan->at++;
    if (skip_digits(scan) != 0)
      return -1;
  }
  if (peek(scan) != 'e' && peek(scan) != 'E')
    return 0;
  scan->at++;
  if (peek(scan) == '+' || peek(scan) == '-')
    scan->at++;
  return skip_digits(scan);
}

static int scan_number(struct scan *scan) {
  const char *number = scan->at;
  if (skip_number(scan) != 0 || emit(scan, (const char[]){'"', JSON_NUMBER_MARK}, 2) != 0)
    return -1;
  return emit(scan, number, (size_t)(scan->at - number)) == 0 ? emit(scan, "\"", 1) : -1;
}

static int scan_literal(struct scan *scan, const char *literal) {
  size_t length = strlen(literal);
  if ((size_t)(scan->end - scan->at) < length || memcmp(scan->at, literal, length) != 0)
    return -1;
  scan->at += length;
  return emit(scan, literal, length);
}

/* The code unit of "\uXXXX" at `at`, or -1. */
static int32_t code_unit(const struct scan *scan, const char *at) {
  if (scan->end - at < 6 || at[0] != '\\' || at[1] != 'u')
    return -1;
  int32_t unit = 0;
  for (int i = 2; i < 6; i++) {
    char c = at[i];
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit < 0)
      return -1;
    unit = unit << 4 | digit;
  }
  return unit;
}

/* "\uXXXX", or two that are a surrogate pair. Adds the character's bytes in UTF-8 to *decoded. */
static int scan_code_unit(struct scan *scan, size_t *decoded) {
  int32_t unit = code_unit(scan, scan->at);
  if (unit < 0 || (unit >= 0xDC00 && unit <= 0xDFFF))
    return -1;
  const char *text = scan->at;
  scan->at += 6;
  if (unit <= 1) {
    scan->marked = true;
    *decoded += 1;
    return emit(scan, unit == 0 ? "\\u00010" : "\\u00011", 7);
  }
  if (unit >= 0xD800 && unit <= 0xDBFF) {
    int32_t low = code_unit(scan, scan->at);
    if (low < 0xDC00 || low > 0xDFFF)
      return -1;
    scan->at += 6;
    *decoded += 4;
  } else {
    *decoded += unit < 0x80 ? 1 : unit < 0x800 ? 2 : 3;
  }
  return emit(scan, text, (size_t)(scan->at - text));
}

static int scan_escape(struct scan *scan, size_t *decoded) {
  if (scan->end - scan->at < 2)
    return -1;
  if (scan->at[1] == 'u')
    return scan_code_unit(scan, decoded);
  if (memchr("\"\\/bfnrt", scan->at[1], 8) == NULL)
    return -1;
  scan->at += 2;
  *decoded += 1;
  return emit(scan, scan->at - 2, 2);
}

/* The characters between the quotes. */
static int scan_characters(struct scan *scan, size_t *decoded) {
  *decoded = 0;
  for (;;) {
    const char *run = scan->at;
    while (scan->at < scan->end && (unsigned char)*scan->at >= 0x20 && *scan->at != '"' && *scan->at != '\\')
      scan->at++;
    *decoded += (size_t)(scan->at - run);
    if (emit(scan, run, (size_t)(scan->at - run)) != 0)
      return -1;
    if (peek(scan) == '"')
      return 0;
    if (peek(scan) != '\\' || scan_escape(scan, decoded) != 0)
      return -1;
  }
}

static int scan_string(struct scan *scan) {
  if (peek(scan) != '"')
    return -1;
  scan->at++;
  size_t place = scan->out->length + 1, decoded;
  if (emit(scan, "\"00000000", 1 + JSON_LENGTH_DIGITS) != 0 || scan_characters(scan, &decoded) != 0 ||
      decoded > UINT32_MAX)
    return -1;
  scan->at++;
  uint8_t big_endian[] = {(uint8_t)(decoded >> 24), (uint8_t)(decoded >> 16), (uint8_t)(decoded >> 8),
                          (uint8_t)decoded};
  char digits[JSON_LENGTH_DIGITS + 1];
  text_hex(big_endian, sizeof big_endian, digits);
  memcpy(scan->out->data + place, digits, JSON_LENGTH_DIGITS);
  return emit(scan, "\"", 1);
}

static int scan_value(struct scan *scan);

static int scan_member(struct scan *scan) {
  skip_white_space(scan);
  if (scan_string(scan) != 0)
    return -1;
  skip_white_space(scan);
  if (peek(scan) != ':')
    return -1;
  scan->at++;
  return emit(scan, ":", 1) == 0 ? scan_value(scan) : -1;
}

/* An object or array, behind its opening bracket. */
static int scan_elements(struct scan *scan, char closing, int (*scan_element)(struct scan *)) {
  skip_white_space(scan);
  if (peek(scan) == closing)
    return 0;
  for (;;) {
    if (scan_element(scan) != 0)
      return -1;
    skip_white_space(scan);
    if (peek(scan) == closing)
      return 0;
    if (peek(scan) != ',' || emit(scan, ",", 1) != 0)
      return -1;
    scan->at++;
  }
}

static int scan_container(struct scan *scan, char closing, int (*scan_element)(struct scan *)) {
  if (scan->depth == LIMIT_JSON_DEPTH) {
    scan->rule = "nested too deeply";
    return -1;
  }
  scan->depth++;
  if (emit(scan, scan->at++, 1) != 0 || scan_elements(scan, closing, scan_element) != 0)
    return -1;
  scan->depth--;
  scan->at++;
  return emit(scan, &closing, 1);
}

static int scan_value(struct scan *scan) {
  skip_white_space(scan);
  if (scan->values == scan->most_values) {
    scan->rule = "too many values";
    return -1;
  }
  scan->values++;
  switch (peek(scan)) {
  case '{':
    return scan_container(scan, '}', scan_member);
  case '[':
    return scan_container(scan, ']', scan_value);
  case '"':
    return scan_string(scan);
  case 't':
    return scan_literal(scan, "true");
  case 'f':
    return scan_literal(scan, "false");
  case 'n':
    return scan_literal(scan, "null");
  default:
    return scan_number(scan);
  }
}

static int refuse(const struct scan *scan, struct error **err) {
  if (scan->no_memory)
    return error_set_memory(err);
  size_t line = 1, column = 1;
  for (const char *at = scan->start; at < scan->at; at++) {
    column = *at == '\n' ? 1 : column + 1;
    line += *at == '\n';
  }
  return error_set_detail(err, REASON_INVALID_JSON, "%s at line %zu, column %zu", scan->rule, line, column);
}

int json_scan(const char *text, size_t length, size_t most_values, struct buffer *out, bool *marked,
              struct error **err) {
  struct scan scan = {.start = text,
                      .at = text,
                      .end = text + length,
                      .out = out,
                      .most_values = most_values,
                      .rule = "not valid JSON"};
  if (!text_valid(text, length))
    return error_set_detail(err, REASON_INVALID_JSON, "not valid UTF-8");
  if (scan_value(&scan) != 0)
    return refuse(&scan, err);
  skip_white_space(&scan);
  if (scan.at < scan.end)
    return refuse(&scan, err);
  *marked = scan.marked;
  return 0;
}
