/*
 * Check answers at once. Watch is a stream that stays: it sends the status, and again when it differs from what was
 * sent last; a watcher that reads slowly gets the latest status, not every one in between.
 */
#include "server/health.h"

#include "base/memory.h"
#include "grpc/health/v1/health.pb-c.h"
#include "rpc/message.h"
#include "server/call_state.h"

#include <string.h>

#define LEASE_SERVICE "sandbox.lease.v1.LeaseService"

typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus serving_status;
#define STATUS(name) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##name

struct watcher {
  struct health *health;
  struct call *call;
  struct watcher *previous, *next;
  bool is_known; /* the service exists */
  bool is_sending;
  serving_status told;
};

struct health {
  bool (*ready)(void *context);
  void *context;
  bool is_stopping;
  struct watcher *watchers;
};

static bool service_known(const ProtobufCMessage *request) {
  const char *service = ((const Grpc__Health__V1__HealthCheckRequest *)request)->service;
  return service[0] == '\0' || strcmp(service, LEASE_SERVICE) == 0;
}

static serving_status status_now(const struct health *health) {
  return !health->is_stopping && health->ready(health->context) ? STATUS(SERVING) : STATUS(NOT_SERVING);
}

static void check_handle(struct call *call, const ProtobufCMessage *request, void *context) {
  struct health *health = context;
  if (!service_known(request)) {
    struct error *err = NULL;
    error_set_field(&err, REASON_NOT_FOUND, "service", "Unknown service");
    call_fail_as(call, GRPC_STATUS_NOT_FOUND, err);
    return;
  }
  Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
  response.status = status_now(health);
  call_reply(call, &response.base);
  health_changed(health);
}

/* Watch */

static void watcher_send(struct watcher *watcher, serving_status status) {
  Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
  response.status = status;
  watcher->told = status;
  watcher->is_sending = true;
  call_send(watcher->call, rpc_pack(&response.base));
}

static void watcher_remove(struct watcher *watcher) {
  if (watcher->previous)
    watcher->previous->next = watcher->next;
  else
    watcher->health->watchers = watcher->next;
  if (watcher->next)
    watcher->next->previous = watcher->previous;
  memory_free(watcher);
}

/* Sends what is new. While the server stops, that is the last thing sent; the status is then OK, because gRPC's clients
 * drop what they have not read yet when it is an error. */
static void watcher_update(struct watcher *watcher) {
  if (watcher->is_sending)
    return;
  serving_status status = watcher->is_known ? status_now(watcher->health) : STATUS(SERVICE_UNKNOWN);
  if (watcher->told != status)
    watcher_send(watcher, status);
  if (watcher->health->is_stopping) {
    call_finish(watcher->call);
    watcher_remove(watcher);
  }
}

static void watcher_sent(void *context) {
  struct watcher *watcher = context;
  watcher->is_sending = false;
  watcher_update(watcher);
}

static void watcher_cancelled(void *context) {
  struct watcher *watcher = context;
  struct error *err = NULL;
  error_set(&err, REASON_ABORTED, NULL);
  call_fail(watcher->call, err);
  watcher_remove(watcher);
}

static void watch_handle(struct call *call, const ProtobufCMessage *request, void *context) {
  static const struct call_events events = {.sent = watcher_sent, .cancelled = watcher_cancelled};
  struct health *health = context;
  struct watcher *watcher = memory_zero(sizeof *watcher);
  if (!watcher) {
    struct error *err = NULL;
    error_set_memory(&err);
    call_fail(call, err);
    return;
  }
  watcher->health = health;
  watcher->call = call;
  watcher->is_known = service_known(request);
  watcher->told = STATUS(UNKNOWN);
  watcher->next = health->watchers;
  if (watcher->next)
    watcher->next->previous = watcher;
  health->watchers = watcher;
  call_watch(call, &events, watcher);
  watcher_update(watcher);
}

/* Public */

struct health *health_new(bool (*ready)(void *context), void *context, struct error **err) {
  struct health *health = memory_zero(sizeof *health);
  if (!health) {
    error_set_memory(err);
    return NULL;
  }
  health->ready = ready;
  health->context = context;
  return health;
}

void health_free(struct health *health) { memory_free(health); }

void health_changed(struct health *health) {
  struct watcher *next;
  for (struct watcher *watcher = health->watchers; watcher; watcher = next) {
    next = watcher->next;
    watcher_update(watcher);
  }
}

void health_stop(struct health *health) {
  health->is_stopping = true;
  health_changed(health);
}

const struct call_method *health_methods(size_t *count) {
  static const struct call_method methods[] = {
      {.path = "/grpc.health.v1.Health/Check",
       .kind = CALL_UNARY,
       .request = &grpc__health__v1__health_check_request__descriptor,
       .handle = check_handle},
      {.path = "/grpc.health.v1.Health/Watch",
       .kind = CALL_SERVER_STREAM,
       .request = &grpc__health__v1__health_check_request__descriptor,
       .handle = watch_handle},
  };
  *count = sizeof methods / sizeof methods[0];
  return methods;
}
