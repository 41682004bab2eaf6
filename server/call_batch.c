/*
 * Starting a call's batches, and what comes of them: always on the thread of its completion queue. What the loop wants
 * arrives through the outbox, what a handler waits for leaves through the inbox.
 */
#include "base/log.h"
#include "rpc/status.h"
#include "server/call_state.h"

#include <grpc/byte_buffer.h>
#include <grpc/slice.h>

static grpc_op *add_operation(grpc_op *operations, size_t *count, grpc_op_type type) {
  grpc_op *operation = &operations[(*count)++];
  *operation = (grpc_op){.op = type};
  return operation;
}

static void add_headers(struct call *call, grpc_op *operations, size_t *count) {
  if (!call->headers_sent)
    add_operation(operations, count, GRPC_OP_SEND_INITIAL_METADATA);
  call->headers_sent = true;
}

/* Answer */

static void answered_tag(struct rpc_tag *tag, bool ok) {
  (void)ok;
  call_unref(RPC_TAG_OWNER(tag, struct call, answered));
}

void call_end(struct call *call, grpc_byte_buffer *reply, grpc_status_code code, const struct error *err) {
  grpc_op operations[3];
  size_t count = 0;
  add_headers(call, operations, &count);
  if (reply)
    add_operation(operations, &count, GRPC_OP_SEND_MESSAGE)->data.send_message.send_message = reply;
  grpc_op *status = add_operation(operations, &count, GRPC_OP_SEND_STATUS_FROM_SERVER);
  grpc_slice message = grpc_empty_slice();
  grpc_metadata details = {.key = grpc_slice_from_static_string("grpc-status-details-bin"),
                           .value = grpc_empty_slice()};
  if (code != GRPC_STATUS_OK) {
    message = grpc_slice_from_copied_string(error_message(err));
    details.value = rpc_status_details(err);
    status->data.send_status_from_server.status = code;
    status->data.send_status_from_server.status_details = &message;
    status->data.send_status_from_server.trailing_metadata = &details;
    status->data.send_status_from_server.trailing_metadata_count = GRPC_SLICE_LENGTH(details.value) > 0;
  }
  call->answered.run = answered_tag;
  grpc_call_error refused = rpc_start_batch(call->rpc, operations, count, &call->answered);
  grpc_slice_unref(message);
  grpc_slice_unref(details.value);
  if (reply)
    grpc_byte_buffer_destroy(reply);
  if (refused != GRPC_CALL_OK) { /* not known to happen; the client must not be left waiting */
    log_write(LOG_ERROR, "call_not_answered", LOG_TEXT("detail", grpc_call_error_to_string(refused)));
    grpc_call_cancel(call->rpc, NULL);
    call_unref(call);
  }
}

static void wished_answer(struct mailbox_item *item) {
  struct call *call = MAILBOX_ITEM_OWNER(item, struct call, answer_wish);
  struct error *err = call->err;
  call_end(call, call->reply, call->code, err);
  error_free(&err);
  call_unref(call);
}

/* One message to the client. One that does not leave has no other cause than the end of the call, which `cancelled`
 * tells. */

static void sent_tag(struct rpc_tag *tag, bool ok) {
  struct call *call = RPC_TAG_OWNER(tag, struct call, sent);
  if (!ok) {
    call_unref(call);
    return;
  }
  call->sent_item.run = call_sent; /* the reference goes with the item */
  inbox_post(call->shared->inbox, &call->sent_item);
}

static void wished_send(struct mailbox_item *item) {
  struct call *call = MAILBOX_ITEM_OWNER(item, struct call, send_wish);
  grpc_byte_buffer *message = call->outgoing;
  call->outgoing = NULL;
  grpc_op operations[2];
  size_t count = 0;
  add_headers(call, operations, &count);
  add_operation(operations, &count, GRPC_OP_SEND_MESSAGE)->data.send_message.send_message = message;
  call->sent.run = sent_tag;
  if (rpc_start_batch(call->rpc, operations, count, &call->sent) != GRPC_CALL_OK)
    call_unref(call); /* two at once: the handler's mistake */
  grpc_byte_buffer_destroy(message);
}

/* One message from the client. None is the client's half-close, unless the call broke: that is told by `cancelled`,
 * never taken for the end. */

static void received_tag(struct rpc_tag *tag, bool ok) {
  struct call *call = RPC_TAG_OWNER(tag, struct call, received);
  if (!ok || (!call->incoming && grpc_call_failed_before_recv_message(call->rpc))) {
    call_unref(call);
    return;
  }
  call->incoming_item.run = call_incoming;
  inbox_post(call->shared->inbox, &call->incoming_item);
}

static void wished_receive(struct mailbox_item *item) {
  struct call *call = MAILBOX_ITEM_OWNER(item, struct call, receive_wish);
  grpc_op operation = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &call->incoming};
  call->received.run = received_tag;
  if (rpc_start_batch(call->rpc, &operation, 1, &call->received) != GRPC_CALL_OK)
    call_unref(call); /* two at once: the handler's mistake */
}

/* Outbox */

static void wake_tag(struct rpc_tag *tag, bool ok) {
  (void)ok;
  mailbox_run(&RPC_TAG_OWNER(tag, struct call_outbox, wake)->mailbox);
}

void call_outbox_init(struct call_outbox *outbox) {
  atomic_init(&outbox->mailbox.newest, NULL);
  outbox->wake.run = wake_tag;
}

/* The wake-up is under way at most once: it is sent only when the outbox was empty, and its coming is what empties it. */
void call_outbox_send(struct call_outbox *outbox) {
  struct call *call = outbox->first;
  if (!call)
    return;
  outbox->first = NULL;
  if (rpc_start_batch(call->rpc, NULL, 0, &outbox->wake) != GRPC_CALL_OK)
    log_write(LOG_ERROR, "queue_not_woken"); /* not known to happen */
  call_unref(call);
}

/* The item takes a reference with it. */
static void wish(struct call *call, struct mailbox_item *item, void (*run)(struct mailbox_item *item)) {
  struct call_outbox *outbox = call->outbox;
  item->run = run;
  call_ref(call);
  if (!mailbox_post(&outbox->mailbox, item))
    return;
  call_ref(call);
  outbox->first = call;
}

void call_wish_answer(struct call *call) { wish(call, &call->answer_wish, wished_answer); }

void call_wish_send(struct call *call) { wish(call, &call->send_wish, wished_send); }

void call_wish_receive(struct call *call) { wish(call, &call->receive_wish, wished_receive); }
