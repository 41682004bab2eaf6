/*
 * A test double of server/call.h.
 */
#include "tests/unit/server/call_double.h"

#include "base/message.h"
#include "rpc/message.h"
#include "tests/unit/server/check.h"
#include "tests/unit/server/torture.h"
#include <grpc/byte_buffer_reader.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct call *calls; /* in being */

static const struct call_method *method_find(const char *name) {
  size_t count;
  const struct call_method *methods = lease_service_methods(&count);
  for (size_t i = 0; i < count; i++)
    if (strcmp(strrchr(methods[i].path, '/') + 1, name) == 0)
      return &methods[i];
  fail_msg("no method %s", name);
  return NULL;
}

static void call_note_error(struct call *call, struct error *err) {
  call->outcome = CALL_FAILED;
  call->reason = error_reason(err);
  call->retry_after = error_retry_after(err);
  snprintf(call->message, sizeof(call->message), "%s", error_message(err));
  snprintf(call->field, sizeof(call->field), "%s", error_field(err) ? error_field(err) : "");
  error_free(&err);
}

/* Through the wire format, so that the handler gets a message of its own. */
static ProtobufCMessage *message_copy(const ProtobufCMessage *message, struct error **err) {
  torture_pause();
  grpc_byte_buffer *bytes = rpc_pack(message);
  assert_non_null(bytes);
  ProtobufCMessage *copy = rpc_unpack(message->descriptor, bytes, err);
  grpc_byte_buffer_destroy(bytes);
  torture_resume();
  return copy;
}

struct call *call_double_start(struct lease_service *service, const char *consumer, const char *subject, const char *method,
                               const ProtobufCMessage *request) {
  const struct call_method *found = method_find(method);
  struct call *call = calloc(1, sizeof(*call));
  assert_non_null(call);
  snprintf(call->identity.consumer, sizeof(call->identity.consumer), "%s", consumer);
  snprintf(call->identity.subject, sizeof(call->identity.subject), "%s", subject);
  call->identity.expires = 4102444800;
  call->next = calls;
  calls = call;
  struct error *err = NULL;
  assert_ptr_equal(found->request, request->descriptor);
  call->request = message_copy(request, &err);
  if (!call->request || (found->check && found->check(call->request, &err) < 0))
    call_note_error(call, err);
  else
    found->handle(call, call->request, service);
  return call;
}

void call_double_free(struct call *call) {
  assert_int_not_equal(call->outcome, CALL_WAITING);
  call_double_close(call, true);
  struct call **place = &calls;
  while (*place != call)
    place = &(*place)->next;
  *place = call->next;
  if (call->request)
    protobuf_c_message_free_unpacked(call->request, NULL);
  if (call->reply)
    grpc_byte_buffer_destroy(call->reply);
  for (size_t i = 0; i < call->sent_count; i++)
    grpc_byte_buffer_destroy(call->sent[i]);
  free(call);
}

void call_double_cancel(struct call *call) {
  assert_false(call->cancelled);
  call->cancelled = true;
  if (call->outcome != CALL_WAITING)
    return;
  call->told = true;
  call->events->cancelled(call->context);
}

void call_double_close(struct call *call, bool delivered) {
  assert_int_not_equal(call->outcome, CALL_WAITING);
  if (call->told)
    return;
  call->told = true;
  if (call->events && call->events->closed)
    call->events->closed(call->context, delivered);
}

void call_double_close_all(void) {
  for (struct call *call = calls; call; call = call->next)
    if (call->outcome != CALL_WAITING)
      call_double_close(call, true);
}

void call_double_message(struct call *call, const ProtobufCMessage *message) {
  assert_true(call->receiving);
  call->receiving = false;
  torture_pause();
  grpc_byte_buffer *bytes = message ? rpc_pack(message) : NULL;
  torture_resume();
  if (call->outcome == CALL_WAITING)
    call->events->message(call->context, bytes);
  if (bytes)
    grpc_byte_buffer_destroy(bytes);
}

void call_double_sent(struct call *call) {
  assert_true(call->sending);
  call->sending = false;
  if (call->outcome == CALL_WAITING)
    call->events->sent(call->context);
}

static ProtobufCMessage *bytes_unpack(grpc_byte_buffer *bytes, const ProtobufCMessageDescriptor *descriptor) {
  struct error *err = NULL;
  torture_pause();
  ProtobufCMessage *message = rpc_unpack(descriptor, bytes, &err);
  torture_resume();
  if (!message)
    fail_msg("%s: %s", error_message(err), error_detail(err));
  return message;
}

ProtobufCMessage *call_double_reply(const struct call *call, const ProtobufCMessageDescriptor *descriptor) {
  if (call->outcome != CALL_REPLIED)
    fail_msg("outcome %d, %s %s", call->outcome, reason_name(call->reason), call->message);
  return bytes_unpack(call->reply, descriptor);
}

ProtobufCMessage *call_double_sent_message(const struct call *call, size_t n, const ProtobufCMessageDescriptor *descriptor) {
  assert_true(n < call->sent_count);
  return bytes_unpack(call->sent[n], descriptor);
}

/* --- server/call.h --- */

const struct identity *call_identity(const struct call *call) { return &call->identity; }

int64_t call_deadline(const struct call *call) {
  (void)call;
  return INT64_MAX;
}

void call_watch(struct call *call, const struct call_events *events, void *context) {
  assert_int_equal(call->outcome, CALL_WAITING);
  assert_non_null(events->cancelled);
  call->events = events;
  call->context = context;
}

/* After an answer the request is gone. */
static void call_answered(struct call *call, enum call_outcome outcome) {
  assert_int_equal(call->outcome, CALL_WAITING);
  call->outcome = outcome;
  protobuf_c_message_free_unpacked(call->request, NULL);
  call->request = NULL;
}

void call_reply(struct call *call, const ProtobufCMessage *reply) {
  grpc_byte_buffer *bytes = rpc_pack(reply);
  if (bytes) {
    call_reply_buffer(call, bytes);
    return;
  }
  struct error *err = NULL;
  error_set_memory(&err);
  call_fail(call, err);
}

void call_reply_buffer(struct call *call, grpc_byte_buffer *reply) {
  call_answered(call, CALL_REPLIED);
  call->reply = reply;
}

void call_finish(struct call *call) { call_answered(call, CALL_FINISHED); }

void call_fail(struct call *call, struct error *err) {
  call_answered(call, CALL_FAILED);
  call_note_error(call, err);
}

void call_send(struct call *call, grpc_byte_buffer *message) {
  assert_int_equal(call->outcome, CALL_WAITING);
  assert_false(call->sending);
  assert_true(call->sent_count < CALL_DOUBLE_MESSAGES);
  call->sending = true;
  call->sent[call->sent_count++] = message;
}

void call_receive(struct call *call) {
  assert_int_equal(call->outcome, CALL_WAITING);
  assert_false(call->receiving);
  call->receiving = true;
}
