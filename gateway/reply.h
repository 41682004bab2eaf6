/*
 * The heads of the gateway's answers, and its error bodies. No I/O. Thread: any.
 */
#ifndef GATEWAY_REPLY_H
#define GATEWAY_REPLY_H

#include "base/buffer.h"
#include "base/error.h"
#include "gateway/http_head.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum reply_content { REPLY_EMPTY, REPLY_JSON, REPLY_OCTETS };

enum reply_connection {
  REPLY_CONNECTION_DEFAULT, /* HTTP/1.1 goes on: nothing to say */
  REPLY_CONNECTION_KEEP,    /* an HTTP/1.0 client asked for it */
  REPLY_CONNECTION_CLOSE
};

/* What goes into a head. Texts may be NULL: no such header. */
struct reply {
  int status; /* 200 to 599 */
  enum reply_content content;
  uint64_t content_length; /* unless the content is REPLY_EMPTY */
  enum reply_connection connection;
  const char *date;              /* IMF-fixdate */
  struct http_text request_id;
  const char *allow;             /* 405 */
  const char *content_digest;    /* the value */
  unsigned retry_after_seconds;  /* 0: no such header */
};

enum { REPLY_HEAD_BYTES = 768 }; /* the longest head is shorter */

/* Writes the head and its blank line; returns its length. */
size_t reply_head(const struct reply *reply, char head[static REPLY_HEAD_BYTES]);

/* Appends {"error":{"code":…,"message":…,"requestId":…}}. 0, or -1 without memory. */
int reply_error_body(struct buffer *out, const struct error *err, struct http_text request_id);
/* What Retry-After is for this error, in seconds, at least 1; 0: none. */
unsigned reply_retry_after(const struct error *err);

/* "Sun, 06 Nov 1994 08:49:37 GMT" for a wall time in seconds. */
#define REPLY_DATE_BYTES 30
void reply_date(int64_t seconds, char text[static REPLY_DATE_BYTES]);

#endif
