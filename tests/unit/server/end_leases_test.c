/*
 * lease-server --end-leases, over a backend that tells of Leases when it starts.
 */
#include "server/end_leases.h"

#include "base/memory.h"
#include "tests/unit/server/backend_double.h"
#include "tests/unit/server/check.h"
#include <stdio.h>

static struct backend_operations operations;
static struct backend_double backend;
static bool start_fails, stopped;

struct outcome {
  int calls;
  size_t ended, failed;
  enum reason reason;
};

static void start_telling(struct backend *base, const struct backend_events *events, backend_done *done, void *context) {
  struct error *err = NULL;
  (void)base;
  backend.events = *events;
  for (size_t i = 0; i < backend.count; i++)
    events->bound(events->context, &backend.sandboxes[i]);
  if (backend.count > 0) /* told twice: its facts changed */
    events->bound(events->context, &backend.sandboxes[0]);
  if (start_fails)
    error_set(&err, REASON_SERVER_UNAVAILABLE, NULL);
  done(context, err);
  error_free(&err);
}

static void stop_noting(struct backend *base, backend_done *done, void *context) {
  (void)base;
  assert_false(stopped);
  assert_null(backend.releasing);
  stopped = true;
  done(context, NULL);
}

static void on_done(void *context, size_t ended, size_t failed, struct error *err) {
  struct outcome *outcome = context;
  assert_true(stopped);
  outcome->calls++;
  outcome->ended = ended;
  outcome->failed = failed;
  outcome->reason = err ? error_reason(err) : REASON_NONE;
}

static void prepare(size_t leases) {
  backend_double_init(&backend, NULL);
  operations = *backend.backend.operations;
  operations.start = start_telling;
  operations.stop = stop_noting;
  backend.backend.operations = &operations;
  start_fails = stopped = false;
  for (size_t i = 0; i < leases; i++) {
    struct backend_sandbox facts = {0};
    snprintf(facts.id, sizeof facts.id, "lease-%032zx", i);
    backend_double_add(&backend, &facts);
  }
}

static void test_every_lease_ends_once(void **state) {
  (void)state;
  struct outcome outcome = {0};
  prepare(200);
  assert_int_equal(end_leases_start(&backend.backend, on_done, &outcome, NULL), 0);
  assert_int_equal(outcome.calls, 1);
  assert_int_equal(outcome.ended, 200);
  assert_int_equal(outcome.failed, 0);
  assert_int_equal(outcome.reason, REASON_NONE);
  assert_int_equal(backend.count, 0);
  assert_int_equal(backend.releases, 200);
}

static void test_without_leases_it_is_done_at_once(void **state) {
  (void)state;
  struct outcome outcome = {0};
  prepare(0);
  assert_int_equal(end_leases_start(&backend.backend, on_done, &outcome, NULL), 0);
  assert_int_equal(outcome.calls, 1);
  assert_int_equal(outcome.ended, 0);
}

static void test_it_waits_for_every_answer_and_counts_failures(void **state) {
  (void)state;
  struct outcome outcome = {0};
  prepare(3);
  backend.at_once = false;
  assert_int_equal(end_leases_start(&backend.backend, on_done, &outcome, NULL), 0);
  backend_double_released(&backend, REASON_NONE);
  backend_double_released(&backend, REASON_INTERNAL);
  assert_int_equal(outcome.calls, 0);
  assert_false(stopped);
  backend_double_released(&backend, REASON_LEASE_NOT_FOUND); /* it ended by itself */
  assert_int_equal(outcome.calls, 1);
  assert_int_equal(outcome.ended, 2);
  assert_int_equal(outcome.failed, 1);
}

static void test_a_backend_that_does_not_start_is_an_error(void **state) {
  (void)state;
  struct outcome outcome = {0};
  prepare(1);
  start_fails = true;
  assert_int_equal(end_leases_start(&backend.backend, on_done, &outcome, NULL), 0);
  assert_int_equal(outcome.reason, REASON_SERVER_UNAVAILABLE);
  assert_int_equal(outcome.ended, 1); /* what it told of ends all the same */
}

/* Each allocation of its own failing in turn: all is answered, and no Lease counts as ended that is not. */
static void test_want_of_memory_is_told(void **state) {
  (void)state;
  for (size_t n = 1; n < 8; n++) {
    struct outcome outcome = {0};
    struct error *err = NULL;
    prepare(3);
    memory_fail_after(n, 0);
    int started = end_leases_start(&backend.backend, on_done, &outcome, &err);
    memory_fail_after(0, 0);
    assert_int_equal(outcome.calls, started == 0 ? 1 : 0);
    assert_int_equal(started == 0, err == NULL);
    if (started == 0) {
      assert_int_equal(outcome.ended, 3 - backend.count);
      assert_true(outcome.ended == 3 || outcome.failed > 0 || outcome.reason != REASON_NONE);
    }
    error_free(&err);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_lease_ends_once),
      cmocka_unit_test(test_without_leases_it_is_done_at_once),
      cmocka_unit_test(test_it_waits_for_every_answer_and_counts_failures),
      cmocka_unit_test(test_a_backend_that_does_not_start_is_an_error),
      cmocka_unit_test(test_want_of_memory_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
