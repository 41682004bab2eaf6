/*
 * A WebSocket client (RFC 6455) over TLS or plain TCP on libuv: one connection, opened with one request, that carries
 * messages both ways until it breaks or is closed. The server's certificate is verified always. Nothing a server sends
 * is held in memory but what is named here: messages are given as they come, in parts.
 *
 * The process must ignore SIGPIPE. Thread: the loop's. No callback comes from within a function of this header. Within
 * a callback everything is allowed, websocket_close included.
 */
#ifndef BACKEND_WEBSOCKET_WEBSOCKET_H
#define BACKEND_WEBSOCKET_WEBSOCKET_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/* Where the server is and how it and we prove who we are. Strings are valid for the call that takes them. */
struct websocket_endpoint {
  const char *host; /* a name or an address, without brackets */
  uint16_t port;
  bool plain;                     /* no TLS */
  const char *server_name;        /* that the certificate must have; NULL: host */
  const char *authorities;        /* PEM; NULL: those of the system */
  const char *certificate, *key;  /* PEM of ours, with its chain; both or neither (NULL) */
  const char *bearer;             /* NULL: none */
};

struct websocket_request {
  const struct websocket_endpoint *endpoint;
  const char *target;   /* path and query, as they stand on the request line */
  const char *protocol; /* the subprotocol, which the server must take */
  int64_t timeout;      /* nanoseconds until the connection must be open */
  int64_t silence;      /* so long without a word from the server: then a ping, and as long for its answer; 0: 20 s */
};

/* The server answered the request with something else than "Switching Protocols". */
struct websocket_refusal {
  int status;            /* 100 to 599 */
  unsigned retry_after;  /* milliseconds, 0: not said; at most an hour */
  const char *body;      /* at most 4 KiB of it, a NUL behind; "" if its length was not told. Hostile text */
  size_t body_length;
};

struct websocket_events {
  void (*opened)(void *context);
  /* Part of a message: `first` begins one, `last` ends it; a part may be empty. */
  void (*received)(void *context, const uint8_t *bytes, size_t length, bool first, bool last);
  /* Everything sent so far has been handed to the system, after it was not. */
  void (*drained)(void *context);
  /* The last event is one of these two; what they are given is freed by the websocket. REASON_SANDBOX_NOT_READY: it
   * could not be reached, broke, was closed by the server, or broke the protocol. REASON_INTERNAL: no memory, or
   * credentials that cannot be used. */
  void (*refused)(void *context, const struct websocket_refusal *refusal);
  void (*lost)(void *context, struct error *err);
  void *context;
};

struct websocket;

/* Begins to open one. NULL without memory. */
struct websocket *websocket_open(uv_loop_t *loop, const struct websocket_request *request,
                                 const struct websocket_events *events);
/* One binary message: `head` and then `bytes`; copied. Returns 0, or -1 when it is not open or more than
 * WEBSOCKET_QUEUE_BYTES would be waiting (`lost` follows, unless it is not open). */
#define WEBSOCKET_QUEUE_BYTES (8 * 1024 * 1024)
int websocket_send(struct websocket *websocket, uint8_t head, const uint8_t *bytes, size_t length);
/* Bytes not yet handed to the system. */
size_t websocket_queued(const struct websocket *websocket);
/* Stops and resumes reading. */
void websocket_pause(struct websocket *websocket, bool paused);
/* Says goodbye if that goes at once, and frees. No event follows. Also to be called after the last event. */
void websocket_close(struct websocket *websocket);

#endif
