#include "backend/kubernetes/status.h"
#include "tests/unit/kubernetes/check.h"
#include <stdbool.h>
#include <string.h>

static void expect(int code, const char *body, enum reason wanted, const char *word, const char *detail) {
  CLEANUP_ERROR struct error *err = NULL;
  char reason[STATUS_REASON_SIZE];
  assert_int_equal(status_error(code, body, strlen(body), reason, &err), -1);
  assert_int_equal(error_reason(err), wanted);
  assert_string_equal(reason, word);
  assert_string_equal(error_detail(err), detail);
}

static void test_status(void **state) {
  (void)state;
  expect(409, "{\"kind\":\"Status\",\"reason\":\"AlreadyExists\",\"message\":\"it exists\",\"code\":409}",
         REASON_INTERNAL, "AlreadyExists", "the API server answered 409 AlreadyExists: it exists");
  expect(503, "", REASON_SERVER_UNAVAILABLE, "", "the API server answered 503 : ");
  expect(500, "<html>", REASON_SERVER_UNAVAILABLE, "", "the API server answered 500 : ");
  expect(403, "{\"reason\":7,\"message\":[]}", REASON_SERVER_UNAVAILABLE, "", "the API server answered 403 : ");
  expect(401, "[]", REASON_SERVER_UNAVAILABLE, "", "the API server answered 401 : ");
  expect(422, "{\"reason\":\"Invalid\"}", REASON_INTERNAL, "Invalid", "the API server answered 422 Invalid: ");
}

static void test_long(void **state) {
  (void)state;
  char body[1024] = "{\"reason\":\"", reason[STATUS_REASON_SIZE];
  size_t length = strlen(body);
  memset(body + length, 'a', 900);
  memcpy(body + length + 900, "\"}", 3);
  status_error(500, body, strlen(body), reason, NULL);
  assert_int_equal(strlen(reason), STATUS_REASON_SIZE - 1);
}

static void test_memory(void **state) {
  (void)state;
  static const char body[] = "{\"reason\":\"Conflict\",\"message\":\"m\"}";
  TORTURE(CLEANUP_ERROR struct error *err = NULL; char reason[STATUS_REASON_SIZE];
          int result = status_error(409, body, sizeof body - 1, reason, &err), assert_int_equal(result, -1);
          assert_non_null(err));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_status),
      cmocka_unit_test(test_long),
      cmocka_unit_test(test_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
