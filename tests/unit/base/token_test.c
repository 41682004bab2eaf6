#include "base/identity.h"
#include "base/limits.h"
#include "base/memory.h"
#include "base/text.h"
#include "tests/unit/base/check.h"
#include <stdio.h>
#include <string.h>

#define NOW INT64_C(1999999800)
#define EXPIRES INT64_C(2000000000)

static const char secrets[] = "{\"acme\":\"top-secret\",\"beta\":[\"new\",\"old\"],\"\\u20ac\":\"euro\"}";
static const char vector[] = "v1.eyJjb25zdW1lcklkIjoiYWNtZSIsInN1YmplY3RJZCI6InVzZXItNyIsImV4cCI6MjAwMDAwMDAwMH0."
                             "tA_UPa_2bKQPuRv6sdDtWG33yk7PhFK588_Xo8z49ew";

static struct key_ring *ring;

static int make_ring(void **state) {
  (void)state;
  ring = key_ring_parse(secrets, strlen(secrets), NULL);
  return ring == NULL ? -1 : 0;
}

static int drop_ring(void **state) {
  (void)state;
  key_ring_free(ring);
  return 0;
}

/* A signed token of any claims. */
static char *sign(const char *claims, size_t length, const char *secret) {
  struct buffer token CLEANUP_BUFFER;
  buffer_init(&token, 100000);
  buffer_append_string(&token, "v1.");
  assert_int_equal(text_base64url(&token, claims, length), 0);
  struct digest_key key;
  uint8_t signature[DIGEST_SIZE];
  digest_key_set(&key, secret, strlen(secret));
  digest_hmac(&key, token.data, token.length, signature);
  buffer_append_byte(&token, '.');
  assert_int_equal(text_base64url(&token, signature, sizeof signature), 0);
  return buffer_take(&token);
}

static bool accepted(const char *token, size_t length, int64_t now, struct identity *identity) {
  struct error *err CLEANUP_ERROR = NULL;
  CLEANUP_MEMORY char *copy = memory_new(length);
  memcpy(copy, token, length);
  if (token_verify(ring, copy, length, now, identity, &err) == 0)
    return true;
  assert_int_equal(error_reason(err), REASON_UNAUTHORIZED);
  assert_string_equal(error_message(err), "Invalid or expired subject token");
  assert_string_equal(error_detail(err), "");
  assert_null(error_field(err));
  return false;
}

static bool accepted_claims(const char *claims, size_t length) {
  struct identity identity;
  CLEANUP_MEMORY char *token = sign(claims, length, "top-secret");
  return accepted(token, strlen(token), NOW, &identity);
}

static void test_vector(void **state) {
  (void)state;
  struct identity identity;
  assert_true(accepted(vector, strlen(vector), NOW, &identity));
  assert_string_equal(identity.consumer, "acme");
  assert_string_equal(identity.subject, "user-7");
  assert_true(identity.expires == EXPIRES);
  CLEANUP_MEMORY char *minted = token_mint("acme", "user-7", "top-secret", EXPIRES, NULL);
  assert_string_equal(minted, vector);
}

static void test_lifetime(void **state) {
  (void)state;
  struct identity identity;
  size_t length = strlen(vector);
  assert_true(accepted(vector, length, EXPIRES - 1, &identity));
  assert_false(accepted(vector, length, EXPIRES, &identity));
  assert_false(accepted(vector, length, EXPIRES + 1, &identity));
  assert_true(accepted(vector, length, EXPIRES - 300, &identity));
  assert_true(accepted(vector, length, EXPIRES - 305, &identity));
  assert_false(accepted(vector, length, EXPIRES - 306, &identity));
}

/* No byte may be changed, left out, or added. */
static void test_every_damage_is_refused(void **state) {
  (void)state;
  struct identity identity;
  size_t length = strlen(vector);
  char token[sizeof vector + 1];
  for (size_t i = 0; i < length; i++) {
    for (int bit = 0; bit < 8; bit++) {
      memcpy(token, vector, length);
      token[i] = (char)(token[i] ^ 1 << bit);
      assert_false(accepted(token, length, NOW, &identity));
    }
    memcpy(token, vector, i);
    memcpy(token + i, vector + i + 1, length - i - 1);
    assert_false(accepted(token, length - 1, NOW, &identity));
    assert_false(accepted(vector, i, NOW, &identity));
  }
  for (size_t i = 0; i <= length; i++) {
    static const char extra[] = ".=A \n\0";
    for (size_t e = 0; e < sizeof extra - 1; e++) {
      memcpy(token, vector, i);
      token[i] = extra[e];
      memcpy(token + i + 1, vector + i, length - i);
      assert_false(accepted(token, length + 1, NOW, &identity));
    }
  }
}

