/*
 * The side of a call that handlers see, all of it on the loop: dispatch, answers, messages of a stream, and what a
 * handler is told.
 */
#include "server/call.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "rpc/message.h"
#include "server/call_state.h"

#include <grpc/byte_buffer.h>
#include <grpc/support/time.h>

/* Life */

void call_shared_leave(struct call_shared *shared) {
  unsigned before = atomic_fetch_sub_explicit(&shared->open, 1, memory_order_acq_rel);
  if (before == 2 && atomic_exchange(&shared->waits_to_be_alone, false))
    inbox_post(shared->inbox, &shared->alone);
  else if (before == 1)
    inbox_post(shared->inbox, &shared->ended);
}

void call_ref(struct call *call) { atomic_fetch_add_explicit(&call->references, 1, memory_order_relaxed); }

void call_unref(struct call *call) {
  if (atomic_fetch_sub_explicit(&call->references, 1, memory_order_acq_rel) != 1)
    return;
  if (call->rpc)
    grpc_call_unref(call->rpc);
  grpc_call_details_destroy(&call->details);
  grpc_metadata_array_destroy(&call->metadata);
  if (call->incoming)
    grpc_byte_buffer_destroy(call->incoming);
  if (call->request)
    protobuf_c_message_free_unpacked(call->request, NULL);
  struct call_shared *shared = call->shared;
  memory_free(call);
  call_shared_leave(shared);
}

static void live_add(struct call *call) {
  struct call_shared *shared = call->shared;
  call->next = shared->live;
  if (call->next)
    call->next->previous = call;
  shared->live = call;
}

static void live_remove(struct call *call) {
  if (call->previous)
    call->previous->next = call->next;
  else
    call->shared->live = call->next;
  if (call->next)
    call->next->previous = call->previous;
}

/* Answers */

/* Takes over reply and err. From here on the call is no longer the handler's. */
static void answer(struct call *call, grpc_byte_buffer *reply, grpc_status_code code, struct error *err) {
  live_remove(call);
  call->is_answered = true;
  call->reply = reply;
  call->code = code;
  call->err = err;
  call_wish_answer(call);
}

void call_reply_buffer(struct call *call, grpc_byte_buffer *reply) { answer(call, reply, GRPC_STATUS_OK, NULL); }

void call_reply(struct call *call, const ProtobufCMessage *reply) {
  grpc_byte_buffer *bytes = rpc_pack(reply);
  if (bytes) {
    answer(call, bytes, GRPC_STATUS_OK, NULL);
    return;
  }
  struct error *err = NULL;
  error_set_memory(&err);
  call_fail(call, err);
}

void call_finish(struct call *call) { answer(call, NULL, GRPC_STATUS_OK, NULL); }

void call_fail_as(struct call *call, grpc_status_code code, struct error *err) {
  enum log_level level = error_reason(err) == REASON_INTERNAL ? LOG_ERROR : LOG_DEBUG;
  log_write(level, "call_failed", LOG_TEXT("method", call->route->method->path), LOG_REASON(err), LOG_DETAIL(err));
  answer(call, NULL, code, err);
}

void call_fail(struct call *call, struct error *err) {
  call_fail_as(call, (grpc_status_code)reason_grpc_code(error_reason(err)), err);
}

/* What a handler asks */

const struct identity *call_identity(const struct call *call) { return &call->identity; }

int64_t call_deadline(const struct call *call) {
  gpr_timespec deadline = call->details.deadline;
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0)
    return INT64_MAX;
  gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  if (left.tv_sec > INT64_MAX / CLOCK_SECOND / 2)
    return INT64_MAX;
  return clock_boot() + left.tv_sec * CLOCK_SECOND + left.tv_nsec;
}

void call_send(struct call *call, grpc_byte_buffer *message) {
  call->outgoing = message;
  call_wish_send(call);
}

void call_receive(struct call *call) { call_wish_receive(call); }

/* What a handler is told */

void call_tell_cancelled(struct call *call) {
  call->is_cancelled = true;
  if (call->is_answered || call->cancel_told || !call->events)
    return;
  call->cancel_told = true;
  call->events->cancelled(call->events_context);
}

void call_closed(struct mailbox_item *item) {
  struct call *call = MAILBOX_ITEM_OWNER(item, struct call, closed_item);
  if (!call->is_answered)
    call_tell_cancelled(call);
  else if (!call->cancel_told && call->events && call->events->closed)
    call->events->closed(call->events_context, !call->cancelled);
  call_unref(call);
}

static void watch_item(struct mailbox_item *item) {
  struct call *call = MAILBOX_ITEM_OWNER(item, struct call, watch_item);
  call_tell_cancelled(call);
  call_unref(call);
}

void call_watch(struct call *call, const struct call_events *events, void *context) {
  call->events = events;
  call->events_context = context;
  if (events->closed)
    atomic_store(&call->wants_closed, true);
  if (!call->is_cancelled || call->is_watched)
    return;
  call->is_watched = true;
  call_ref(call);
  call->watch_item.run = watch_item; /* from the inbox, not from inside the handler's own call to us */
  inbox_post(call->shared->inbox, &call->watch_item);
}

void call_sent(struct mailbox_item *item) {
  struct call *call = MAILBOX_ITEM_OWNER(item, struct call, sent_item);
  if (!call->is_answered && call->events && call->events->sent)
    call->events->sent(call->events_context);
  call_unref(call);
}

void call_incoming(struct mailbox_item *item) {
  struct call *call = MAILBOX_ITEM_OWNER(item, struct call, incoming_item);
  grpc_byte_buffer *message = call->incoming;
  call->incoming = NULL;
  if (!call->is_answered && call->events && call->events->message)
    call->events->message(call->events_context, message);
  if (message)
    grpc_byte_buffer_destroy(message);
  call_unref(call);
}

void call_dispatch(struct mailbox_item *item) {
  struct call *call = MAILBOX_ITEM_OWNER(item, struct call, incoming_item);
  live_add(call);
  if (call->is_cancelled || call->shared->is_cancelling) {
    struct error *err = NULL;
    error_set(&err, REASON_ABORTED, NULL);
    call_fail(call, err);
  } else {
    call->route->method->handle(call, call->request, call->route->context);
  }
  call_unref(call);
}
