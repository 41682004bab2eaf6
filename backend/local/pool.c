/*
 * Pools: acquires wait their turn, warm sandboxes are handed out oldest first, what was handed out is made again in
 * the background. Refilling that fails waits longer each time; an acquire that waits is always tried for, and is told
 * why it failed.
 */
#include "backend/local/local.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include <string.h>

enum {
  REFILL_MAX = 2,    /* made at once in the background: they compete with running commands */
  CREATING_MAX = 16, /* made at once in all */
  RETRY_FIRST_MILLISECONDS = 200,
  RETRY_MAX_MILLISECONDS = 30000,
  EXHAUSTED_RETRY_MILLISECONDS = 5000,
};

/* --- answering --- */

static void forget_pending(struct backend_pending *pending) {
  struct local_backend *backend = pending->pool->backend;
  if (pending->all_previous != NULL)
    pending->all_previous->all_next = pending->all_next;
  else
    backend->pendings = pending->all_next;
  if (pending->all_next != NULL)
    pending->all_next->all_previous = pending->all_previous;
}

/* err (taken over) or sandbox. What waited for the same key gets the same sandbox, or its own try. */
static void complete(struct backend_pending *pending, const struct backend_sandbox *sandbox, struct error *err) {
  struct backend_pending *followers = pending->followers;
  forget_pending(pending);
  pending->acquired(pending->context, sandbox, false, err);
  error_free(&err);
  memory_free(pending);
  while (followers != NULL) {
    struct backend_pending *follower = followers;
    followers = follower->next;
    follower->next = NULL;
    follower->leader = NULL;
    local_pool_acquire(follower);
  }
}

static void queue(struct backend_pending *pending) {
  struct local_pool *pool = pending->pool;
  *pool->pending_end = pending;
  pool->pending_end = &pending->next;
  pool->pendings++;
}

static struct backend_pending *take_pending(struct local_pool *pool) {
  struct backend_pending *first = pool->pending;
  if (first == NULL)
    return NULL;
  pool->pending = first->next;
  if (pool->pending == NULL)
    pool->pending_end = &pool->pending;
  first->next = NULL;
  pool->pendings--;
  return first;
}

static void unqueue(struct backend_pending *pending) {
  struct local_pool *pool = pending->pool;
  struct backend_pending **at = &pool->pending;
  while (*at != pending)
    at = &(*at)->next;
  *at = pending->next;
  if (pool->pending_end == &pending->next)
    pool->pending_end = at;
  pending->next = NULL;
  pool->pendings--;
}

/* The one that waits longest. */
static void fail_first(struct local_pool *pool, enum reason reason, const char *detail, unsigned retry) {
  struct backend_pending *pending = take_pending(pool);
  struct error *err = NULL;
  if (pending == NULL)
    return;
  error_set_detail(&err, reason, "%s", detail);
  error_set_retry_after(err, retry);
  complete(pending, NULL, err);
}

/* --- warm ones --- */

static void add_warm(struct local_sandbox *sandbox) {
  struct local_pool *pool = sandbox->pool;
  sandbox->warm_next = NULL;
  *pool->warm_end = sandbox;
  pool->warm_end = &sandbox->warm_next;
  pool->warm++;
}

static void remove_warm(struct local_sandbox *sandbox) {
  struct local_pool *pool = sandbox->pool;
  struct local_sandbox **at = &pool->warm_first;
  while (*at != sandbox)
    at = &(*at)->warm_next;
  *at = sandbox->warm_next;
  if (pool->warm_end == &sandbox->warm_next)
    pool->warm_end = at;
  pool->warm--;
}

/* --- filling --- */

static void on_retry(uv_timer_t *timer) {
  struct local_pool *pool = timer->data;
  pool->waiting = false;
  local_pool_balance(pool);
}

static void wait_before_refill(struct local_pool *pool) {
  unsigned shift = pool->failures < 8 ? pool->failures : 8;
  uint64_t wait = (uint64_t)RETRY_FIRST_MILLISECONDS << shift;
  pool->failures++;
  pool->waiting = true;
  uv_timer_start(&pool->retry, on_retry, wait < RETRY_MAX_MILLISECONDS ? wait : RETRY_MAX_MILLISECONDS, 0);
}

/* How many more are to be made now. */
static bool wants_more(const struct local_pool *pool) {
  unsigned refill = pool->waiting ? 0 : (unsigned)pool->settings->warm;
  if (pool->living >= pool->settings->maximum || pool->creating >= CREATING_MAX)
    return false;
  if (pool->creating < pool->pendings)
    return true;
  return pool->warm + pool->creating < pool->pendings + refill && pool->creating - pool->pendings < REFILL_MAX;
}

