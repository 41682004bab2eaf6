#include "backend/kubernetes/claim.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "tests/unit/kubernetes/check.h"
#include <stdbool.h>
#include <string.h>

static const char UID[] = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";

static void test_name(void **state) {
  (void)state;
  struct digest_key key;
  digest_key_set(&key, "metadata-secret", 15);
  char first[CLAIM_NAME_SIZE], again[CLAIM_NAME_SIZE], next[CLAIM_NAME_SIZE], other[CLAIM_NAME_SIZE];
  assert_int_equal(claim_name(&key, "00112233", 0, first), 0);
  assert_int_equal(claim_name(&key, "00112233", 0, again), 0);
  assert_int_equal(claim_name(&key, "00112233", 1, next), 0);
  assert_int_equal(claim_name(&key, "00112234", 0, other), 0);
  assert_string_equal(first, again);
  assert_string_not_equal(first, next);
  assert_string_not_equal(first, other);
  assert_int_equal(strlen(first), 26);
  assert_memory_equal(first, "lease-", 6);
  assert_int_equal(strspn(first + 6, "0123456789abcdef"), 20);
  TORTURE(int result = claim_name(&key, "00112233", 0, first), assert_int_equal(result, torture_failed ? -1 : 0));
}

static void test_ids(void **state) {
  (void)state;
  static const struct {
    const char *name, *uid, *id;
  } cases[] = {
      {"lease-00112233445566778899", UID, "lease-001122334455667788990a1b2c3d4e5f"},
      {"lease-00112233445566778899aabbccddeeff", UID, "lease-00112233445566778899aabbccddeeff"},
      {"lease-0011223344556677889", UID, NULL},
      {"lease-001122334455667788990", UID, NULL},
      {"lease-0011223344556677889G", UID, NULL},
      {"lease-00112233445566778899aabbccddeeff0", UID, NULL},
      {"claim-00112233445566778899", UID, NULL},
      {"lease-00112233445566778899", "0a1b2c3d", NULL},
      {"lease-00112233445566778899", "0A1B2C3D-4e5f-6071", NULL},
      {"lease-00112233445566778899", "", NULL},
      {"", UID, NULL},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    char id[LIMIT_LEASE_ID_BYTES + 1];
    assert_int_equal(claim_lease_id(cases[i].name, cases[i].uid, id), cases[i].id != NULL);
    if (cases[i].id)
      assert_string_equal(id, cases[i].id);
  }
  char name[CLAIM_NAME_SIZE];
  assert_true(claim_name_of_id("lease-001122334455667788990a1b2c3d4e5f", name));
  assert_string_equal(name, "lease-00112233445566778899");
  assert_false(claim_name_of_id("lease-00112233445566778899", name));
  assert_false(claim_name_of_id("lease-001122334455667788990a1b2c3d4e5F", name));
  assert_false(claim_name_of_id("", name));
}

static void test_encode(void **state) {
  (void)state;
  struct buffer out CLEANUP_BUFFER;
  const struct claim_order order = {.name = "lease-00112233445566778899",
                                    .pool = "coding",
                                    .warm_pool = "coding-pool",
                                    .scope = "aa",
                                    .consumer = "bb",
                                    .idempotency = "cc",
                                    .pool_label = "dd",
                                    .attempt = "0123456789abcdef",
                                    .created_at = 1767323045 * CLOCK_SECOND + 6,
                                    .expires_at = 1767323945 * CLOCK_SECOND + 6};
  buffer_init(&out, CLAIM_BODY_BYTES);
  assert_int_equal(claim_encode(&out, &order), 0);
  assert_string_equal(
      buffer_text(&out),
      "{\"apiVersion\":\"extensions.agents.x-k8s.io/v1beta1\",\"kind\":\"SandboxClaim\",\"metadata\":{"
      "\"name\":\"lease-00112233445566778899\",\"labels\":{\"sandbox.geminixiang.dev/managed\":\"true\","
      "\"sandbox.geminixiang.dev/scope\":\"aa\",\"sandbox.geminixiang.dev/consumer\":\"bb\","
      "\"sandbox.geminixiang.dev/idempotency\":\"cc\",\"sandbox.geminixiang.dev/pool\":\"dd\"},\"annotations\":{"
      "\"sandbox.geminixiang.dev/pool-name\":\"coding\","
      "\"sandbox.geminixiang.dev/created-at\":\"2026-01-02T03:04:05.000000006Z\","
      "\"sandbox.geminixiang.dev/expires-at\":\"2026-01-02T03:19:05.000000006Z\","
      "\"sandbox.geminixiang.dev/attempt\":\"0123456789abcdef\"}},\"spec\":{\"warmPoolRef\":{\"name\":\"coding-pool\"},"
      "\"lifecycle\":{\"shutdownPolicy\":\"DeleteForeground\",\"shutdownTime\":\"2026-01-02T03:19:11Z\"}}}");
  for (size_t limit = 0; limit < out.length; limit++) {
    struct buffer small CLEANUP_BUFFER;
    buffer_init(&small, limit);
    assert_int_equal(claim_encode(&small, &order), -1);
  }
}

static void test_patches(void **state) {
  (void)state;
  struct buffer out CLEANUP_BUFFER;
  buffer_init(&out, CLAIM_BODY_BYTES);
  assert_int_equal(claim_encode_expiry(&out, UID, 1767323945 * CLOCK_SECOND), 0);
  assert_string_equal(
      buffer_text(&out),
      "{\"metadata\":{\"uid\":\"0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9\",\"annotations\":{"
      "\"sandbox.geminixiang.dev/expires-at\":\"2026-01-02T03:19:05.000000000Z\"}},\"spec\":{"
      "\"lifecycle\":{\"shutdownPolicy\":\"DeleteForeground\",\"shutdownTime\":\"2026-01-02T03:19:10Z\"}}}");
  buffer_clear(&out);
  assert_int_equal(claim_encode_delete(&out, "u\"1"), 0);
  assert_string_equal(buffer_text(&out),
                      "{\"apiVersion\":\"v1\",\"kind\":\"DeleteOptions\",\"propagationPolicy\":\"Foreground\","
                      "\"preconditions\":{\"uid\":\"u\\\"1\"}}");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_name),
      cmocka_unit_test(test_ids),
      cmocka_unit_test(test_encode),
      cmocka_unit_test(test_patches),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
