/*
 * The local backend behind backend/backend.h.
 */
#include "backend/local/local.h"

#include "backend/transport_unix.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct local_backend *local_of(struct backend *backend) { return (struct local_backend *)(void *)backend; }

static struct local_pool *find_pool(struct local_backend *local, const char *name) {
  for (size_t i = 0; i < local->settings.pool_count; i++)
    if (strcmp(local->pools[i].settings->name, name) == 0)
      return &local->pools[i];
  return NULL;
}

/* --- bound sandboxes by Lease id and by key --- */

static size_t bucket_of(const char *text) {
  uint32_t hash = 2166136261U; /* FNV-1a */
  for (; *text != '\0'; text++)
    hash = (hash ^ (uint8_t)*text) * 16777619U;
  return hash % LOCAL_BUCKETS;
}

struct local_sandbox *local_find(struct local_backend *local, const char *id) {
  struct local_sandbox *sandbox = local->by_id[bucket_of(id)];
  while (sandbox != NULL && strcmp(sandbox->record.sandbox.id, id) != 0)
    sandbox = sandbox->by_id;
  return sandbox;
}

struct local_sandbox *local_find_key(struct local_backend *local, const char *key) {
  struct local_sandbox *sandbox = local->by_key[bucket_of(key)];
  while (sandbox != NULL && (sandbox->state != LOCAL_BOUND || sandbox->record.sandbox.deadline <= clock_boot() ||
                             strcmp(sandbox->record.sandbox.idempotency, key) != 0))
    sandbox = sandbox->by_key;
  return sandbox;
}

void local_index_add(struct local_sandbox *sandbox) {
  struct local_sandbox **id = &sandbox->backend->by_id[bucket_of(sandbox->record.sandbox.id)];
  struct local_sandbox **key = &sandbox->backend->by_key[bucket_of(sandbox->record.sandbox.idempotency)];
  sandbox->by_id = *id;
  *id = sandbox;
  sandbox->by_key = *key;
  *key = sandbox;
}

void local_index_remove(struct local_sandbox *sandbox) {
  struct local_sandbox **at = &sandbox->backend->by_id[bucket_of(sandbox->record.sandbox.id)];
  while (*at != sandbox)
    at = &(*at)->by_id;
  *at = sandbox->by_id;
  at = &sandbox->backend->by_key[bucket_of(sandbox->record.sandbox.idempotency)];
  while (*at != sandbox)
    at = &(*at)->by_key;
  *at = sandbox->by_key;
}

/* --- start and stop --- */

static void complete(struct local_backend *local, struct error *err) {
  backend_done *done = local->done;
  local->done = NULL;
  if (done != NULL)
    done(local->done_context, err);
}

void local_started(struct local_backend *local, struct error *err) {
  if (local->stopping)
    return; /* `done` is that of stop by now */
  local->started = err == NULL;
  complete(local, err);
  for (size_t i = 0; i < local->settings.pool_count; i++)
    local_pool_balance(&local->pools[i]);
}

static void local_start(struct backend *backend, const struct backend_events *events, backend_done *done,
                        void *context) {
  struct local_backend *local = local_of(backend);
  local->events = *events;
  local->done = done;
  local->done_context = context;
  local_pool_init(local);
  local_cgroups_open_own(&local->cgroups, local->settings.cgroup);
  local_recover(local);
}

void local_let_go(struct local_backend *local) {
  if (--local->open > 0 || !local->stopping)
    return;
  local_leftovers_remove(local);
  while (local->leftovers != NULL) { /* the next start finds them by their records */
    struct local_leftover *leftover = local->leftovers;
    local->leftovers = leftover->next;
    local_cgroup_free(&leftover->cgroup);
    memory_free(leftover);
  }
  local_cgroups_close(&local->cgroups);
  complete(local, NULL);
}

