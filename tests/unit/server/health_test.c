/*
 * grpc.health.v1 Watch: every change is told, and the end of the server last.
 */
#include "base/memory.h"
#include "grpc/health/v1/health.pb-c.h"
#include "rpc/client.h"
#include "tests/unit/server/harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <grpc/byte_buffer.h>
#include <grpc/support/time.h>
#include <stdlib.h>

#define STATUS(name) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##name

struct fixture {
  struct harness *harness;
  grpc_completion_queue *queue;
  struct rpc_client *client;
};

struct watch {
  struct rpc_client_call *call;
  int statuses[16];
  size_t count;
  enum reason reason;
  bool ended;
};

static void on_message(void *context, grpc_byte_buffer *message) {
  struct watch *watch = context;
  if (!message)
    return;
  ProtobufCMessage *unpacked = rpc_unpack(&grpc__health__v1__health_check_response__descriptor, message, NULL);
  assert_non_null(unpacked);
  assert_true(watch->count < 16);
  watch->statuses[watch->count++] = (int)((Grpc__Health__V1__HealthCheckResponse *)unpacked)->status;
  protobuf_c_message_free_unpacked(unpacked, NULL);
  if (watch->call)
    rpc_client_receive(watch->call);
}

static void on_ended(void *context, struct error *err) {
  struct watch *watch = context;
  watch->ended = true;
  watch->reason = err ? error_reason(err) : REASON_NONE;
}

static const struct rpc_client_events EVENTS = {on_message, NULL, on_ended};

static void run_once(struct fixture *fixture) {
  grpc_event event = grpc_completion_queue_next(
      fixture->queue, gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(20, GPR_TIMESPAN)), NULL);
  assert_int_equal(event.type, GRPC_OP_COMPLETE);
  struct rpc_tag *tag = event.tag;
  tag->run(tag, event.success != 0);
}

static grpc_byte_buffer *health_request(const char *service) {
  Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
  request.service = (char *)service;
  return rpc_pack(&request.base);
}

static void watch_start(struct fixture *fixture, struct watch *watch, const char *service) {
  watch->call = rpc_client_start(fixture->client, "/grpc.health.v1.Health/Watch", NULL, 0, 0, health_request(service),
                                 true, &EVENTS, watch, NULL);
  assert_non_null(watch->call);
  rpc_client_receive(watch->call);
}

static int check(struct fixture *fixture) {
  struct watch answer = {.call = NULL};
  struct rpc_client_call *call = rpc_client_unary(fixture->client, "/grpc.health.v1.Health/Check", NULL, 0, 15000,
                                                  health_request(""), &EVENTS, &answer, NULL);
  while (!answer.ended)
    run_once(fixture);
  rpc_client_call_release(call);
  assert_int_equal(answer.count, 1);
  return answer.statuses[0];
}

static int setup(void **state) {
  struct fixture *fixture = calloc(1, sizeof *fixture);
  fixture->harness = harness_start(2);
  fixture->queue = grpc_completion_queue_create_for_next(NULL);
  struct rpc_client_options options = {.address = harness_address(fixture->harness)};
  fixture->client = rpc_client_new(&options, fixture->queue, NULL);
  *state = fixture;
  return 0;
}

static int teardown(void **state) {
  struct fixture *fixture = *state;
  rpc_client_free(fixture->client);
  harness_free(fixture->harness);
  grpc_completion_queue_shutdown(fixture->queue);
  rpc_queue_run(fixture->queue);
  grpc_completion_queue_destroy(fixture->queue);
  free(fixture);
  return 0;
}

static void changes_are_told_until_the_end(void **state) {
  struct fixture *fixture = *state;
  struct watch whole = {.ended = false}, service = {.ended = false}, unknown = {.ended = false};
  watch_start(fixture, &whole, "");
  watch_start(fixture, &service, "sandbox.lease.v1.LeaseService");
  watch_start(fixture, &unknown, "nothing");
  while (whole.count < 1 || service.count < 1 || unknown.count < 1)
    run_once(fixture);
  for (size_t i = 1; i < 5; i++) {
    harness_set_ready(fixture->harness, i % 2 == 0);
    while (whole.count < i + 1 || service.count < i + 1)
      run_once(fixture);
    assert_int_equal(check(fixture), i % 2 == 0 ? STATUS(SERVING) : STATUS(NOT_SERVING));
  }
  harness_stop(fixture->harness, 5000);
  while (!whole.ended || !service.ended || !unknown.ended)
    run_once(fixture);
  static const int expected[] = {STATUS(SERVING),     STATUS(NOT_SERVING), STATUS(SERVING),
                                 STATUS(NOT_SERVING), STATUS(SERVING),     STATUS(NOT_SERVING)};
  assert_int_equal(whole.count, 6);
  assert_int_equal(service.count, 6);
  for (size_t i = 0; i < 6; i++) {
    assert_int_equal(whole.statuses[i], expected[i]);
    assert_int_equal(service.statuses[i], expected[i]);
  }
  assert_int_equal(unknown.count, 1);
  assert_int_equal(unknown.statuses[0], STATUS(SERVICE_UNKNOWN));
  assert_int_equal(whole.reason, REASON_NONE);
  assert_int_equal(unknown.reason, REASON_NONE);
  rpc_client_call_release(whole.call);
  rpc_client_call_release(service.call);
  rpc_client_call_release(unknown.call);
}

/* The stop comes while the first status is still under way. */
static void end_is_told_to_who_has_just_come(void **state) {
  struct fixture *fixture = *state;
  struct watch watch = {.ended = false};
  watch_start(fixture, &watch, "");
  while (watch.count < 1)
    run_once(fixture);
  harness_stop(fixture->harness, 5000);
  while (!watch.ended)
    run_once(fixture);
  assert_int_equal(watch.count, 2);
  assert_int_equal(watch.statuses[1], STATUS(NOT_SERVING));
  assert_int_equal(watch.reason, REASON_NONE);
  rpc_client_call_release(watch.call);
}

static void watchers_that_vanish_are_forgotten(void **state) {
  struct fixture *fixture = *state;
  for (int i = 0; i < 30; i++) {
    struct watch watch = {.ended = false};
    watch_start(fixture, &watch, "");
    if (i % 2)
      while (watch.count < 1)
        run_once(fixture);
    rpc_client_cancel(watch.call);
    while (!watch.ended)
      run_once(fixture);
    rpc_client_call_release(watch.call);
    harness_set_ready(fixture->harness, i % 3 == 0);
  }
  harness_set_ready(fixture->harness, true);
  while (check(fixture) != STATUS(SERVING))
    ;
}

int main(void) {
  grpc_init();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(changes_are_told_until_the_end, setup, teardown),
      cmocka_unit_test_setup_teardown(end_is_told_to_who_has_just_come, setup, teardown),
      cmocka_unit_test_setup_teardown(watchers_that_vanish_are_forgotten, setup, teardown),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  grpc_shutdown();
  return failed;
}
