/*
 * Ending every Lease that a backend knows, and nothing else: `lease-server --end-leases`. It needs neither Lease service
 * nor listener, so it works when no server runs: after a stop, or after a crash. Thread: the loop's.
 */
#ifndef SERVER_END_LEASES_H
#define SERVER_END_LEASES_H

#include "backend/backend.h"
#include <stddef.h>

/* ended, failed: Leases that are over, and Leases that could not be ended, each of which was logged. err, freed by the
 * caller of the callback: the backend did not start, or not all Leases became known. */
typedef void end_leases_done(void *context, size_t ended, size_t failed, struct error *err);

/* Starts the backend, ends each Lease it tells of, stops the backend, calls done. The backend stays the caller's, to be freed
 * by it after that. Returns 0, or -1 and *err; then done is not called. */
int end_leases_start(struct backend *backend, end_leases_done *done, void *context, struct error **err);

#endif
