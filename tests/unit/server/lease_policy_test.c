/*
 * Policy over the doubles: what acquire, release, get and quotas answer, and what they leave behind.
 */
#include "base/clock.h"
#include "tests/unit/server/check.h"
#include "tests/unit/server/fixture.h"
#include <stdlib.h>
#include <string.h>

#define ID_SIZE (LIMIT_LEASE_ID_BYTES + 1)

/* --- acquire --- */

static void test_acquire_answers(void **state) {
  struct fixture *fixture = *state;
  struct call *call = acquire(fixture, "coding", TTL_UNSET, "key");
  ProtobufCMessage *message = call_double_reply(call, &sandbox__lease__v1__acquire_lease_response__descriptor);
  const Sandbox__Lease__V1__Lease *lease = ((Sandbox__Lease__V1__AcquireLeaseResponse *)message)->lease;
  const struct backend_sandbox *sandbox = &fixture->backend.sandboxes[0];
  assert_string_equal(lease->id, sandbox->id);
  assert_string_equal(lease->pool, "coding");
  assert_int_equal(lease->status, SANDBOX__LEASE__V1__LEASE_STATUS__LEASE_STATUS_ACTIVE);
  assert_int_equal(lease->created_at->seconds, 1700000001);
  assert_int_equal(lease->expires_at->seconds, 1700000901);
  assert_int_equal(lease->last_used_at->seconds, 1700000001);
  protobuf_c_message_free_unpacked(message, NULL);
  call_double_free(call);
  /* The labels a backend gets tell nothing. */
  assert_int_equal(strlen(sandbox->scope), LABEL_SIZE - 1);
  assert_int_equal(strlen(sandbox->consumer), LABEL_SIZE - 1);
  assert_int_equal(strlen(sandbox->idempotency), LABEL_SIZE - 1);
  /* Its session is opened at once. */
  assert_int_equal(session_double.sessions, 1);
}

static void test_acquire_rules(void **state) {
  struct fixture *fixture = *state;
  char long_key[LIMIT_IDEMPOTENCY_KEY_BYTES + 2];
  memset(long_key, 'k', sizeof(long_key) - 1);
  long_key[sizeof(long_key) - 1] = 0;
  const char *key_rule = "'idempotency-key' header is required";
  expect_failure(acquire(fixture, "", 0, ""), REASON_INVALID_REQUEST, "'pool' must be a non-empty string");
  expect_failure(acquire(fixture, " \t", 0, ""), REASON_INVALID_REQUEST, "'pool' must be a non-empty string");
  expect_failure(acquire(fixture, "nowhere", 0, " "), REASON_INVALID_REQUEST, key_rule);
  expect_failure(acquire(fixture, "nowhere", 0, long_key), REASON_INVALID_REQUEST, key_rule);
  expect_failure(acquire(fixture, "nowhere", 0, "key"), REASON_UNKNOWN_POOL, NULL);
  char long_pool[200];
  memset(long_pool, 'p', sizeof(long_pool) - 1);
  long_pool[sizeof(long_pool) - 1] = 0;
  expect_failure(acquire(fixture, long_pool, 0, "key"), REASON_UNKNOWN_POOL, NULL);
  const int64_t bad[] = {0, -1, 3601, INT64_MAX, INT64_MIN + 1};
  for (size_t i = 0; i < COUNT_OF(bad); i++)
    expect_failure(acquire(fixture, "coding", bad[i], "key"), REASON_INVALID_LEASE_TTL,
                   "ttlSeconds must be an integer between 1 and 3600");
  assert_int_equal(fixture->backend.acquires, 0);
  expect_reply(acquire(fixture, "coding", 3600, long_key + 1));
  expect_reply(acquire(fixture, "coding", 1, "key"));
}

