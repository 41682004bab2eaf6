/*
 * Calling a gRPC server: one kind of call for unary and streaming methods. lease-gateway, leasectl and tools/bench use it.
 *
 * Every callback of a call comes on the thread that runs the client's completion queue, one at a time. Functions may
 * be called from any thread until rpc_client_call_release.
 */
#ifndef RPC_CLIENT_H
#define RPC_CLIENT_H

#include "base/error.h"
#include "rpc/message.h"
#include "rpc/queue.h"
#include <grpc/grpc.h>
#include <stdbool.h>
#include <stdint.h>

struct rpc_client_options {
  const char *address; /* "unix:/path" or "host:port" */
  /* PEM texts. ca NULL: no TLS. certificate and key: both or neither (mutual TLS). */
  const char *ca, *certificate, *key;
  const char *authority; /* overrides the name the certificate is checked against; NULL: the address */
};

struct rpc_client;

/* Connects lazily and again by itself. Messages up to 64 MiB are received. `queue` is the caller's. NULL and *err. */
struct rpc_client *rpc_client_new(const struct rpc_client_options *options, grpc_completion_queue *queue, struct error **err);
void rpc_client_free(struct rpc_client *client); /* after all its calls were released and have ended */

struct rpc_client_call;

struct rpc_client_events {
  /* One message, asked for by rpc_client_receive; NULL: there are no more. The buffer belongs to the callback's caller. */
  void (*message)(void *context, grpc_byte_buffer *message);
  /* The write asked for by rpc_client_send is done (ok) or will never be. May be NULL for unary calls. */
  void (*sent)(void *context, bool ok);
  /* The last callback, once; no message or sent callback is outstanding. err is NULL on success, else freed after it
   * returns. */
  void (*ended)(void *context, struct error *err);
};

/* method "/package.Service/Method", static. authorization: the whole metadata value, or NULL. deadline_ms 0: none.
 * request: the first message, may be NULL for client streams; taken over either way. half_close: no further message
 * will be sent (unary and server-streaming). NULL and *err if the call cannot be started. */
struct rpc_client_call *rpc_client_start(struct rpc_client *client, const char *method, const char *authorization,
                                         size_t authorization_length, int64_t deadline_ms, grpc_byte_buffer *request,
                                         bool half_close, const struct rpc_client_events *events, void *context,
                                         struct error **err);
/* Unary: one call in one batch; `message` (unless it failed) and then `ended` are called. */
struct rpc_client_call *rpc_client_unary(struct rpc_client *client, const char *method, const char *authorization,
                                         size_t authorization_length, int64_t deadline_ms, grpc_byte_buffer *request,
                                         const struct rpc_client_events *events, void *context, struct error **err);
/* Asks for the next message; one at a time. */
void rpc_client_receive(struct rpc_client_call *call);
/* Sends one message (taken over), one at a time. */
void rpc_client_send(struct rpc_client_call *call, grpc_byte_buffer *message);
void rpc_client_half_close(struct rpc_client_call *call); /* not while a send is outstanding */
/* Idempotent; `ended` follows soon with REASON_ABORTED. */
void rpc_client_cancel(struct rpc_client_call *call);
/* Gives up the caller's reference, once; callbacks still to come do come. */
void rpc_client_call_release(struct rpc_client_call *call);

#endif
