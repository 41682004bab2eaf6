/*
 * What differs from route to route. A handler is a static table of functions; gateway/exchange.h says what they may call.
 * Thread: the loop's.
 */
#ifndef GATEWAY_HANDLER_H
#define GATEWAY_HANDLER_H

#include "base/error.h"
#include "base/json.h"
#include "gateway/connection.h"

#include <grpc/grpc.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

struct exchange;

enum handler_body {
  HANDLER_BODY_IGNORED,
  HANDLER_BODY_JSON,    /* one JSON object of at most LIMIT_JSON_BODY_BYTES, read whole before `start` */
  HANDLER_BODY_STREAMED /* handed to `body` as it comes, after `start` */
};

struct handler {
  bool open; /* needs no token */
  enum handler_body body;
  /* Looks at head and target before any body is read. 0, or -1 and *err: the request is refused. May be NULL. */
  int (*check)(struct exchange *exchange, struct error **err);
  /* Starts the RPC. json: the body of HANDLER_BODY_JSON, valid during the call. 0, or -1 and *err: refused. */
  int (*start)(struct exchange *exchange, const struct json *json, struct error **err);
  /* Answers with the reply of a unary call. */
  void (*answer)(struct exchange *exchange, const ProtobufCMessage *reply);
  /* Answers a failed call; NULL: with its error. */
  void (*failed)(struct exchange *exchange, const struct error *err);

  /* Streams. The buffer is the exchange's; NULL: there are no more messages. */
  void (*message)(struct exchange *exchange, grpc_byte_buffer *message);
  void (*sent)(struct exchange *exchange, bool ok);
  void (*ended)(struct exchange *exchange, const struct error *err); /* NULL: success */
  /* HANDLER_BODY_STREAMED. */
  void (*streamed)(struct exchange *exchange, const char *bytes, size_t length);
  void (*stream_ended)(struct exchange *exchange, enum connection_body how);
  /* What exchange_reply_file or exchange_write was given, not as the last, is written. */
  void (*drained)(struct exchange *exchange);
  /* Releases what exchange->state points to; the block itself is freed by the exchange. May be NULL. */
  void (*close)(struct exchange *exchange);
};

#endif