static void test_replay(void **state) {
  struct fixture *fixture = *state;
  char first[ID_SIZE], second[ID_SIZE];
  bool replayed;
  acquire_id(fixture, "key", first);
  struct call *call = acquire(fixture, "coding", 5, "key");
  acquired_id(call, second, &replayed);
  call_double_free(call);
  assert_string_equal(first, second);
  assert_true(replayed);
  expect_failure(acquire(fixture, "gvisor", TTL_UNSET, "key"), REASON_IDEMPOTENCY_CONFLICT, NULL);

  /* The key is another one for another Subject, another Consumer. */
  const char *others[][2] = {{"app", "bob"}, {"app2", "ann"}, {"appa", "nn"}};
  for (size_t i = 0; i < COUNT_OF(others); i++) {
    call = acquire_as(fixture, others[i][0], others[i][1], "gvisor", TTL_UNSET, "key");
    acquired_id(call, second, &replayed);
    call_double_free(call);
    assert_string_not_equal(first, second);
    assert_false(replayed);
  }

  /* After the end it makes a new Lease, in any Pool. */
  expect_reply(release(fixture, first));
  call = acquire(fixture, "gvisor", TTL_UNSET, "key");
  acquired_id(call, second, &replayed);
  call_double_free(call);
  assert_string_not_equal(first, second);
  assert_false(replayed);
}

static void test_pending_acquires_are_joined(void **state) {
  struct fixture *fixture = *state;
  fixture->backend.at_once = false;
  struct call *calls[3];
  for (size_t i = 0; i < 3; i++) {
    calls[i] = acquire(fixture, "coding", 10 + (int64_t)i, "key");
    expect_waiting(calls[i]);
  }
  expect_failure(acquire(fixture, "gvisor", TTL_UNSET, "key"), REASON_IDEMPOTENCY_CONFLICT, NULL);
  assert_int_equal(fixture->backend.acquires, 1);
  assert_int_equal(fixture->backend.pending->acquire.ttl, 10 * CLOCK_SECOND);

  /* One goes, the others wait on; the first that is left is the one that acquired. */
  call_double_cancel(calls[0]);
  expect_failure(calls[0], REASON_ABORTED, NULL);
  assert_int_equal(fixture->backend.cancels, 0);
  backend_double_bind(&fixture->backend);
  char first[ID_SIZE], second[ID_SIZE];
  bool replayed;
  acquired_id(calls[1], first, &replayed);
  assert_false(replayed);
  acquired_id(calls[2], second, &replayed);
  assert_true(replayed);
  assert_string_equal(first, second);
  call_double_free(calls[1]);
  call_double_free(calls[2]);
}

static void test_failed_acquire_fails_all(void **state) {
  struct fixture *fixture = *state;
  fixture->backend.at_once = false;
  struct call *first = acquire(fixture, "coding", TTL_UNSET, "key");
  struct call *second = acquire(fixture, "coding", TTL_UNSET, "key");
  backend_double_refuse(&fixture->backend, REASON_POOL_EXHAUSTED);
  assert_int_equal(first->retry_after, BACKEND_DOUBLE_RETRY_AFTER);
  expect_failure(first, REASON_POOL_EXHAUSTED, NULL);
  expect_failure(second, REASON_POOL_EXHAUSTED, NULL);
  /* The key is free again. */
  first = acquire(fixture, "gvisor", TTL_UNSET, "key");
  backend_double_bind(&fixture->backend);
  expect_reply(first);
}

static void test_abandoned_acquire_is_cancelled(void **state) {
  struct fixture *fixture = *state;
  fixture->backend.at_once = false;
  struct call *first = acquire(fixture, "coding", TTL_UNSET, "key");
  struct call *second = acquire(fixture, "coding", TTL_UNSET, "key");
  call_double_cancel(first);
  assert_int_equal(fixture->backend.cancels, 0);
  call_double_cancel(second);
  assert_int_equal(fixture->backend.cancels, 1);
  assert_null(fixture->backend.pending);
  expect_failure(first, REASON_ABORTED, NULL);
  expect_failure(second, REASON_ABORTED, NULL);
  assert_int_equal(fixture->backend.count, 0);
}

/* The same key comes again while the backend is still cancelling: a new acquire, but only after that. */
static void test_key_comes_again_while_cancelling(void **state) {
  struct fixture *fixture = *state;
  fixture->backend.at_once = fixture->backend.cancel_at_once = false;
  struct call *call = acquire(fixture, "coding", 10, "key");
  call_double_cancel(call);
  expect_failure(call, REASON_ABORTED, NULL);
  assert_int_equal(fixture->backend.cancels, 1);

  call = acquire(fixture, "coding", 20, "key");
  expect_waiting(call);
  assert_int_equal(fixture->backend.acquires, 1);
  backend_double_refuse(&fixture->backend, REASON_ABORTED);
  expect_waiting(call);
  assert_int_equal(fixture->backend.acquires, 2);
  assert_int_equal(fixture->backend.pending->acquire.ttl, 20 * CLOCK_SECOND);
  backend_double_bind(&fixture->backend);
  bool replayed;
  char id[ID_SIZE];
  acquired_id(call, id, &replayed);
  assert_false(replayed);
  call_double_free(call);
}

