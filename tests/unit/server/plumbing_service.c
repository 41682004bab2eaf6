#include "tests/unit/server/plumbing_service.h"

#include "base/clock.h"
#include "rpc/message.h"
#include "sandbox/lease/v1/lease.pb-c.h"

#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct visit {
  struct plumbing_service *service;
  struct call *call;
  uv_timer_t timer;
  long left;
  bool fails, eager;
  int messages;
};

static struct visit *visit_new(struct call *call, struct plumbing_service *service) {
  struct visit *visit = calloc(1, sizeof *visit);
  if (!visit)
    abort();
  visit->service = service;
  visit->call = call;
  return visit;
}

static void fail(struct call *call, enum reason reason) {
  struct error *err = NULL;
  error_set(&err, reason, NULL);
  call_fail(call, err);
}

static void reply(struct call *call, const char *id) {
  char pool[2000];
  const struct identity *identity = call_identity(call);
  snprintf(pool, sizeof pool, "%s/%s", identity->consumer, identity->subject);
  Sandbox__Lease__V1__Lease lease = SANDBOX__LEASE__V1__LEASE__INIT;
  lease.id = (char *)id;
  lease.pool = pool;
  Sandbox__Lease__V1__GetLeaseResponse response = SANDBOX__LEASE__V1__GET_LEASE_RESPONSE__INIT;
  response.lease = &lease;
  call_reply(call, &response.base);
}

/* Unary */

static void timer_closed(uv_handle_t *handle) { free(handle->data); }

static void answer_later(uv_timer_t *timer) {
  struct visit *visit = timer->data;
  reply(visit->call, "later");
  uv_close((uv_handle_t *)timer, timer_closed);
}

static void timer_begin(struct visit *visit, uv_timer_cb run, uint64_t milliseconds) {
  uv_timer_init(visit->service->loop, &visit->timer);
  visit->timer.data = visit;
  uv_timer_start(&visit->timer, run, milliseconds, 0);
}

static void wait_cancelled(void *context) {
  struct visit *visit = context;
  visit->service->cancelled++;
  visit->service->waiting--;
  fail(visit->call, REASON_ABORTED);
  free(visit);
}

static const struct call_events WAIT_EVENTS = {.cancelled = wait_cancelled};

static void ignore_cancelled(void *context) {
  struct visit *visit = context;
  visit->service->cancelled++;
  timer_begin(visit, answer_later, 500);
}

static void watch_late(uv_timer_t *timer) {
  struct visit *visit = timer->data;
  struct visit *copy = visit_new(visit->call, visit->service);
  call_watch(copy->call, &WAIT_EVENTS, copy);
  uv_close((uv_handle_t *)timer, timer_closed);
}

static void note_deadline(struct plumbing_service *service, const struct call *call) {
  int64_t deadline = call_deadline(call);
  service->deadline = deadline == INT64_MAX ? -1 : (long)((deadline - clock_boot()) / CLOCK_MILLISECOND);
}

static void count_closed(void *context, bool delivered) {
  struct plumbing_service *service = context;
  atomic_fetch_add(delivered ? &service->delivered : &service->undelivered, 1);
}

static void never_cancelled(void *context) {
  struct plumbing_service *service = context;
  service->cancelled++;
}

/* While it waits the loop hears of nothing, a cancellation included. */
static void answer_and_count(struct plumbing_service *service, struct call *call, bool blind) {
  static const struct call_events events = {.cancelled = never_cancelled, .closed = count_closed};
  call_watch(call, &events, service);
  service->waiting++;
  while (blind && !atomic_load(&service->released))
    uv_sleep(1);
  reply(call, "closed");
}

static void unary_handle(struct call *call, const ProtobufCMessage *request, void *context) {
  static const struct call_events ignore_events = {.cancelled = ignore_cancelled};
  struct plumbing_service *service = context;
  const char *id = ((const Sandbox__Lease__V1__GetLeaseRequest *)request)->lease_id;
  service->handled++;
  note_deadline(service, call);
  if (strcmp(id, "later") == 0) {
    timer_begin(visit_new(call, service), answer_later, 20);
  } else if (strcmp(id, "wait") == 0) {
    call_watch(call, &WAIT_EVENTS, visit_new(call, service));
    service->waiting++;
  } else if (strcmp(id, "ignore") == 0) {
    call_watch(call, &ignore_events, visit_new(call, service));
    service->waiting++;
  } else if (strcmp(id, "late") == 0) {
    timer_begin(visit_new(call, service), watch_late, 300);
    service->waiting++;
  } else if (strcmp(id, "closed") == 0 || strcmp(id, "blind") == 0) {
    answer_and_count(service, call, id[0] == 'b');
  } else if (strcmp(id, "fail") == 0) {
    fail(call, REASON_LEASE_NOT_FOUND);
  } else {
    reply(call, id);
  }
}

