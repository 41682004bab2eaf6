#include "backend/kubernetes/retry.h"
#include "base/clock.h"
#include "tests/unit/kubernetes/check.h"

#define LATER INT64_MAX

static int64_t next(struct retry *retry, int code, int64_t after, int64_t left, uint32_t chance) {
  const struct retry_failure failure = {.code = code, .retry_after = after};
  return retry_next(retry, &failure, 0, left, chance);
}

static void test_what_passes(void **state) {
  (void)state;
  static const int pass[] = {0, 408, 429, 500, 502, 503, 504}, stay[] = {200, 400, 401, 403, 404, 409, 410, 422, 501};
  for (size_t i = 0; i < COUNT_OF(pass); i++)
    assert_true(next(&(struct retry){0}, pass[i], 0, LATER, 0) > 0);
  for (size_t i = 0; i < COUNT_OF(stay); i++)
    assert_int_equal(next(&(struct retry){0}, stay[i], 0, LATER, 0), -1);
}

static void test_doubles_and_ends(void **state) {
  (void)state;
  struct retry retry = {0};
  int64_t wanted = 50 * CLOCK_MILLISECOND;
  for (unsigned i = 1; i < RETRY_ATTEMPTS; i++) {
    assert_int_equal(next(&retry, 503, 0, LATER, 0), wanted < 5 * CLOCK_SECOND ? wanted : 5 * CLOCK_SECOND);
    wanted *= 2;
  }
  assert_int_equal(next(&retry, 503, 0, LATER, 0), -1);
}

static void test_chance(void **state) {
  (void)state;
  assert_int_equal(next(&(struct retry){0}, 503, 0, LATER, 0), 50 * CLOCK_MILLISECOND);
  int64_t least = next(&(struct retry){0}, 503, 0, LATER, UINT32_MAX);
  assert_true(least >= 25 * CLOCK_MILLISECOND && least < 26 * CLOCK_MILLISECOND);
}

static void test_retry_after(void **state) {
  (void)state;
  assert_int_equal(next(&(struct retry){0}, 429, 2 * CLOCK_SECOND, LATER, 0), 2 * CLOCK_SECOND);
  int64_t most = next(&(struct retry){0}, 429, 2 * CLOCK_SECOND, LATER, UINT32_MAX);
  assert_true(most > 2 * CLOCK_SECOND && most <= 2400 * CLOCK_MILLISECOND);
  /* A shorter one than the schedule's own wait never makes it shorter than itself. */
  assert_true(next(&(struct retry){0}, 429, 40 * CLOCK_MILLISECOND, LATER, UINT32_MAX) >= 40 * CLOCK_MILLISECOND);
  assert_true(next(&(struct retry){0}, 429, 3600 * CLOCK_SECOND, LATER, UINT32_MAX) <= 72 * CLOCK_SECOND);
}

static void test_deadline(void **state) {
  (void)state;
  assert_int_equal(next(&(struct retry){0}, 503, 0, 50 * CLOCK_MILLISECOND, 0), -1);
  assert_int_equal(next(&(struct retry){0}, 503, 0, 51 * CLOCK_MILLISECOND, 0), 50 * CLOCK_MILLISECOND);
  assert_int_equal(next(&(struct retry){0}, 429, 2 * CLOCK_SECOND, CLOCK_SECOND, 0), -1);
}

static void test_forever(void **state) {
  (void)state;
  struct retry retry = {0};
  for (int i = 0; i < 100000; i++) {
    int64_t wait = retry_forever(&retry, 0, (uint32_t)i * 2654435761u);
    assert_true(wait >= 25 * CLOCK_MILLISECOND && wait <= 5 * CLOCK_SECOND);
  }
}

static void test_header(void **state) {
  (void)state;
  int64_t wall = 1767323045 * CLOCK_SECOND; /* 2026-01-02T03:04:05Z */
  assert_int_equal(retry_after_parse("1", wall), CLOCK_SECOND);
  assert_int_equal(retry_after_parse("0", wall), 0);
  assert_int_equal(retry_after_parse("99999999999999999999", wall), 60 * CLOCK_SECOND);
  assert_int_equal(retry_after_parse("Fri, 02 Jan 2026 03:04:09 GMT", wall), 4 * CLOCK_SECOND);
  assert_int_equal(retry_after_parse("Fri, 02 Jan 2026 03:04:01 GMT", wall), 0);
  assert_int_equal(retry_after_parse("Fri, 02 Jan 2099 03:04:01 GMT", wall), 60 * CLOCK_SECOND);
  assert_int_equal(retry_after_parse("-1", wall), 0);
  assert_int_equal(retry_after_parse("soon", wall), 0);
  assert_int_equal(retry_after_parse("Fri, 02 Jan 2026 03:04:09 CET", wall), 0);
  assert_int_equal(retry_after_parse("Fri, 02 Jan 2026 03:04:09 GMT!", wall), 0);
  assert_int_equal(retry_after_parse("Fri, 32 Jan 2026 03:04:09 GMT", wall), 0);
  assert_int_equal(retry_after_parse("", wall), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_passes), cmocka_unit_test(test_doubles_and_ends), cmocka_unit_test(test_chance),
      cmocka_unit_test(test_retry_after), cmocka_unit_test(test_deadline),         cmocka_unit_test(test_forever),
      cmocka_unit_test(test_header),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
