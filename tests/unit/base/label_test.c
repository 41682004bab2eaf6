#include "base/identity.h"
#include "base/memory.h"
#include "tests/unit/base/check.h"
#include <string.h>

struct label_case {
  const char *parts[4];
  size_t count;
  const char *label;
};

/* Made with Go 1.26 (json.Encoder, SetEscapeHTML(false)); JavaScript's JSON.stringify gives the same but for the last
 * row, which has U+2028 and U+2029. The metadata secret is "metadata-secret". */
static const struct label_case cases[] = {
    {{"scope", "acme", "user-7"}, 3, "cc846b4fc676206ae4b9c7ed49b3aa56e4026ba4"},
    {{"consumer", "acme"}, 2, "72d05fddf444c894c5fe46b4c7d44fc6781ccfe2"},
    {{"idempotency", "acme", "user-7", "key-1"}, 4, "8d21472b458198083605646691631184e5fe9342"},
    {{"idempotency", "pool", "pool", "coding"}, 4, "48a00ebfb39f7628791792a340ce1a8e8febf4fd"},
    {{""}, 1, "7ed9d3f1df0b82814103f92204ed2a803d2afee0"},
    {{NULL}, 0, "57e339f17ea950b2c85c747b308334b59b73de31"},
    {{"scope", "a\"b\\c/d", "<>&'"}, 3, "3bfdbd9317fa9a3d8354c83ccbf7cc404e2dc514"},
    {{"scope", "\b\f\n\r\t\x01\x1f\x7f", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
     3,
     "2586acf36a306381c08ea4960d8faaf40bfc95d6"},
    {{"scope", "\xe2\x80\xa8\xe2\x80\xa9", "\xef\xbb\xbf\xef\xbf\xbd\xef\xbf\xbf"},
     3,
     "d814f7c2dd878d3e7f7ebf146d750d0c890a0245"},
};

static void test_labels(void **state) {
  (void)state;
  struct digest_key key;
  digest_key_set(&key, BYTES("metadata-secret"));
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    char label[LABEL_SIZE];
    assert_int_equal(label_make(&key, cases[i].parts, cases[i].count, label), 0);
    assert_string_equal(label, cases[i].label);
  }
}

/* Where one part ends and the next begins makes a difference. */
static void test_parts_do_not_run_together(void **state) {
  (void)state;
  struct digest_key key;
  digest_key_set(&key, BYTES("metadata-secret"));
  static const char *const together[][2] = {{"ab", "c"}, {"a", "bc"},      {"abc", ""},
                                            {"", "abc"}, {"a\",\"b", "c"}, {"a", "b\",\"c"}};
  char labels[COUNT_OF(together)][LABEL_SIZE];
  for (size_t i = 0; i < COUNT_OF(together); i++) {
    assert_int_equal(label_make(&key, together[i], 2, labels[i]), 0);
    for (size_t k = 0; k < i; k++)
      assert_string_not_equal(labels[i], labels[k]);
  }
}

static void test_without_memory(void **state) {
  (void)state;
  struct digest_key key;
  char label[LABEL_SIZE];
  digest_key_set(&key, BYTES("metadata-secret"));
  memory_fail_after(1, 1);
  assert_int_equal(label_make(&key, cases[0].parts, cases[0].count, label), -1);
  memory_fail_after(0, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_labels),
      cmocka_unit_test(test_parts_do_not_run_together),
      cmocka_unit_test(test_without_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
