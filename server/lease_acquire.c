/*
 * AcquireLease. An acquisition is one request to the backend; calls with the same idempotency key wait for it
 * together, each with its own way out. When the last of them is gone the backend is told to cancel; should the same
 * key come again before the backend has done so, the acquisition starts anew after that, so that the backend never
 * sees two of one key.
 *
 * A new Lease whose answer did not arrive, because the caller went away at that very moment, is ended: nobody knows
 * its id.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "server/lease_encode.h"
#include "server/lease_handlers.h"
#include "server/lease_state.h"
#include <string.h>

/* When to ask again for a Lease that the quota refused, in milliseconds. */
enum { QUOTA_RETRY_AFTER = 5000 };

/* A call. It lives until the plumbing has said its last word on the call. */
struct acquire_waiter {
  struct acquire_waiter *next;
  struct lease_service *service;
  struct acquisition *acquisition; /* NULL once answered */
  struct call *call;
  int64_t ttl; /* seconds */
  char answer[LIMIT_LEASE_ID_BYTES + 1]; /* the Lease it was answered with, or "" */
};

struct acquisition {
  struct label_entry by_idempotency;
  struct lease_service *service;
  struct acquire_waiter *waiters; /* the first come first */
  struct backend_pending *pending;
  struct lease_reservation reservation;
  int64_t started; /* boot-clock nanoseconds */
  bool asking;     /* within the backend's acquire */
  bool running;    /* the backend has not completed */
  bool cancelled;  /* the backend was told to cancel */
  char pool[LIMIT_POOL_NAME_BYTES + 1];
  struct scope_labels labels;
  char idempotency[LABEL_SIZE];
};

int lease_check_acquire(const ProtobufCMessage *message, struct error **err) {
  const Sandbox__Lease__V1__AcquireLeaseRequest *request = (const Sandbox__Lease__V1__AcquireLeaseRequest *)message;
  if (text_blank(request->pool, strlen(request->pool)))
    return error_set_field(err, REASON_INVALID_REQUEST, "pool", "'pool' must be a non-empty string");
  size_t length = strlen(request->idempotency_key);
  if (text_blank(request->idempotency_key, length) || length > LIMIT_IDEMPOTENCY_KEY_BYTES)
    return error_set_field(err, REASON_INVALID_REQUEST, "idempotency_key", "'idempotency-key' header is required");
  return 0;
}

/* --- callers --- */

static void waiter_cancelled(void *context);
static void waiter_closed(void *context, bool delivered);

/* NULL and the call is answered: no memory. */
static struct acquire_waiter *waiter_new(struct lease_service *service, struct call *call, int64_t ttl) {
  static const struct call_events events = {.cancelled = waiter_cancelled, .closed = waiter_closed};
  struct acquire_waiter *waiter = memory_zero(sizeof(*waiter));
  if (!waiter) {
    call_fail(call, lease_error(REASON_INTERNAL));
    return NULL;
  }
  *waiter = (struct acquire_waiter){.service = service, .call = call, .ttl = ttl};
  call_watch(call, &events, waiter);
  return waiter;
}

static void waiter_reply(struct acquire_waiter *waiter, struct lease *lease, bool replayed) {
  struct lease_message message;
  lease_message_fill(&message, &lease->facts, SANDBOX__LEASE__V1__LEASE_STATUS__LEASE_STATUS_ACTIVE);
  Sandbox__Lease__V1__AcquireLeaseResponse reply = SANDBOX__LEASE__V1__ACQUIRE_LEASE_RESPONSE__INIT;
  reply.lease = &message.lease;
  reply.replayed = replayed;
  lease->unconfirmed++;
  waiter->acquisition = NULL;
  memcpy(waiter->answer, lease->facts.id, sizeof(waiter->answer));
  call_reply(waiter->call, &reply.base);
}

static void waiter_fail(struct acquire_waiter *waiter, struct error *err) {
  waiter->acquisition = NULL;
  call_fail(waiter->call, err);
}

