/*
 * A Lease service over the doubles.
 */
#include "tests/unit/server/fixture.h"

#include "tests/unit/server/check.h"
#include <stdlib.h>
#include <string.h>

static void note_done(void *context, struct error *err) {
  bool *done = context;
  assert_null(err);
  *done = true;
}

void fixture_open_unstarted(struct fixture *fixture) {
  *fixture = (struct fixture){0};
  session_double = (struct session_double_state){0};
  struct error *err = NULL;
  setenv("SANDBOX_METADATA_SECRET", "metadata secret of the tests", 1);
  fixture->config = config_load(NULL, &err);
  assert_non_null(fixture->config);
  assert_int_equal(uv_loop_init(&fixture->loop), 0);
  backend_double_init(&fixture->backend, &fixture->loop);
  fixture->service = lease_service_new(&fixture->loop, &fixture->backend.backend, fixture->config, &err);
  if (!fixture->service)
    fail_msg("%s", error_detail(err));
}

void fixture_start(struct fixture *fixture) {
  bool started = false;
  lease_service_start(fixture->service, note_done, &started);
  fixture_run_until(fixture, &started);
}

void fixture_open(struct fixture *fixture) {
  fixture_open_unstarted(fixture);
  fixture_start(fixture);
}

static void timed_out(uv_timer_t *timer) {
  (void)timer;
  fail_msg("nothing happened within five seconds");
}

void fixture_run_until(struct fixture *fixture, const bool *done) {
  uv_timer_t limit;
  uv_timer_init(&fixture->loop, &limit);
  uv_timer_start(&limit, timed_out, 5000, 0);
  while (!*done)
    uv_run(&fixture->loop, UV_RUN_ONCE);
  uv_close((uv_handle_t *)&limit, NULL);
  uv_run(&fixture->loop, UV_RUN_NOWAIT);
}

void fixture_close(struct fixture *fixture) {
  lease_service_stop(fixture->service, note_done, &fixture->stopped);
  fixture_run_until(fixture, &fixture->stopped);
  call_double_close_all();
  lease_service_free(fixture->service);
  assert_int_equal(session_double.sessions, 0);
  assert_null(session_double.works);
  assert_null(fixture->backend.pending);
  config_free(fixture->config);
  assert_int_equal(uv_loop_close(&fixture->loop), 0);
}

int fixture_setup(void **state) {
  struct fixture *fixture = calloc(1, sizeof(*fixture));
  assert_non_null(fixture);
  fixture_open(fixture);
  *state = fixture;
  return 0;
}

int fixture_teardown(void **state) {
  struct fixture *fixture = *state;
  if (!fixture->stopped)
    fixture_close(fixture);
  free(fixture);
  return 0;
}

/* --- calls --- */

struct call *acquire_as(struct fixture *fixture, const char *consumer, const char *subject, const char *pool, int64_t ttl,
                        const char *key) {
  Sandbox__Lease__V1__AcquireLeaseRequest request = SANDBOX__LEASE__V1__ACQUIRE_LEASE_REQUEST__INIT;
  request.pool = (char *)pool;
  request.idempotency_key = (char *)key;
  if (ttl != TTL_UNSET) {
    request._ttl_seconds_case = SANDBOX__LEASE__V1__ACQUIRE_LEASE_REQUEST___TTL_SECONDS_TTL_SECONDS;
    request.ttl_seconds = ttl;
  }
  return call_double_start(fixture->service, consumer, subject, "AcquireLease", &request.base);
}

struct call *acquire(struct fixture *fixture, const char *pool, int64_t ttl, const char *key) {
  return acquire_as(fixture, "app", "ann", pool, ttl, key);
}

void acquired_id(const struct call *call, char id[static LIMIT_LEASE_ID_BYTES + 1], bool *replayed) {
  ProtobufCMessage *message = call_double_reply(call, &sandbox__lease__v1__acquire_lease_response__descriptor);
  const Sandbox__Lease__V1__AcquireLeaseResponse *reply = (const Sandbox__Lease__V1__AcquireLeaseResponse *)message;
  assert_non_null(reply->lease);
  assert_int_equal(strlen(reply->lease->id), LIMIT_LEASE_ID_BYTES);
  memcpy(id, reply->lease->id, LIMIT_LEASE_ID_BYTES + 1);
  if (replayed)
    *replayed = reply->replayed;
  protobuf_c_message_free_unpacked(message, NULL);
}

void acquire_id(struct fixture *fixture, const char *key, char id[static LIMIT_LEASE_ID_BYTES + 1]) {
  struct call *call = acquire(fixture, "coding", TTL_UNSET, key);
  acquired_id(call, id, NULL);
  call_double_free(call);
}

struct call *get_as(struct fixture *fixture, const char *consumer, const char *subject, const char *id) {
  Sandbox__Lease__V1__GetLeaseRequest request = SANDBOX__LEASE__V1__GET_LEASE_REQUEST__INIT;
  request.lease_id = (char *)id;
  return call_double_start(fixture->service, consumer, subject, "GetLease", &request.base);
}

struct call *get(struct fixture *fixture, const char *id) { return get_as(fixture, "app", "ann", id); }

struct call *release(struct fixture *fixture, const char *id) {
  Sandbox__Lease__V1__ReleaseLeaseRequest request = SANDBOX__LEASE__V1__RELEASE_LEASE_REQUEST__INIT;
  request.lease_id = (char *)id;
  return call_double_start(fixture->service, "app", "ann", "ReleaseLease", &request.base);
}

struct call *delete_lease(struct fixture *fixture, const char *id) {
  Sandbox__Lease__V1__DeleteLeaseRequest request = SANDBOX__LEASE__V1__DELETE_LEASE_REQUEST__INIT;
  request.lease_id = (char *)id;
  return call_double_start(fixture->service, "app", "ann", "DeleteLease", &request.base);
}

void expect_failure(struct call *call, enum reason reason, const char *message) {
  assert_int_equal(call->outcome, CALL_FAILED);
  assert_string_equal(reason_name(call->reason), reason_name(reason));
  assert_string_equal(call->message, message ? message : reason_message(reason));
  call_double_free(call);
}

void expect_reply(struct call *call) {
  if (call->outcome != CALL_REPLIED)
    fail_msg("outcome %d, %s %s", call->outcome, reason_name(call->reason), call->message);
  call_double_free(call);
}

void expect_waiting(const struct call *call) { assert_int_equal(call->outcome, CALL_WAITING); }
