/*
 * What a call is made of: the seam inside the gRPC plumbing, between the acceptor, which brings calls in
 * (call_intake.c), and the side of the handlers (call.c). Handlers see server/call.h alone.
 *
 * A call begins on a completion-queue thread and belongs to it until it is answered there, which ends it, or handed to
 * the loop; then it is the loop's until answered. References keep it in memory: one until it is answered and that answer is
 * out, one for every other tag under way, one for every inbox item posted.
 */
#ifndef SERVER_CALL_STATE_H
#define SERVER_CALL_STATE_H

#include "base/identity.h"
#include "rpc/queue.h"
#include "server/call.h"
#include "server/inbox.h"
#include <grpc/grpc.h>
#include <stdatomic.h>
#include <stdbool.h>

/* A method, and the context of its handler. */
struct call_route {
  size_t path_length;
  const struct call_method *method;
  void *context;
};

/* What all calls of a server share; only read once calls are accepted, except for the loop's part. */
struct call_shared {
  struct inbox *inbox;
  const struct key_ring *ring;
  struct call_route *routes;
  size_t route_count;
  /* Calls in memory, and one for the server as long as it may bring more: gRPC calls itself drained when connections are
   * gone, though handlers may not have answered yet. Whoever takes the last posts `ended`; while the server stops, who
   * first leaves it alone posts `alone`. */
  atomic_uint open;
  atomic_bool waits_to_be_alone;
  struct inbox_item ended, alone;
  struct call *live;  /* loop: with a handler, not answered; doubly linked */
  bool is_cancelling; /* loop: no handler sees a call any more */
};

struct call {
  atomic_uint references;
  struct call_shared *shared;
  const struct call_route *route;

  grpc_call *rpc;
  grpc_call_details details;
  grpc_metadata_array metadata;
  grpc_byte_buffer *incoming; /* written by gRPC while `received` is under way */
  int cancelled;              /* written by gRPC while `closed` is under way */

  struct rpc_tag accepted, closed, received, sent, answered;
  struct inbox_item incoming_item, sent_item, closed_item, watch_item;
  void *acceptor_queue; /* the acceptor's */

  ProtobufCMessage *request;
  struct identity identity;

  atomic_bool wants_closed; /* `closed` is to be told of an orderly end, too */

  /* Loop */
  const struct call_events *events;
  void *events_context;
  struct call *previous, *next;
  bool is_cancelled, cancel_told, is_watched, is_answered;
  bool headers_sent;
};

/* Takes one from `open`. Any thread. */
void call_shared_leave(struct call_shared *shared);

void call_ref(struct call *call);
void call_unref(struct call *call);

/* Queue thread: a call was accepted. Takes over the reference that stands for the answer. */
void call_begin(struct call *call);

/* On the thread the call belongs to: sends the answer, and gives back the reference that stood for it. `reply` (taken over)
 * may be NULL. `err` counts unless `code` is OK. */
void call_end(struct call *call, grpc_byte_buffer *reply, grpc_status_code code, const struct error *err);

/* Loop: the request is there and right, or the client has gone meanwhile. */
void call_dispatch(struct inbox_item *item);
/* Loop: the call is over, by the client's going (`cancelled`) or with the answer. */
void call_closed(struct inbox_item *item);
/* Loop, as call_fail, with another status code than the reason's, for protocols that ask for one. */
void call_fail_as(struct call *call, grpc_status_code code, struct error *err);

/* Loop: tells the handler, if it has not answered and was not told. */
void call_tell_cancelled(struct call *call);

#endif