/* The sandbox comes in spite of the cancellation: it goes to whoever waits by then, or goes at once. */
static void test_late_sandbox(void **state) {
  struct fixture *fixture = *state;
  fixture->backend.at_once = fixture->backend.cancel_at_once = false;
  struct call *call = acquire(fixture, "coding", TTL_UNSET, "key");
  call_double_cancel(call);
  expect_failure(call, REASON_ABORTED, NULL);
  backend_double_bind(&fixture->backend);
  assert_int_equal(fixture->backend.releases, 1);
  backend_double_released(&fixture->backend, REASON_NONE);
  assert_int_equal(fixture->backend.count, 0);

  call = acquire(fixture, "coding", TTL_UNSET, "key");
  call_double_cancel(call);
  expect_failure(call, REASON_ABORTED, NULL);
  call = acquire(fixture, "coding", TTL_UNSET, "key");
  backend_double_bind(&fixture->backend);
  expect_reply(call);
  assert_int_equal(fixture->backend.releases, 1);
}

/* A Lease whose id reached nobody is ended; one that anybody may know is not. */
static void test_answer_in_vain(void **state) {
  struct fixture *fixture = *state;
  struct call *call = acquire(fixture, "coding", TTL_UNSET, "alone");
  call_double_close(call, false);
  assert_int_equal(fixture->backend.count, 0);
  expect_reply(call);

  /* It was replayed meanwhile: by an answer that arrives after, or before. */
  call = acquire(fixture, "coding", TTL_UNSET, "replayed");
  struct call *replay = acquire(fixture, "coding", TTL_UNSET, "replayed");
  call_double_close(call, false);
  assert_int_equal(fixture->backend.count, 1);
  call_double_close(replay, true);
  expect_reply(call);
  expect_reply(replay);
  call = acquire(fixture, "coding", TTL_UNSET, "replayed");
  call_double_close(call, false);
  expect_reply(call);
  assert_int_equal(fixture->backend.count, 1);

  /* It was used, or ended, meanwhile. */
  char id[ID_SIZE];
  call = acquire(fixture, "coding", TTL_UNSET, "used");
  acquired_id(call, id, NULL);
  expect_reply(get(fixture, id));
  call_double_close(call, false);
  expect_reply(call);
  expect_reply(get(fixture, id));
  call = acquire(fixture, "coding", TTL_UNSET, "ended");
  acquired_id(call, id, NULL);
  expect_reply(release(fixture, id));
  call_double_close(call, false);
  expect_reply(call);
}

/* --- quotas --- */

static void test_quotas(void **state) {
  struct fixture *fixture = calloc(1, sizeof(*fixture));
  assert_non_null(fixture);
  *state = fixture;
  setenv("SANDBOX_MAX_LEASES_PER_SUBJECT", "2", 1);
  setenv("SANDBOX_MAX_LEASES_PER_CONSUMER", "3", 1);
  fixture_open(fixture);
  unsetenv("SANDBOX_MAX_LEASES_PER_SUBJECT");
  unsetenv("SANDBOX_MAX_LEASES_PER_CONSUMER");

  fixture->backend.at_once = false;
  struct call *first = acquire(fixture, "coding", TTL_UNSET, "1"), *second = acquire(fixture, "coding", TTL_UNSET, "2");
  /* Pending ones count; joining one does not. */
  struct call *joined = acquire(fixture, "coding", TTL_UNSET, "2");
  struct call *refused = acquire(fixture, "coding", TTL_UNSET, "3");
  assert_true(refused->retry_after > 0);
  expect_failure(refused, REASON_LEASE_QUOTA_EXCEEDED, NULL);
  backend_double_bind(&fixture->backend);
  backend_double_refuse(&fixture->backend, REASON_SANDBOX_START_FAILED);
  char id[ID_SIZE];
  acquired_id(first, id, NULL);
  call_double_free(first);
  expect_failure(second, REASON_SANDBOX_START_FAILED, NULL);
  expect_failure(joined, REASON_SANDBOX_START_FAILED, NULL);

  /* A failed one gave its place back. A replay costs none. */
  fixture->backend.at_once = true;
  expect_reply(acquire(fixture, "coding", TTL_UNSET, "4"));
  expect_reply(acquire(fixture, "coding", TTL_UNSET, "4"));
  expect_failure(acquire(fixture, "coding", TTL_UNSET, "5"), REASON_LEASE_QUOTA_EXCEEDED, NULL);

  /* The Consumer's quota spans its Subjects, and no other Consumer. */
  expect_reply(acquire_as(fixture, "app", "bob", "coding", TTL_UNSET, "1"));
  expect_failure(acquire_as(fixture, "app", "bob", "coding", TTL_UNSET, "2"), REASON_LEASE_QUOTA_EXCEEDED, NULL);
  expect_reply(acquire_as(fixture, "other", "bob", "coding", TTL_UNSET, "2"));

  /* A Lease that is ending is no longer held. */
  fixture->backend.at_once = false;
  struct call *released = release(fixture, id);
  expect_waiting(released);
  fixture->backend.at_once = true;
  expect_reply(acquire(fixture, "coding", TTL_UNSET, "5"));
  backend_double_released(&fixture->backend, REASON_NONE);
  expect_reply(released);
}

