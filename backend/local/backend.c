/*
 * The local backend behind backend/backend.h: Pools that are kept filled, acquires that wait their turn, and the
 * bookkeeping of which sandbox is whose.
 */
#include "local.h"

#include "backend/transport_unix.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CREATING_MAX = 4, RETRY_FIRST_MILLISECONDS = 200, RETRY_MAX_MILLISECONDS = 30000 };

static struct local_backend *local_of(struct backend *backend)
{
  return (struct local_backend *)(void *)backend;
}

static struct local_pool *pool_find(struct local_backend *local, const char *name)
{
  for (size_t i = 0; i < local->pool_count; i++)
    if (strcmp(local->pools[i].settings.name, name) == 0)
      return &local->pools[i];
  return NULL;
}

/* --- bound sandboxes by Lease id --- */

static struct local_sandbox **bucket_of(struct local_backend *local, const char *id)
{
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (; *id; id++)
    hash = (hash ^ (uint8_t)*id) * 16777619u;
  return &local->by_id[hash % ID_BUCKETS];
}

static struct local_sandbox *sandbox_find(struct local_backend *local, const char *id)
{
  struct local_sandbox *sandbox = *bucket_of(local, id);
  while (sandbox && strcmp(sandbox->record.sandbox.id, id) != 0)
    sandbox = sandbox->bucket;
  return sandbox;
}

static void bucket_remove(struct local_backend *local, struct local_sandbox *sandbox)
{
  for (struct local_sandbox **at = bucket_of(local, sandbox->record.sandbox.id); *at; at = &(*at)->bucket)
    if (*at == sandbox) {
      *at = sandbox->bucket;
      return;
    }
}

/* --- pending acquires --- */

/* Takes over err; frees the pending. */
static void pending_complete(struct backend_pending *pending, const struct backend_sandbox *sandbox, bool replayed,
                             struct error *err)
{
  pending->acquired(pending->context, sandbox, replayed, err);
  error_free(&err);
  memory_free(pending);
}

static void pending_queue(struct backend_pending *pending)
{
  *pending->pool->pending_end = pending;
  pending->pool->pending_end = &pending->next;
}

static struct backend_pending *pending_take(struct local_pool *pool)
{
  struct backend_pending *first = pool->pending;
  if (first) {
    pool->pending = first->next;
    if (!pool->pending)
      pool->pending_end = &pool->pending;
    first->next = NULL;
  }
  return first;
}

static void pending_unqueue(struct backend_pending *pending)
{
  struct backend_pending **at = &pending->pool->pending;
  while (*at != pending)
    at = &(*at)->next;
  *at = pending->next;
  if (pending->pool->pending_end == &pending->next)
    pending->pool->pending_end = at;
}

static unsigned pending_count(const struct local_pool *pool)
{
  unsigned count = 0;
  for (struct backend_pending *pending = pool->pending; pending; pending = pending->next)
    count++;
  return count;
}

static void pending_fail(struct local_pool *pool, enum reason reason, const char *detail)
{
  struct backend_pending *pending = pending_take(pool);
  if (!pending)
    return;
  struct error *err = NULL;
  error_set_detail(&err, reason, "%s", detail);
  pending_complete(pending, NULL, false, err);
}

/* --- filling --- */

static void pool_balance(struct local_backend *local, struct local_pool *pool);

static void on_retry(uv_timer_t *timer)
{
  struct local_pool *pool = timer->data;
  pool->waiting = false;
  pool_balance((struct local_backend *)timer->loop->data, pool);
}

static void pool_wait(struct local_pool *pool)
{
  unsigned shift = pool->failures < 8 ? pool->failures : 8;
  uint64_t wait = (uint64_t)RETRY_FIRST_MILLISECONDS << shift;
  pool->failures++;
  pool->waiting = true;
  uv_timer_start(&pool->retry, on_retry, wait < RETRY_MAX_MILLISECONDS ? wait : RETRY_MAX_MILLISECONDS, 0);
}

static struct local_sandbox *pool_warm(struct local_pool *pool)
{
  for (struct local_sandbox *sandbox = pool->sandboxes; sandbox; sandbox = sandbox->next)
    if (sandbox->state == SANDBOX_WARM)
      return sandbox;
  return NULL;
}

