/*
 * A test double of a backend, for policy only.
 */
#include "tests/unit/server/backend_double.h"

#include "base/clock.h"
#include "tests/unit/server/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct backend_double *double_of(struct backend *backend) { return (struct backend_double *)backend; }

static void double_start(struct backend *backend, const struct backend_events *events, backend_done *done, void *context) {
  double_of(backend)->events = *events;
  done(context, NULL);
}

static void double_stop(struct backend *backend, backend_done *done, void *context) {
  (void)backend;
  done(context, NULL);
}

static void double_free(struct backend *backend) { (void)backend; }

static bool double_ready(struct backend *backend, struct error **why) {
  if (double_of(backend)->not_ready)
    error_set(why, REASON_SERVER_UNAVAILABLE, NULL);
  return !double_of(backend)->not_ready;
}

static bool double_has_pool(struct backend *backend, const char *pool) {
  (void)backend;
  return strcmp(pool, "coding") == 0 || strcmp(pool, "gvisor") == 0;
}

struct backend_sandbox *backend_double_find(struct backend_double *backend, const char *id) {
  for (size_t i = 0; i < backend->count; i++)
    if (strcmp(backend->sandboxes[i].id, id) == 0)
      return &backend->sandboxes[i];
  return NULL;
}

static void double_forget(struct backend_double *backend, const char *id) {
  struct backend_sandbox *sandbox = backend_double_find(backend, id);
  if (sandbox)
    *sandbox = backend->sandboxes[--backend->count];
}

struct backend_sandbox *backend_double_add(struct backend_double *backend, const struct backend_sandbox *facts) {
  assert_true(backend->count < BACKEND_DOUBLE_MAX);
  struct backend_sandbox *added = &backend->sandboxes[backend->count++];
  *added = *facts;
  return added;
}

static struct backend_sandbox *double_bind(struct backend_double *backend, const struct backend_pending *pending) {
  struct backend_sandbox facts = {0};
  snprintf(facts.id, sizeof(facts.id), "lease-%032x", ++backend->next_id);
  memcpy(facts.pool, pending->pool, sizeof(facts.pool));
  memcpy(facts.scope, pending->scope, sizeof(facts.scope));
  memcpy(facts.consumer, pending->consumer, sizeof(facts.consumer));
  memcpy(facts.idempotency, pending->idempotency, sizeof(facts.idempotency));
  facts.created_at = backend->clock += CLOCK_SECOND;
  facts.expires_at = facts.created_at + pending->acquire.ttl;
  facts.last_used_at = facts.created_at;
  facts.deadline = clock_boot() + pending->acquire.ttl;
  return backend_double_add(backend, &facts);
}

static struct backend_pending *double_take(struct backend_double *backend) {
  struct backend_pending *pending = backend->pending;
  assert_non_null(pending);
  backend->pending = pending->next;
  return pending;
}

void backend_double_bind(struct backend_double *backend) {
  struct backend_pending *pending = double_take(backend);
  struct backend_sandbox facts = *double_bind(backend, pending);
  pending->acquired(pending->context, &facts, false, NULL);
  free(pending);
}

void backend_double_refuse(struct backend_double *backend, enum reason reason) {
  struct backend_pending *pending = double_take(backend);
  struct error *err = NULL;
  error_set(&err, reason, NULL);
  error_set_retry_after(err, BACKEND_DOUBLE_RETRY_AFTER);
  pending->acquired(pending->context, NULL, false, err);
  error_free(&err);
  free(pending);
}