/* A sandbox that is told of before its acquire completes counts once. */
static void test_bound_before_acquired(void **state) {
  struct fixture *fixture = calloc(1, sizeof(*fixture));
  assert_non_null(fixture);
  *state = fixture;
  setenv("SANDBOX_MAX_LEASES_PER_SUBJECT", "2", 1);
  fixture_open(fixture);
  unsetenv("SANDBOX_MAX_LEASES_PER_SUBJECT");
  fixture->backend.at_once = false;
  struct call *first = acquire(fixture, "coding", TTL_UNSET, "1");
  struct backend_sandbox facts = {.created_at = 5, .expires_at = INT64_MAX, .deadline = INT64_MAX};
  memcpy(facts.id, "lease-00000000000000000000000000000abc", ID_SIZE);
  memcpy(facts.pool, "coding", 7);
  memcpy(facts.scope, fixture->backend.pending->scope, LABEL_SIZE);
  memcpy(facts.consumer, fixture->backend.pending->consumer, LABEL_SIZE);
  memcpy(facts.idempotency, fixture->backend.pending->idempotency, LABEL_SIZE);
  backend_double_add(&fixture->backend, &facts);
  fixture->backend.events.bound(fixture->backend.events.context, &facts);
  struct call *second = acquire(fixture, "coding", TTL_UNSET, "2");
  expect_waiting(second);
  expect_failure(acquire(fixture, "coding", TTL_UNSET, "3"), REASON_LEASE_QUOTA_EXCEEDED, NULL);
  struct call *joined = acquire(fixture, "coding", TTL_UNSET, "1");
  expect_waiting(joined);
  backend_double_bind(&fixture->backend);
  backend_double_bind(&fixture->backend);
  expect_reply(first);
  expect_reply(second);
  expect_reply(joined);
}

/* --- scope --- */

static void test_foreign_is_as_absent(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  expect_reply(get(fixture, id));
  unsigned gets = fixture->backend.gets;
  const char *others[][2] = {{"app", "bob"}, {"app2", "ann"}};
  for (size_t i = 0; i < COUNT_OF(others); i++) {
    struct call *call = get_as(fixture, others[i][0], others[i][1], id);
    assert_string_equal(call->field, "");
    expect_failure(call, REASON_LEASE_NOT_FOUND, NULL);
    assert_int_equal(fixture->backend.gets, ++gets);
  }
  expect_failure(get(fixture, "lease-ffffffffffffffffffffffffffffffff"), REASON_LEASE_NOT_FOUND, NULL);
  assert_int_equal(fixture->backend.gets, ++gets);
  const char *bad[] = {"", "lease-", "lease-FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF", "lease-fffffffffffffffffffffffffffffffff",
                       "LEASE-ffffffffffffffffffffffffffffffff"};
  for (size_t i = 0; i < COUNT_OF(bad); i++)
    expect_failure(get(fixture, bad[i]), REASON_LEASE_NOT_FOUND, NULL);
  assert_int_equal(fixture->backend.gets, gets);

  /* Still so when it has ended: its own scope is told, no other. */
  expect_reply(release(fixture, id));
  expect_failure(release(fixture, id), REASON_LEASE_NOT_ACTIVE, NULL);
  expect_failure(get(fixture, id), REASON_LEASE_NOT_FOUND, NULL);
  Sandbox__Lease__V1__DeleteLeaseRequest request = SANDBOX__LEASE__V1__DELETE_LEASE_REQUEST__INIT;
  request.lease_id = id;
  expect_failure(call_double_start(fixture->service, "app", "bob", "DeleteLease", &request.base), REASON_LEASE_NOT_FOUND,
                 NULL);
}