/* Waiting acquires get what is warm; then as many are made as are waited for or missing. */
static void pool_balance(struct local_backend *local, struct local_pool *pool)
{
  if (local->stopping || !local->started)
    return;
  while (pool->pending && pool->warm > 0) {
    pool->warm--;
    sandbox_bind(pool_warm(pool), pending_take(pool));
  }
  /* Making one keeps the loop busy for milliseconds: not before the acquires that can be answered are answered. */
  if (pool->binding > 0 && !pool->pending)
    return;
  for (;;) {
    unsigned waiting = pending_count(pool);
    unsigned wanted = waiting + (pool->waiting ? 0 : (unsigned)pool->settings.warm);
    if (pool->warm + pool->creating >= wanted || pool->total >= pool->settings.maximum ||
        (pool->creating >= CREATING_MAX && pool->creating >= waiting))
      break;
    CLEANUP_ERROR struct error *err = NULL;
    if (sandbox_create(local, pool, &err) == 0)
      continue;
    log_write(LOG_ERROR, "sandbox_create_failed", LOG_TEXT("pool", pool->settings.name), LOG_REASON(err), LOG_DETAIL(err));
    pool_wait(pool);
    pending_fail(pool, REASON_SANDBOX_START_FAILED, error_detail(err));
    if (!pool->pending)
      break;
  }
  while (pool->pending && pool->creating + pool->warm == 0 && pool->total >= pool->settings.maximum)
    pending_fail(pool, REASON_POOL_EXHAUSTED, "the Pool has its maximum of sandboxes");
}

void pool_sandbox_ready(struct local_sandbox *sandbox)
{
  struct local_pool *pool = sandbox->pool;
  pool->creating--;
  pool->warm++;
  pool->failures = 0;
  pool_balance(sandbox->backend, pool);
}

void pool_sandbox_bound(struct local_sandbox *sandbox)
{
  struct local_backend *local = sandbox->backend;
  struct local_pool *pool = sandbox->pool;
  struct local_sandbox **bucket = bucket_of(local, sandbox->record.sandbox.id);
  sandbox->bucket = *bucket;
  *bucket = sandbox;
  pool->bound++;
  struct backend_pending *pending = sandbox->pending;
  sandbox->pending = NULL;
  pool->binding -= pending != NULL;
  if (!pending || !pending->cancelled) {
    sandbox->told = true;
    local->events.bound(local->events.context, &sandbox->record.sandbox);
  }
  if (pending && pending->cancelled) {
    struct error *err = NULL;
    error_set(&err, REASON_ABORTED, NULL);
    sandbox_end(sandbox, BACKEND_END_RELEASED);
    pending_complete(pending, NULL, false, err);
  } else if (pending)
    pending_complete(pending, &sandbox->record.sandbox, false, NULL);
  pool_balance(local, pool);
}

void pool_sandbox_failed(struct local_sandbox *sandbox, const struct error *err)
{
  struct local_pool *pool = sandbox->pool;
  log_write(LOG_WARNING, "sandbox_failed", LOG_TEXT("pool", pool->settings.name), LOG_TEXT("sandbox", sandbox->name),
            LOG_REASON(err), LOG_DETAIL(err));
  if (sandbox->state == SANDBOX_CREATING) {
    pool->creating--;
    pool_wait(pool);
    pending_fail(pool, error_reason(err) == REASON_SANDBOX_READY_TIMEOUT ? REASON_SANDBOX_READY_TIMEOUT : REASON_SANDBOX_START_FAILED,
                 error_detail(err));
  } else if (sandbox->state == SANDBOX_WARM)
    pool->warm--;
  struct backend_pending *pending = sandbox->pending;
  sandbox->pending = NULL;
  if (!pending)
    return;
  pool->binding--;
  pending->sandbox = NULL;
  if (!pending->cancelled && !sandbox->backend->stopping) {
    pending_queue(pending); /* a warm one that turned out dead costs the caller nothing: another is taken */
    return;
  }
  struct error *aborted = NULL;
  error_set(&aborted, REASON_ABORTED, NULL);
  pending_complete(pending, NULL, false, aborted);
}

static void waiters_complete(struct local_sandbox *sandbox)
{
  while (sandbox->waiters) {
    struct release_waiter *waiter = sandbox->waiters;
    sandbox->waiters = waiter->next;
    waiter->done(waiter->context, NULL);
    memory_free(waiter);
  }
}

static void pool_remove(struct local_pool *pool, struct local_sandbox *sandbox)
{
  if (sandbox->previous)
    sandbox->previous->next = sandbox->next;
  else
    pool->sandboxes = sandbox->next;
  if (sandbox->next)
    sandbox->next->previous = sandbox->previous;
  pool->total--;
}

void pool_sandbox_gone(struct local_sandbox *sandbox)
{
  struct local_backend *local = sandbox->backend;
  struct local_pool *pool = sandbox->pool;
  pool_remove(pool, sandbox);
  if (sandbox->record.bound && sandbox_find(local, sandbox->record.sandbox.id) == sandbox) {
    bucket_remove(local, sandbox);
    pool->bound--;
  }
  if (sandbox->told)
    local->events.ended(local->events.context, sandbox->record.sandbox.id, sandbox->end);
  waiters_complete(sandbox);
  pool_balance(local, pool);
}

