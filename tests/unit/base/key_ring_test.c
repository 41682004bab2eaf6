#include "base/buffer.h"
#include "base/identity.h"
#include "base/memory.h"
#include "tests/unit/base/check.h"
#include <stdio.h>
#include <string.h>

struct refusal {
  const char *json;
  const char *detail;
};

#define OBJECT "must be a JSON object of Consumer ids with their secrets, and name one at least"
#define ID "a Consumer id must have 1 to 200 characters and not be blank"
#define SECRET "a secret of Consumer 'a' must be a non-empty string"

static const struct refusal refusals[] = {
    {"", "must be a JSON object: not valid JSON at line 1, column 1"},
    {"{\"a\":\"hidden\"", "must be a JSON object: not valid JSON at line 1, column 14"},
    {"\xff", "must be a JSON object: not valid UTF-8"},
    {"{}", OBJECT},
    {"[]", OBJECT},
    {"[\"hidden\"]", OBJECT},
    {"\"hidden\"", OBJECT},
    {"{\"a\":\"\"}", SECRET},
    {"{\"a\":7}", SECRET},
    {"{\"a\":null}", SECRET},
    {"{\"a\":{}}", SECRET},
    {"{\"a\":[]}", "Consumer 'a' must have a secret"},
    {"{\"a\":[\"hidden\",\"\"]}", SECRET},
    {"{\"a\":[[\"hidden\"]]}", SECRET},
    {"{\"a\":[\"h\",\"i\",\"d\",\"d\",\"en\"]}", "Consumer 'a' must have at most 4 secrets"},
    {"{\"\":\"hidden\"}", ID},
    {"{\" \":\"hidden\"}", ID},
    {"{\"a\\u0000\":\"hidden\"}", ID},
    {"{\"a\":\"hidden\",\"b\":\"x\",\"\\u0061\":\"hidden\"}", "a Consumer stands twice"},
    {"{\"b\":\"hidden\",\"a\":\"\"}", SECRET},
};

static void test_refusals(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(refusals); i++) {
    struct error *err CLEANUP_ERROR = NULL;
    assert_null(key_ring_parse(refusals[i].json, strlen(refusals[i].json), &err));
    assert_int_equal(error_reason(err), REASON_INTERNAL);
    assert_string_equal(error_detail(err), refusals[i].detail);
    assert_null(strstr(error_detail(err), "hidden"));
  }
  key_ring_free(NULL);
}

/* Rings of every size up to a hundred: each Consumer is found, with its own secret alone. */
static void test_finding(void **state) {
  (void)state;
  for (int size = 1; size <= 100; size += size < 10 ? 1 : 9) {
    struct buffer json CLEANUP_BUFFER;
    buffer_init(&json, 100000);
    for (int i = 0; i < size; i++)
      buffer_append_format(&json, "%s\"consumer-%d\":[\"secret-%d\"%s]", i == 0 ? "{" : ",", i, i,
                           i % 3 == 0 ? ",\"x\\u0000y\"" : "");
    buffer_append_byte(&json, '}');
    struct error *err CLEANUP_ERROR = NULL;
    struct key_ring *ring = key_ring_parse(buffer_text(&json), json.length, &err);
    assert_non_null(ring);
    for (int i = 0; i <= size; i++)
      for (int s = 0; s <= size; s += size < 20 ? 1 : 7) {
        char consumer[32], secret[32];
        snprintf(consumer, sizeof consumer, "consumer-%d", i);
        snprintf(secret, sizeof secret, "secret-%d", s);
        CLEANUP_MEMORY char *token = token_mint(consumer, "s", secret, 1000, NULL);
        struct identity identity;
        assert_int_equal(token_verify(ring, token, strlen(token), 900, &identity, NULL), i == s && i < size ? 0 : -1);
      }
    key_ring_free(ring);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_finding),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
