/*
 * The one interface of every backend: where sandboxes come from. A backend deals in sandboxes; it never sees a token,
 * a Consumer or a Subject, only the labels made from them. What is done with a sandbox once a session is open is
 * backend/session/'s matter.
 *
 * Thread: everything here is called on the loop thread, and everything is completed on it. A completion may be called
 * before the function that started the operation returns. Pointers passed in are valid for the call only, unless a line
 * says otherwise.
 */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "backend/transport.h"
#include "base/config.h"
#include "base/error.h"
#include "base/identity.h"
#include "base/limits.h"
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* A sandbox bound to a Lease, as the backend remembers it across restarts. */
struct backend_sandbox {
  char id[LIMIT_LEASE_ID_BYTES + 1];    /* the Lease id */
  char pool[LIMIT_POOL_NAME_BYTES + 1];
  char scope[LABEL_SIZE];               /* label of (Consumer, Subject) */
  char consumer[LABEL_SIZE];            /* label of the Consumer */
  char idempotency[LABEL_SIZE];         /* label of (Consumer, Subject, key) */
  int64_t created_at;                   /* wall nanoseconds */
  int64_t expires_at;                   /* wall nanoseconds */
  int64_t last_used_at;                 /* wall nanoseconds; created_at before the first use */
  int64_t deadline;                     /* boot-clock nanoseconds of expires_at: what is enforced */
};

/* Why a sandbox is no more. */
enum backend_end { BACKEND_END_RELEASED, BACKEND_END_EXPIRED, BACKEND_END_LOST };

/* What a backend tells its owner, unasked. */
struct backend_events {
  /* A bound sandbox that the owner did not know appeared (at start: each one found), or its facts changed. */
  void (*bound)(void *context, const struct backend_sandbox *sandbox);
  /* A bound sandbox is gone; also after release. */
  void (*ended)(void *context, const char *id, enum backend_end end);
  void *context;
};

struct backend_acquire {
  const char *pool;
  const char *scope, *consumer, *idempotency; /* labels */
  int64_t ttl; /* nanoseconds; the backend stamps created_at, expires_at and deadline when the sandbox is bound */
};

/* A pending acquire; NULL once completed. */
struct backend_pending;

/* sandbox is valid for the call; NULL with err (freed by the caller of the callback) on failure. replayed: an active
 * sandbox with the same idempotency label and pool was there already. Another pool: REASON_IDEMPOTENCY_CONFLICT. */
typedef void backend_acquired(void *context, const struct backend_sandbox *sandbox, bool replayed, struct error *err);
/* err NULL on success, freed by the caller of the callback. */
typedef void backend_done(void *context, struct error *err);
/* found NULL and err NULL: there is no such sandbox. */
typedef void backend_found(void *context, const struct backend_sandbox *found, struct error *err);

struct backend;

struct backend_operations {
  /* Begins to work: recovers what a former process left, fills Pools. done comes when bound sandboxes have all been told
   * and acquires are accepted. */
  void (*start)(struct backend *backend, const struct backend_events *events, backend_done *done, void *context);
  /* Stops without ending bound sandboxes: they outlive the process. Warm ones end. */
  void (*stop)(struct backend *backend, backend_done *done, void *context);
  void (*free)(struct backend *backend); /* after stop, or if start was never called */

  /* Can this process serve? Returns true, or false and *why. Cheap. */
  bool (*ready)(struct backend *backend, struct error **why);
  bool (*has_pool)(struct backend *backend, const char *pool);

  /* Binds a sandbox. The pending acquire can be cancelled until `acquired` was called; a cancelled acquire completes with
   * REASON_ABORTED and leaves no sandbox. */
  struct backend_pending *(*acquire)(struct backend *backend, const struct backend_acquire *acquire,
                                     backend_acquired *acquired, void *context);
  void (*cancel)(struct backend *backend, struct backend_pending *pending);

  /* Ends a bound sandbox. done comes when nothing in it runs any more or, where a cluster does the ending, when it has
   * taken the order and will carry it out whatever becomes of this process; REASON_LEASE_NOT_FOUND if it is unknown. */
  void (*release)(struct backend *backend, const char *id, backend_done *done, void *context);

  /* Looks one up that the owner does not know. A backend whose knowledge is complete completes at once. */
  void (*get)(struct backend *backend, const char *id, backend_found *found, void *context);

  /* Notes that a sandbox was used at `wall`; kept across a restart where that costs nothing. */
  void (*touch)(struct backend *backend, const char *id, int64_t wall);

  /* Ends what is past its deadline or belongs to nobody; called every SANDBOX_SWEEP_INTERVAL as a safety net. */
  void (*sweep)(struct backend *backend);

  /* A new, not yet connected transport to the sandbox's agent; NULL and *err. The session owns it and may connect it again
   * and again. */
  struct transport *(*open_transport)(struct backend *backend, const char *id, struct error **err);

  /* Bound sandboxes and warm ones in a Pool, for metrics. */
  void (*count)(struct backend *backend, const char *pool, unsigned *bound, unsigned *warm);
};

/* Every backend's struct begins with this. */
struct backend {
  const struct backend_operations *operations;
  uv_loop_t *loop;
};

/* Makes the local backend from its configuration (SANDBOX_LOCAL_…). NULL and *err. */
struct backend *backend_local_new(uv_loop_t *loop, struct config *config, struct error **err);
/* Makes the Kubernetes backend from its configuration (SANDBOX_K8S_…, SANDBOX_KUBECONFIG). NULL and *err. */
struct backend *backend_kubernetes_new(uv_loop_t *loop, struct config *config, struct error **err);

#endif
