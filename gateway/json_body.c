#include "gateway/json_body.h"

#include "base/json.h"
#include "base/text.h"

#include <string.h>

enum { MINIMUM = 4 }; /* bytes of the longest character */

void json_body_add(struct json_body *body, enum json_body_coding coding, const void *bytes, size_t length) {
  if (length == 0)
    return;
  body->parts[body->count].text = (struct http_text){.data = bytes, .length = length};
  body->parts[body->count++].coding = coding;
}

void json_body_add_text(struct json_body *body, const char *json) {
  json_body_add(body, JSON_BODY_RAW, json, strlen(json));
}

size_t json_body_size(const struct json_body *body) {
  size_t size = 0;
  for (size_t i = 0; i < body->count; i++)
    size += body->parts[i].text.length;
  return size;
}

void json_body_rewind(struct json_body *body) { body->part = body->at = 0; }

static bool goes_on(char byte) { return ((unsigned char)byte & 0xc0) == 0x80; }

/* How much to take so that no character is cut: up to a byte that begins one, at most three back. Behind more bytes that only
 * go on, none of them belongs to a character any more. */
static size_t cut_text(struct http_text text, size_t at, size_t length) {
  if (length >= text.length - at)
    return text.length - at;
  for (size_t back = 0; back <= 3; back++)
    if (!goes_on(text.data[at + length - back]))
      return length - back;
  return length;
}

/* Whole groups, so that padding comes at the end alone. */
static size_t cut_base64(struct http_text text, size_t at, size_t length) {
  size_t left = text.length - at;
  return length >= left ? left : length - length % 3;
}

static int write_piece(struct json_body *body, size_t length, struct buffer *out, size_t *piece) {
  struct http_text text = body->parts[body->part].text;
  const char *bytes = text.data + body->at;
  switch (body->parts[body->part].coding) {
  case JSON_BODY_ESCAPE:
    *piece = cut_text(text, body->at, length);
    return json_write_escaped(out, bytes, *piece);
  case JSON_BODY_BASE64:
    *piece = cut_base64(text, body->at, length);
    return text_base64(out, bytes, *piece);
  case JSON_BODY_RAW:
    break;
  }
  *piece = text.length - body->at;
  return buffer_append(out, bytes, *piece);
}

int json_body_next(struct json_body *body, size_t length, struct buffer *out) {
  while (body->part < body->count && length > 0) {
    size_t piece;
    if (write_piece(body, length < MINIMUM ? MINIMUM : length, out, &piece) < 0)
      return -1;
    body->at += piece;
    length -= piece < length ? piece : length;
    if (body->at == body->parts[body->part].text.length) {
      body->part++;
      body->at = 0;
    }
  }
  return body->part < body->count;
}
