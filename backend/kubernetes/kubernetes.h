/*
 * The inside of the Kubernetes backend. backend.c answers the interface; acquire.c binds a sandbox; lease.c knows which
 * Claims are Leases and what becomes of them; ending.c deletes Claims; lookup.c asks the API server for one that the
 * cache does not know. Thread: the loop's.
 */
#ifndef KUBERNETES_KUBERNETES_H
#define KUBERNETES_KUBERNETES_H

#include "backend/backend.h"
#include "backend/kubernetes/access.h"
#include "backend/kubernetes/api.h"
#include "backend/kubernetes/cache.h"
#include "backend/kubernetes/claim.h"
#include "backend/kubernetes/judge.h"
#include "backend/kubernetes/settings.h"
#include "backend/kubernetes/store.h"
#include <stdbool.h>

enum { UID_SIZE = 64, NAMESPACE_SIZE = 64, CLAIM_PATH_BYTES = 512 };

/* How long a write to the API server may take, retries included. */
#define WRITE_TIMEOUT (30 * CLOCK_SECOND)

struct ending;
struct lookup;
struct stopping;

struct kubernetes_backend {
  struct backend backend;
  struct kubernetes_settings settings;
  char namespace_[NAMESPACE_SIZE];
  struct api *api;
  struct access access;
  struct podexec_program program;
  struct cache *cache;       /* from start to stop */
  const struct store *store; /* the cache's */
  struct backend_events events;
  backend_done *started; /* until everything was listed */
  void *started_context;
  bool serving, stopping;
  struct backend_pending *pendings; /* acquires, and what is left of cancelled ones */
  struct ending *endings;
  struct lookup *lookups;
  int64_t lookup_credit, lookup_time; /* a bucket: nanoseconds saved up, and when that was counted; 0: full */
  struct stopping *stop;
};

/* The wall clock as the API server has it: in it the times on a Claim are written. */
int64_t kubernetes_wall(const struct kubernetes_backend *kubernetes);
/* "/apis/…/sandboxclaims", and "/<name>" unless name is NULL. 0, or -1 when it is too long. */
int kubernetes_claim_path(const struct kubernetes_backend *kubernetes, const char *name,
                          char path[static CLAIM_PATH_BYTES]);

/* --- lease.c --- */

/* What is kept of a Claim that the owner knows as a Lease: the Claim's attachment. */
struct lease {
  int64_t expires_at, deadline; /* as in backend_sandbox */
  bool lost;                    /* its sandbox is gone; it is being ended */
  char pod_uid[40];             /* of the Pod it was bound with; "" while unknown */
};

/* store_changed of the cache. */
void lease_changed(void *context, struct object *before, struct object *after);
/* Everything was listed: tells of every Lease found. */
void lease_found_all(struct kubernetes_backend *kubernetes);
/* Can a Claim be a Lease still: of the platform, not ended, not expired, not being ended by us? */
bool lease_usable(const struct kubernetes_backend *kubernetes, const struct object *claim);
/* What the cache knows of a Claim. */
void lease_facts(const struct kubernetes_backend *kubernetes, const struct object *claim, struct judge_facts *facts);
/* Fills what the owner is told; deadline from the Claim's expiry. False if the Claim's name gives no id. */
bool lease_fill(const struct kubernetes_backend *kubernetes, const struct object *claim,
                struct backend_sandbox *sandbox);
/* Makes a Claim of the cache a Lease and tells the owner. expires_at: 0, or what it will be once the cache has heard of
 * it. False without memory. */
bool lease_tell(struct kubernetes_backend *kubernetes, struct object *claim, int64_t expires_at,
                struct backend_sandbox *sandbox);
/* The Claim of a Lease id, known to the owner or not; NULL if the cache has none. */
struct object *lease_find(const struct kubernetes_backend *kubernetes, const char *id);
/* Ends what expired or was lost and is still there. */
void lease_sweep(struct kubernetes_backend *kubernetes);
/* Frees the attachments of all Claims. */
void lease_forget_all(struct kubernetes_backend *kubernetes);

/* --- acquire.c --- */

struct backend_pending *acquire_begin(struct kubernetes_backend *kubernetes, const struct backend_acquire *acquire,
                                      backend_acquired *acquired, void *context);
void acquire_cancel(struct backend_pending *pending);
/* Something about this Claim changed. claim NULL: about anything. */
void acquire_wake(struct kubernetes_backend *kubernetes, const char *claim);
/* Does an acquire of ours hold this Claim, so that it is its business to tell? */
bool acquire_holds(const struct kubernetes_backend *kubernetes, const struct object *claim);
/* Completes all with REASON_ABORTED. */
void acquire_abort_all(struct kubernetes_backend *kubernetes);
/* Frees what is left after that. */
void acquire_forget_all(struct kubernetes_backend *kubernetes);

/* --- ending.c --- */

/* Deletes the Claim of that name and uid, and goes on until it is gone. uid NULL: the one, if any, that `attempt` made.
 * done may be NULL, and may be called before this returns: the server has taken the order, or there is nothing to end.
 */
void ending_begin(struct kubernetes_backend *kubernetes, const char *name, const char *uid, const char *attempt,
                  backend_done *done, void *context);
/* Was an order given to end the Claim of that uid? */
bool ending_knows(const struct kubernetes_backend *kubernetes, const char *uid);
/* The cache has seen that the Claim of that uid ends. */
void ending_seen(struct kubernetes_backend *kubernetes, const char *uid);
/* Tries failed ones again. */
void ending_sweep(struct kubernetes_backend *kubernetes);
bool ending_busy(const struct kubernetes_backend *kubernetes);
void ending_free_all(struct kubernetes_backend *kubernetes);

/* --- lookup.c --- */

void lookup_begin(struct kubernetes_backend *kubernetes, const char *id, backend_found *found, void *context);
/* Tells none of them. */
void lookup_free_all(struct kubernetes_backend *kubernetes);

/* --- backend.c --- */

/* Where the session of a Lease leads. Valid until the cache changes. */
struct kubernetes_target {
  const char *namespace_, *pod, *pod_uid;
  const char *container; /* "": the first */
  const char *address;   /* of the Pod; "" if it has none */
  const struct pool_settings *pool;
};
/* The running Pod of a Lease, verified once more. Returns 0, or -1 and *err: REASON_LEASE_NOT_FOUND,
 * REASON_SANDBOX_NOT_READY, REASON_RUNTIME_CLASS_MISMATCH, REASON_SANDBOX_CONTAINER_NOT_FOUND. */
int kubernetes_target(struct kubernetes_backend *kubernetes, const char *id, struct kubernetes_target *target,
                      struct error **err);

/* An acquire or an ending has come to its end: stopping may go on. */
void kubernetes_settle(struct kubernetes_backend *kubernetes);

#endif