static int unary_check(const ProtobufCMessage *request, struct error **err) {
  if (((const Sandbox__Lease__V1__GetLeaseRequest *)request)->lease_id[0] == '\0')
    return error_set_field(err, REASON_INVALID_REQUEST, "lease_id", "'lease_id' must be a non-empty string");
  return 0;
}

/* Server stream */

static void stream_next(void *context) {
  struct visit *visit = context;
  if (visit->left == 0) {
    if (visit->fails)
      fail(visit->call, REASON_OUTPUT_TOO_LARGE);
    else
      call_finish(visit->call);
    free(visit);
    return;
  }
  visit->left--;
  grpc_slice slice = grpc_slice_malloc(100000);
  memset(GRPC_SLICE_START_PTR(slice), (int)visit->left, 100000);
  call_send(visit->call, rpc_pack_bytes(2, slice));
  if (visit->left == 0 && visit->eager) {
    fail(visit->call, REASON_OUTPUT_TOO_LARGE);
    free(visit);
  }
}

static void stream_cancelled(void *context) {
  struct visit *visit = context;
  visit->service->cancelled++;
  fail(visit->call, REASON_ABORTED);
  free(visit);
}

static void server_stream_handle(struct call *call, const ProtobufCMessage *request, void *context) {
  static const struct call_events events = {.sent = stream_next, .cancelled = stream_cancelled};
  const Sandbox__Lease__V1__ListLeasesRequest *list = (const Sandbox__Lease__V1__ListLeasesRequest *)request;
  struct visit *visit = visit_new(call, context);
  visit->service->handled++;
  visit->left = list->limit;
  visit->fails = strcmp(list->pool, "fail") == 0;
  visit->eager = strcmp(list->pool, "eager") == 0;
  call_watch(call, &events, visit);
  stream_next(visit);
}

/* Client stream */

static void count_message(void *context, grpc_byte_buffer *message) {
  struct visit *visit = context;
  if (message) {
    visit->messages++;
    call_receive(visit->call);
    return;
  }
  visit->service->half_closed++;
  char count[32];
  snprintf(count, sizeof count, "%d", visit->messages);
  reply(visit->call, count);
  free(visit);
}

static void client_stream_handle(struct call *call, const ProtobufCMessage *request, void *context) {
  static const struct call_events events = {.message = count_message, .cancelled = stream_cancelled};
  (void)request;
  struct visit *visit = visit_new(call, context);
  visit->service->handled++;
  visit->messages = 1;
  call_watch(call, &events, visit);
  call_receive(call);
}

/* Bidirectional */

static void echo_message(void *context, grpc_byte_buffer *message) {
  struct visit *visit = context;
  if (message) {
    call_send(visit->call, grpc_byte_buffer_copy(message));
    return;
  }
  visit->service->half_closed++;
  call_finish(visit->call);
  free(visit);
}

static void echo_sent(void *context) { call_receive(((struct visit *)context)->call); }

static void bidirectional_handle(struct call *call, const ProtobufCMessage *request, void *context) {
  static const struct call_events events = {.message = echo_message, .sent = echo_sent, .cancelled = stream_cancelled};
  struct visit *visit = visit_new(call, context);
  visit->service->handled++;
  call_watch(call, &events, visit);
  call_send(call, rpc_pack(request));
}

const struct call_method *plumbing_methods(size_t *count) {
  static const struct call_method methods[] = {
      {"/test.Plumbing/Unary", CALL_UNARY, &sandbox__lease__v1__get_lease_request__descriptor, true, unary_check,
       unary_handle},
      {"/test.Plumbing/Open", CALL_UNARY, &sandbox__lease__v1__get_lease_request__descriptor, false, unary_check,
       unary_handle},
      {"/test.Plumbing/ServerStream", CALL_SERVER_STREAM, &sandbox__lease__v1__list_leases_request__descriptor, true,
       NULL, server_stream_handle},
      {"/test.Plumbing/ClientStream", CALL_CLIENT_STREAM, &sandbox__lease__v1__get_lease_request__descriptor, true,
       unary_check, client_stream_handle},
      {"/test.Plumbing/Bidirectional", CALL_BIDIRECTIONAL, &sandbox__lease__v1__get_lease_request__descriptor, true,
       unary_check, bidirectional_handle},
  };
  *count = sizeof methods / sizeof methods[0];
  return methods;
}
