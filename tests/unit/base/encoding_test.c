#include "base/text.h"
#include "tests/unit/base/check.h"
#include <string.h>

static void test_hex(void **state) {
  (void)state;
  uint8_t bytes[256], back[256];
  char text[513];
  for (size_t i = 0; i < sizeof bytes; i++)
    bytes[i] = (uint8_t)i;
  text_hex(bytes, sizeof bytes, text);
  assert_memory_equal(text, "000102", 6);
  assert_string_equal(text + 506, "fdfeff");
  assert_int_equal(text_unhex(text, 512, back, 256), 0);
  assert_memory_equal(bytes, back, 256);
  assert_int_equal(text_unhex("", 0, back, 0), 0);
  assert_int_equal(text_unhex("0", 1, back, 1), -1);
  assert_int_equal(text_unhex("000", 3, back, 1), -1);
  assert_int_equal(text_unhex("0A", 2, back, 1), -1);
  assert_int_equal(text_unhex("0g", 2, back, 1), -1);
  assert_int_equal(text_unhex("/0", 2, back, 1), -1);
  assert_int_equal(text_unhex(":0", 2, back, 1), -1);
  assert_int_equal(text_unhex("0`", 2, back, 1), -1);
}

struct pair {
  const char *bytes;
  size_t length;
  const char *standard, *url;
};

/* RFC 4648, section 10, and bytes that need the last two digits of the alphabets. */
static const struct pair pairs[] = {
    {BYTES(""), "", ""},
    {BYTES("f"), "Zg==", "Zg"},
    {BYTES("fo"), "Zm8=", "Zm8"},
    {BYTES("foo"), "Zm9v", "Zm9v"},
    {BYTES("foob"), "Zm9vYg==", "Zm9vYg"},
    {BYTES("fooba"), "Zm9vYmE=", "Zm9vYmE"},
    {BYTES("foobar"), "Zm9vYmFy", "Zm9vYmFy"},
    {BYTES("\xfb\xff\xfe\0"), "+//+AA==", "-__-AA"},
};

static void test_base64_vectors(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(pairs); i++) {
    const struct pair *p = &pairs[i];
    struct buffer out CLEANUP_BUFFER;
    buffer_init(&out, 1000);
    assert_int_equal(text_base64(&out, p->bytes, p->length), 0);
    assert_string_equal(buffer_text(&out), p->standard);
    buffer_clear(&out);
    assert_int_equal(text_base64url(&out, p->bytes, p->length), 0);
    assert_string_equal(buffer_text(&out), p->url);
    buffer_clear(&out);
    assert_int_equal(text_unbase64(&out, p->standard, strlen(p->standard)), 0);
    assert_int_equal(out.length, p->length);
    assert_memory_equal(buffer_text(&out), p->bytes, p->length);
    buffer_clear(&out);
    assert_int_equal(text_unbase64url(&out, p->url, strlen(p->url)), 0);
    assert_int_equal(out.length, p->length);
    assert_memory_equal(buffer_text(&out), p->bytes, p->length);
  }
}

static void test_readers_take_the_canonical_form_alone(void **state) {
  (void)state;
  static const char *const bad_standard[] = {
      "Z",    "Zg",    "Zg=",   "Zg===",  "Zg==Zg==", "Zh==", "Zm9=", "Zm8=Zm8=",   "=",
      "====", "Zm9v ", " Zm9v", "Zm\n9v", "-__-",     "Zg=g", "Z===", "\xc3\xa4Zg", "Zm9v===="};
  for (size_t i = 0; i < COUNT_OF(bad_standard); i++) {
    struct buffer out CLEANUP_BUFFER;
    buffer_init(&out, 1000);
    buffer_append_string(&out, "kept");
    assert_int_equal(text_unbase64(&out, bad_standard[i], strlen(bad_standard[i])), -1);
    assert_int_equal(out.length, 4);
    assert_string_equal(buffer_text(&out), "kept");
  }
  static const char *const bad_url[] = {"Z",     "Zg==", "Zh",     "Zm9", "Zm8=", "+//+",
                                        "Zm9vZ", "Zm 9", "Zm9v\n", "=",   "Zg.Zg"};
  for (size_t i = 0; i < COUNT_OF(bad_url); i++) {
    struct buffer out CLEANUP_BUFFER;
    buffer_init(&out, 1000);
    assert_int_equal(text_unbase64url(&out, bad_url[i], strlen(bad_url[i])), -1);
    assert_int_equal(out.length, 0);
  }
  struct buffer out CLEANUP_BUFFER;
  buffer_init(&out, 1000);
  assert_int_equal(text_unbase64url(&out, BYTES("Zm9\0")), -1);
}

/* Among all texts of one short length exactly those that a writer makes are read. */
static void test_every_short_text(void **state) {
  (void)state;
  int read = 0;
  for (int a = 0; a < 256; a++)
    for (int b = 0; b < 256; b++) {
      char text[2] = {(char)a, (char)b};
      struct buffer out CLEANUP_BUFFER;
      buffer_init(&out, 10);
      if (text_unbase64url(&out, text, 2) != 0)
        continue;
      read++;
      struct buffer again CLEANUP_BUFFER;
      buffer_init(&again, 10);
      assert_int_equal(text_base64url(&again, out.data, out.length), 0);
      assert_memory_equal(again.data, text, 2);
    }
  assert_int_equal(read, 256);
}

static void test_round_trips(void **state) {
  (void)state;
  uint8_t bytes[300];
  for (size_t length = 0; length < sizeof bytes; length++) {
    bytes[length] = (uint8_t)(length * 151 + 7);
    struct buffer text CLEANUP_BUFFER;
    struct buffer back CLEANUP_BUFFER;
    buffer_init(&text, 1000);
    buffer_init(&back, length);
    assert_int_equal(text_base64(&text, bytes, length), 0);
    assert_int_equal(text_unbase64(&back, buffer_text(&text), text.length), 0);
    assert_int_equal(back.length, length);
    assert_memory_equal(buffer_text(&back), bytes, length);
  }
}

static void test_full_buffer(void **state) {
  (void)state;
  struct buffer out CLEANUP_BUFFER;
  buffer_init(&out, 7);
  assert_int_equal(text_base64(&out, "foob", 4), -1);
  assert_int_equal(text_base64(&out, "foo", 3), 0);
  assert_int_equal(text_unbase64(&out, "Zm9v", 4), 0);
  assert_int_equal(text_unbase64(&out, "Zg==", 4), -1);
  assert_string_equal(buffer_text(&out), "Zm9vfoo");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_hex),
      cmocka_unit_test(test_base64_vectors),
      cmocka_unit_test(test_readers_take_the_canonical_form_alone),
      cmocka_unit_test(test_every_short_text),
      cmocka_unit_test(test_round_trips),
      cmocka_unit_test(test_full_buffer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