static void waiter_closed(void *context, bool delivered) {
  struct acquire_waiter *waiter = context;
  struct lease_service *service = waiter->service;
  struct lease *lease = waiter->answer[0] ? lease_table_find(&service->table, waiter->answer) : NULL;
  memory_free(waiter);
  if (!lease)
    return;
  lease->unconfirmed--;
  lease->known |= delivered;
  if (lease->known || lease->unconfirmed > 0 || lease->state != LEASE_ACTIVE)
    return;
  log_write(LOG_INFO, "lease_not_delivered", LOG_TEXT("lease", lease->facts.id));
  lease_life_end(service, lease, BACKEND_END_RELEASED);
}

/* --- acquisitions --- */

static struct acquisition *acquisition_find(const struct lease_service *service, const char *idempotency) {
  struct label_entry *entry = label_map_find(&service->acquisitions, idempotency);
  return entry ? LABEL_OWNER(entry, struct acquisition, by_idempotency) : NULL;
}

static void acquisition_free(struct acquisition *acquisition) {
  struct lease_service *service = acquisition->service;
  lease_table_unreserve(&service->table, &acquisition->reservation);
  label_map_remove(&service->acquisitions, &acquisition->by_idempotency);
  memory_free(acquisition);
  lease_service_settle(service);
}

static void acquisition_fail(struct acquisition *acquisition, const struct error *err) {
  struct acquire_waiter *waiter = acquisition->waiters;
  acquisition->waiters = NULL;
  while (waiter) {
    struct acquire_waiter *next = waiter->next;
    waiter_fail(waiter, lease_error_copy(err));
    waiter = next;
  }
}

static void acquisition_answer(struct acquisition *acquisition, struct lease *lease, bool replayed) {
  struct acquire_waiter *waiter = acquisition->waiters;
  acquisition->waiters = NULL;
  while (waiter) {
    struct acquire_waiter *next = waiter->next;
    waiter_reply(waiter, lease, replayed);
    waiter = next;
    replayed = true;
  }
}

/* A sandbox there was no memory to know: the backend's sweep finds it if this failed. */
static void unknown_released(void *context, struct error *err) {
  (void)context;
  (void)err;
}

/* The backend gave a sandbox. */
static void acquisition_bound(struct acquisition *acquisition, const struct backend_sandbox *sandbox, bool replayed) {
  struct lease_service *service = acquisition->service;
  struct lease *lease = lease_life_adopt(service, sandbox);
  if (!lease || lease->state != LEASE_ACTIVE) {
    struct error *err = lease_error(lease ? REASON_SANDBOX_START_FAILED : REASON_INTERNAL);
    acquisition_fail(acquisition, err);
    error_free(&err);
    if (!lease)
      service->backend->operations->release(service->backend, sandbox->id, unknown_released, NULL);
    return;
  }
  lease_table_unreserve(&service->table, &acquisition->reservation);
  log_write(LOG_INFO, replayed ? "lease_replayed" : "lease_acquired", LOG_TEXT("lease", sandbox->id),
            LOG_TEXT("pool", sandbox->pool),
            LOG_NUMBER("milliseconds", (clock_boot() - acquisition->started) / CLOCK_MILLISECOND));
  if (!acquisition->waiters && !replayed) {
    lease_life_end(service, lease, BACKEND_END_RELEASED);
    return;
  }
  acquisition_answer(acquisition, lease, replayed);
  /* The first command then finds it open. */
  struct error *err = NULL;
  if (!lease_life_session(service, lease, &err))
    log_write(LOG_DEBUG, "session_not_opened", LOG_TEXT("lease", sandbox->id), LOG_REASON(err), LOG_DETAIL(err));
  error_free(&err);
}

static void acquisition_ask(struct acquisition *acquisition);

