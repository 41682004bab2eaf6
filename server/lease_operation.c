/*
 * Calls that use a sandbox: what all of them share. An operation has two ends, the call and the session's part, and
 * lives until both are over; which of them ends first is open.
 */
#include "server/lease_state.h"

static void operation_enlist(struct lease_operation *operation, struct lease_operation **first) {
  operation->previous = NULL;
  operation->next = *first;
  if (operation->next)
    operation->next->previous = operation;
  *first = operation;
}

struct session *lease_operation_begin(struct lease_operation *operation, const struct lease_operation_kind *kind,
                                      struct lease_service *service, struct call *call, struct lease *lease) {
  struct error *err = NULL;
  struct session *session = NULL;
  if (lease->state != LEASE_ACTIVE)
    error_set(&err, REASON_LEASE_NOT_ACTIVE, NULL);
  else
    session = lease_life_session(service, lease, &err);
  if (!session) {
    kind->free(operation);
    call_fail(call, err);
    return NULL;
  }
  lease_life_touch(service, lease);
  operation->kind = kind;
  operation->service = service;
  operation->lease = lease;
  operation->call = call;
  operation_enlist(operation, &lease->operations);
  service->operations++;
  return session;
}

struct call *lease_operation_answer(struct lease_operation *operation) {
  struct call *call = operation->call;
  operation->call = NULL;
  return call;
}

void lease_operation_fail(struct lease_operation *operation, struct error *err) {
  lease_operation_hold(operation);
  struct call *call = lease_operation_answer(operation);
  lease_holding_end(operation);
  if (call)
    call_fail(call, err);
  else
    error_free(&err);
  if (operation->running)
    operation->kind->stop(operation);
  operation->held--;
}

static void operation_end(struct lease_operation *operation) {
  struct lease_service *service = operation->service;
  struct lease *lease = operation->lease;
  if (operation->next)
    operation->next->previous = operation->previous;
  if (operation->previous)
    operation->previous->next = operation->next;
  else if (lease)
    lease->operations = operation->next;
  else
    service->orphans = operation->next;
  if (lease && lease->state == LEASE_ACTIVE)
    lease_life_touch(service, lease);
  operation->kind->free(operation);
  service->operations--;
  lease_service_settle(service);
}

void lease_operation_settle(struct lease_operation *operation) {
  if (!operation->call && !operation->running && operation->held == 0)
    operation_end(operation);
}

void lease_operation_hold(struct lease_operation *operation) {
  operation->held++;
}

void lease_operation_drop(struct lease_operation *operation) {
  operation->held--;
  lease_operation_settle(operation);
}

void lease_operation_cancelled(void *context) {
  struct lease_operation *operation = context;
  lease_operation_hold(operation);
  lease_operation_fail(operation, lease_error(REASON_ABORTED));
  lease_operation_drop(operation);
}

void lease_operation_orphan(struct lease *lease) {
  while (lease->operations) {
    struct lease_operation *operation = lease->operations;
    lease->operations = operation->next;
    operation->lease = NULL;
    operation_enlist(operation, &lease->service->orphans);
  }
}

void lease_operation_sweep(struct lease_service *service) {
  for (struct lease_operation *operation = service->orphans, *next; operation; operation = next) {
    next = operation->next;
    if (operation->swept)
      lease_operation_cancelled(operation);
    else
      operation->swept = true;
  }
}

static void operations_abort(struct lease_operation *first) {
  for (struct lease_operation *operation = first, *next; operation; operation = next) {
    next = operation->next;
    lease_operation_cancelled(operation);
  }
}

void lease_operation_abort_all(struct lease_service *service) {
  const struct lease_table *table = &service->table;
  for (struct lease *lease = lease_table_next(table, NULL); lease; lease = lease_table_next(table, lease))
    operations_abort(lease->operations);
  operations_abort(service->orphans);
}
