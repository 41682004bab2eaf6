/*
 * The inside of acquire.c and acquire_claim.c: one acquire that is pending. Thread: the loop's.
 */
#ifndef KUBERNETES_ACQUIRE_H
#define KUBERNETES_ACQUIRE_H

#include "backend/kubernetes/kubernetes.h"

enum { ACQUIRE_GENERATIONS_MAX = 256 };

struct backend_pending {
  struct kubernetes_backend *kubernetes;
  struct backend_pending *next, *previous;
  const struct pool_settings *pool;
  char scope[LABEL_SIZE], consumer[LABEL_SIZE], idempotency[LABEL_SIZE];
  int64_t ttl, started, deadline; /* boot clock */
  backend_acquired *acquired;     /* NULL once completed: only the answer to `call` is awaited */
  void *context;

  unsigned generation, given_back, restarts, woken;
  char name[LIMIT_LEASE_ID_BYTES + 1]; /* of the Claim */
  char uid[UID_SIZE];                  /* "" until it is known */
  char attempt[CLAIM_ATTEMPT_SIZE];
  bool own;           /* this acquire made it */
  bool seen;          /* the cache has shown it */
  int64_t expires_at; /* as the API server has it; 0: as the cache says */
  bool extended;
  struct api_call *call;
  int64_t stuck_since;
  uv_timer_t timer;
};

/* --- acquire.c --- */

/* The Claim's uid is known, or something about it has changed. The pending may be gone when this returns. */
void acquire_evaluate(struct backend_pending *pending);
/* Completes with an error, which is taken over, and deletes what the acquire made. The pending is gone. */
void acquire_fail(struct backend_pending *pending, struct error *err);
void acquire_fail_detail(struct backend_pending *pending, enum reason reason, const char *detail);
void acquire_fail_memory(struct backend_pending *pending);
/* Deletes the Claim, if this acquire answers for it, and forgets it. */
void acquire_drop_claim(struct backend_pending *pending);
/* Frees one that was completed. */
void acquire_free(struct backend_pending *pending);

/* --- acquire_claim.c --- */

/* Finds or makes a Claim. The pending may be gone when this returns. */
void acquire_claim(struct backend_pending *pending);

#endif
