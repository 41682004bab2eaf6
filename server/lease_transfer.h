/*
 * What downloads and uploads share: a place among the transfers that may run at once, and a time limit.
 * Thread: the loop's.
 */
#ifndef SERVER_LEASE_TRANSFER_H
#define SERVER_LEASE_TRANSFER_H

#include "server/lease_state.h"

struct lease_transfer {
  struct lease_operation operation;
  struct lease_transfer *next, *previous;
  int64_t deadline; /* boot-clock nanoseconds; INT64_MIN: holds no place */
};

/* Takes a place. Answers the call, frees the transfer by its kind and returns NULL if there is none, or the Lease
 * cannot be used. */
struct session *lease_transfer_begin(struct lease_transfer *transfer, const struct lease_operation_kind *kind,
                                     struct lease_service *service, struct call *call, struct lease *lease);
/* Gives the place back, once: first thing in the kind's `free`. */
void lease_transfer_leave(struct lease_transfer *transfer);
/* The timer's: aborts what has taken too long. */
void lease_transfer_expire(void *service);

/* What a Consumer is told of a session's error. */
struct error *lease_transfer_error(const struct error *err);

#endif
