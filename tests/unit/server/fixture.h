/*
 * A Lease service over the doubles, for the tests of policy and handlers.
 */
#ifndef TESTS_UNIT_SERVER_FIXTURE_H
#define TESTS_UNIT_SERVER_FIXTURE_H

#include "sandbox/lease/v1/lease.pb-c.h"
#include "server/lease_service.h"
#include "tests/unit/server/backend_double.h"
#include "tests/unit/server/call_double.h"
#include "tests/unit/server/session_double.h"
#include <uv.h>

struct fixture {
  uv_loop_t loop;
  struct config *config;
  struct backend_double backend;
  struct lease_service *service;
  bool stopped;
};

/* Settings are environment variables that the test has set before. */
void fixture_open(struct fixture *fixture);
/* Before the service has started: to tell of sandboxes a former process left. */
void fixture_open_unstarted(struct fixture *fixture);
void fixture_start(struct fixture *fixture);
/* Stops the service and checks that nothing is left. */
void fixture_close(struct fixture *fixture);
/* Runs the loop until `done` is true, at most for five seconds. */
void fixture_run_until(struct fixture *fixture, const bool *done);

/* For cmocka: opens and closes a fixture with default settings. */
int fixture_setup(void **state);
int fixture_teardown(void **state);

/* --- calls of Consumer "app" for Subject "ann", unless said otherwise --- */

#define TTL_UNSET INT64_MIN
struct call *acquire_as(struct fixture *fixture, const char *consumer, const char *subject, const char *pool, int64_t ttl,
                        const char *key);
struct call *acquire(struct fixture *fixture, const char *pool, int64_t ttl, const char *key);
/* Acquires a Lease of pool "coding" at once, and puts its id into `id`. */
void acquire_id(struct fixture *fixture, const char *key, char id[static LIMIT_LEASE_ID_BYTES + 1]);
/* The id that an acquire answered with. *replayed may be NULL. */
void acquired_id(const struct call *call, char id[static LIMIT_LEASE_ID_BYTES + 1], bool *replayed);

struct call *get_as(struct fixture *fixture, const char *consumer, const char *subject, const char *id);
struct call *get(struct fixture *fixture, const char *id);
struct call *release(struct fixture *fixture, const char *id);
struct call *delete_lease(struct fixture *fixture, const char *id);

/* Checks that the call failed so, and frees it. message NULL: the reason's own. */
void expect_failure(struct call *call, enum reason reason, const char *message);
/* Checks that it was answered with success, and frees it. */
void expect_reply(struct call *call);
void expect_waiting(const struct call *call);

#endif