static void make_more(struct local_pool *pool) {
  while (wants_more(pool)) {
    CLEANUP_ERROR struct error *err = NULL;
    if (local_birth_start(pool, &err) == 0)
      continue;
    log_write(LOG_ERROR, "sandbox_failed", LOG_TEXT("pool", pool->settings->name), LOG_REASON(err), LOG_DETAIL(err));
    wait_before_refill(pool);
    fail_first(pool, error_reason(err) == REASON_POOL_EXHAUSTED ? REASON_POOL_EXHAUSTED : REASON_SANDBOX_START_FAILED,
               error_detail(err), 0);
    return;
  }
}

void local_pool_balance(struct local_pool *pool) {
  struct local_backend *backend = pool->backend;
  if (backend->stopping || !backend->started)
    return;
  while (pool->pending != NULL && pool->warm_first != NULL) {
    struct local_sandbox *sandbox = pool->warm_first;
    remove_warm(sandbox);
    pool->binding++;
    local_sandbox_bind(sandbox, take_pending(pool));
  }
  /* Starting one keeps the loop busy for a millisecond: not before the acquires that can be answered are answered. */
  if (pool->binding == 0 || pool->pending != NULL)
    make_more(pool);
  while (pool->pendings > pool->creating && pool->living >= pool->settings->maximum)
    fail_first(pool, REASON_POOL_EXHAUSTED, "the Pool has its maximum of sandboxes", EXHAUSTED_RETRY_MILLISECONDS);
}

/* --- what sandboxes tell --- */

void local_pool_ready(struct local_sandbox *sandbox) {
  struct local_pool *pool = sandbox->pool;
  pool->creating--;
  pool->failures = 0;
  add_warm(sandbox);
  local_pool_balance(pool);
}

void local_pool_bound(struct local_sandbox *sandbox) {
  struct local_pool *pool = sandbox->pool;
  struct local_backend *backend = pool->backend;
  struct backend_pending *pending = sandbox->pending;
  struct error *err = NULL;
  sandbox->pending = NULL;
  pool->bound++;
  local_index_add(sandbox);
  if (pending == NULL) { /* taken over: the owner does not know it */
    sandbox->told = true;
    backend->events.bound(backend->events.context, &sandbox->record.sandbox);
    return;
  }
  pool->binding--;
  pending->sandbox = NULL;
  if (pending->cancelled) {
    local_sandbox_end(sandbox, BACKEND_END_RELEASED);
    error_set(&err, REASON_ABORTED, NULL);
    complete(pending, NULL, err);
  } else {
    sandbox->told = true;
    complete(pending, &sandbox->record.sandbox, NULL);
  }
  local_pool_balance(pool);
}

/* An acquire whose sandbox failed while it was bound costs its caller nothing: another is taken. */
static void rejoin(struct backend_pending *pending) {
  struct error *err = NULL;
  pending->sandbox = NULL;
  if (!pending->cancelled && !pending->pool->backend->stopping) {
    queue(pending);
    return;
  }
  error_set(&err, REASON_ABORTED, NULL);
  complete(pending, NULL, err);
}

void local_pool_failed(struct local_sandbox *sandbox, enum local_state was, const struct error *err) {
  struct local_pool *pool = sandbox->pool;
  struct backend_pending *pending = sandbox->pending;
  sandbox->pending = NULL;
  if (err != NULL)
    log_write(LOG_WARNING, "sandbox_failed", LOG_TEXT("pool", pool->settings->name), LOG_TEXT("sandbox", sandbox->name),
              LOG_REASON(err), LOG_DETAIL(err));
  if (was == LOCAL_WARM)
    remove_warm(sandbox);
  if (was == LOCAL_BINDING) {
    pool->binding--;
    sandbox->record.bound = false;
    rejoin(pending);
  }
  if (was == LOCAL_STARTING) {
    pool->creating--;
    if (err != NULL && !pool->backend->stopping) {
      wait_before_refill(pool);
      fail_first(pool, error_reason(err) == REASON_SANDBOX_READY_TIMEOUT ? REASON_SANDBOX_READY_TIMEOUT
                                                                        : REASON_SANDBOX_START_FAILED,
                 error_detail(err), 0);
    }
  }
  local_pool_balance(pool);
}

void local_pool_ending(struct local_sandbox *sandbox) { sandbox->pool->living--; }

static void answer_waiters(struct local_sandbox *sandbox) {
  while (sandbox->waiters != NULL) {
    struct local_waiter *waiter = sandbox->waiters;
    sandbox->waiters = waiter->next;
    waiter->done(waiter->context, NULL);
    memory_free(waiter);
  }
}