static void test_shapes(void **state) {
  (void)state;
  struct identity identity;
  static const char *const bad[] = {
      "",   "v1",          "v1.",    "v1..",    "v1...",      ".",
      "..", "v2.e30.AAAA", "v1.e30", "v1.e30.", "V1.e30.e30", "v1.e30.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"};
  for (size_t i = 0; i < COUNT_OF(bad); i++)
    assert_false(accepted(bad[i], strlen(bad[i]), NOW, &identity));
  static char huge[LIMIT_TOKEN_BYTES + 2];
  memset(huge, 'A', sizeof huge);
  memcpy(huge, "v1.", 3);
  for (size_t length = LIMIT_TOKEN_BYTES - 1; length <= sizeof huge; length++)
    assert_false(accepted(huge, length, NOW, &identity));
  huge[8000] = '.';
  assert_false(accepted(huge, LIMIT_TOKEN_BYTES, NOW, &identity));
}

#define CLAIMS(consumer, subject, exp) "{\"consumerId\":" consumer ",\"subjectId\":" subject ",\"exp\":" exp "}"

static void test_claims(void **state) {
  (void)state;
  assert_true(accepted_claims(BYTES(CLAIMS("\"acme\"", "\"s\"", "2000000000"))));
  assert_true(accepted_claims(
      BYTES(" {\"exp\" : 2000000000, \"more\":[{}], \"subjectId\":\"s\", \"consumerId\":\"\\u0061cme\"} ")));
  assert_true(accepted_claims(BYTES("{\"exp\":1,\"consumerId\":\"acme\",\"subjectId\":\"s\",\"exp\":2000000000}")));
  static const struct {
    const char *claims;
    size_t length;
  } bad[] = {
      {BYTES("")},
      {BYTES("[]")},
      {BYTES("null")},
      {BYTES("{}")},
      {BYTES(CLAIMS("\"acme\"", "\"s\"", "2000000000") "x")},
      {BYTES(CLAIMS("\"acme\"", "\"s\"", "2000000000.0"))},
      {BYTES(CLAIMS("\"acme\"", "\"s\"", "2e9"))},
      {BYTES(CLAIMS("\"acme\"", "\"s\"", "\"2000000000\""))},
      {BYTES(CLAIMS("\"acme\"", "\"s\"", "null"))},
      {BYTES(CLAIMS("\"acme\"", "\"s\"", "-2000000000"))},
      {BYTES(CLAIMS("\"acme\"", "\"s\"", "9223372036854775807"))},
      {BYTES(CLAIMS("\"acme\"", "\"\"", "2000000000"))},
      {BYTES(CLAIMS("\"acme\"", "\" \\u2003\\u00a0\"", "2000000000"))},
      {BYTES(CLAIMS("\"acme\"", "\"a\\u0000\"", "2000000000"))},
      {BYTES(CLAIMS("\"acme\"", "null", "2000000000"))},
      {BYTES(CLAIMS("\"acme\"", "7", "2000000000"))},
      {BYTES(CLAIMS("\"\"", "\"s\"", "2000000000"))},
      {BYTES(CLAIMS("\"acme\\u0000\"", "\"s\"", "2000000000"))},
      {BYTES(CLAIMS("[\"acme\"]", "\"s\"", "2000000000"))},
      {BYTES(CLAIMS("\"acme\"", "\"\xff\"", "2000000000"))},
      {BYTES(CLAIMS("\"acme\"", "\"\\ud800\"", "2000000000"))},
      {BYTES("{\"consumerId\":\"acme\",\"subjectId\":\"s\"}")},
      {BYTES("{\"consumerId\":\"acme\",\"subjectId\":\"s\",\"EXP\":2000000000}")},
      {BYTES("{\"consumerId\":\"acme\",\"exp\":2000000000}")},
      {BYTES("{\"subjectId\":\"s\",\"exp\":2000000000}")},
      {BYTES("{\"exp\":2000000000,\"consumerId\":\"acme\",\"subjectId\":\"s\",\"exp\":1}")},
  };
  for (size_t i = 0; i < COUNT_OF(bad); i++)
    if (accepted_claims(bad[i].claims, bad[i].length))
      fail_msg("accepted: %s", bad[i].claims);
}

