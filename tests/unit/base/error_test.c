#include "base/error.h"
#include "base/memory.h"
#include "tests/unit/base/check.h"
#include <errno.h>
#include <string.h>

static void test_set(void **state) {
  (void)state;
  struct error *err CLEANUP_ERROR = NULL;
  assert_int_equal(error_set(&err, REASON_INVALID_REQUEST, "too long"), -1);
  assert_int_equal(error_reason(err), REASON_INVALID_REQUEST);
  assert_string_equal(error_message(err), "too long");
  assert_string_equal(error_detail(err), "");
  assert_null(error_field(err));
  assert_int_equal(error_retry_after(err), 0);
  error_set_retry_after(err, 1500);
  assert_int_equal(error_retry_after(err), 1500);
}

static void test_set_field(void **state) {
  (void)state;
  struct error *err CLEANUP_ERROR = NULL;
  assert_int_equal(error_set_field(&err, REASON_INVALID_REQUEST, "lease_id", NULL), -1);
  assert_string_equal(error_message(err), "Invalid request");
  assert_string_equal(error_field(err), "lease_id");
}

static void test_details(void **state) {
  (void)state;
  struct error *err CLEANUP_ERROR = NULL;
  assert_int_equal(error_set_detail(&err, REASON_POOL_EXHAUSTED, "%d of %d", 3, 4), -1);
  assert_string_equal(error_message(err), "No sandbox is available in this pool");
  assert_string_equal(error_detail(err), "3 of 4");
  assert_int_equal(error_context(&err, "pool %s", "coding"), -1);
  assert_string_equal(error_detail(err), "pool coding: 3 of 4");
  error_free(&err);
  assert_null(err);
  error_set(&err, REASON_ABORTED, "stopped");
  error_context(&err, "exec");
  assert_string_equal(error_detail(err), "exec");
  assert_string_equal(error_message(err), "stopped");
}

static void test_errno(void **state) {
  (void)state;
  struct error *err CLEANUP_ERROR = NULL;
  assert_int_equal(error_set_errno(&err, ENOENT, "opening %s", "/x"), -1);
  assert_int_equal(error_reason(err), REASON_INTERNAL);
  assert_string_equal(error_detail(err), "opening /x: No such file or directory");
  error_free(&err);
  error_set_errno(&err, 54321, "reading");
  assert_string_equal(error_detail(err), "reading: error 54321");
}

static void test_long_detail_is_cut(void **state) {
  (void)state;
  char text[5000];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  struct error *err CLEANUP_ERROR = NULL;
  error_set_detail(&err, REASON_INTERNAL, "%s", text);
  assert_true(strlen(error_detail(err)) < 2048);
  for (int i = 0; i < 10; i++)
    error_context(&err, "%s", text);
  assert_true(strlen(error_detail(err)) < 2048);
}

static void test_null_reads_as_internal(void **state) {
  (void)state;
  assert_int_equal(error_set(NULL, REASON_ABORTED, "x"), -1);
  assert_int_equal(error_set_field(NULL, REASON_ABORTED, "f", "x"), -1);
  assert_int_equal(error_set_detail(NULL, REASON_ABORTED, "x"), -1);
  assert_int_equal(error_set_errno(NULL, 1, "x"), -1);
  assert_int_equal(error_set_memory(NULL), -1);
  assert_int_equal(error_context(NULL, "x"), -1);
  struct error *none = NULL;
  assert_int_equal(error_context(&none, "x"), -1);
  assert_null(none);
  error_set_retry_after(NULL, 1);
  assert_int_equal(error_reason(NULL), REASON_INTERNAL);
  assert_string_equal(error_message(NULL), "Internal server error");
  assert_string_equal(error_detail(NULL), "");
  assert_null(error_field(NULL));
  assert_int_equal(error_retry_after(NULL), 0);
  error_free(NULL);
}

static void test_move(void **state) {
  (void)state;
  struct error *from = NULL, *to CLEANUP_ERROR = NULL;
  error_set(&from, REASON_ABORTED, NULL);
  assert_int_equal(error_move(&to, &from), -1);
  assert_null(from);
  assert_int_equal(error_reason(to), REASON_ABORTED);
  error_set(&from, REASON_ABORTED, NULL);
  assert_int_equal(error_move(NULL, &from), -1);
  assert_null(from);
  assert_int_equal(error_move(&to, &to), -1);
  assert_int_equal(error_reason(to), REASON_ABORTED);
}

static void test_without_memory_the_reason_stays(void **state) {
  (void)state;
  struct error *err CLEANUP_ERROR = NULL;
  for (size_t n = 1; n <= 3; n++) {
    memory_fail_after(n, 1);
    error_set_field(&err, REASON_LEASE_NOT_FOUND, "lease_id", "gone");
    memory_fail_after(0, 0);
    assert_int_equal(error_reason(err), REASON_LEASE_NOT_FOUND);
    assert_string_equal(error_message(err), "Lease not found");
    error_set_retry_after(err, 77);
    assert_int_equal(error_retry_after(err), 0);
    error_free(&err);
  }
  memory_fail_after(1, 1);
  error_set_errno(&err, ENOENT, "x");
  assert_int_equal(error_reason(err), REASON_INTERNAL);
  error_context(&err, "y");
  assert_int_equal(error_reason(err), REASON_INTERNAL);
  memory_fail_after(0, 0);
  error_context(&err, "later");
  assert_string_equal(error_detail(err), "later");
}

static void test_memory_error_is_shared_and_gets_context(void **state) {
  (void)state;
  memory_fail_after(1, 1);
  struct error *err CLEANUP_ERROR = NULL;
  assert_int_equal(error_set_memory(&err), -1);
  assert_string_equal(error_detail(err), "out of memory");
  struct error *other CLEANUP_ERROR = NULL;
  error_set_memory(&other);
  memory_fail_after(0, 0);
  error_context(&err, "acquire");
  assert_string_equal(error_detail(err), "acquire: out of memory");
  assert_string_equal(error_detail(other), "out of memory");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_set),
      cmocka_unit_test(test_set_field),
      cmocka_unit_test(test_details),
      cmocka_unit_test(test_errno),
      cmocka_unit_test(test_long_detail_is_cut),
      cmocka_unit_test(test_null_reads_as_internal),
      cmocka_unit_test(test_move),
      cmocka_unit_test(test_without_memory_the_reason_stays),
      cmocka_unit_test(test_memory_error_is_shared_and_gets_context),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
