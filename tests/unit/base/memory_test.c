#include "base/memory.h"
#include "tests/unit/base/check.h"
#include <stdlib.h>
#include <string.h>

static void test_blocks(void **state) {
  (void)state;
  CLEANUP_MEMORY void *none = memory_new(0);
  assert_non_null(none);
  CLEANUP_MEMORY uint8_t *zeroed = memory_array(3, 5);
  for (size_t i = 0; i < 15; i++)
    assert_int_equal(zeroed[i], 0);
  CLEANUP_MEMORY void *empty = memory_array(0, 8);
  assert_non_null(empty);
  CLEANUP_MEMORY char *text = memory_string("hello");
  assert_string_equal(text, "hello");
  CLEANUP_MEMORY char *part = memory_string_of("a\0b", 3);
  assert_memory_equal(part, "a\0b", 4);
  CLEANUP_MEMORY char *nothing = memory_string_of(NULL, 0);
  assert_string_equal(nothing, "");
}

static void test_overflow_is_refused(void **state) {
  (void)state;
  volatile size_t huge = SIZE_MAX;
  assert_null(memory_array(huge / 2, 3));
  assert_null(memory_string_of("x", huge));
}

static void test_resize(void **state) {
  (void)state;
  char *block = memory_string("abc");
  block = memory_resize(block, 100);
  assert_string_equal(block, "abc");
  memory_fail_after(1, 0);
  assert_null(memory_resize(block, 200));
  assert_string_equal(block, "abc");
  memory_fail_after(0, 0);
  memory_free(block);
  memory_free(NULL);
}

static void test_nth_allocation_fails(void **state) {
  (void)state;
  memory_fail_after(3, 0);
  for (int i = 1; i <= 5; i++) {
    void *block = memory_new(1);
    assert_true((block == NULL) == (i == 3));
    memory_free(block);
  }
  assert_int_equal(memory_fail_after(2, 1), 5);
  for (int i = 1; i <= 5; i++) {
    void *block = memory_zero(1);
    assert_true((block == NULL) == (i >= 2));
    memory_free(block);
  }
  assert_int_equal(memory_fail_after(0, 0), 5);
  CLEANUP_MEMORY void *block = memory_new(1);
  assert_non_null(block);
}

static void test_wipe(void **state) {
  (void)state;
  char secret[] = "secret";
  memory_wipe(secret, sizeof secret);
  for (size_t i = 0; i < sizeof secret; i++)
    assert_int_equal(secret[i], 0);
  memory_wipe(NULL, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_blocks), cmocka_unit_test(test_overflow_is_refused),
      cmocka_unit_test(test_resize), cmocka_unit_test(test_nth_allocation_fails),
      cmocka_unit_test(test_wipe),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
