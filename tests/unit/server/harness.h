/*
 * A whole gRPC server for tests: a loop on a thread of its own, the plumbing service, health and reflection, on a unix
 * socket under a fresh temporary folder. Consumer "app" with the secret "secret" may call.
 */
#ifndef TESTS_UNIT_SERVER_HARNESS_H
#define TESTS_UNIT_SERVER_HARNESS_H

#include "tests/unit/server/plumbing_service.h"
#include <stdbool.h>
#include <stdint.h>

struct harness;

struct harness *harness_start(unsigned threads);
const char *harness_address(const struct harness *harness); /* "unix:…" */
struct plumbing_service *harness_service(struct harness *harness);
/* "Bearer …", valid for 60 s; the caller frees. */
char *harness_bearer(const char *subject);
/* What health says from now on. */
void harness_set_ready(struct harness *harness, bool ready);
/* Begins to stop, and returns at once. */
void harness_stop(struct harness *harness, uint64_t grace);
/* Waits for the end and frees; stops first if that was not done. */
void harness_free(struct harness *harness);

#endif