static void local_stop(struct backend *backend, backend_done *done, void *context) {
  struct local_backend *local = local_of(backend);
  struct error *err = NULL;
  local->stopping = true;
  if (local->done != NULL) { /* it was still starting */
    error_set_detail(&err, REASON_ABORTED, "stopped while it started");
    complete(local, err);
    error_free(&err);
  }
  local->done = done;
  local->done_context = context;
  local->open++;
  for (size_t i = 0; i < local->settings.pool_count; i++)
    local_pool_stop(&local->pools[i]);
  local_let_go(local);
}

static void local_free(struct backend *backend) {
  struct local_backend *local = local_of(backend);
  if (local->filter >= 0)
    close(local->filter);
  if (local->lock >= 0)
    close(local->lock);
  local_settings_free(&local->settings);
  memory_free(local->pools);
  memory_free(local->uids);
  memory_free(local);
}

static bool local_ready(struct backend *backend, struct error **why) {
  struct local_backend *local = local_of(backend);
  if (local->started && !local->stopping)
    return true;
  error_set_detail(why, REASON_SERVER_UNAVAILABLE, "the local backend is not running");
  return false;
}

static bool local_has_pool(struct backend *backend, const char *pool) {
  return find_pool(local_of(backend), pool) != NULL;
}

/* --- acquiring and releasing --- */

/* "lease-" and 32 random hexadecimal digits. */
static void make_id(char id[static LIMIT_LEASE_ID_BYTES + 1]) {
  uint8_t bytes[16];
  random_bytes(bytes, sizeof bytes);
  memcpy(id, "lease-", 6);
  text_hex(bytes, sizeof bytes, id + 6);
}

static struct backend_pending *make_pending(struct local_pool *pool, const struct backend_acquire *acquire) {
  struct local_backend *local = pool->backend;
  struct backend_pending *pending = memory_zero(sizeof *pending);
  if (pending == NULL)
    return NULL;
  struct backend_sandbox *facts = &pending->facts;
  pending->pool = pool;
  pending->ttl = acquire->ttl;
  make_id(facts->id);
  snprintf(facts->pool, sizeof facts->pool, "%s", acquire->pool);
  snprintf(facts->scope, sizeof facts->scope, "%s", acquire->scope);
  snprintf(facts->consumer, sizeof facts->consumer, "%s", acquire->consumer);
  snprintf(facts->idempotency, sizeof facts->idempotency, "%s", acquire->idempotency);
  pending->all_next = local->pendings;
  if (local->pendings != NULL)
    local->pendings->all_previous = pending;
  local->pendings = pending;
  return pending;
}

/* Whoever asks gets the pending acquire only if it is still pending when this returns. */
struct acquiring {
  backend_acquired *acquired;
  void *context;
  bool completed, returned;
};

static void note_acquired(void *context, const struct backend_sandbox *sandbox, bool replayed, struct error *err) {
  struct acquiring *acquiring = context;
  struct acquiring copy = *acquiring;
  acquiring->completed = true;
  if (copy.returned)
    memory_free(acquiring);
  copy.acquired(copy.context, sandbox, replayed, err);
}

static struct backend_pending *local_acquire(struct backend *backend, const struct backend_acquire *acquire,
                                             backend_acquired *acquired, void *context) {
  struct local_backend *local = local_of(backend);
  struct local_pool *pool = find_pool(local, acquire->pool);
  CLEANUP_ERROR struct error *err = NULL;
  CLEANUP_MEMORY struct acquiring *acquiring = memory_zero(sizeof *acquiring);
  if (!local->started || local->stopping)
    error_set(&err, REASON_SERVER_UNAVAILABLE, NULL);
  else if (pool == NULL)
    error_set(&err, REASON_UNKNOWN_POOL, NULL);
  struct backend_pending *pending = err == NULL && acquiring != NULL ? make_pending(pool, acquire) : NULL;
  if (pending == NULL) {
    if (err == NULL)
      error_set_memory(&err);
    acquired(context, NULL, false, err);
    return NULL;
  }
  *acquiring = (struct acquiring){.acquired = acquired, .context = context};
  pending->acquired = note_acquired;
  pending->context = acquiring;
  local_pool_acquire(pending);
  if (acquiring->completed)
    return NULL;
  acquiring->returned = true;
  acquiring = NULL; /* note_acquired frees it */
  return pending;
}

