#include "base/digest.h"
#include "base/memory.h"
#include "base/text.h"
#include "tests/unit/base/check.h"
#include <string.h>

static void assert_digest(const uint8_t digest[static DIGEST_SIZE], const char *hex) {
  char text[2 * DIGEST_SIZE + 1];
  text_hex(digest, DIGEST_SIZE, text);
  assert_string_equal(text, hex);
}

/* FIPS 180-4's examples. */
static void test_sha256(void **state) {
  (void)state;
  struct digest digest;
  uint8_t out[DIGEST_SIZE];
  digest_start(&digest);
  digest_finish(&digest, out);
  assert_digest(out, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  digest_start(&digest);
  digest_update(&digest, "abc", 3);
  digest_finish(&digest, out);
  assert_digest(out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  static char many[1000000];
  memset(many, 'a', sizeof many);
  digest_start(&digest);
  for (size_t at = 0, step = 1; at < sizeof many; at += step, step = step * 3 + 1) {
    if (step > sizeof many - at)
      step = sizeof many - at;
    digest_update(&digest, many + at, step);
    digest_update(&digest, NULL, 0);
  }
  struct digest copy = digest;
  digest_finish(&digest, out);
  assert_digest(out, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  digest_finish(&copy, out);
  assert_digest(out, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

struct hmac_case {
  const char *key;
  size_t key_length;
  const char *message;
  const char *hex;
};

/* RFC 4231; its long keys are 131 times 0xaa. */
static const struct hmac_case hmac_cases[] = {
    {BYTES("\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b"), "Hi There",
     "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
    {BYTES("Jefe"), "what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
    {NULL, 131, "Test Using Larger Than Block-Size Key - Hash Key First",
     "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
    {NULL, 131,
     "This is a test using a larger than block-size key and a larger than block-size data. The key needs to be hashed "
     "before being used by the HMAC algorithm.",
     "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
};

static void test_hmac(void **state) {
  (void)state;
  char long_key[131];
  memset(long_key, 0xaa, sizeof long_key);
  for (size_t i = 0; i < COUNT_OF(hmac_cases); i++) {
    const struct hmac_case *c = &hmac_cases[i];
    struct digest_key key;
    digest_key_set(&key, c->key != NULL ? c->key : long_key, c->key_length);
    uint8_t out[DIGEST_SIZE];
    for (int twice = 0; twice < 2; twice++) {
      digest_hmac(&key, c->message, strlen(c->message), out);
      assert_digest(out, c->hex);
    }
  }
  struct digest_key empty;
  uint8_t out[DIGEST_SIZE];
  digest_key_set(&empty, NULL, 0);
  digest_hmac(&empty, NULL, 0, out);
  assert_digest(out, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

static void test_equal(void **state) {
  (void)state;
  assert_true(digest_equal("abc", "abc", 3));
  assert_false(digest_equal("abc", "abd", 3));
  assert_false(digest_equal("abc", "bbc", 3));
  assert_true(digest_equal("abc", "xyz", 0));
}

static void test_random(void **state) {
  (void)state;
  uint8_t a[1000] = {0}, b[1000] = {0};
  random_bytes(a, sizeof a);
  random_bytes(b, sizeof b);
  assert_memory_not_equal(a, b, sizeof a);
  int zeros = 0;
  for (size_t i = 0; i < sizeof a; i++)
    zeros += a[i] == 0;
  assert_true(zeros < 60);
  random_bytes(NULL, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sha256),
      cmocka_unit_test(test_hmac),
      cmocka_unit_test(test_equal),
      cmocka_unit_test(test_random),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
