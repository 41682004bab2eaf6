/* What every unit test of server/ includes: cmocka and what it needs before it. */
#ifndef TESTS_UNIT_SERVER_CHECK_H
#define TESTS_UNIT_SERVER_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Numbers that are the same in every run: xorshift64*. */
static inline uint64_t check_random(uint64_t *state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * UINT64_C(0x2545f4914f6cdd1d);
}

#endif