static void local_cancel(struct backend *backend, struct backend_pending *pending) {
  (void)backend;
  local_pool_cancel(pending);
}

static void local_release(struct backend *backend, const char *id, backend_done *done, void *context) {
  struct local_sandbox *sandbox = local_find(local_of(backend), id);
  struct local_waiter *waiter = sandbox != NULL ? memory_zero(sizeof *waiter) : NULL;
  if (waiter == NULL) {
    CLEANUP_ERROR struct error *err = NULL;
    error_set(&err, sandbox != NULL ? REASON_INTERNAL : REASON_LEASE_NOT_FOUND, NULL);
    done(context, err);
    return;
  }
  *waiter = (struct local_waiter){.next = sandbox->waiters, .done = done, .context = context};
  sandbox->waiters = waiter;
  local_sandbox_end(sandbox, BACKEND_END_RELEASED);
}

/* --- the rest --- */

/* Everything that is bound has been told: what is not found does not exist. */
static void local_get(struct backend *backend, const char *id, backend_found *found, void *context) {
  struct local_sandbox *sandbox = local_find(local_of(backend), id);
  found(context, sandbox != NULL && sandbox->state == LOCAL_BOUND ? &sandbox->record.sandbox : NULL, NULL);
}

/* The record's time of change; only how recent the use looks after a restart depends on it. */
static void local_touch(struct backend *backend, const char *id, int64_t wall) {
  struct local_backend *local = local_of(backend);
  struct local_sandbox *sandbox = local_find(local, id);
  char path[LOCAL_PATH_SIZE];
  if (sandbox == NULL || sandbox->state != LOCAL_BOUND)
    return;
  sandbox->record.sandbox.last_used_at = wall;
  if (wall >= sandbox->touched && wall - sandbox->touched < CLOCK_SECOND)
    return;
  sandbox->touched = wall;
  local_path(local, sandbox->name, "record", path);
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = wall / CLOCK_SECOND, .tv_nsec = wall % CLOCK_SECOND}};
  utimensat(AT_FDCWD, path, times, 0);
}

static void local_sweep(struct backend *backend) {
  struct local_backend *local = local_of(backend);
  int64_t now = clock_boot();
  for (size_t i = 0; i < local->settings.pool_count; i++)
    for (struct local_sandbox *sandbox = local->pools[i].sandboxes, *next; sandbox != NULL; sandbox = next) {
      next = sandbox->next;
      if (sandbox->state == LOCAL_BOUND && now >= sandbox->record.sandbox.deadline)
        local_sandbox_end(sandbox, BACKEND_END_EXPIRED);
    }
  local_leftovers_remove(local);
}

static struct transport *local_open_transport(struct backend *backend, const char *id, struct error **err) {
  struct local_sandbox *sandbox = local_find(local_of(backend), id);
  char path[LOCAL_PATH_SIZE];
  if (sandbox == NULL || sandbox->state != LOCAL_BOUND) {
    error_set(err, REASON_LEASE_NOT_FOUND, NULL);
    return NULL;
  }
  local_agent_path(sandbox, path);
  struct transport *transport = transport_unix_new(backend->loop, path);
  if (transport == NULL)
    error_set_memory(err);
  return transport;
}

static void local_count(struct backend *backend, const char *name, unsigned *bound, unsigned *warm) {
  struct local_pool *pool = find_pool(local_of(backend), name);
  *bound = pool != NULL ? pool->bound : 0;
  *warm = pool != NULL ? pool->warm : 0;
}

const struct backend_operations local_operations = {
  .start = local_start, .stop = local_stop, .free = local_free, .ready = local_ready, .has_pool = local_has_pool,
  .acquire = local_acquire, .cancel = local_cancel, .release = local_release, .get = local_get, .touch = local_touch,
  .sweep = local_sweep, .open_transport = local_open_transport, .count = local_count,
};
