/*
 * The RPC of an exchange. Callbacks of the completion queue's thread end in an event for the loop.
 */
#include "gateway/exchange.h"

#include "base/limits.h"
#include "rpc/message.h"

#include "sandbox/lease/v1/lease.pb-c.h"

enum { CHECK_DEADLINE_MS = 10000 };

static struct exchange *of_event(struct loop_event *event, size_t offset) {
  return (struct exchange *)(void *)((char *)event - offset);
}

/* On the queue's thread */

/* The client's error is freed behind the callback. */
static void keep_failure(struct exchange *exchange, const struct error *err) {
  error_free(&exchange->failure);
  if (error_detail(err)[0] != '\0')
    error_set_detail(&exchange->failure, error_reason(err), "%s", error_detail(err));
  else
    error_set(&exchange->failure, error_reason(err), error_message(err));
  error_set_retry_after(exchange->failure, error_retry_after(err));
}

static void on_reply(void *context, grpc_byte_buffer *message) {
  struct exchange *exchange = context;
  struct error *err CLEANUP_ERROR = NULL;
  exchange->reply_bytes = message ? grpc_byte_buffer_length(message) : 0;
  exchange->reply = rpc_unpack(exchange->method->reply, message, &err);
  if (!exchange->reply)
    error_set_detail(&exchange->failure, REASON_INTERNAL, "the server's reply: %s", error_message(err));
}

static void on_message(void *context, grpc_byte_buffer *message) {
  struct exchange *exchange = context;
  exchange->received = message ? grpc_byte_buffer_copy(message) : NULL;
  loop_post(exchange->loop, &exchange->message_event);
}

static void on_sent(void *context, bool ok) {
  struct exchange *exchange = context;
  exchange->sent_ok = ok;
  loop_post(exchange->loop, &exchange->sent_event);
}

static void on_ended(void *context, struct error *err) {
  struct exchange *exchange = context;
  if (err)
    keep_failure(exchange, err);
  loop_post(exchange->loop, &exchange->ended_event);
}

/* On the loop */

static void run_message(struct loop_event *event) {
  struct exchange *exchange = of_event(event, offsetof(struct exchange, message_event));
  grpc_byte_buffer *message = exchange->received;
  exchange->received = NULL;
  if (exchange->connection)
    exchange->handler->message(exchange, message);
  if (message)
    grpc_byte_buffer_destroy(message);
}

static void run_sent(struct loop_event *event) {
  struct exchange *exchange = of_event(event, offsetof(struct exchange, sent_event));
  if (exchange->connection)
    exchange->handler->sent(exchange, exchange->sent_ok);
}

static void run_stream_ended(struct loop_event *event) {
  struct exchange *exchange = of_event(event, offsetof(struct exchange, ended_event));
  exchange->running = false;
  if (exchange->connection)
    exchange->handler->ended(exchange, exchange->failure);
  exchange_settle(exchange);
}

static void answer_unary(struct exchange *exchange) {
  if (!exchange->failure && exchange->reply) {
    exchange_hold_answer(exchange);
    exchange->handler->answer(exchange, exchange->reply);
  } else if (exchange->handler->failed) {
    exchange->handler->failed(exchange, exchange->failure);
  } else {
    exchange_fail(exchange, exchange->failure);
  }
}

/* A call with a deadline of ours ends fast or not at all: that the deadline passed says that the server does not answer. */
static void translate_deadline(struct exchange *exchange) {
  if (!exchange->failure || exchange->aborted || exchange->method->deadline_ms == 0 ||
      error_reason(exchange->failure) != REASON_ABORTED)
    return;
  error_free(&exchange->failure);
  error_set_detail(&exchange->failure, REASON_SERVER_UNAVAILABLE, "no answer within %lld ms",
                   (long long)exchange->method->deadline_ms);
}

static void run_unary_ended(struct loop_event *event) {
  struct exchange *exchange = of_event(event, offsetof(struct exchange, ended_event));
  exchange->running = false;
  translate_deadline(exchange);
  if (exchange->refusal)
    exchange_fail(exchange, exchange->failure ? exchange->failure : exchange->refusal);
  else if (exchange->connection)
    answer_unary(exchange);
  exchange_settle(exchange);
}