static struct backend_pending *double_acquire(struct backend *base, const struct backend_acquire *acquire,
                                              backend_acquired *acquired, void *context) {
  struct backend_double *backend = double_of(base);
  backend->acquires++;
  struct backend_pending *pending = calloc(1, sizeof(*pending));
  assert_non_null(pending);
  *pending = (struct backend_pending){.acquire = *acquire, .acquired = acquired, .context = context};
  snprintf(pending->pool, sizeof(pending->pool), "%s", acquire->pool);
  snprintf(pending->scope, sizeof(pending->scope), "%s", acquire->scope);
  snprintf(pending->consumer, sizeof(pending->consumer), "%s", acquire->consumer);
  snprintf(pending->idempotency, sizeof(pending->idempotency), "%s", acquire->idempotency);
  struct backend_pending **place = &backend->pending;
  while (*place) {
    /* Policy never asks for the same key twice at once. */
    assert_string_not_equal((*place)->idempotency, pending->idempotency);
    place = &(*place)->next;
  }
  *place = pending;
  if (!backend->at_once)
    return pending;
  backend_double_bind(backend);
  return NULL;
}

static void double_cancel(struct backend *base, struct backend_pending *pending) {
  struct backend_double *backend = double_of(base);
  assert_non_null(pending);
  assert_false(pending->cancelled);
  pending->cancelled = true;
  backend->cancels++;
  if (backend->cancel_at_once) {
    assert_ptr_equal(backend->pending, pending);
    backend_double_refuse(backend, REASON_ABORTED);
  }
}

void backend_double_released(struct backend_double *backend, enum reason reason) {
  struct backend_release *release = backend->releasing;
  assert_non_null(release);
  backend->releasing = release->next;
  struct error *err = NULL;
  if (reason != REASON_NONE)
    error_set(&err, reason, NULL);
  else
    double_forget(backend, release->id);
  release->done(release->context, err);
  error_free(&err);
  free(release);
}

static void double_release(struct backend *base, const char *id, backend_done *done, void *context) {
  struct backend_double *backend = double_of(base);
  backend->releases++;
  struct backend_release *release = calloc(1, sizeof(*release));
  assert_non_null(release);
  *release = (struct backend_release){.done = done, .context = context};
  snprintf(release->id, sizeof(release->id), "%s", id);
  struct backend_release **place = &backend->releasing;
  while (*place)
    place = &(*place)->next;
  *place = release;
  if (backend->at_once)
    backend_double_released(backend, REASON_NONE);
}

static void double_get(struct backend *base, const char *id, backend_found *found, void *context) {
  struct backend_double *backend = double_of(base);
  backend->gets++;
  found(context, backend_double_find(backend, id), NULL);
}

static void double_touch(struct backend *base, const char *id, int64_t wall) {
  struct backend_double *backend = double_of(base);
  backend->touches++;
  struct backend_sandbox *sandbox = backend_double_find(backend, id);
  assert_non_null(sandbox);
  sandbox->last_used_at = wall;
}

static void double_sweep(struct backend *backend) { double_of(backend)->sweeps++; }

static struct transport *double_open_transport(struct backend *backend, const char *id, struct error **err) {
  assert_non_null(backend_double_find(double_of(backend), id));
  if (double_of(backend)->no_transport) {
    error_set(err, REASON_SANDBOX_NOT_READY, NULL);
    return NULL;
  }
  return calloc(1, sizeof(struct transport));
}

static void double_count(struct backend *backend, const char *pool, unsigned *bound, unsigned *warm) {
  (void)pool;
  *bound = (unsigned)double_of(backend)->count;
  *warm = 0;
}

void backend_double_end(struct backend_double *backend, const char *id, enum backend_end end) {
  double_forget(backend, id);
  backend->events.ended(backend->events.context, id, end);
}

void backend_double_init(struct backend_double *backend, uv_loop_t *loop) {
  static const struct backend_operations operations = {.start = double_start,
                                                       .stop = double_stop,
                                                       .free = double_free,
                                                       .ready = double_ready,
                                                       .has_pool = double_has_pool,
                                                       .acquire = double_acquire,
                                                       .cancel = double_cancel,
                                                       .release = double_release,
                                                       .get = double_get,
                                                       .touch = double_touch,
                                                       .sweep = double_sweep,
                                                       .open_transport = double_open_transport,
                                                       .count = double_count};
  *backend = (struct backend_double){.at_once = true, .cancel_at_once = true, .clock = 1700000000 * CLOCK_SECOND};
  backend->backend.operations = &operations;
  backend->backend.loop = loop;
}
