/*
 * What a front is made of: the seam between its thread and sockets (front.c) and one connection (front_connection.c).
 * Thread: the front's own.
 */
#ifndef SERVER_FRONT_STATE_H
#define SERVER_FRONT_STATE_H

#include "base/buffer.h"
#include "server/front.h"
#include "server/guard.h"

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdbool.h>
#include <uv.h>

enum { FRONT_AREA_BYTES = 65536, FRONT_LISTENERS_MAX = 32 };

struct front_listener {
  struct front *front;
  struct certificates *certificates;
  int fd;
  uv_poll_t poll;
};

struct front {
  grpc_server *server;
  uv_loop_t loop;
  pthread_t thread;
  bool is_running;
  uv_async_t ending;    /* front_free asks for the end */
  uv_timer_t pause;     /* until descriptors may be free again; while ending: until connections are cut */
  struct front_listener listeners[FRONT_LISTENERS_MAX];
  size_t listener_count;
  struct guard_budget resets; /* of all connections */
  struct front_connection *connections; /* doubly linked */
  size_t connection_count, connections_max;
  bool is_ending;
  pthread_mutex_t mutex;
  bool is_refusing; /* under the mutex, which is held while a connection is handed to gRPC */
  uint8_t area[FRONT_AREA_BYTES]; /* what is read goes through here */
};

/* Takes fd over. Without memory the connection is closed. */
void front_connection_open(struct front_listener *listener, int fd);
/* The connection is being closed; it goes when the loop has run. */
void front_connection_close(struct front_connection *connection);
struct front_connection *front_connection_next(const struct front_connection *connection);
/* A connection that gRPC does not hold any more, or never did, and that has nothing to write. */
bool front_connection_idle(const struct front_connection *connection);
/* The last connection has gone: called by the connections. */
void front_connection_gone(struct front *front);

#endif
