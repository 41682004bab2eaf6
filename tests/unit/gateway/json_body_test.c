/*
 * Long strings as JSON: however they are cut, the same comes out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/text.h"
#include "gateway/json_body.h"

static void assert_pieces(enum json_body_coding coding, const char *bytes, size_t length) {
  struct buffer whole CLEANUP_BUFFER;
  buffer_init(&whole, 1 << 20);
  assert_int_equal(buffer_append_string(&whole, "[\""), 0);
  assert_int_equal(coding == JSON_BODY_BASE64 ? text_base64(&whole, bytes, length) : json_write_escaped(&whole, bytes, length), 0);
  assert_int_equal(buffer_append_string(&whole, "\"]"), 0);
  for (size_t piece = 1; piece <= length + 5; piece++) {
    struct json_body body = {.count = 0};
    struct buffer out CLEANUP_BUFFER;
    int more;
    buffer_init(&out, 1 << 20);
    json_body_add_text(&body, "[\"");
    json_body_add(&body, coding, bytes, length);
    json_body_add_text(&body, "\"]");
    assert_int_equal(json_body_size(&body), length + 4);
    for (int round = 0; round < 2; round++) {
      buffer_clear(&out);
      while ((more = json_body_next(&body, piece, &out)) > 0)
        ;
      assert_int_equal(more, 0);
      assert_int_equal(out.length, whole.length);
      assert_memory_equal(out.data, whole.data, out.length);
      json_body_rewind(&body);
    }
  }
}

static void test_text(void **state) {
  (void)state;
  static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xe2\x80\xa8\"\\\n\0z\xf0\x9f\x98\x80\xf0\x9f\x98\x80";
  assert_pieces(JSON_BODY_ESCAPE, text, sizeof text - 1);
}

/* Characters that are cut, and bytes that only go on, in every mixture. */
static void test_bytes_that_are_no_text(void **state) {
  (void)state;
  static const unsigned char choices[] = {'a', 0x80, 0xbf, 0xc3, 0xe2, 0xed, 0xf0, 0xf4, 0xff, 0x9f};
  srandom(1);
  for (int i = 0; i < 3000; i++) {
    char bytes[24];
    for (size_t at = 0; at < sizeof bytes; at++)
      bytes[at] = (char)choices[(size_t)random() % sizeof choices];
    assert_pieces(JSON_BODY_ESCAPE, bytes, sizeof bytes);
  }
}

static void test_base64(void **state) {
  (void)state;
  for (size_t length = 0; length < 20; length++)
    assert_pieces(JSON_BODY_BASE64, "0123456789abcdefghij", length);
}

static void test_full_buffer(void **state) {
  (void)state;
  struct json_body body = {.count = 0};
  struct buffer out CLEANUP_BUFFER;
  buffer_init(&out, 10);
  json_body_add(&body, JSON_BODY_ESCAPE, "0123456789\1", 11);
  assert_int_equal(json_body_next(&body, 100, &out), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_text),
      cmocka_unit_test(test_bytes_that_are_no_text),
      cmocka_unit_test(test_base64),
      cmocka_unit_test(test_full_buffer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
