/*
 * The head of one HTTP/1 request: request line and header fields. Whatever two readers could understand differently is
 * refused here, so that no proxy before the gateway and the gateway can disagree on where a request ends. No I/O.
 * Thread: any.
 */
#ifndef GATEWAY_HTTP_HEAD_H
#define GATEWAY_HTTP_HEAD_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that belong to somebody else; no NUL behind them. data NULL: absent. */
struct http_text {
  const char *data;
  size_t length;
};

#define HTTP_TEXT(literal) ((struct http_text){.data = (literal), .length = sizeof(literal) - 1})

bool http_text_is(struct http_text text, struct http_text other);
/* ASCII letters in either case. */
bool http_text_is_any_case(struct http_text text, struct http_text other);

/* The fields that somebody asks for later. */
enum http_field {
  HTTP_AUTHORIZATION,
  HTTP_CONTENT_DIGEST,
  HTTP_CONTENT_TYPE,
  HTTP_IDEMPOTENCY_KEY,
  HTTP_REQUEST_ID,
  HTTP_FIELD_COUNT
};

struct http_head {
  struct http_text method;
  struct http_text target;
  /* Without the white space around the value. A field that came twice reads as one that came with `repeated` set. */
  struct http_text fields[HTTP_FIELD_COUNT];
  bool repeated[HTTP_FIELD_COUNT];
  int minor_version;   /* of HTTP/1: 0 or 1 */
  bool keep_alive;     /* the client allows another request on this connection */
  bool expects_continue;
  bool chunked;        /* the body's framing; never both */
  bool has_length;
  uint64_t content_length; /* UINT64_MAX also stands for anything larger */
};

enum http_head_result { HTTP_HEAD_PARTIAL, HTTP_HEAD_WHOLE, HTTP_HEAD_REFUSED };

/* Reads a head from the front of `bytes`. seen: how many of them an earlier call that returned HTTP_HEAD_PARTIAL was
 * given. Whole: *used is the head's length and `head` points into `bytes`. Refused: *err says why; the
 * connection cannot go on. */
enum http_head_result http_head_read(const char *bytes, size_t length, size_t seen, struct http_head *head, size_t *used,
                                     struct error **err);

/* Makes a head that points into `from` point into `to`, a copy of the same bytes. */
void http_head_move(struct http_head *head, const char *from, const char *to);

#endif