static void acquisition_completed(void *context, const struct backend_sandbox *sandbox, bool replayed,
                                  struct error *err) {
  struct acquisition *acquisition = context;
  acquisition->pending = NULL;
  acquisition->running = false;
  if (sandbox) {
    acquisition_bound(acquisition, sandbox, replayed);
  } else if (acquisition->cancelled && acquisition->waiters) {
    /* Somebody came while it was being cancelled. */
    acquisition_ask(acquisition);
    return;
  } else {
    if (acquisition->waiters)
      log_write(LOG_WARNING, "acquire_failed", LOG_TEXT("pool", acquisition->pool), LOG_REASON(err), LOG_DETAIL(err));
    acquisition_fail(acquisition, err);
  }
  if (!acquisition->asking)
    acquisition_free(acquisition);
}

/* The acquisition may be gone when this returns. */
static void acquisition_ask(struct acquisition *acquisition) {
  struct backend *backend = acquisition->service->backend;
  const struct backend_acquire acquire = {.pool = acquisition->pool,
                                          .scope = acquisition->labels.scope,
                                          .consumer = acquisition->labels.consumer,
                                          .idempotency = acquisition->idempotency,
                                          .ttl = acquisition->waiters->ttl * CLOCK_SECOND};
  acquisition->cancelled = false;
  acquisition->running = true;
  acquisition->asking = true;
  struct backend_pending *pending = backend->operations->acquire(backend, &acquire, acquisition_completed, acquisition);
  acquisition->asking = false;
  if (acquisition->running)
    acquisition->pending = pending;
  else
    acquisition_free(acquisition);
}

/* Nobody waits any more. The acquisition may be gone when this returns. */
static void acquisition_abandon(struct acquisition *acquisition) {
  struct backend *backend = acquisition->service->backend;
  if (acquisition->waiters || !acquisition->running || acquisition->cancelled)
    return;
  acquisition->cancelled = true;
  backend->operations->cancel(backend, acquisition->pending);
}

static void waiter_cancelled(void *context) {
  struct acquire_waiter *waiter = context;
  struct acquisition *acquisition = waiter->acquisition;
  struct acquire_waiter **place = &acquisition->waiters;
  while (*place != waiter)
    place = &(*place)->next;
  *place = waiter->next;
  struct call *call = waiter->call;
  memory_free(waiter);
  call_fail(call, lease_error(REASON_ABORTED));
  acquisition_abandon(acquisition);
}

void lease_acquire_abort(struct lease_service *service) {
  struct error *err = lease_error(REASON_ABORTED);
  struct label_entry *entry = label_map_next(&service->acquisitions, NULL);
  while (entry) {
    struct acquisition *acquisition = LABEL_OWNER(entry, struct acquisition, by_idempotency);
    entry = label_map_next(&service->acquisitions, entry);
    acquisition_fail(acquisition, err);
    acquisition_abandon(acquisition);
  }
  error_free(&err);
}

void lease_acquire_bound(struct lease_service *service, const char *idempotency) {
  struct acquisition *acquisition = acquisition_find(service, idempotency);
  if (acquisition)
    lease_table_unreserve(&service->table, &acquisition->reservation);
}

void lease_acquire_forget(struct lease_service *service) {
  for (struct label_entry *entry; (entry = label_map_next(&service->acquisitions, NULL));)
    acquisition_free(LABEL_OWNER(entry, struct acquisition, by_idempotency));
}

/* --- the call --- */

static void acquisition_join(struct acquisition *acquisition, struct acquire_waiter *waiter) {
  struct acquire_waiter **place = &acquisition->waiters;
  while (*place)
    place = &(*place)->next;
  *place = waiter;
  waiter->acquisition = acquisition;
}

