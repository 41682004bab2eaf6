#include "base/error.h"
#include "tests/unit/base/check.h"
#include <string.h>

static void test_known_rows(void **state) {
  (void)state;
  assert_string_equal(reason_name(REASON_LEASE_NOT_FOUND), "LEASE_NOT_FOUND");
  assert_int_equal(reason_http_status(REASON_LEASE_NOT_FOUND), 404);
  assert_int_equal(reason_grpc_code(REASON_LEASE_NOT_FOUND), 5);
  assert_string_equal(reason_message(REASON_LEASE_NOT_FOUND), "Lease not found");
  assert_false(reason_retryable(REASON_LEASE_NOT_FOUND));
  assert_int_equal(reason_grpc_code(REASON_UNAUTHORIZED), 16);
  assert_int_equal(reason_grpc_code(REASON_INVALID_REQUEST), 3);
  assert_int_equal(reason_grpc_code(REASON_ABORTED), 1);
  assert_int_equal(reason_grpc_code(REASON_SANDBOX_READY_TIMEOUT), 4);
  assert_int_equal(reason_grpc_code(REASON_IDEMPOTENCY_CONFLICT), 6);
  assert_int_equal(reason_grpc_code(REASON_LEASE_QUOTA_EXCEEDED), 8);
  assert_int_equal(reason_grpc_code(REASON_LEASE_NOT_ACTIVE), 9);
  assert_int_equal(reason_grpc_code(REASON_BODY_TOO_LARGE), 11);
  assert_int_equal(reason_grpc_code(REASON_NOT_FOUND), 12);
  assert_int_equal(reason_grpc_code(REASON_INTERNAL), 13);
  assert_int_equal(reason_grpc_code(REASON_SERVER_UNAVAILABLE), 14);
  assert_true(reason_retryable(REASON_LEASE_QUOTA_EXCEEDED));
}

static void test_every_row_is_sound(void **state) {
  (void)state;
  for (int i = REASON_NONE + 1; i < REASON_COUNT; i++) {
    enum reason reason = (enum reason)i;
    assert_true(reason_http_status(reason) >= 400 && reason_http_status(reason) <= 599);
    assert_true(reason_grpc_code(reason) >= 1 && reason_grpc_code(reason) <= 16);
    assert_true(strlen(reason_message(reason)) > 0);
    assert_int_equal(reason_find(reason_name(reason)), reason);
  }
}

static void test_no_reason_reads_as_internal(void **state) {
  (void)state;
  assert_string_equal(reason_name(REASON_NONE), "INTERNAL");
  assert_string_equal(reason_name((enum reason)9999), "INTERNAL");
  assert_int_equal(reason_http_status((enum reason)9999), 500);
  assert_int_equal(reason_find("NO_SUCH_REASON"), REASON_NONE);
  assert_int_equal(reason_find(""), REASON_NONE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_known_rows),
      cmocka_unit_test(test_every_row_is_sound),
      cmocka_unit_test(test_no_reason_reads_as_internal),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
