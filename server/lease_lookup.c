/*
 * From (scope, id) to a Lease. What the table does not know as the caller's own is asked of the backend, whether it
 * is somebody else's or nobody's, so that neither the answer nor the way to it tells them apart.
 */
#include "base/memory.h"
#include "server/lease_state.h"
#include <string.h>

struct lease_lookup {
  struct lease_lookup *next, *previous;
  struct lease_service *service;
  struct call *call; /* NULL once the caller went away */
  const ProtobufCMessage *request;
  lease_handler *handler;
  char scope[LABEL_SIZE];
  char id[LIMIT_LEASE_ID_BYTES + 1];
};

const struct scope_labels *lease_lookup_labels(struct lease_service *service, struct call *call) {
  const struct scope_labels *labels = scope_cache_labels(&service->scopes, call_identity(call));
  if (!labels)
    call_fail(call, lease_error(REASON_INTERNAL));
  return labels;
}

/* "lease-" and 32 lower-case hexadecimal digits. */
static bool lease_id_valid(const char *id) {
  static const char prefix[] = "lease-";
  if (strncmp(id, prefix, sizeof(prefix) - 1) != 0)
    return false;
  const char *digits = id + sizeof(prefix) - 1;
  size_t count = strspn(digits, "0123456789abcdef");
  return count == LIMIT_LEASE_ID_BYTES - (sizeof(prefix) - 1) && digits[count] == 0;
}

static void lookup_begin(struct lease_lookup *lookup) {
  struct lease_service *service = lookup->service;
  lookup->next = service->lookups;
  if (lookup->next)
    lookup->next->previous = lookup;
  service->lookups = lookup;
}

static void lookup_end(struct lease_lookup *lookup) {
  struct lease_service *service = lookup->service;
  if (lookup->next)
    lookup->next->previous = lookup->previous;
  if (lookup->previous)
    lookup->previous->next = lookup->next;
  else
    service->lookups = lookup->next;
  memory_free(lookup);
  lease_service_settle(service);
}

/* The Lease the backend found, if it is the caller's and has not run out; else NULL and *err. */
static struct lease *lookup_judge(struct lease_lookup *lookup, const struct backend_sandbox *found,
                                  const struct error *failure, struct error **err) {
  struct lease_service *service = lookup->service;
  if (failure) {
    *err = lease_error_copy(failure);
    return NULL;
  }
  if (!found || strcmp(found->scope, lookup->scope) != 0) {
    error_set(err, REASON_LEASE_NOT_FOUND, NULL);
    return NULL;
  }
  if (!lease_life_adopt(service, found)) {
    error_set_memory(err);
    return NULL;
  }
  lease_life_expire(service);
  struct lease *lease = lease_table_find(&service->table, lookup->id);
  if (!lease)
    error_set(err, REASON_LEASE_NOT_ACTIVE, NULL);
  return lease;
}

static void lookup_found(void *context, const struct backend_sandbox *found, struct error *err) {
  struct lease_lookup *lookup = context;
  struct error *problem = NULL;
  struct lease *lease = lookup_judge(lookup, found, err, &problem);
  if (lookup->call)
    lookup->handler(lookup->service, lookup->call, lookup->request, lease, problem);
  else
    error_free(&problem);
  lookup_end(lookup);
}

static void lookup_abort(struct lease_lookup *lookup) {
  struct call *call = lookup->call;
  lookup->call = NULL;
  if (call)
    call_fail(call, lease_error(REASON_ABORTED));
}

static void lookup_cancelled(void *context) {
  lookup_abort(context);
}

void lease_lookup_abort(struct lease_service *service) {
  for (struct lease_lookup *lookup = service->lookups; lookup; lookup = lookup->next)
    lookup_abort(lookup);
}

void lease_lookup_forget(struct lease_service *service) {
  while (service->lookups)
    lookup_end(service->lookups);
}

static void lookup_ask(struct lease_service *service, struct call *call, const char *scope, const char *id,
                       const ProtobufCMessage *request, lease_handler *handler) {
  static const struct call_events events = {.cancelled = lookup_cancelled};
  struct lease_lookup *lookup = memory_zero(sizeof(*lookup));
  if (!lookup) {
    handler(service, call, request, NULL, lease_error(REASON_INTERNAL));
    return;
  }
  *lookup = (struct lease_lookup){.service = service, .call = call, .request = request, .handler = handler};
  memcpy(lookup->scope, scope, sizeof(lookup->scope));
  memcpy(lookup->id, id, sizeof(lookup->id));
  lookup_begin(lookup);
  call_watch(call, &events, lookup);
  service->backend->operations->get(service->backend, lookup->id, lookup_found, lookup);
}

void lease_lookup(struct lease_service *service, struct call *call, const char *id, const ProtobufCMessage *request,
                  lease_handler *handler) {
  if (service->phase != SERVICE_SERVING) {
    handler(service, call, request, NULL, lease_error(REASON_SERVER_UNAVAILABLE));
    return;
  }
  const struct scope_labels *labels = lease_lookup_labels(service, call);
  if (!labels)
    return;
  if (!lease_id_valid(id)) {
    handler(service, call, request, NULL, lease_error(REASON_LEASE_NOT_FOUND));
    return;
  }
  lease_life_expire(service);
  struct lease *lease = lease_table_find(&service->table, id);
  if (lease && strcmp(lease->facts.scope, labels->scope) == 0) {
    lease->known = true;
    handler(service, call, request, lease, NULL);
    return;
  }
  const struct lease_tombstone *tombstone = lease_tombstones_find(&service->tombstones, id);
  if (tombstone && strcmp(tombstone->scope, labels->scope) == 0) {
    handler(service, call, request, NULL, lease_error(REASON_LEASE_NOT_ACTIVE));
    return;
  }
  lookup_ask(service, call, labels->scope, id, request, handler);
}