/* A sandbox that only the backend knows is found through it, by its own scope alone. */
static void test_unknown_is_asked_of_the_backend(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  struct backend_sandbox facts = *backend_double_find(&fixture->backend, id);
  memcpy(facts.id, "lease-00000000000000000000000000000abc", ID_SIZE);
  memcpy(facts.idempotency, "another", 8);
  backend_double_add(&fixture->backend, &facts);
  expect_failure(get_as(fixture, "app", "bob", facts.id), REASON_LEASE_NOT_FOUND, NULL);
  expect_reply(get(fixture, facts.id));
  expect_reply(release(fixture, facts.id));

  /* One that has run out meanwhile is not active. */
  facts.deadline = 1;
  backend_double_add(&fixture->backend, &facts);
  memcpy(facts.id, "lease-00000000000000000000000000000abd", ID_SIZE);
  backend_double_add(&fixture->backend, &facts);
  expect_failure(release(fixture, facts.id), REASON_LEASE_NOT_ACTIVE, NULL);
}

/* --- the end --- */

static void test_release_waits_for_the_backend(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  fixture->backend.at_once = false;
  struct call *first = release(fixture, id), *second = delete_lease(fixture, id), *third = release(fixture, id);
  assert_int_equal(session_double.sessions, 0);
  expect_waiting(first);
  expect_waiting(second);
  expect_failure(get(fixture, id), REASON_LEASE_NOT_FOUND, NULL);
  /* One of those who wait goes away: the release goes on. */
  call_double_cancel(third);
  expect_failure(third, REASON_ABORTED, NULL);
  assert_int_equal(fixture->backend.releases, 1);
  backend_double_released(&fixture->backend, REASON_NONE);
  ProtobufCMessage *message = call_double_reply(first, &sandbox__lease__v1__release_lease_response__descriptor);
  const Sandbox__Lease__V1__Lease *lease = ((Sandbox__Lease__V1__ReleaseLeaseResponse *)message)->lease;
  assert_string_equal(lease->id, id);
  assert_int_equal(lease->status, SANDBOX__LEASE__V1__LEASE_STATUS__LEASE_STATUS_RELEASED);
  protobuf_c_message_free_unpacked(message, NULL);
  call_double_free(first);
  expect_reply(second);
  expect_failure(release(fixture, id), REASON_LEASE_NOT_ACTIVE, NULL);
}

static void test_release_that_fails_is_tried_again(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  fixture->backend.at_once = false;
  struct call *call = release(fixture, id);
  backend_double_released(&fixture->backend, REASON_SERVER_UNAVAILABLE);
  expect_failure(call, REASON_SERVER_UNAVAILABLE, NULL);
  /* By the caller … */
  call = release(fixture, id);
  assert_int_equal(fixture->backend.releases, 2);
  backend_double_released(&fixture->backend, REASON_SERVER_UNAVAILABLE);
  expect_failure(call, REASON_SERVER_UNAVAILABLE, NULL);
  /* … and a backend that knows it no more has ended it. */
  call = release(fixture, id);
  backend_double_released(&fixture->backend, REASON_LEASE_NOT_FOUND);
  expect_reply(call);
  expect_failure(release(fixture, id), REASON_LEASE_NOT_ACTIVE, NULL);
}

