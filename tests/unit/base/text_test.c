#include "base/text.h"
#include "tests/unit/base/check.h"
#include <string.h>

struct sample {
  const char *bytes;
  size_t length;
  const char *repaired; /* NULL: it is valid */
};

/* U+FFFD counts as in the WHATWG encoding standard and the Unicode standard, section 3.9. */
#define R "\xef\xbf\xbd"
static const struct sample samples[] = {
    {BYTES(""), NULL},
    {BYTES("plain"), NULL},
    {BYTES("\x7f\xc2\x80\xdf\xbf"), NULL},
    {BYTES("\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf"), NULL},
    {BYTES("\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"), NULL},
    {BYTES("\x80"), R},
    {BYTES("a\xbfz"), "a" R "z"},
    {BYTES("\xc0\x80"), R R},
    {BYTES("\xc1\xbf"), R R},
    {BYTES("\xc2"), R},
    {BYTES("\xc2z"), R "z"},
    {BYTES("\xe0\x80\x80"), R R R},
    {BYTES("\xe0\xa0"), R},
    {BYTES("\xe2\x82z"), R "z"},
    {BYTES("\xed\xa0\x80"), R R R},
    {BYTES("\xed\xbf\xbf"), R R R},
    {BYTES("\xf0\x80\x80\x80"), R R R R},
    {BYTES("\xf0\x90\x80"), R},
    {BYTES("\xf0\x9f\x98z"), R "z"},
    {BYTES("\xf4\x90\x80\x80"), R R R R},
    {BYTES("\xf5\x80\x80\x80"), R R R R},
    {BYTES("\xff\xfe"), R R},
    {BYTES("\xf0\x90\xe2\x82\xac"), R "\xe2\x82\xac"},
    {BYTES("a\xf1\x80\x80\xe1\x80\xc2"
           "b\x80"
           "c\x80\xbf"
           "d"),
     "a" R R R "b" R "c" R R "d"},
};

static void test_validity_and_repair(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(samples); i++) {
    /* At every place of an eight-byte word, since the ASCII run goes by words. */
    for (size_t shift = 0; shift < 9; shift++) {
      char bytes[64];
      memset(bytes, 'x', shift);
      memcpy(bytes + shift, samples[i].bytes, samples[i].length);
      size_t length = shift + samples[i].length;
      assert_int_equal(text_valid(bytes, length), samples[i].repaired == NULL);
      struct buffer out CLEANUP_BUFFER;
      buffer_init(&out, 1000);
      assert_int_equal(text_repair(&out, bytes, length), 0);
      const char *wanted = samples[i].repaired != NULL ? samples[i].repaired : samples[i].bytes;
      assert_int_equal(out.length, shift + strlen(wanted));
      if (out.length > 0)
        assert_memory_equal(out.data + shift, wanted, strlen(wanted));
      assert_true(out.length == 0 || text_valid(out.data, out.length));
    }
  }
}

/* The one code point whose encoding is three or four given bytes, or -1; written straight from the table of RFC 3629.
 */
static bool reference_valid(const uint8_t *b, size_t length) {
  if (length == 1)
    return b[0] <= 0x7F;
  for (size_t i = 1; i < length; i++)
    if (b[i] < 0x80 || b[i] > 0xBF)
      return false;
  if (length == 2)
    return b[0] >= 0xC2 && b[0] <= 0xDF;
  uint32_t point = length == 3 ? (uint32_t)(b[0] & 15) << 12 | (uint32_t)(b[1] & 63) << 6 | (b[2] & 63u) : 0;
  return b[0] >= 0xE0 && b[0] <= 0xEF && point >= 0x800 && !(point >= 0xD800 && point <= 0xDFFF);
}

static void test_every_sequence_of_up_to_three_bytes(void **state) {
  (void)state;
  for (uint32_t value = 0; value < 0x1000000; value++) {
    uint8_t b[3] = {(uint8_t)(value >> 16), (uint8_t)(value >> 8), (uint8_t)value};
    bool wanted = reference_valid(b, 3) || (reference_valid(b, 1) && reference_valid(b + 1, 2)) ||
                  (reference_valid(b, 2) && reference_valid(b + 2, 1)) ||
                  (reference_valid(b, 1) && reference_valid(b + 1, 1) && reference_valid(b + 2, 1));
    if (text_valid(b, 3) != wanted)
      fail_msg("%06x", value);
  }
}

static void test_every_code_point(void **state) {
  (void)state;
  for (uint32_t point = 0x10000; point <= 0x11FFFF; point++) {
    uint8_t b[4] = {(uint8_t)(0xF0 | point >> 18), (uint8_t)(0x80 | (point >> 12 & 63)),
                    (uint8_t)(0x80 | (point >> 6 & 63)), (uint8_t)(0x80 | (point & 63))};
    if (text_valid(b, 4) != (point <= 0x10FFFF))
      fail_msg("%06x", point);
  }
}

static void test_repair_leaves_a_full_buffer_unchanged(void **state) {
  (void)state;
  struct buffer out CLEANUP_BUFFER;
  buffer_init(&out, 6);
  buffer_append_string(&out, "ab");
  assert_int_equal(text_repair(&out, "cd\xff", 3), -1);
  assert_string_equal(buffer_text(&out), "ab");
  assert_int_equal(text_repair(&out, "c\xff", 2), 0);
  assert_string_equal(buffer_text(&out), "abc" R);
}

static void test_characters(void **state) {
  (void)state;
  assert_int_equal(text_characters("", 0), 0);
  assert_int_equal(text_characters(BYTES("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\0")), 5);
}

static void test_blank(void **state) {
  (void)state;
  assert_true(text_blank("", 0));
  assert_true(text_blank(BYTES(" \t\n\v\f\r")));
  assert_true(text_blank(BYTES("\xc2\x85\xc2\xa0\xe1\x9a\x80\xe2\x80\x80\xe2\x80\x8a\xe2\x80\xa8\xe2\x80\xa9\xe2\x80"
                               "\xaf\xe2\x81\x9f\xe3\x80\x80")));
  assert_false(text_blank(BYTES(" x ")));
  assert_false(text_blank(BYTES("\xe2\x80\x8b"))); /* U+200B is no White_Space */
  assert_false(text_blank(BYTES("\xef\xbb\xbf"))); /* nor is U+FEFF */
  assert_false(text_blank(BYTES("\0")));
  assert_false(text_blank(BYTES("\x1c")));
  assert_false(text_blank(BYTES(" \xff")));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_validity_and_repair), cmocka_unit_test(test_every_sequence_of_up_to_three_bytes),
      cmocka_unit_test(test_every_code_point),    cmocka_unit_test(test_repair_leaves_a_full_buffer_unchanged),
      cmocka_unit_test(test_characters),          cmocka_unit_test(test_blank),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
