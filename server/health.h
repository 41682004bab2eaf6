/*
 * grpc.health.v1: may calls be sent here? For the whole server ("") and for sandbox.lease.v1.LeaseService, which is the
 * same answer. Thread: the loop's.
 */
#ifndef SERVER_HEALTH_H
#define SERVER_HEALTH_H

#include "base/error.h"
#include "server/call.h"
#include <stdbool.h>
#include <stddef.h>

struct health;

/* `ready` is asked at every Check and at health_changed. NULL and *err. */
struct health *health_new(bool (*ready)(void *context), void *context, struct error **err);
/* After the last call has ended. */
void health_free(struct health *health);

/* Tells every Watch whose status changed. A Check does the same: who asks shares what he learned. */
void health_changed(struct health *health);
/* NOT_SERVING from now on; every Watch is told and ends. */
void health_stop(struct health *health);

/* Their handlers' context is the health. */
const struct call_method *health_methods(size_t *count);

#endif
