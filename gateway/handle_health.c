/*
 * GET /health: this process answers. GET /ready: the server can serve.
 */
#include "gateway/exchange.h"
#include "gateway/route.h"

#include "grpc/health/v1/health.pb-c.h"

enum { READY_DEADLINE_MS = 5000 };

static int reply_status(struct exchange *exchange, int http_status, const char *text, struct error **err) {
  if (buffer_append_format(&exchange->answer, "{\"status\":\"%s\"}", text) < 0)
    return error_set_memory(err);
  exchange_reply_json(exchange, http_status);
  return 0;
}

static int health_start(struct exchange *exchange, const struct json *json, struct error **err) {
  (void)json;
  return reply_status(exchange, 200, "ok", err);
}

const struct handler handle_health = {.open = true, .start = health_start};

static int ready_start(struct exchange *exchange, const struct json *json, struct error **err) {
  static const struct exchange_method method = {.path = "/grpc.health.v1.Health/Check",
                                                .reply = &grpc__health__v1__health_check_response__descriptor,
                                                .deadline_ms = READY_DEADLINE_MS,
                                                .anonymous = true};
  static char service[] = "sandbox.lease.v1.LeaseService";
  (void)json;
  Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
  request.service = service;
  return exchange_call(exchange, &method, &request.base, err);
}

static void reply_ready(struct exchange *exchange, bool ready) {
  struct error *err CLEANUP_ERROR = NULL;
  if (reply_status(exchange, ready ? 200 : 503, ready ? "ready" : "not_ready", &err) < 0)
    exchange_fail(exchange, err);
}

static void ready_answer(struct exchange *exchange, const ProtobufCMessage *reply) {
  const Grpc__Health__V1__HealthCheckResponse *health = (const Grpc__Health__V1__HealthCheckResponse *)reply;
  reply_ready(exchange, health->status == GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING);
}

/* A server that cannot be asked is not ready. */
static void ready_failed(struct exchange *exchange, const struct error *err) {
  (void)err;
  reply_ready(exchange, false);
}

const struct handler handle_ready = {
    .open = true, .start = ready_start, .answer = ready_answer, .failed = ready_failed};
