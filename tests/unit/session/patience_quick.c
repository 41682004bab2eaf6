/*
 * The patience of the tests: everything that takes seconds takes tens of milliseconds.
 */
#include "backend/session/patience.h"

#include "base/clock.h"

const struct session_patience session_patience = {
    .connect = 400 * CLOCK_MILLISECOND,
    .silence = 100 * CLOCK_MILLISECOND,
    .pong = 100 * CLOCK_MILLISECOND,
    .backoff_first = 2 * CLOCK_MILLISECOND,
    .backoff_most = 20 * CLOCK_MILLISECOND,
    .steady = 300 * CLOCK_MILLISECOND,
    .start = 300 * CLOCK_MILLISECOND,
    .reattach = 300 * CLOCK_MILLISECOND,
    .restart = 150 * CLOCK_MILLISECOND,
    .grace = 100 * CLOCK_MILLISECOND,
    .stalled = 150 * CLOCK_MILLISECOND,
    .closing = 100 * CLOCK_MILLISECOND,
};