static void test_sandbox_ends_by_itself(void **state) {
  struct fixture *fixture = *state;
  const enum backend_end ends[] = {BACKEND_END_LOST, BACKEND_END_EXPIRED, BACKEND_END_RELEASED};
  const enum session_ended whys[] = {SESSION_ENDED_LOST, SESSION_ENDED_LEASE, SESSION_ENDED_LEASE};
  for (size_t i = 0; i < COUNT_OF(ends); i++) {
    char id[ID_SIZE];
    acquire_id(fixture, "key", id);
    backend_double_end(&fixture->backend, id, ends[i]);
    assert_int_equal(session_double.closed_why, whys[i]);
    expect_failure(release(fixture, id), REASON_LEASE_NOT_ACTIVE, NULL);
    expect_failure(get(fixture, id), REASON_LEASE_NOT_FOUND, NULL);
  }
  assert_int_equal(fixture->backend.releases, 0);
  /* Told before its release completes, and of one never heard of. */
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  fixture->backend.at_once = false;
  struct call *call = release(fixture, id);
  backend_double_end(&fixture->backend, id, BACKEND_END_RELEASED);
  expect_waiting(call);
  backend_double_released(&fixture->backend, REASON_SERVER_UNAVAILABLE);
  expect_reply(call);
  backend_double_end(&fixture->backend, "lease-ffffffffffffffffffffffffffffffff", BACKEND_END_LOST);
}

/* --- expiry --- */

static struct backend_sandbox facts_with_deadline(const char *id, int64_t deadline) {
  struct backend_sandbox facts = {.created_at = 1, .expires_at = INT64_MAX, .deadline = deadline};
  memcpy(facts.id, id, strlen(id));
  memcpy(facts.pool, "coding", 7);
  memcpy(facts.idempotency, id, strlen(id));
  return facts;
}

/* The nearest deadline is met by the clock alone, though others come and go, and move. */
static void test_expiry(void **state) {
  struct fixture *fixture = *state;
  int64_t now = clock_boot();
  fixture->backend.clock = clock_wall() - 7200 * CLOCK_SECOND; /* by the wall clock it ran out long ago */
  char used[ID_SIZE];
  acquire_id(fixture, "key", used);
  struct backend_sandbox far = facts_with_deadline("lease-00000000000000000000000000000fa0", now + 3600 * CLOCK_SECOND);
  struct backend_sandbox near = facts_with_deadline("lease-00000000000000000000000000000ea0", now + 50 * CLOCK_MILLISECOND);
  struct backend_sandbox moved = facts_with_deadline("lease-00000000000000000000000000000bb0", now + 3600 * CLOCK_SECOND);
  struct backend_sandbox *all[] = {&far, &near, &moved};
  for (size_t i = 0; i < COUNT_OF(all); i++) {
    backend_double_add(&fixture->backend, all[i]);
    fixture->backend.events.bound(fixture->backend.events.context, all[i]);
  }
  moved.deadline = now + 100 * CLOCK_MILLISECOND;
  fixture->backend.events.bound(fixture->backend.events.context, &moved);
  while (fixture->backend.releases < 2)
    uv_run(&fixture->loop, UV_RUN_ONCE);
  assert_null(backend_double_find(&fixture->backend, near.id));
  assert_null(backend_double_find(&fixture->backend, moved.id));
  assert_non_null(backend_double_find(&fixture->backend, far.id));
  assert_true(clock_boot() >= moved.deadline);
  expect_reply(get(fixture, used));
}

static void test_sweep_tries_again(void **state) {
  struct fixture *fixture = calloc(1, sizeof(*fixture));
  assert_non_null(fixture);
  *state = fixture;
  setenv("SANDBOX_SWEEP_INTERVAL", "1s", 1);
  fixture_open(fixture);
  unsetenv("SANDBOX_SWEEP_INTERVAL");
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  fixture->backend.at_once = false;
  struct call *call = release(fixture, id);
  backend_double_released(&fixture->backend, REASON_SERVER_UNAVAILABLE);
  expect_failure(call, REASON_SERVER_UNAVAILABLE, NULL);
  while (fixture->backend.sweeps == 0)
    uv_run(&fixture->loop, UV_RUN_ONCE);
  assert_int_equal(fixture->backend.releases, 2);
  backend_double_released(&fixture->backend, REASON_NONE);
  assert_int_equal(fixture->backend.count, 0);
}

/* --- the service --- */

static void test_ready(void **state) {
  struct fixture *fixture = calloc(1, sizeof(*fixture));
  assert_non_null(fixture);
  *state = fixture;
  fixture_open_unstarted(fixture);
  assert_false(lease_service_ready(fixture->service));
  expect_failure(acquire(fixture, "coding", TTL_UNSET, "key"), REASON_SERVER_UNAVAILABLE, NULL);
  expect_failure(get(fixture, "lease-ffffffffffffffffffffffffffffffff"), REASON_SERVER_UNAVAILABLE, NULL);
  fixture_start(fixture);
  assert_true(lease_service_ready(fixture->service));
  fixture->backend.not_ready = true;
  assert_false(lease_service_ready(fixture->service));
}

