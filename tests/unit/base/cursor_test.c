#include "base/cursor.h"
#include "base/memory.h"
#include "tests/unit/base/check.h"
#include <string.h>

static struct cursor_key key;

static int make_key(void **state) {
  (void)state;
  cursor_key_set(&key, BYTES("metadata-secret"));
  return 0;
}

static const struct cursor sample = {
    .scope = "0123456789abcdef0123456789abcdef01234567",
    .pool = "coding",
    .limit = 50,
    .first_page = INT64_C(1767323045123456789),
    .created = INT64_C(1767323045000000001),
    .id = "lease-0123456789abcdef0123456789abcdef",
};

static bool opens(const struct cursor_key *with, const char *text, size_t length, struct cursor *cursor) {
  struct error *err CLEANUP_ERROR = NULL;
  CLEANUP_MEMORY char *copy = memory_new(length);
  memcpy(copy, text, length);
  if (cursor_open(with, copy, length, cursor, &err) == 0)
    return true;
  assert_int_equal(error_reason(err), REASON_INVALID_CURSOR);
  assert_string_equal(error_message(err), "Invalid list cursor");
  assert_string_equal(error_detail(err), "");
  return false;
}

static void assert_same(const struct cursor *a, const struct cursor *b) {
  assert_string_equal(a->scope, b->scope);
  assert_string_equal(a->pool, b->pool);
  assert_string_equal(a->id, b->id);
  assert_int_equal(a->limit, b->limit);
  assert_true(a->first_page == b->first_page);
  assert_true(a->created == b->created);
}

static void test_round_trip(void **state) {
  (void)state;
  struct cursor longest = sample, shortest = {.limit = UINT32_MAX, .first_page = INT64_MIN, .created = INT64_MAX};
  memset(longest.pool, 'p', sizeof longest.pool - 1);
  const struct cursor *const cursors[] = {&sample, &longest, &shortest};
  for (size_t i = 0; i < COUNT_OF(cursors); i++) {
    struct cursor found;
    CLEANUP_MEMORY char *text = cursor_seal(&key, cursors[i], NULL);
    assert_non_null(text);
    assert_true(strlen(text) < 300);
    assert_true(opens(&key, text, strlen(text), &found));
    assert_same(&found, cursors[i]);
  }
}

/* Sealed elsewhere with the same key and nonce 00 01 … 0b: what one replica gives, another one opens. */
static void test_vector(void **state) {
  (void)state;
  struct cursor found;
  static const char text[] =
      "AAECAwQFBgcICQoLkJU1mmhBITOJp54vMT3cDkGOxHUxjSNTVMGWK3GOq3TkTmOAldb7QH4LyciKPx8-Np5z27cycxrEPGl8CV1J"
      "Grz0QyX_LB_mxBEUr9quKddWo5p92YZ73noHM5LSUrdAC7q73C34lFBS9TgaMCR48CufIjUXa_XU1hrPRQ";
  assert_true(opens(&key, text, strlen(text), &found));
  assert_same(&found, &sample);
}

static void test_nonces_differ(void **state) {
  (void)state;
  CLEANUP_MEMORY char *one = cursor_seal(&key, &sample, NULL);
  CLEANUP_MEMORY char *two = cursor_seal(&key, &sample, NULL);
  assert_memory_not_equal(one, two, 16);
}

static void test_another_key(void **state) {
  (void)state;
  struct cursor_key other;
  struct cursor found;
  cursor_key_set(&other, BYTES("metadata-secreT"));
  CLEANUP_MEMORY char *text = cursor_seal(&other, &sample, NULL);
  assert_false(opens(&key, text, strlen(text), &found));
  assert_true(opens(&other, text, strlen(text), &found));
}

static void test_every_damage_is_refused(void **state) {
  (void)state;
  struct cursor found;
  CLEANUP_MEMORY char *text = cursor_seal(&key, &sample, NULL);
  size_t length = strlen(text);
  for (size_t i = 0; i < length; i++) {
    assert_false(opens(&key, text, i, &found));
    char kept = text[i];
    for (int bit = 0; bit < 8; bit++) {
      text[i] = (char)(kept ^ 1 << bit);
      assert_false(opens(&key, text, length, &found));
    }
    text[i] = kept;
  }
  assert_false(opens(&key, text, length + 1, &found));
  assert_true(opens(&key, text, length, &found));
}

static void test_lengths(void **state) {
  (void)state;
  struct cursor found;
  static char text[LIMIT_CURSOR_BYTES + 8];
  memset(text, 'A', sizeof text);
  for (size_t length = 0; length < sizeof text; length++)
    assert_false(opens(&key, text, length, &found));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_vector),
      cmocka_unit_test(test_nonces_differ),
      cmocka_unit_test(test_another_key),
      cmocka_unit_test(test_every_damage_is_refused),
      cmocka_unit_test(test_lengths),
  };
  return cmocka_run_group_tests(tests, make_key, NULL);
}
