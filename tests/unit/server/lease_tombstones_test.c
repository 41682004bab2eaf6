/*
 * Leases that have ended are remembered for a time and up to a number, the oldest being dropped first.
 */
#include "server/lease_tombstones.h"

#include "tests/unit/server/check.h"
#include <stdio.h>

static struct backend_sandbox facts_of(unsigned number) {
  struct backend_sandbox facts = {0};
  snprintf(facts.id, sizeof(facts.id), "lease-%032x", number);
  snprintf(facts.scope, sizeof(facts.scope), "scope%u", number);
  return facts;
}

static const struct lease_tombstone *find(const struct lease_tombstones *tombstones, unsigned number) {
  return lease_tombstones_find(tombstones, facts_of(number).id);
}

static void test_time(void **state) {
  (void)state;
  struct lease_tombstones tombstones;
  assert_int_equal(lease_tombstones_init(&tombstones), 0);
  struct backend_sandbox first = facts_of(1), second = facts_of(2);
  lease_tombstones_add(&tombstones, &first, BACKEND_END_RELEASED, 100);
  lease_tombstones_add(&tombstones, &second, BACKEND_END_EXPIRED, 200);
  assert_string_equal(find(&tombstones, 1)->scope, "scope1");
  assert_int_equal(find(&tombstones, 1)->end, BACKEND_END_RELEASED);
  assert_int_equal(find(&tombstones, 2)->end, BACKEND_END_EXPIRED);
  assert_null(find(&tombstones, 3));

  lease_tombstones_prune(&tombstones, 100 + TOMBSTONE_LIFETIME);
  assert_non_null(find(&tombstones, 1));
  lease_tombstones_prune(&tombstones, 101 + TOMBSTONE_LIFETIME);
  assert_null(find(&tombstones, 1));
  assert_non_null(find(&tombstones, 2));
  lease_tombstones_prune(&tombstones, INT64_MAX);
  assert_null(find(&tombstones, 2));
  lease_tombstones_add(&tombstones, &first, BACKEND_END_LOST, 300);
  assert_non_null(find(&tombstones, 1));
  lease_tombstones_free(&tombstones);
}

static void test_number(void **state) {
  (void)state;
  struct lease_tombstones tombstones;
  assert_int_equal(lease_tombstones_init(&tombstones), 0);
  for (unsigned i = 0; i < TOMBSTONES_KEPT + 10; i++) {
    struct backend_sandbox facts = facts_of(i);
    lease_tombstones_add(&tombstones, &facts, BACKEND_END_RELEASED, i);
  }
  assert_int_equal(tombstones.ids.count, TOMBSTONES_KEPT);
  assert_null(find(&tombstones, 9));
  assert_non_null(find(&tombstones, 10));
  assert_non_null(find(&tombstones, TOMBSTONES_KEPT + 9));
  lease_tombstones_free(&tombstones);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_time), cmocka_unit_test(test_number)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
