/*
 * The platform's own patience, but every connection counts as a good one: the next attempt comes at once.
 */
#include "backend/session/patience.h"

#include "base/clock.h"

const struct session_patience session_patience = {
    .connect = 10 * CLOCK_SECOND,
    .silence = 15 * CLOCK_SECOND,
    .pong = 10 * CLOCK_SECOND,
    .backoff_first = 5 * CLOCK_MILLISECOND,
    .backoff_most = 50 * CLOCK_MILLISECOND,
    .steady = 0,
    .start = 30 * CLOCK_SECOND,
    .reattach = 30 * CLOCK_SECOND,
    .restart = 15 * CLOCK_SECOND,
    .grace = 2 * CLOCK_SECOND,
    .stalled = 60 * CLOCK_SECOND,
    .closing = 10 * CLOCK_SECOND,
};
