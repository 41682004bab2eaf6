/*
 * Who is given up when too much is held for slow clients.
 */
#include "gateway/holding.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { UNIT = 100000, LIMIT = 3 * UNIT };

static void test_within_the_bound_nobody_is_given_up(void **state) {
  (void)state;
  struct holdings holdings;
  struct holding a = {.bytes = 0}, b = {.bytes = 0};
  holdings_init(&holdings, LIMIT);
  holding_set(&holdings, &a, UNIT);
  holding_set(&holdings, &b, 2 * UNIT);
  assert_null(holdings_excess(&holdings, &b));
  assert_int_equal(holdings.bytes, LIMIT);
}

static void test_who_stands_still_longest_is_given_up_first(void **state) {
  (void)state;
  struct holdings holdings;
  struct holding still = {.bytes = 0}, slow = {.bytes = 0}, fast = {.bytes = 0};
  holdings_init(&holdings, LIMIT);
  holding_set(&holdings, &slow, UNIT);
  holding_set(&holdings, &still, UNIT);
  holding_set(&holdings, &slow, UNIT + 1);
  holding_set(&holdings, &fast, UNIT);
  assert_ptr_equal(holdings_excess(&holdings, &fast), &still);
  holding_end(&still);
  assert_null(holdings_excess(&holdings, &fast));
  holding_set(&holdings, &fast, LIMIT);
  assert_ptr_equal(holdings_excess(&holdings, &fast), &slow);
}

static void test_one_alone_may_be_larger(void **state) {
  (void)state;
  struct holdings holdings;
  struct holding one = {.bytes = 0};
  holdings_init(&holdings, LIMIT);
  holding_set(&holdings, &one, 10 * LIMIT);
  assert_null(holdings_excess(&holdings, &one));
}

static void test_small_ones_do_not_count(void **state) {
  (void)state;
  struct holdings holdings;
  struct holding one = {.bytes = 0};
  holdings_init(&holdings, LIMIT);
  holding_set(&holdings, &one, HOLDING_SMALL_BYTES);
  assert_int_equal(holdings.bytes, 0);
  holding_set(&holdings, &one, HOLDING_SMALL_BYTES + 1);
  assert_int_equal(holdings.bytes, HOLDING_SMALL_BYTES + 1);
  holding_set(&holdings, &one, 1);
  assert_int_equal(holdings.bytes, 0);
  holding_end(&one);
  holding_end(&one);
  assert_int_equal(holdings.bytes, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_within_the_bound_nobody_is_given_up),
      cmocka_unit_test(test_who_stands_still_longest_is_given_up_first),
      cmocka_unit_test(test_one_alone_may_be_larger),
      cmocka_unit_test(test_small_ones_do_not_count),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
