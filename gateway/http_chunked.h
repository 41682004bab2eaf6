/*
 * The decoder of `Transfer-Encoding: chunked`. It copies nothing: the caller gets the pieces of the body as they lie in
 * the bytes it received. Strict: CR LF alone ends a line, extensions and trailers are skipped but bounded. No I/O.
 * Thread: any.
 */
#ifndef GATEWAY_HTTP_CHUNKED_H
#define GATEWAY_HTTP_CHUNKED_H

#include "gateway/http_head.h"
#include <stddef.h>
#include <stdint.h>

/* All zero at the start of a body. */
struct http_chunked {
  int state;
  int digits;       /* of the size line, so far */
  uint64_t left;    /* of the chunk */
  size_t skipped;   /* bytes of extensions and trailers, so far */
  size_t line;      /* bytes of the trailer line, so far */
};

enum http_chunked_result {
  HTTP_CHUNKED_MORE, /* everything was used; the body goes on */
  HTTP_CHUNKED_DATA, /* *data is a piece of the body; call again with what is left */
  HTTP_CHUNKED_END,  /* the body is whole; what is left belongs to the next request */
  HTTP_CHUNKED_MALFORMED
};

/* *used: how many bytes were taken from the front. */
enum http_chunked_result http_chunked_read(struct http_chunked *chunked, const char *bytes, size_t length, size_t *used,
                                           struct http_text *data);

#endif