/* --- the interface --- */

static void local_start(struct backend *backend, const struct backend_events *events, backend_done *done, void *context)
{
  struct local_backend *local = local_of(backend);
  struct error *err = NULL;
  local->events = *events;
  for (size_t i = 0; i < local->pool_count; i++) {
    uv_timer_init(backend->loop, &local->pools[i].retry);
    local->pools[i].retry.data = &local->pools[i];
    local->closing++;
  }
  backend->loop->data = local;
  cgroup_open(&local->cgroups, "sandbox-platform");
  local_recover(local, &err);
  local->started = true;
  for (size_t i = 0; !err && i < local->pool_count; i++)
    pool_balance(local, &local->pools[i]);
  done(context, err);
  error_free(&err);
}

static void stop_finish(struct local_backend *local)
{
  backend_done *stopped = local->stopped;
  local->stopped = NULL;
  if (!stopped)
    return;
  local_recover_rest(local);
  cgroup_close(&local->cgroups);
  stopped(local->stopped_context, NULL);
}

void backend_handle_closed(struct local_backend *local)
{
  if (--local->closing == 0)
    stop_finish(local);
}

static void on_timer_closed(uv_handle_t *handle)
{
  backend_handle_closed((struct local_backend *)handle->loop->data);
}

static void pool_stop(struct local_pool *pool)
{
  while (pool->pending)
    pending_fail(pool, REASON_ABORTED, "the server is stopping");
  for (struct local_sandbox *sandbox = pool->sandboxes, *next; sandbox; sandbox = next) {
    next = sandbox->next;
    if (sandbox->state == SANDBOX_BOUND) {
      pool_remove(pool, sandbox); /* its memory goes before that of the ones that end */
      sandbox_forget(sandbox);
    } else if (sandbox->state == SANDBOX_CREATING || sandbox->state == SANDBOX_WARM || sandbox->state == SANDBOX_BINDING) {
      struct error *err = NULL;
      error_set(&err, REASON_ABORTED, NULL);
      pool_sandbox_failed(sandbox, err);
      error_free(&err);
      sandbox_end(sandbox, BACKEND_END_RELEASED);
    }
  }
  uv_close((uv_handle_t *)&pool->retry, on_timer_closed);
}

static void local_stop(struct backend *backend, backend_done *done, void *context)
{
  struct local_backend *local = local_of(backend);
  local->stopping = true;
  local->stopped = done;
  local->stopped_context = context;
  for (size_t i = 0; i < local->pool_count; i++)
    pool_stop(&local->pools[i]);
  if (local->closing == 0)
    stop_finish(local);
}

static void local_free(struct backend *backend)
{
  struct local_backend *local = local_of(backend);
  if (local->filter >= 0)
    close(local->filter);
  if (local->lock >= 0)
    close(local->lock);
  memory_free(local->pools);
  memory_free(local);
}

static bool local_ready(struct backend *backend, struct error **why)
{
  struct local_backend *local = local_of(backend);
  if (local->started && !local->stopping)
    return true;
  error_set_detail(why, REASON_SERVER_UNAVAILABLE, "the local backend is not running");
  return false;
}

static bool local_has_pool(struct backend *backend, const char *pool)
{
  return pool_find(local_of(backend), pool) != NULL;
}

/* "lease-" and 32 random hexadecimal digits. */
static void lease_id_make(char id[static LIMIT_LEASE_ID_BYTES + 1])
{
  uint8_t bytes[16];
  random_bytes(bytes, sizeof bytes);
  memcpy(id, "lease-", 6);
  text_hex(bytes, sizeof bytes, id + 6);
}

static struct backend_pending *pending_new(struct local_backend *local, const struct backend_acquire *acquire)
{
  struct local_pool *pool = pool_find(local, acquire->pool);
  struct backend_pending *pending = pool ? memory_zero(sizeof *pending) : NULL;
  if (!pending)
    return NULL;
  pending->backend = local;
  pending->pool = pool;
  pending->ttl = acquire->ttl;
  lease_id_make(pending->facts.id);
  snprintf(pending->facts.pool, sizeof pending->facts.pool, "%s", acquire->pool);
  snprintf(pending->facts.scope, sizeof pending->facts.scope, "%s", acquire->scope);
  snprintf(pending->facts.consumer, sizeof pending->facts.consumer, "%s", acquire->consumer);
  snprintf(pending->facts.idempotency, sizeof pending->facts.idempotency, "%s", acquire->idempotency);
  return pending;
}

