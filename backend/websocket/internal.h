/*
 * The inside of a websocket. connect.c makes the TCP connection; websocket.c moves bytes between it, TLS, the handshake
 * and the frames, and tells its user. Thread: the loop's.
 */
#ifndef BACKEND_WEBSOCKET_INTERNAL_H
#define BACKEND_WEBSOCKET_INTERNAL_H

#include "backend/websocket/frames.h"
#include "backend/websocket/handshake.h"
#include "backend/websocket/tls.h"
#include "backend/websocket/websocket.h"

enum websocket_state {
  WEBSOCKET_CONNECTING,
  WEBSOCKET_SECURING, /* TLS's handshake */
  WEBSOCKET_ASKING,   /* ours */
  WEBSOCKET_OPEN,
  WEBSOCKET_OVER,     /* its last event was told */
  WEBSOCKET_CLOSED,
};

struct websocket {
  uv_loop_t *loop;
  struct websocket_events events;
  enum websocket_state state;

  uv_tcp_t tcp;
  uv_timer_t timer; /* for the opening, then for pings; at once, when there is a failure to tell */
  int handles;      /* of libuv, still open */
  uv_connect_t connect;
  uv_getaddrinfo_t resolve;
  bool resolving;
  uint16_t port;
  struct addrinfo *addresses, *address; /* all, and the one that is being tried */

  struct tls *tls; /* NULL: plain */
  struct handshake handshake;
  struct frames *frames;
  struct buffer plain;   /* to be encrypted */
  struct buffer outward; /* to be written */
  size_t writing;        /* bytes that libuv writes now */
  bool blocked;          /* `drained` is awaited */
  bool paused, reading;

  bool part_first;    /* the next part begins a message */
  size_t part_length; /* gathered for the next part */

  uint64_t silence;  /* milliseconds */
  uint64_t heard_at; /* on the loop's clock */
  bool pinged;
  struct error *failure; /* to be told by the timer */
};

/* connect.c: websocket_connected follows, never from within. */
void connect_start(struct websocket *websocket, const char *host);
void connect_stop(struct websocket *websocket); /* before the handles are closed */
void connect_free(struct websocket *websocket);

/* websocket.c. status: 0, or an error of libuv. */
void websocket_connected(struct websocket *websocket, int status);
/* A handle of libuv was closed, or another reason to stay is gone. */
void websocket_release(struct websocket *websocket);

#endif