/* Starting */

/* As it came, good or bad; only what is too long for any token stays here, since gRPC would not carry it. */
static struct http_text authorization(const struct exchange *exchange, const struct exchange_method *method) {
  struct http_text given = exchange_field(exchange, HTTP_AUTHORIZATION);
  if (method->anonymous || given.length > sizeof "Bearer " - 1 + LIMIT_TOKEN_BYTES)
    return (struct http_text){.data = NULL, .length = 0};
  return given;
}

int exchange_call(struct exchange *exchange, const struct exchange_method *method, const ProtobufCMessage *request,
                  struct error **err) {
  static const struct rpc_client_events events = {.message = on_reply, .ended = on_ended};
  struct http_text bearer = authorization(exchange, method);
  grpc_byte_buffer *packed = rpc_pack(request);
  if (!packed)
    return error_set_memory(err);
  exchange->method = method;
  exchange->ended_event.run = run_unary_ended;
  exchange->running = true;
  exchange->call = rpc_client_unary(exchange->loop->client, method->path, bearer.data, bearer.length,
                                    method->deadline_ms, packed, &events, exchange, err);
  exchange->running = exchange->call != NULL;
  return exchange->call ? 0 : -1;
}

int exchange_stream(struct exchange *exchange, const struct exchange_method *method, const ProtobufCMessage *first,
                    bool half_close, struct error **err) {
  static const struct rpc_client_events events = {.message = on_message, .sent = on_sent, .ended = on_ended};
  struct http_text bearer = authorization(exchange, method);
  grpc_byte_buffer *packed = rpc_pack(first);
  if (!packed)
    return error_set_memory(err);
  exchange->method = method;
  exchange->message_event.run = run_message;
  exchange->sent_event.run = run_sent;
  exchange->ended_event.run = run_stream_ended;
  exchange->call = rpc_client_start(exchange->loop->client, method->path, bearer.data, bearer.length,
                                    method->deadline_ms, packed, half_close, &events, exchange, err);
  exchange->running = exchange->call != NULL;
  return exchange->call ? 0 : -1;
}

void exchange_receive(struct exchange *exchange) {
  if (exchange->running)
    rpc_client_receive(exchange->call);
}

void exchange_send(struct exchange *exchange, grpc_byte_buffer *message) {
  if (exchange->running)
    rpc_client_send(exchange->call, message);
  else
    grpc_byte_buffer_destroy(message);
}

void exchange_half_close(struct exchange *exchange) {
  if (exchange->running)
    rpc_client_half_close(exchange->call);
}

void exchange_cancel(struct exchange *exchange) {
  if (exchange->running)
    rpc_client_cancel(exchange->call);
}

/* Errors that do not depend on who asks, or that no call to the server can improve. */
static bool is_public(const struct exchange *exchange, const struct error *err) {
  enum reason reason = error_reason(err);
  return (exchange->handler && exchange->handler->open) || reason == REASON_INTERNAL || reason == REASON_UNAUTHORIZED ||
         reason == REASON_REQUEST_TIMEOUT;
}

void exchange_refuse(struct exchange *exchange, struct error *err) {
  static const struct exchange_method check = {.path = "/sandbox.lease.v1.LeaseService/CheckAccess",
                                               .reply = &sandbox__lease__v1__check_access_response__descriptor,
                                               .deadline_ms = CHECK_DEADLINE_MS};
  Sandbox__Lease__V1__CheckAccessRequest request = SANDBOX__LEASE__V1__CHECK_ACCESS_REQUEST__INIT;
  struct error *failure CLEANUP_ERROR = NULL;
  exchange->refusal = err;
  exchange_drop_body(exchange);
  if (is_public(exchange, err))
    exchange_fail(exchange, err);
  else if (exchange_call(exchange, &check, &request.base, &failure) < 0)
    exchange_fail(exchange, failure);
}