/* 200 characters of four bytes each are allowed, 201 of one byte are not. */
static void test_length_of_identities(void **state) {
  (void)state;
  char subject[1000] = "";
  struct identity identity;
  for (int i = 0; i < 200; i++)
    memcpy(subject + 4 * i, "\xf0\x9f\x98\x80", 5);
  CLEANUP_MEMORY char *longest = token_mint("acme", subject, "top-secret", EXPIRES, NULL);
  assert_true(accepted(longest, strlen(longest), NOW, &identity));
  assert_string_equal(identity.subject, subject);
  memset(subject, 'x', 201);
  subject[201] = '\0';
  char claims[1000];
  int length = snprintf(claims, sizeof claims, CLAIMS("\"acme\"", "\"%s\"", "2000000000"), subject);
  assert_false(accepted_claims(claims, (size_t)length));
}

static void test_rotation(void **state) {
  (void)state;
  static const struct {
    const char *consumer, *secret;
    bool good;
  } cases[] = {{"beta", "new", true},          {"beta", "old", true},
               {"beta", "older", false},       {"beta", "top-secret", false},
               {"acme", "new", false},         {"acme", "", false},
               {"\xe2\x82\xac", "euro", true}, {"unknown", "top-secret", false},
               {"acme ", "top-secret", false}, {"ACME", "top-secret", false}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    char claims[200];
    int length = snprintf(claims, sizeof claims, CLAIMS("\"%s\"", "\"s\"", "2000000000"), cases[i].consumer);
    CLEANUP_MEMORY char *token = sign(claims, (size_t)length, cases[i].secret);
    struct identity identity;
    assert_int_equal(accepted(token, strlen(token), NOW, &identity), cases[i].good);
  }
}

static bool accepted_bearer(const char *value, size_t length) {
  struct identity identity;
  struct error *err CLEANUP_ERROR = NULL;
  if (token_verify_bearer(ring, value, length, NOW, &identity, &err) == 0)
    return true;
  assert_int_equal(error_reason(err), REASON_UNAUTHORIZED);
  assert_string_equal(error_message(err), "Invalid or expired subject token");
  return false;
}

static void test_bearer(void **state) {
  (void)state;
  static const struct {
    const char *before, *after;
    bool good;
  } cases[] = {{"Bearer ", "", true},   {"bearer ", "", false},  {"BEARER ", "", false}, {"Bearer  ", "", false},
               {"Bearer\t", "", false}, {" Bearer ", "", false}, {"Bearer", "", false},  {"", "", false},
               {"Bearer ", " ", false}, {"Basic ", "", false},   {"Bearer ", ",", false}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    char value[300];
    int length = snprintf(value, sizeof value, "%s%s%s", cases[i].before, vector, cases[i].after);
    assert_int_equal(accepted_bearer(value, (size_t)length), cases[i].good);
  }
  assert_false(accepted_bearer("", 0));
  assert_false(accepted_bearer("Bearer ", 7));
  assert_false(accepted_bearer("Bear", 4));
}

static void test_mint_refuses(void **state) {
  (void)state;
  char subject[202];
  memset(subject, 'x', 201);
  subject[201] = '\0';
  static const struct {
    const char *consumer, *subject, *secret, *field;
  } cases[] = {{"", "s", "x", "consumer_id"}, {" ", "s", "x", "consumer_id"}, {"\xff", "s", "x", "consumer_id"},
               {"c", "", "x", "subject_id"},  {"c", NULL, "x", "subject_id"}, {"c", "\xed\xa0\x80", "x", "subject_id"},
               {"c", "s", "", "secret"}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct error *err CLEANUP_ERROR = NULL;
    assert_null(token_mint(cases[i].consumer, cases[i].subject != NULL ? cases[i].subject : subject, cases[i].secret,
                           EXPIRES, &err));
    assert_int_equal(error_reason(err), REASON_INVALID_REQUEST);
    assert_string_equal(error_field(err), cases[i].field);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_vector),   cmocka_unit_test(test_lifetime), cmocka_unit_test(test_every_damage_is_refused),
      cmocka_unit_test(test_shapes),   cmocka_unit_test(test_claims),   cmocka_unit_test(test_length_of_identities),
      cmocka_unit_test(test_rotation), cmocka_unit_test(test_bearer),   cmocka_unit_test(test_mint_refuses),
  };
  return cmocka_run_group_tests(tests, make_ring, drop_ring);
}
