/* What every test of the session includes: cmocka and what it needs before it. */
#ifndef TESTS_UNIT_SESSION_CHECK_H
#define TESTS_UNIT_SESSION_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
