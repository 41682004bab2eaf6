/*
 * The Lease service: policy (TTL, quotas, idempotency, scope) and the handlers of every method of
 * sandbox.lease.v1.LeaseService, over any backend. Thread: the loop's, unless a line says otherwise.
 */
#ifndef SERVER_LEASE_SERVICE_H
#define SERVER_LEASE_SERVICE_H

#include "backend/backend.h"
#include "base/config.h"
#include "base/error.h"
#include "server/call.h"
#include <stddef.h>
#include <uv.h>

struct lease_service;

/* Reads its settings (SANDBOX_METADATA_SECRET, TTL, quotas, transfers, sweep interval). The backend stays the caller's.
 * NULL and *err. */
struct lease_service *lease_service_new(uv_loop_t *loop, struct backend *backend, struct config *config,
                                        struct error **err);
/* Starts the backend. done once Leases can be served. */
void lease_service_start(struct lease_service *service, backend_done *done, void *context);
/* Fails what still runs with REASON_ABORTED, closes sessions, stops the backend without ending Leases. */
void lease_service_stop(struct lease_service *service, backend_done *done, void *context);
void lease_service_free(struct lease_service *service);

/* For the health service: true if Leases can be served now. */
bool lease_service_ready(struct lease_service *service);

/* The methods, for the gRPC server; static. Their handlers' context is the lease_service. */
const struct call_method *lease_service_methods(size_t *count);

#endif
