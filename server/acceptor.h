/*
 * The gRPC server: its completion queues and their threads, the addresses it listens on, and the calls it accepts for
 * the services it was given. What becomes of a call then is server/call.h's matter.
 *
 * Thread: the loop's.
 */
#ifndef SERVER_ACCEPTOR_H
#define SERVER_ACCEPTOR_H

#include "base/error.h"
#include "base/identity.h"
#include "server/call.h"
#include "server/certificates.h"
#include <grpc/grpc.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct acceptor;

/* The methods of one service, and what their handlers get as `context`. */
struct acceptor_service {
  const struct call_method *methods;
  size_t count;
  void *context;
};

struct acceptor_options {
  uv_loop_t *loop;
  const struct key_ring *ring; /* for authenticated methods; the caller's */
  const struct acceptor_service *services;
  size_t service_count;
  unsigned threads; /* completion queues, each with a thread of its own; 1 to ACCEPTOR_THREADS_MAX */
};

#define ACCEPTOR_THREADS_MAX 16

/* grpc_init must have been called. NULL and *err. */
struct acceptor *acceptor_new(const struct acceptor_options *options, struct error **err);
/* Before acceptor_start. "unix:/path"; who may connect may do what gRPC's library does not limit. */
int acceptor_listen_unix(struct acceptor *acceptor, const char *address, struct error **err);
/* Before acceptor_start. "host:port"; port 0 takes a free one, *port is then which. certificates NULL: no TLS; else
 * they must outlive the acceptor. */
int acceptor_listen_tcp(struct acceptor *acceptor, const char *address, struct certificates *certificates, int *port,
                        struct error **err);
/* Begins to accept calls. */
int acceptor_start(struct acceptor *acceptor, struct error **err);

/* Once, after acceptor_start: takes no further connection and no further call. What runs gets `grace` milliseconds to
 * end by itself; then every handler is told that its call is cancelled; a second later whoever still reads no answer is
 * cut off. `done` comes on the loop, once every call has been answered and has ended: handlers that never answer hold
 * it up. */
void acceptor_stop(struct acceptor *acceptor, uint64_t grace, void (*done)(void *context), void *context);
/* After `done` (or inside it), or if it was never started. Its memory goes when the loop has run once more. */
void acceptor_free(struct acceptor *acceptor);

#endif