/* NULL and *err: over the quota, or no memory. */
static struct acquisition *acquisition_new(struct lease_service *service, const char *pool,
                                           const struct scope_labels *labels, const char *idempotency,
                                           struct error **err) {
  const struct lease_settings *settings = &service->settings;
  struct acquisition *acquisition = memory_zero(sizeof(*acquisition));
  enum lease_reserved reserved = LEASE_RESERVE_NO_MEMORY;
  if (acquisition)
    reserved = lease_table_reserve(&service->table, labels->scope, labels->consumer, (size_t)settings->per_subject,
                                   (size_t)settings->per_consumer, &acquisition->reservation);
  if (reserved != LEASE_RESERVED) {
    memory_free(acquisition);
    if (reserved == LEASE_OVER_QUOTA) {
      error_set(err, REASON_LEASE_QUOTA_EXCEEDED, NULL);
      error_set_retry_after(*err, QUOTA_RETRY_AFTER);
    } else {
      error_set_memory(err);
    }
    return NULL;
  }
  acquisition->service = service;
  acquisition->started = clock_boot();
  acquisition->labels = *labels;
  memcpy(acquisition->pool, pool, strlen(pool));
  memcpy(acquisition->idempotency, idempotency, sizeof(acquisition->idempotency));
  label_map_insert(&service->acquisitions, &acquisition->by_idempotency, acquisition->idempotency);
  return acquisition;
}

/* The pool is known and the TTL in bounds. */
static void acquire_begin(struct lease_service *service, struct acquire_waiter *waiter, const char *pool,
                          const struct scope_labels *labels, const char *idempotency) {
  lease_life_expire(service);
  /* A pending one first: its sandbox may be bound, and in the table, before it is ready. */
  struct acquisition *acquisition = acquisition_find(service, idempotency);
  struct lease *lease = acquisition ? NULL : lease_table_find_idempotent(&service->table, idempotency);
  const char *taken = acquisition ? acquisition->pool : lease ? lease->facts.pool : pool;
  struct error *err = NULL;
  if (strcmp(taken, pool) != 0) {
    waiter_fail(waiter, lease_error(REASON_IDEMPOTENCY_CONFLICT));
  } else if (lease) {
    waiter_reply(waiter, lease, true);
  } else if (acquisition) {
    acquisition_join(acquisition, waiter);
  } else if ((acquisition = acquisition_new(service, pool, labels, idempotency, &err))) {
    acquisition_join(acquisition, waiter);
    acquisition_ask(acquisition);
  } else {
    waiter_fail(waiter, err);
  }
}

static void acquire_label(struct lease_service *service, struct call *call, const char *pool, int64_t ttl,
                          const char *key) {
  const struct identity *identity = call_identity(call);
  const struct scope_labels *labels = lease_lookup_labels(service, call);
  if (!labels)
    return;
  char idempotency[LABEL_SIZE];
  const char *parts[] = {"idempotency", identity->consumer, identity->subject, key};
  if (label_make(&service->metadata_key, parts, 4, idempotency) < 0) {
    call_fail(call, lease_error(REASON_INTERNAL));
    return;
  }
  struct acquire_waiter *waiter = waiter_new(service, call, ttl);
  if (waiter)
    acquire_begin(service, waiter, pool, labels, idempotency);
}

void lease_handle_acquire(struct call *call, const ProtobufCMessage *message, void *context) {
  struct lease_service *service = context;
  const Sandbox__Lease__V1__AcquireLeaseRequest *request = (const Sandbox__Lease__V1__AcquireLeaseRequest *)message;
  const struct lease_settings *settings = &service->settings;
  if (service->phase != SERVICE_SERVING) {
    call_fail(call, lease_error(REASON_SERVER_UNAVAILABLE));
    return;
  }
  struct error *err = NULL;
  bool has_ttl = request->_ttl_seconds_case == SANDBOX__LEASE__V1__ACQUIRE_LEASE_REQUEST___TTL_SECONDS_TTL_SECONDS;
  int64_t ttl = has_ttl ? request->ttl_seconds : settings->ttl_default;
  if (strlen(request->pool) > LIMIT_POOL_NAME_BYTES ||
      !service->backend->operations->has_pool(service->backend, request->pool))
    error_set_field(&err, REASON_UNKNOWN_POOL, "pool", NULL);
  else if (ttl < 1 || ttl > settings->ttl_max)
    error_set_field(&err, REASON_INVALID_LEASE_TTL, "ttl_seconds", settings->ttl_rule);
  if (err)
    call_fail(call, err);
  else
    acquire_label(service, call, request->pool, ttl, request->idempotency_key);
}
