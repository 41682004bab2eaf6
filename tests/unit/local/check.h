/* What the unit tests of backend/local/ include: cmocka and what it needs before it. */
#ifndef TESTS_UNIT_LOCAL_CHECK_H
#define TESTS_UNIT_LOCAL_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#endif