static struct backend_pending *local_acquire(struct backend *backend, const struct backend_acquire *acquire,
                                             backend_acquired *acquired, void *context)
{
  struct local_backend *local = local_of(backend);
  struct backend_pending *pending = local->stopping ? NULL : pending_new(local, acquire);
  if (!pending) {
    struct error *err = NULL;
    error_set(&err, local->stopping ? REASON_ABORTED : pool_find(local, acquire->pool) ? REASON_INTERNAL : REASON_UNKNOWN_POOL, NULL);
    acquired(context, NULL, false, err);
    error_free(&err);
    return NULL;
  }
  pending->acquired = acquired;
  pending->context = context;
  pending_queue(pending);
  pool_balance(local, pending->pool);
  return pending;
}

static void local_cancel(struct backend *backend, struct backend_pending *pending)
{
  struct local_backend *local = local_of(backend);
  pending->cancelled = true;
  if (pending->sandbox)
    return; /* completes when the agent has answered, and ends the sandbox then */
  pending_unqueue(pending);
  struct error *err = NULL;
  error_set(&err, REASON_ABORTED, NULL);
  struct local_pool *pool = pending->pool;
  pending_complete(pending, NULL, false, err);
  pool_balance(local, pool);
}

static void local_release(struct backend *backend, const char *id, backend_done *done, void *context)
{
  struct local_sandbox *sandbox = sandbox_find(local_of(backend), id);
  struct release_waiter *waiter = sandbox ? memory_zero(sizeof *waiter) : NULL;
  if (!waiter) {
    struct error *err = NULL;
    error_set(&err, sandbox ? REASON_INTERNAL : REASON_LEASE_NOT_FOUND, NULL);
    done(context, err);
    error_free(&err);
    return;
  }
  waiter->done = done;
  waiter->context = context;
  waiter->next = sandbox->waiters;
  sandbox->waiters = waiter;
  sandbox_end(sandbox, BACKEND_END_RELEASED);
}

/* Everything that is bound has been told. */
static void local_get(struct backend *backend, const char *id, backend_found *found, void *context)
{
  struct local_sandbox *sandbox = sandbox_find(local_of(backend), id);
  found(context, sandbox && sandbox->state == SANDBOX_BOUND ? &sandbox->record.sandbox : NULL, NULL);
}

static void local_touch(struct backend *backend, const char *id, int64_t wall)
{
  struct local_backend *local = local_of(backend);
  struct local_sandbox *sandbox = sandbox_find(local, id);
  if (!sandbox || wall - sandbox->touched < CLOCK_SECOND)
    return;
  char path[PATH_SIZE * 2];
  sandbox->touched = wall;
  sandbox->record.sandbox.last_used_at = wall;
  sandbox_path(local, sandbox->name, "record", path);
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = wall / CLOCK_SECOND, .tv_nsec = wall % CLOCK_SECOND}};
  utimensat(AT_FDCWD, path, times, 0); /* only how recent the use looks after a restart depends on it */
}

static void local_sweep(struct backend *backend)
{
  struct local_backend *local = local_of(backend);
  int64_t now = clock_boot();
  local_recover_rest(local);
  for (size_t i = 0; i < local->pool_count; i++)
    for (struct local_sandbox *sandbox = local->pools[i].sandboxes, *next; sandbox; sandbox = next) {
      next = sandbox->next;
      if (sandbox->state == SANDBOX_BOUND && now >= sandbox->record.sandbox.deadline)
        sandbox_end(sandbox, BACKEND_END_EXPIRED);
    }
}

static struct transport *local_open_transport(struct backend *backend, const char *id, struct error **err)
{
  struct local_backend *local = local_of(backend);
  struct local_sandbox *sandbox = sandbox_find(local, id);
  if (!sandbox || sandbox->state != SANDBOX_BOUND) {
    error_set(err, REASON_LEASE_NOT_FOUND, NULL);
    return NULL;
  }
  char path[PATH_SIZE * 2];
  sandbox_path(local, sandbox->name, "agent", path);
  struct transport *transport = transport_unix_new(backend->loop, path);
  if (!transport)
    error_set_memory(err);
  return transport;
}

static void local_count(struct backend *backend, const char *name, unsigned *bound, unsigned *warm)
{
  struct local_pool *pool = pool_find(local_of(backend), name);
  *bound = pool ? pool->bound : 0;
  *warm = pool ? pool->warm : 0;
}

const struct backend_operations local_operations = {
    .start = local_start,     .stop = local_stop,       .free = local_free,   .ready = local_ready,
    .has_pool = local_has_pool, .acquire = local_acquire, .cancel = local_cancel, .release = local_release,
    .get = local_get,         .touch = local_touch,     .sweep = local_sweep, .open_transport = local_open_transport,
    .count = local_count};
