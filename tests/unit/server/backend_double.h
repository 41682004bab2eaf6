/*
 * A test double of a backend, for policy only: sandboxes are entries of a list, and the test decides when and how an
 * acquire or a release completes. It isolates nothing and runs nothing.
 */
#ifndef TESTS_UNIT_SERVER_BACKEND_DOUBLE_H
#define TESTS_UNIT_SERVER_BACKEND_DOUBLE_H

#include "backend/backend.h"

#define BACKEND_DOUBLE_MAX 512
#define BACKEND_DOUBLE_RETRY_AFTER 1500 /* milliseconds; in every failure of an acquire */

struct backend_pending {
  struct backend_pending *next;
  struct backend_acquire acquire;
  char pool[LIMIT_POOL_NAME_BYTES + 1], scope[LABEL_SIZE], consumer[LABEL_SIZE], idempotency[LABEL_SIZE];
  backend_acquired *acquired;
  void *context;
  bool cancelled;
};

struct backend_release {
  struct backend_release *next;
  char id[LIMIT_LEASE_ID_BYTES + 1];
  backend_done *done;
  void *context;
};

struct backend_double {
  struct backend backend;
  struct backend_events events;
  bool at_once;        /* acquires and releases complete within the call */
  bool cancel_at_once; /* a cancelled acquire completes within cancel */
  bool not_ready;
  bool no_transport;
  struct backend_pending *pending; /* oldest first */
  struct backend_release *releasing;
  struct backend_sandbox sandboxes[BACKEND_DOUBLE_MAX];
  size_t count;
  unsigned acquires, cancels, releases, gets, touches, sweeps, next_id;
  int64_t clock; /* created_at of the next sandbox; moves by a second */
};

/* Pools "coding" and "gvisor". */
void backend_double_init(struct backend_double *backend, uv_loop_t *loop);
/* Completes the oldest pending acquire with a new sandbox. */
void backend_double_bind(struct backend_double *backend);
/* Completes the oldest pending acquire with a failure. */
void backend_double_refuse(struct backend_double *backend, enum reason reason);
/* Completes the oldest pending release: REASON_NONE is success. */
void backend_double_released(struct backend_double *backend, enum reason reason);
/* A sandbox as another process would have bound it; told to the owner only by events.bound. */
struct backend_sandbox *backend_double_add(struct backend_double *backend, const struct backend_sandbox *facts);
/* The sandbox is gone, and the owner is told. */
void backend_double_end(struct backend_double *backend, const char *id, enum backend_end end);
/* NULL if there is none. */
struct backend_sandbox *backend_double_find(struct backend_double *backend, const char *id);

#endif
