/*
 * A connection of the backend's own to an agent, for the one thing it asks itself: to take a deadline (Configure). So
 * a Lease is safe before any session exists, and an unbound agent lives as long as the server does: it ends itself a
 * while after its last connection closed. Thread: the loop's.
 */
#ifndef BACKEND_LOCAL_AGENT_H
#define BACKEND_LOCAL_AGENT_H

#include "base/error.h"
#include <stdint.h>
#include <uv.h>

struct local_agent;

/* err NULL: the agent has taken it. Freed by the caller of the callback. */
typedef void local_agent_answered(void *context, struct error *err);

/* Connects to `path` in the background. NULL without memory. A connection that cannot be made or breaks is told to the
 * asker of the time, or the next. */
struct local_agent *local_agent_new(uv_loop_t *loop, const char *path);
/* Tells the agent to end itself in `milliseconds` (0: unbound; then `orphan` milliseconds after its last connection
 * closed). One at a time. `answered` comes within 10 s, never before this returns. */
void local_agent_configure(struct local_agent *agent, uint64_t milliseconds, uint64_t orphan,
                           local_agent_answered *answered, void *context);
/* Closes the connection; no callback comes any more. May be called from within `answered`. NULL: nothing. */
void local_agent_close(struct local_agent *agent);

#endif
