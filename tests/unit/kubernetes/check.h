/* What every unit test of backend/kubernetes/ includes: cmocka and what it needs before it, and memory that fails. */
#ifndef TESTS_UNIT_KUBERNETES_CHECK_H
#define TESTS_UNIT_KUBERNETES_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/memory.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Runs a statement with the 1st, 2nd, … allocation failing until one run meets no failure; `outcome` is then 0. */
#define TORTURE(statement, check)                                                                                      \
  for (size_t torture_n = 1;; torture_n++) {                                                                           \
    memory_fail_after(torture_n, 0);                                                                                   \
    statement;                                                                                                         \
    bool torture_failed = memory_fail_after(0, 0) >= torture_n;                                                        \
    check;                                                                                                             \
    if (!torture_failed)                                                                                               \
      break;                                                                                                           \
    assert_true(torture_n < 100000);                                                                                   \
  }

#endif
