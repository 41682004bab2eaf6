#include "base/json.h"
#include "tests/unit/base/check.h"
#include <stdio.h>
#include <string.h>

struct spelling {
  const char *text;
  size_t length;
  const char *json;
};

static const struct spelling spellings[] = {
    {BYTES(""), "\"\""},
    {BYTES("plain"), "\"plain\""},
    {BYTES("\"\\/"), "\"\\\"\\\\/\""},
    {BYTES("\b\f\n\r\t"), "\"\\b\\f\\n\\r\\t\""},
    {BYTES("\0\x01\x0b\x1f\x7f"), "\"\\u0000\\u0001\\u000b\\u001f\x7f\""},
    {BYTES("<>&'"), "\"<>&'\""},
    {BYTES("\xe2\x80\xa7\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa\xe2\x82\xac"),
     "\"\xe2\x80\xa7\\u2028\\u2029\xe2\x80\xaa\xe2\x82\xac\""},
    {BYTES("\xf0\x9f\x98\x80\xc3\xa4\xef\xbf\xbf"), "\"\xf0\x9f\x98\x80\xc3\xa4\xef\xbf\xbf\""},
    {BYTES("a\xff\xe2\x80z\xe2"), "\"a\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd\""},
};

static void test_spellings(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(spellings); i++) {
    struct buffer out CLEANUP_BUFFER;
    buffer_init(&out, 1000);
    assert_int_equal(json_write_string(&out, spellings[i].text, spellings[i].length), 0);
    assert_string_equal(buffer_text(&out), spellings[i].json);
  }
}

/* Without quotes, and all or nothing as well. */
static void test_escaped_is_the_string_without_quotes(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(spellings); i++) {
    size_t length = strlen(spellings[i].json) - 2;
    for (size_t limit = 1; limit <= length + 2; limit++) {
      struct buffer out CLEANUP_BUFFER;
      buffer_init(&out, limit);
      assert_int_equal(buffer_append_byte(&out, '['), 0);
      bool fits = length + 1 <= limit;
      assert_int_equal(json_write_escaped(&out, spellings[i].text, spellings[i].length), fits ? 0 : -1);
      assert_int_equal(out.length, fits ? length + 1 : 1);
      assert_memory_equal(out.data + 1, spellings[i].json + 1, out.length - 1);
    }
  }
}

/* Each byte at each place among plain ones: eight bytes are looked at together. */
static void test_every_byte_at_every_place(void **state) {
  (void)state;
  for (int byte = 0; byte < 256; byte++) {
    struct buffer alone CLEANUP_BUFFER;
    buffer_init(&alone, 100);
    assert_int_equal(json_write_string(&alone, &(char){(char)byte}, 1), 0);
    for (size_t place = 0; place < 24; place++) {
      char text[24], wanted[64];
      memset(text, place % 2 == 0 ? '~' : ' ', sizeof text);
      int length = snprintf(wanted, sizeof wanted, "\"%.*s%.*s%.*s\"", (int)place, text, (int)alone.length - 2,
                            alone.data + 1, (int)(23 - place), text);
      text[place] = (char)byte;
      struct buffer out CLEANUP_BUFFER;
      buffer_init(&out, 100);
      assert_int_equal(json_write_string(&out, text, sizeof text), 0);
      assert_int_equal(out.length, length);
      assert_memory_equal(out.data, wanted, out.length);
    }
  }
}

static void test_full_buffer_stays_unchanged(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(spellings); i++)
    for (size_t limit = 0; limit <= strlen(spellings[i].json) + 2; limit++) {
      struct buffer out CLEANUP_BUFFER;
      buffer_init(&out, limit);
      buffer_append(&out, "[", limit > 0);
      size_t before = out.length;
      if (json_write_string(&out, spellings[i].text, spellings[i].length) == 0) {
        assert_true(limit >= before + strlen(spellings[i].json));
      } else {
        assert_true(limit < before + strlen(spellings[i].json));
        assert_int_equal(out.length, before);
        assert_string_equal(buffer_text(&out), before > 0 ? "[" : "");
      }
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_spellings),
      cmocka_unit_test(test_escaped_is_the_string_without_quotes),
      cmocka_unit_test(test_every_byte_at_every_place),
      cmocka_unit_test(test_full_buffer_stays_unchanged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
