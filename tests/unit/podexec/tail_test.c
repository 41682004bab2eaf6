/*
 * The mark at the end of a stream, however it is split, and what only looks like it.
 */
#include "backend/podexec/tail.h"
#include "base/buffer.h"
#include "tests/unit/websocket/check.h"
#include <string.h>

#define MARK "00112233445566778899aabbccddeeff\n"

static void give(void *context, const uint8_t *bytes, size_t length) {
  assert_true(length > 0);
  assert_int_equal(buffer_append(context, bytes, length), 0);
}

static void test_marks(void **state) {
  static const struct {
    const char *text, *given;
    bool complete;
  } cases[] = {
      {"hello" MARK, "hello", true},
      {MARK, "", true},
      {"hello" MARK "later", "hello", true},
      {MARK MARK, "", true},
      {"hello", "hello", false},
      {"0" MARK, "0", true},
      {"000" MARK, "000", true},
      {"0011223344556677889900112233" MARK, "0011223344556677889900112233", true},
      {"00112233445566778899aabbccddeefg\n", "00112233445566778899aabbccddeefg\n", false},
      {"x00112233445566778899aabbccddeeff", "x", false}, /* the rest may be the mark's begin */
      {"0011x0011", "0011x", false},
      {"", "", false},
  };
  (void)state;
  for (size_t i = 0; i < COUNT_OF(cases); i++)
    for (size_t piece = 1; piece <= 80; piece++) {
      struct tail tail = {0};
      CLEANUP_BUFFER struct buffer out;
      size_t length = strlen(cases[i].text);
      buffer_init(&out, 1000);
      for (size_t at = 0; at < length; at += piece)
        tail_receive(&tail, MARK, (const uint8_t *)cases[i].text + at, length - at < piece ? length - at : piece, give,
                     &out);
      assert_string_equal(buffer_text(&out), cases[i].given);
      assert_int_equal(tail.complete, cases[i].complete);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_marks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
