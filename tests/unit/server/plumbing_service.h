/*
 * A service for the tests of the plumbing alone. Requests and answers are messages of the public API that happen to have
 * the fields needed.
 *
 *   /test.Plumbing/Unary        GetLeaseRequest → GetLeaseResponse; lease_id says what happens:
 *                               "later" answers from a timer, "wait" waits to be cancelled, "ignore" waits the same way
 *                               and answers half a second late, "late" watches only after it was cancelled, "fail" fails with
 *                               LEASE_NOT_FOUND, "closed" answers at once and counts how that went, "blind" does so
 *                               after it has held up the loop until `released`, "" is refused by the check; anything
 *                               else is answered at once, the Lease's id being lease_id and its Pool "<consumer>/<subject>"
 *   /test.Plumbing/Open         the same without a token
 *   /test.Plumbing/ServerStream ListLeasesRequest → `limit` messages of 100,000 bytes; pool "fail" fails after the last,
 *                               "eager" fails while the last is still under way
 *   /test.Plumbing/ClientStream GetLeaseRequest and then anything → GetLeaseResponse; the Lease's id is how many messages
 *                               came
 *   /test.Plumbing/Bidirectional GetLeaseRequest and then anything → every message again
 */
#ifndef TESTS_UNIT_SERVER_PLUMBING_SERVICE_H
#define TESTS_UNIT_SERVER_PLUMBING_SERVICE_H

#include "server/call.h"
#include <stdatomic.h>
#include <stddef.h>
#include <uv.h>

/* The handlers' context. Counters are read by other threads. */
struct plumbing_service {
  uv_loop_t *loop;
  atomic_int handled;     /* calls that reached a handler */
  atomic_int cancelled;   /* `cancelled` events */
  atomic_int half_closed; /* `message` events without a message */
  atomic_int waiting;     /* calls that wait */
  atomic_int delivered, undelivered; /* `closed` events */
  atomic_bool released;   /* lets "blind" answer */
  atomic_long deadline;   /* of the last "wait", milliseconds from then; -1 without one */
};

const struct call_method *plumbing_methods(size_t *count);

#endif