void local_pool_gone(struct local_sandbox *sandbox) {
  struct local_backend *backend = sandbox->backend;
  struct local_pool *pool = sandbox->pool;
  if (local_find(backend, sandbox->record.sandbox.id) == sandbox) {
    local_index_remove(sandbox);
    pool->bound--;
  }
  if (sandbox->told)
    backend->events.ended(backend->events.context, sandbox->record.sandbox.id, sandbox->end);
  answer_waiters(sandbox);
  local_pool_balance(pool);
}

/* --- acquiring --- */

/* Another acquire of the same key that is on its way. */
static struct backend_pending *find_leader(const struct backend_pending *pending) {
  struct backend_pending *other = pending->pool->backend->pendings;
  while (other != NULL && (other == pending || other->leader != NULL || other->cancelled ||
                           strcmp(other->facts.idempotency, pending->facts.idempotency) != 0))
    other = other->all_next;
  return other;
}

static void refuse_conflict(struct backend_pending *pending) {
  struct error *err = NULL;
  error_set(&err, REASON_IDEMPOTENCY_CONFLICT, NULL);
  complete(pending, NULL, err);
}

/* Returns true if an active sandbox has the key: then it is answered. */
static bool replay(struct backend_pending *pending) {
  struct local_sandbox *sandbox = local_find_key(pending->pool->backend, pending->facts.idempotency);
  if (sandbox == NULL)
    return false;
  if (sandbox->pool != pending->pool) {
    refuse_conflict(pending);
    return true;
  }
  forget_pending(pending);
  pending->acquired(pending->context, &sandbox->record.sandbox, true, NULL);
  memory_free(pending);
  return true;
}

void local_pool_acquire(struct backend_pending *pending) {
  if (replay(pending))
    return;
  struct backend_pending *leader = find_leader(pending);
  if (leader == NULL) {
    queue(pending);
    local_pool_balance(pending->pool);
  } else if (leader->pool != pending->pool) {
    refuse_conflict(pending);
  } else {
    pending->leader = leader;
    pending->next = leader->followers;
    leader->followers = pending;
  }
}

void local_pool_cancel(struct backend_pending *pending) {
  struct local_pool *pool = pending->pool;
  struct error *err = NULL;
  pending->cancelled = true;
  if (pending->sandbox != NULL)
    return; /* it completes when the agent has answered, and ends the sandbox then */
  if (pending->leader != NULL) {
    struct backend_pending **at = &pending->leader->followers;
    while (*at != pending)
      at = &(*at)->next;
    *at = pending->next;
  } else {
    unqueue(pending);
  }
  error_set(&err, REASON_ABORTED, NULL);
  complete(pending, NULL, err);
  local_pool_balance(pool);
}

/* --- start and stop --- */

void local_pool_init(struct local_backend *backend) {
  for (size_t i = 0; i < backend->settings.pool_count; i++) {
    struct local_pool *pool = &backend->pools[i];
    *pool = (struct local_pool){.backend = backend, .settings = &backend->settings.pools[i]};
    pool->pending_end = &pool->pending;
    pool->warm_end = &pool->warm_first;
    uv_timer_init(backend->backend.loop, &pool->retry);
    pool->retry.data = pool;
    backend->open++;
  }
}

static void retry_closed(uv_handle_t *handle) {
  struct local_pool *pool = handle->data;
  local_let_go(pool->backend);
}

static void stop_sandbox(struct local_sandbox *sandbox) {
  switch (sandbox->state) {
  case LOCAL_BOUND: local_sandbox_forget(sandbox); return;
  case LOCAL_PREPARING:
  case LOCAL_STARTING: local_birth_fail(sandbox, NULL); return;
  case LOCAL_WARM:
  case LOCAL_BINDING:
    local_pool_failed(sandbox, sandbox->state, NULL);
    local_sandbox_end(sandbox, BACKEND_END_RELEASED);
    return;
  case LOCAL_ENDING: return;
  }
}

static void stop_pendings(struct local_pool *pool) {
  while (pool->pending != NULL)
    fail_first(pool, REASON_ABORTED, "the server is stopping", 0);
}

void local_pool_stop(struct local_pool *pool) {
  stop_pendings(pool);
  for (struct local_sandbox *sandbox = pool->sandboxes, *next; sandbox != NULL; sandbox = next) {
    next = sandbox->next;
    stop_sandbox(sandbox);
  }
  stop_pendings(pool); /* those that waited for the same key as one that was being bound */
  uv_close((uv_handle_t *)&pool->retry, retry_closed);
}