static void test_stop_answers_all(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  fixture->backend.at_once = false;
  struct call *pending = acquire(fixture, "coding", TTL_UNSET, "other"), *releasing = release(fixture, id);
  fixture_close(fixture);
  expect_failure(pending, REASON_ABORTED, NULL);
  expect_failure(releasing, REASON_ABORTED, NULL);
  assert_int_equal(fixture->backend.cancels, 1);
  free(fixture->backend.releasing);
}

static void test_settings(void **state) {
  (void)state;
  const struct {
    const char *name, *value;
  } bad[] = {{"SANDBOX_METADATA_SECRET", ""},           {"SANDBOX_MAX_TTL_SECONDS", "3601"},
             {"SANDBOX_DEFAULT_TTL_SECONDS", "0"},      {"SANDBOX_MAX_LEASES_PER_SUBJECT", "-1"},
             {"SANDBOX_MAX_LEASES_PER_CONSUMER", "x"},  {"SANDBOX_FILE_TRANSFER_MAX_CONCURRENT", "0"},
             {"SANDBOX_FILE_TRANSFER_MAX_PER_LEASE", "0"}, {"SANDBOX_FILE_TRANSFER_TIMEOUT", "2 minutes"},
             {"SANDBOX_ANSWER_MAX_BYTES", "41943039"}, {"SANDBOX_SWEEP_INTERVAL", "10ms"}};
  setenv("SANDBOX_METADATA_SECRET", "secret", 1);
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    setenv(bad[i].name, bad[i].value, 1);
    struct error *err = NULL;
    struct config *config = config_load(NULL, &err);
    assert_non_null(config);
    assert_null(lease_service_new(NULL, NULL, config, &err));
    assert_non_null(strstr(error_detail(err), bad[i].name));
    error_free(&err);
    config_free(config);
    unsetenv(bad[i].name);
    setenv("SANDBOX_METADATA_SECRET", "secret", 1);
  }
}

static void test_maximum_ttl(void **state) {
  struct fixture *fixture = calloc(1, sizeof(*fixture));
  assert_non_null(fixture);
  *state = fixture;
  setenv("SANDBOX_MAX_TTL_SECONDS", "60", 1);
  fixture_open(fixture);
  unsetenv("SANDBOX_MAX_TTL_SECONDS");
  expect_failure(acquire(fixture, "coding", 61, "key"), REASON_INVALID_LEASE_TTL,
                 "ttlSeconds must be an integer between 1 and 60");
  expect_reply(acquire(fixture, "coding", TTL_UNSET, "key"));
  const struct backend_sandbox *sandbox = &fixture->backend.sandboxes[0];
  assert_int_equal(sandbox->expires_at - sandbox->created_at, 60 * CLOCK_SECOND);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
#define OWN_FIXTURE(test) cmocka_unit_test_teardown(test, fixture_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
    WITH_FIXTURE(test_acquire_answers),
    WITH_FIXTURE(test_acquire_rules),
    WITH_FIXTURE(test_replay),
    WITH_FIXTURE(test_pending_acquires_are_joined),
    WITH_FIXTURE(test_failed_acquire_fails_all),
    WITH_FIXTURE(test_abandoned_acquire_is_cancelled),
    WITH_FIXTURE(test_key_comes_again_while_cancelling),
    WITH_FIXTURE(test_late_sandbox),
    WITH_FIXTURE(test_answer_in_vain),
    OWN_FIXTURE(test_quotas),
    OWN_FIXTURE(test_bound_before_acquired),
    WITH_FIXTURE(test_foreign_is_as_absent),
    WITH_FIXTURE(test_unknown_is_asked_of_the_backend),
    WITH_FIXTURE(test_release_waits_for_the_backend),
    WITH_FIXTURE(test_release_that_fails_is_tried_again),
    WITH_FIXTURE(test_sandbox_ends_by_itself),
    WITH_FIXTURE(test_expiry),
    OWN_FIXTURE(test_sweep_tries_again),
    OWN_FIXTURE(test_ready),
    WITH_FIXTURE(test_stop_answers_all),
    cmocka_unit_test(test_settings),
    OWN_FIXTURE(test_maximum_ttl),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
