/*
 * The way of a call until a handler sees it, on completion-queue threads: who is it for, may the caller call at all
 * (the token comes first, so that nobody without one makes us read a message), then the first message, its form and the
 * rules that need no state. What fails here is answered here; the loop never hears of it.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "rpc/message.h"
#include "server/call_state.h"

#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <string.h>

static const struct call_route *route_find(const struct call_shared *shared, grpc_slice path) {
  size_t length = GRPC_SLICE_LENGTH(path);
  const uint8_t *bytes = GRPC_SLICE_START_PTR(path);
  for (size_t i = 0; i < shared->route_count; i++) {
    const struct call_route *route = &shared->routes[i];
    if (route->path_length == length && memcmp(route->method->path, bytes, length) == 0)
      return route;
  }
  return NULL;
}

/* Takes err over. */
static void refuse(struct call *call, struct error *err) {
  call_end(call, NULL, (grpc_status_code)reason_grpc_code(error_reason(err)), err);
  error_free(&err);
}

static int authenticate(struct call *call, struct error **err) {
  const grpc_slice *value = NULL;
  for (size_t i = 0; i < call->metadata.count; i++) {
    if (grpc_slice_str_cmp(call->metadata.metadata[i].key, "authorization") != 0)
      continue;
    if (value) /* which one counts is nobody's guess */
      return error_set(err, REASON_UNAUTHORIZED, NULL);
    value = &call->metadata.metadata[i].value;
  }
  if (!value)
    return error_set(err, REASON_UNAUTHORIZED, NULL);
  return token_verify_bearer(call->shared->ring, (const char *)GRPC_SLICE_START_PTR(*value), GRPC_SLICE_LENGTH(*value),
                             clock_wall() / CLOCK_SECOND, &call->identity, err);
}

static int request_read(struct call *call, struct error **err) {
  if (!call->incoming)
    return error_set(err, REASON_INVALID_REQUEST, "The call has no request message");
  const struct call_method *method = call->route->method;
  call->request = rpc_unpack(method->request, call->incoming, err);
  grpc_byte_buffer_destroy(call->incoming);
  call->incoming = NULL;
  if (!call->request)
    return -1;
  return method->check ? method->check(call->request, err) : 0;
}

static void first_message_tag(struct rpc_tag *tag, bool ok) {
  (void)ok; /* without success there is no message */
  struct call *call = RPC_TAG_OWNER(tag, struct call, received);
  struct error *err = NULL;
  if (request_read(call, &err) < 0) {
    refuse(call, err);
  } else {
    call_ref(call);
    call->incoming_item.run = call_dispatch;
    inbox_post(call->shared->inbox, &call->incoming_item);
  }
  call_unref(call);
}

static void closed_tag(struct rpc_tag *tag, bool ok) {
  (void)ok;
  struct call *call = RPC_TAG_OWNER(tag, struct call, closed);
  if (!call->cancelled && !atomic_load(&call->wants_closed)) {
    call_unref(call);
    return;
  }
  /* The reference goes with the item. */
  call->closed_item.run = call_closed;
  inbox_post(call->shared->inbox, &call->closed_item);
}

/* Starts a batch that keeps the call. */
static void start(struct call *call, const grpc_op *operation, struct rpc_tag *tag) {
  call_ref(call);
  if (rpc_start_batch(call->rpc, operation, 1, tag) != GRPC_CALL_OK)
    call_unref(call); /* not known to happen */
}

void call_begin(struct call *call) {
  grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server.cancelled = &call->cancelled};
  call->closed.run = closed_tag;
  start(call, &close, &call->closed);

  struct error *err = NULL;
  call->route = route_find(call->shared, call->details.method);
  if (!call->route) {
    error_set(&err, REASON_NOT_FOUND, "Unknown method");
    refuse(call, err);
    return;
  }
  if (call->route->method->authenticated && authenticate(call, &err) < 0) {
    log_write(LOG_DEBUG, "token_refused", LOG_TEXT("method", call->route->method->path));
    refuse(call, err);
    return;
  }
  grpc_op receive = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &call->incoming};
  call->received.run = first_message_tag;
  start(call, &receive, &call->received);
}
