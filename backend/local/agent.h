/*
 * The one thing the local backend itself asks of an agent: to take a deadline (Configure). It has a connection of its own
 * for each asking, so that a Lease is safe before any session exists. Thread: the loop's.
 */
#ifndef LOCAL_AGENT_H
#define LOCAL_AGENT_H

#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct agent_ask;

/* err NULL: the agent has taken it. Freed by the caller of the callback. */
typedef void agent_answered(void *context, struct error *err);

/* Tells the agent that listens on `path` to end itself in `milliseconds` (0: unbound; then `orphan` milliseconds after
 * its last connection closed). Completes within 10 s, never before it returns. NULL without memory.
 * keep: after success the connection stays open until agent_cancel, so that an unbound agent goes on waiting as long as
 * this process lives; otherwise the ask is gone once `answered` was called. */
struct agent_ask *agent_configure(uv_loop_t *loop, const char *path, uint64_t milliseconds, uint64_t orphan, bool keep,
                                  agent_answered *answered, void *context);
/* No callback comes any more. */
void agent_cancel(struct agent_ask *ask);

#endif
