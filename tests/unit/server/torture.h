/*
 * Memory that fails for the code under test alone: the doubles pause the torture while they work for the test.
 */
#ifndef TESTS_UNIT_SERVER_TORTURE_H
#define TESTS_UNIT_SERVER_TORTURE_H

#include <stdbool.h>
#include <stddef.h>

/* The n-th allocation from now fails, once. */
void torture_begin(size_t n);
/* Returns whether it came to that. */
bool torture_end(void);
void torture_pause(void);
void torture_resume(void);

#endif
