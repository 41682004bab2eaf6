#include "base/buffer.h"
#include "base/memory.h"
#include "tests/unit/base/check.h"
#include <string.h>

static void test_append(void **state) {
  (void)state;
  struct buffer buffer CLEANUP_BUFFER;
  buffer_init(&buffer, 1000);
  assert_string_equal(buffer_text(&buffer), "");
  assert_null(buffer.data);
  assert_int_equal(buffer_append(&buffer, NULL, 0), 0);
  assert_null(buffer.data);
  assert_int_equal(buffer_append(&buffer, "ab", 2), 0);
  assert_int_equal(buffer_append_string(&buffer, "cd"), 0);
  assert_int_equal(buffer_append_byte(&buffer, 'e'), 0);
  assert_int_equal(buffer_append_format(&buffer, "%d%s", 12, "x"), 0);
  assert_string_equal(buffer_text(&buffer), "abcde12x");
  assert_int_equal(buffer.length, 8);
  assert_int_equal(buffer_append_format(&buffer, "%s", ""), 0);
  assert_int_equal(buffer.length, 8);
}

static void test_limit(void **state) {
  (void)state;
  struct buffer buffer CLEANUP_BUFFER;
  buffer_init(&buffer, 4);
  assert_int_equal(buffer_append(&buffer, "abc", 3), 0);
  assert_int_equal(buffer_append(&buffer, "de", 2), -1);
  assert_int_equal(buffer_append_format(&buffer, "%s", "de"), -1);
  assert_null(buffer_reserve(&buffer, 2));
  assert_string_equal(buffer_text(&buffer), "abc");
  assert_int_equal(buffer_append_byte(&buffer, 'd'), 0);
  assert_int_equal(buffer_append_byte(&buffer, 'e'), -1);
  assert_int_equal(buffer_append(&buffer, NULL, 0), 0);
  assert_string_equal(buffer_text(&buffer), "abcd");
  assert_int_equal(buffer.capacity, 5);
}

static void test_no_limit(void **state) {
  (void)state;
  struct buffer buffer CLEANUP_BUFFER;
  buffer_init(&buffer, SIZE_MAX);
  assert_int_equal(buffer_append_string(&buffer, "a"), 0);
  assert_int_equal(buffer_append(&buffer, "b", SIZE_MAX - 4), -1);
  assert_string_equal(buffer_text(&buffer), "a");
}

static void test_growth_keeps_bytes(void **state) {
  (void)state;
  struct buffer buffer CLEANUP_BUFFER;
  buffer_init(&buffer, 100000);
  for (int i = 0; i < 100000; i++)
    assert_int_equal(buffer_append_byte(&buffer, (uint8_t)(i * 7)), 0);
  assert_int_equal(buffer_append_byte(&buffer, 0), -1);
  for (int i = 0; i < 100000; i++)
    assert_int_equal(buffer.data[i], (uint8_t)(i * 7));
  assert_true(buffer.capacity <= 100001);
  assert_int_equal(buffer.data[buffer.length], 0);
}

static void test_reserve_and_commit(void **state) {
  (void)state;
  struct buffer buffer CLEANUP_BUFFER;
  buffer_init(&buffer, 100);
  uint8_t *at = buffer_reserve(&buffer, 10);
  memcpy(at, "0123456789", 10);
  buffer_commit(&buffer, 4);
  assert_string_equal(buffer_text(&buffer), "0123");
  buffer_commit(&buffer, 0);
  assert_non_null(buffer_reserve(&buffer, 96));
  assert_null(buffer_reserve(&buffer, 97));
}

static void test_shrinking(void **state) {
  (void)state;
  struct buffer buffer CLEANUP_BUFFER;
  buffer_init(&buffer, 100);
  buffer_consume(&buffer, 5);
  buffer_clear(&buffer);
  buffer_append_string(&buffer, "abcdef");
  buffer_consume(&buffer, 2);
  assert_string_equal(buffer_text(&buffer), "cdef");
  buffer_truncate(&buffer, 9);
  assert_string_equal(buffer_text(&buffer), "cdef");
  buffer_truncate(&buffer, 3);
  assert_string_equal(buffer_text(&buffer), "cde");
  buffer_consume(&buffer, 99);
  assert_string_equal(buffer_text(&buffer), "");
  assert_int_equal(buffer.length, 0);
}

static void test_take(void **state) {
  (void)state;
  struct buffer buffer CLEANUP_BUFFER;
  buffer_init(&buffer, 100);
  assert_null(buffer_take(&buffer));
  buffer_append_string(&buffer, "mine");
  CLEANUP_MEMORY char *text = buffer_take(&buffer);
  assert_string_equal(text, "mine");
  assert_null(buffer.data);
  assert_int_equal(buffer.limit, 100);
  buffer_append_string(&buffer, "x");
  buffer_clear(&buffer);
  assert_null(buffer_take(&buffer));
}

static void test_borrowed_memory(void **state) {
  (void)state;
  char memory[8];
  struct buffer buffer;
  memory_fail_after(1, 1);
  buffer_borrow(&buffer, memory, sizeof memory);
  assert_string_equal(buffer_text(&buffer), "");
  assert_int_equal(buffer_append_string(&buffer, "1234567"), 0);
  assert_int_equal(buffer_append_byte(&buffer, '8'), -1);
  assert_string_equal(memory, "1234567");
  memory_fail_after(0, 0);
}

static void test_unchanged_without_memory(void **state) {
  (void)state;
  struct buffer buffer CLEANUP_BUFFER;
  buffer_init(&buffer, 10000);
  buffer_append_string(&buffer, "abc");
  char big[500];
  memset(big, 'x', sizeof big - 1);
  big[sizeof big - 1] = '\0';
  memory_fail_after(1, 1);
  assert_int_equal(buffer_append(&buffer, big, sizeof big), -1);
  assert_int_equal(buffer_append_format(&buffer, "%s", big), -1);
  assert_null(buffer_reserve(&buffer, 500));
  memory_fail_after(0, 0);
  assert_string_equal(buffer_text(&buffer), "abc");
  assert_int_equal(buffer_append(&buffer, big, sizeof big), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_append),
      cmocka_unit_test(test_limit),
      cmocka_unit_test(test_no_limit),
      cmocka_unit_test(test_growth_keeps_bytes),
      cmocka_unit_test(test_reserve_and_commit),
      cmocka_unit_test(test_shrinking),
      cmocka_unit_test(test_take),
      cmocka_unit_test(test_borrowed_memory),
      cmocka_unit_test(test_unchanged_without_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
