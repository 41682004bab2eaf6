/* What every unit test of the websocket includes: cmocka and what it needs before it. */
#ifndef TESTS_UNIT_WEBSOCKET_CHECK_H
#define TESTS_UNIT_WEBSOCKET_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
/* The bytes of a string literal and their number, NULs inside included. */
#define BYTES(literal) (literal), (sizeof(literal) - 1)

#endif
