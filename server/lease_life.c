/*
 * The life of a Lease: adopted when its sandbox is bound, touched by use, ended by release, by its deadline or by the
 * loss of its sandbox, and remembered for a while after that.
 *
 * Its end has two steps. First it stops being its holder's: no list, key or quota knows it any more, and all that
 * uses it ends. Then, when the backend says that nothing of it runs any more, whoever waits for that is answered.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "server/lease_encode.h"
#include "server/lease_state.h"
#include <string.h>

/* --- waiting for the end --- */

struct lease_end_waiter {
  struct lease_end_waiter *next;
  struct lease *lease;
  struct call *call;
  bool empty; /* DeleteLease: answer without the Lease */
};

static void waiter_cancelled(void *context) {
  struct lease_end_waiter *waiter = context;
  struct lease_end_waiter **place = &waiter->lease->waiters;
  while (*place != waiter)
    place = &(*place)->next;
  *place = waiter->next;
  struct call *call = waiter->call;
  memory_free(waiter);
  call_fail(call, lease_error(REASON_ABORTED));
}

void lease_life_wait(struct lease *lease, struct call *call, bool empty) {
  static const struct call_events events = {.cancelled = waiter_cancelled};
  struct lease_end_waiter *waiter = memory_zero(sizeof(*waiter));
  if (!waiter) {
    call_fail(call, lease_error(REASON_INTERNAL));
    return;
  }
  *waiter = (struct lease_end_waiter){.next = lease->waiters, .lease = lease, .call = call, .empty = empty};
  lease->waiters = waiter;
  call_watch(call, &events, waiter);
}

static void waiter_answer(const struct lease_end_waiter *waiter, const struct backend_sandbox *facts,
                          const struct error *err) {
  if (err) {
    call_fail(waiter->call, lease_error_copy(err));
    return;
  }
  if (waiter->empty) {
    Sandbox__Lease__V1__DeleteLeaseResponse reply = SANDBOX__LEASE__V1__DELETE_LEASE_RESPONSE__INIT;
    call_reply(waiter->call, &reply.base);
    return;
  }
  struct lease_message message;
  lease_message_fill(&message, facts, SANDBOX__LEASE__V1__LEASE_STATUS__LEASE_STATUS_RELEASED);
  Sandbox__Lease__V1__ReleaseLeaseResponse reply = SANDBOX__LEASE__V1__RELEASE_LEASE_RESPONSE__INIT;
  reply.lease = &message.lease;
  call_reply(waiter->call, &reply.base);
}

static void waiters_answer(struct lease *lease, const struct error *err) {
  struct lease_end_waiter *waiter = lease->waiters;
  lease->waiters = NULL;
  while (waiter) {
    struct lease_end_waiter *next = waiter->next;
    waiter_answer(waiter, &lease->facts, err);
    memory_free(waiter);
    waiter = next;
  }
}

void lease_life_abort_waiters(struct lease_service *service) {
  struct error *err = lease_error(REASON_ABORTED);
  const struct lease_table *table = &service->table;
  for (struct lease *lease = lease_table_next(table, NULL); lease; lease = lease_table_next(table, lease))
    waiters_answer(lease, err);
  error_free(&err);
}

/* --- the end --- */

static const char *end_name(enum backend_end end) {
  switch (end) {
  case BACKEND_END_RELEASED:
    return "released";
  case BACKEND_END_EXPIRED:
    return "expired";
  case BACKEND_END_LOST:
    break;
  }
  return "lost";
}

static void lease_close_session(struct lease *lease, enum session_ended why) {
  struct session *session = lease->session;
  lease->session = NULL;
  if (session)
    session_close(session, why);
}

static void lease_rearm(struct lease_service *service) {
  if (!service->expiry)
    return;
  const struct lease *nearest = lease_table_nearest(&service->table);
  boot_timer_set(service->expiry, nearest ? nearest->facts.deadline : INT64_MAX);
}

/* The first step. */
static void lease_withdraw(struct lease_service *service, struct lease *lease, enum backend_end end) {
  lease->end = end;
  lease_table_end(&service->table, lease);
  lease_rearm(service);
  lease_close_session(lease, end == BACKEND_END_LOST ? SESSION_ENDED_LOST : SESSION_ENDED_LEASE);
}

