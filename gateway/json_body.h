/*
 * A JSON body made of fixed parts and long strings, written piece by piece: command output and file contents are
 * megabytes, and a character can take six bytes as JSON. No I/O. Thread: one owner at a time.
 */
#ifndef GATEWAY_JSON_BODY_H
#define GATEWAY_JSON_BODY_H

#include "base/buffer.h"
#include "gateway/http_head.h"
#include <stdbool.h>
#include <stddef.h>

enum { JSON_BODY_PARTS = 5 };

/* All zero at first. */
struct json_body {
  struct {
    struct http_text text;
    enum json_body_coding { JSON_BODY_RAW, JSON_BODY_ESCAPE, JSON_BODY_BASE64 } coding;
  } parts[JSON_BODY_PARTS];
  size_t count;
  size_t part, at; /* what is written next */
};

/* Adds a part, at most JSON_BODY_PARTS; the bytes stay the caller's. Raw is JSON already; the others become the inside of a
 * string, without quotes. */
void json_body_add(struct json_body *body, enum json_body_coding coding, const void *bytes, size_t length);
void json_body_add_text(struct json_body *body, const char *json);
/* Bytes before coding, of all parts. */
size_t json_body_size(const struct json_body *body);
void json_body_rewind(struct json_body *body);

/* Appends what the next bytes, about `length` of them, are as JSON. Returns 1 if there is more, 0 at the end, or -1 without
 * memory. */
int json_body_next(struct json_body *body, size_t length, struct buffer *out);

#endif
