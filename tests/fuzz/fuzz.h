/*
 * What every fuzz target defines: one call with one input. libFuzzer calls it (tests/fuzz/run), and so does replay.c
 * with the kept seeds, in every ordinary test run. A target aborts if a promise is broken.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A promise: aborts if it does not hold. */
#define PROMISE(condition) ((condition) ? (void)0 : abort())

#endif