/* The last step; the Lease is gone after it. */
static void lease_bury(struct lease_service *service, struct lease *lease) {
  log_write(LOG_INFO, "lease_ended", LOG_TEXT("lease", lease->facts.id), LOG_TEXT("end", end_name(lease->end)));
  lease_tombstones_add(&service->tombstones, &lease->facts, lease->end, clock_boot());
  lease_operation_orphan(lease);
  waiters_answer(lease, NULL);
  lease_table_remove(&service->table, lease);
  lease_service_settle(service);
}

static void lease_released(void *context, struct error *err) {
  struct lease *lease = context;
  struct lease_service *service = lease->service;
  lease->release_running = false;
  if (!err || lease->gone || error_reason(err) == REASON_LEASE_NOT_FOUND) {
    lease_bury(service, lease);
    return;
  }
  log_write(LOG_WARNING, "release_failed", LOG_TEXT("lease", lease->facts.id), LOG_REASON(err), LOG_DETAIL(err));
  waiters_answer(lease, err);
  lease_service_settle(service);
}

void lease_life_end(struct lease_service *service, struct lease *lease, enum backend_end end) {
  if (lease->state == LEASE_ACTIVE)
    lease_withdraw(service, lease, end);
  if (lease->release_running)
    return;
  lease->release_running = true;
  service->backend->operations->release(service->backend, lease->facts.id, lease_released, lease);
}

void lease_life_ended(void *context, const char *id, enum backend_end end) {
  struct lease_service *service = context;
  struct lease *lease = lease_table_find(&service->table, id);
  if (!lease)
    return;
  lease->gone = true;
  if (lease->state == LEASE_ACTIVE)
    lease_withdraw(service, lease, end);
  if (!lease->release_running)
    lease_bury(service, lease);
}

void lease_life_expire(struct lease_service *service) {
  struct lease *lease = lease_table_nearest(&service->table);
  if (!lease)
    return;
  int64_t now = clock_boot();
  for (; lease && lease->facts.deadline <= now; lease = lease_table_nearest(&service->table))
    lease_life_end(service, lease, BACKEND_END_EXPIRED);
  lease_rearm(service);
}

void lease_life_sweep(struct lease_service *service) {
  lease_life_expire(service);
  lease_tombstones_prune(&service->tombstones, clock_boot());
  lease_operation_sweep(service);
  for (struct lease *lease = lease_table_next(&service->table, NULL), *next; lease; lease = next) {
    next = lease_table_next(&service->table, lease);
    if (lease->state == LEASE_ENDING && !lease->release_running)
      lease_life_end(service, lease, lease->end);
  }
  service->backend->operations->sweep(service->backend);
}

/* --- the beginning, and use --- */

struct lease *lease_life_adopt(struct lease_service *service, const struct backend_sandbox *sandbox) {
  struct lease *lease = lease_table_find(&service->table, sandbox->id);
  if (lease)
    lease_table_update(&service->table, lease, sandbox);
  else if ((lease = lease_table_add(&service->table, sandbox)))
    lease->service = service;
  lease_rearm(service);
  return lease;
}

void lease_life_bound(void *context, const struct backend_sandbox *sandbox) {
  struct lease_service *service = context;
  if (!lease_life_adopt(service, sandbox))
    log_write(LOG_ERROR, "lease_not_adopted", LOG_TEXT("lease", sandbox->id), LOG_TEXT("detail", "out of memory"));
  lease_acquire_bound(service, sandbox->idempotency);
}

void lease_life_touch(struct lease_service *service, struct lease *lease) {
  int64_t wall = clock_wall();
  lease->facts.last_used_at = wall > lease->facts.created_at ? wall : lease->facts.created_at;
  service->backend->operations->touch(service->backend, lease->facts.id, lease->facts.last_used_at);
}

struct session *lease_life_session(struct lease_service *service, struct lease *lease, struct error **err) {
  if (lease->session)
    return lease->session;
  struct transport *transport = service->backend->operations->open_transport(service->backend, lease->facts.id, err);
  if (!transport)
    return NULL;
  struct session_options options = {
    .loop = service->loop, .transport = transport, .deadline = lease->facts.deadline, .lease = lease->facts.id};
  lease->session = session_new(&options);
  if (!lease->session)
    error_set_memory(err);
  return lease->session;
}

void lease_life_close_sessions(struct lease_service *service) {
  const struct lease_table *table = &service->table;
  for (struct lease *lease = lease_table_next(table, NULL); lease; lease = lease_table_next(table, lease))
    lease_close_session(lease, SESSION_ENDED_LEASE);
}
