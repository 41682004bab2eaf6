/*
 * The other side of a websocket for tests: a server on a loopback port and in the loop of the test, with TLS or
 * without, whose answers a test chooses. Its frames are made by wslay's own event interface.
 */
#ifndef TESTS_UNIT_WEBSOCKET_SERVER_DOUBLE_H
#define TESTS_UNIT_WEBSOCKET_SERVER_DOUBLE_H

#include "base/buffer.h"
#include "tests/unit/websocket/certificates.h"
#include <openssl/ssl.h>
#include <stdbool.h>
#include <uv.h>
#include <wslay/wslay.h>

struct server_double {
  uv_tcp_t listener, peer;
  bool has_peer;
  int port;
  SSL_CTX *settings; /* NULL: plain */
  SSL *ssl;
  struct buffer request; /* the head of the request */
  bool asked;
  wslay_event_context_ptr frames;
  struct buffer input; /* plain bytes for the frames */
  size_t taken;        /* message bytes that came */

  /* What a test chooses. */
  const char *answer; /* instead of switching protocols; '@' is the right Sec-WebSocket-Accept */
  bool silent;        /* never answers the request */
  bool deaf;          /* answers no frame, pings included */
  bool echo;
  void (*opened)(struct server_double *server); /* right behind the answer */
  void (*message)(struct server_double *server, const uint8_t *bytes, size_t length);
  void *context; /* the test's */
};

/* authority NULL: no certificate is asked of the client; identity NULL: plain. */
void server_double_start(struct server_double *server, uv_loop_t *loop, const struct identity *identity,
                         const struct identity *authority);
void server_double_send(struct server_double *server, const void *bytes, size_t length);
/* A goodbye, whose code is the server's choice. */
void server_double_bye(struct server_double *server, unsigned code);
/* Bytes as they are, over TLS if there is. */
void server_double_write(struct server_double *server, const void *bytes, size_t length);
void server_double_cut(struct server_double *server);
void server_double_stop(struct server_double *server);

#endif
