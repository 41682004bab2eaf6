/*
 * What a call is made of: the seam inside the gRPC plumbing, between the acceptor, which brings calls in
 * (call_intake.c), the side of the handlers (call.c), and the batches started for them (call_batch.c). Handlers see
 * server/call.h alone.
 *
 * A call begins on a completion-queue thread and belongs to it until it is answered there, which ends it, or handed to
 * the loop; then it is the loop's until answered. Only the queue thread starts batches, also for the loop, which posts
 * what it wants to the queue's outbox: gRPC hands the work of a connection that two threads want at once to a third,
 * and that costs more than the way through the outbox, where one wake-up serves many calls.
 *
 * References keep a call in memory: one until it is answered and that answer is out, one for every other tag under way,
 * one for every item posted.
 */
#ifndef SERVER_CALL_STATE_H
#define SERVER_CALL_STATE_H

#include "base/identity.h"
#include "rpc/queue.h"
#include "server/call.h"
#include "server/mailbox.h"
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
  /* Calls in memory, and one for the server as long as it may bring more: gRPC calls itself drained when connections
   * are gone, though handlers may not have answered yet. Whoever takes the last posts `ended`; while the server stops,
   * who first leaves it alone posts `alone`. */
  atomic_uint open;
  atomic_bool waits_to_be_alone;
  struct mailbox_item ended, alone;
  struct call *live;  /* loop: with a handler, not answered; doubly linked */
  bool is_cancelling; /* loop: no handler sees a call any more */
};

/* What the loop wants a queue thread to do; one for each completion queue. */
struct call_outbox {
  struct mailbox mailbox;
  struct rpc_tag wake;
  struct call *first; /* loop: put into the empty mailbox, and the queue thread not woken yet; holds a reference */
};

struct call {
  atomic_uint references;
  struct call_shared *shared;
  struct call_outbox *outbox;
  const struct call_route *route;

  grpc_call *rpc;
  grpc_call_details details;
  grpc_metadata_array metadata;
  struct rpc_tag accepted, closed, received, sent, answered;
  ProtobufCMessage *request;
  struct identity identity;

  /* Handed over with a tag or an item, and whoever got that may use them. */
  int cancelled;              /* with `closed` */
  grpc_byte_buffer *incoming; /* with `received` */
  grpc_byte_buffer *outgoing; /* with `send_wish` */
  grpc_byte_buffer *reply;    /* with `answer_wish`, as the next two */
  grpc_status_code code;
  struct error *err;

  /* To the loop, and to the queue thread. */
  struct mailbox_item incoming_item, sent_item, closed_item, watch_item;
  struct mailbox_item receive_wish, send_wish, answer_wish;

  /* Queue thread */
  bool headers_sent;

  atomic_bool wants_closed; /* `closed` is to be told of an orderly end, too */

  /* Loop */
  const struct call_events *events;
  void *events_context;
  struct call *previous, *next;
  bool is_cancelled, cancel_told, is_watched, is_answered;
};

/* Takes one from `open`. Any thread. */
void call_shared_leave(struct call_shared *shared);

void call_ref(struct call *call);
void call_unref(struct call *call);

/* Queue thread: a call was accepted. Takes over the reference that stands for the answer. */
void call_begin(struct call *call);

/* Queue thread. Sends the answer, and gives back the reference that stood for it. `reply` (taken over) may be NULL.
 * `err` counts unless `code` is OK. */
void call_end(struct call *call, grpc_byte_buffer *reply, grpc_status_code code, const struct error *err);

/* The same, and the two ways of a stream, for the loop: each is done on the queue thread, soon after call_outbox_send.
 * The fields named with the wish are set before. */
void call_outbox_init(struct call_outbox *outbox);
/* Loop: wakes the queue thread if there is anything for it. Before the loop sleeps, not for every wish: each wake-up
 * costs as much as a few answers. */
void call_outbox_send(struct call_outbox *outbox);
void call_wish_answer(struct call *call);
void call_wish_send(struct call *call);
void call_wish_receive(struct call *call);

/* Loop: the request is there and right, or the client has gone meanwhile. */
void call_dispatch(struct mailbox_item *item);
/* Loop: the call is over, by the client's going (`cancelled`) or with the answer. */
void call_closed(struct mailbox_item *item);
/* Loop: a message of a stream has come; one has left. */
void call_incoming(struct mailbox_item *item);
void call_sent(struct mailbox_item *item);

/* Loop, as call_fail, with another status code than the reason's, for protocols that ask for one. */
void call_fail_as(struct call *call, grpc_status_code code, struct error *err);

/* Loop: tells the handler, if it has not answered and was not told. */
void call_tell_cancelled(struct call *call);

#endif
