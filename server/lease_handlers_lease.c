/*
 * The calls about Leases themselves: who am I, get, list, release, delete. None of them touches a sandbox but to end
 * it.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "server/lease_encode.h"
#include "server/lease_handlers.h"
#include "server/lease_state.h"
#include <string.h>

void lease_handle_access(struct call *call, const ProtobufCMessage *message, void *context) {
  (void)message;
  (void)context;
  const struct identity *identity = call_identity(call);
  Google__Protobuf__Timestamp expires = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
  expires.seconds = identity->expires;
  Sandbox__Lease__V1__CheckAccessResponse reply = SANDBOX__LEASE__V1__CHECK_ACCESS_RESPONSE__INIT;
  reply.consumer_id = (char *)identity->consumer;
  reply.subject_id = (char *)identity->subject;
  reply.expires_at = &expires;
  call_reply(call, &reply.base);
}

/* --- get --- */

static void get_found(struct lease_service *service, struct call *call, const ProtobufCMessage *message,
                      struct lease *lease, struct error *err) {
  (void)service;
  (void)message;
  /* Only an active Lease can be got: one that has ended is not there any more. */
  bool ended = lease ? lease->state != LEASE_ACTIVE : error_reason(err) == REASON_LEASE_NOT_ACTIVE;
  if (ended) {
    error_free(&err);
    err = lease_error(REASON_LEASE_NOT_FOUND);
  }
  if (err) {
    call_fail(call, err);
    return;
  }
  struct lease_message found;
  lease_message_fill(&found, &lease->facts, SANDBOX__LEASE__V1__LEASE_STATUS__LEASE_STATUS_ACTIVE);
  Sandbox__Lease__V1__GetLeaseResponse reply = SANDBOX__LEASE__V1__GET_LEASE_RESPONSE__INIT;
  reply.lease = &found.lease;
  call_reply(call, &reply.base);
}

void lease_handle_get(struct call *call, const ProtobufCMessage *message, void *context) {
  const Sandbox__Lease__V1__GetLeaseRequest *request = (const Sandbox__Lease__V1__GetLeaseRequest *)message;
  lease_lookup(context, call, request->lease_id, message, get_found);
}

/* --- release and delete --- */

static void lease_finish(struct lease_service *service, struct call *call, struct lease *lease, struct error *err,
                         bool empty) {
  if (!err && lease->state != LEASE_ACTIVE && lease->end != BACKEND_END_RELEASED)
    err = lease_error(REASON_LEASE_NOT_ACTIVE);
  if (err) {
    call_fail(call, err);
    return;
  }
  lease_life_wait(lease, call, empty);
  lease_life_end(service, lease, BACKEND_END_RELEASED);
}

static void release_found(struct lease_service *service, struct call *call, const ProtobufCMessage *message,
                          struct lease *lease, struct error *err) {
  (void)message;
  lease_finish(service, call, lease, err, false);
}

void lease_handle_release(struct call *call, const ProtobufCMessage *message, void *context) {
  const Sandbox__Lease__V1__ReleaseLeaseRequest *request = (const Sandbox__Lease__V1__ReleaseLeaseRequest *)message;
  lease_lookup(context, call, request->lease_id, message, release_found);
}

static void delete_found(struct lease_service *service, struct call *call, const ProtobufCMessage *message,
                         struct lease *lease, struct error *err) {
  (void)message;
  lease_finish(service, call, lease, err, true);
}

void lease_handle_delete(struct call *call, const ProtobufCMessage *message, void *context) {
  const Sandbox__Lease__V1__DeleteLeaseRequest *request = (const Sandbox__Lease__V1__DeleteLeaseRequest *)message;
  lease_lookup(context, call, request->lease_id, message, delete_found);
}

/* --- list --- */

static const char *list_pool(const Sandbox__Lease__V1__ListLeasesRequest *request) {
  return request->_pool_case == SANDBOX__LEASE__V1__LIST_LEASES_REQUEST___POOL_POOL ? request->pool : NULL;
}

static const char *list_cursor(const Sandbox__Lease__V1__ListLeasesRequest *request) {
  return request->_cursor_case == SANDBOX__LEASE__V1__LIST_LEASES_REQUEST___CURSOR_CURSOR ? request->cursor : NULL;
}

static int64_t list_limit(const Sandbox__Lease__V1__ListLeasesRequest *request) {
  return request->_limit_case == SANDBOX__LEASE__V1__LIST_LEASES_REQUEST___LIMIT_LIMIT ? request->limit
                                                                                      : LIMIT_LIST_DEFAULT;
}

int lease_check_list(const ProtobufCMessage *message, struct error **err) {
  const Sandbox__Lease__V1__ListLeasesRequest *request = (const Sandbox__Lease__V1__ListLeasesRequest *)message;
  const char *pool = list_pool(request), *cursor = list_cursor(request);
  int64_t limit = list_limit(request);
  if (pool && text_blank(pool, strlen(pool)))
    return error_set_field(err, REASON_INVALID_REQUEST, "pool", "'pool' must be a non-empty string");
  if (limit < 1 || limit > LIMIT_LIST_MAX)
    return error_set_field(err, REASON_INVALID_REQUEST, "limit", "limit must be an integer between 1 and 100");
  if (cursor && text_blank(cursor, strlen(cursor)))
    return error_set_field(err, REASON_INVALID_REQUEST, "cursor", "'cursor' must be a non-empty string");
  return 0;
}

/* Fills in where the page begins: what the client's cursor says, or the beginning. `wanted` holds scope, pool and
 * limit. */
static int list_position(struct lease_service *service, const char *text, struct cursor *wanted, struct error **err) {
  if (!text) {
    wanted->first_page = clock_wall();
    return 0;
  }
  size_t length = strlen(text);
  struct cursor cursor;
  if (length > LIMIT_CURSOR_BYTES)
    return error_set_field(err, REASON_INVALID_CURSOR, "cursor", NULL);
  if (cursor_open(&service->cursor_key, text, length, &cursor, err) < 0)
    return -1;
  if (strcmp(cursor.scope, wanted->scope) != 0 || strcmp(cursor.pool, wanted->pool) != 0 ||
      cursor.limit != wanted->limit)
    return error_set_field(err, REASON_INVALID_CURSOR, "cursor", NULL);
  /* The position is a Lease; without it the page cannot be told from one that was never given. */
  const struct lease *last = lease_table_find(&service->table, cursor.id);
  if (!last || last->state != LEASE_ACTIVE || last->facts.created_at != cursor.created ||
      strcmp(last->facts.scope, cursor.scope) != 0)
    return error_set_field(err, REASON_CURSOR_EXPIRED, "cursor", NULL);
  *wanted = cursor;
  return 0;
}

/* The page behind `position`. Every active Lease counts: its deadline lies ahead on the clock that does not jump, so
 * its expiry is later than the first page's time whatever the wall clock was set to meanwhile. */
static void list_reply(struct lease_service *service, struct call *call, struct cursor *position) {
  struct lease *found[LIMIT_LIST_MAX];
  struct lease_message messages[LIMIT_LIST_MAX];
  Sandbox__Lease__V1__Lease *leases[LIMIT_LIST_MAX];
  bool more;
  const char *pool = position->pool[0] ? position->pool : NULL, *id = position->id[0] ? position->id : NULL;
  size_t count = lease_table_list(&service->table, position->scope, pool, position->created, id, position->limit, found,
                                  &more);
  for (size_t i = 0; i < count; i++) {
    lease_message_fill(&messages[i], &found[i]->facts, SANDBOX__LEASE__V1__LEASE_STATUS__LEASE_STATUS_ACTIVE);
    leases[i] = &messages[i].lease;
    found[i]->known = true;
  }
  Sandbox__Lease__V1__ListLeasesResponse reply = SANDBOX__LEASE__V1__LIST_LEASES_RESPONSE__INIT;
  reply.n_leases = count;
  reply.leases = leases;
  CLEANUP_MEMORY char *next = NULL;
  if (more) {
    position->created = found[count - 1]->facts.created_at;
    memcpy(position->id, found[count - 1]->facts.id, sizeof(position->id));
    struct error *err = NULL;
    next = cursor_seal(&service->cursor_key, position, &err);
    if (!next) {
      call_fail(call, err);
      return;
    }
    reply._next_cursor_case = SANDBOX__LEASE__V1__LIST_LEASES_RESPONSE___NEXT_CURSOR_NEXT_CURSOR;
    reply.next_cursor = next;
  }
  call_reply(call, &reply.base);
}

void lease_handle_list(struct call *call, const ProtobufCMessage *message, void *context) {
  struct lease_service *service = context;
  const Sandbox__Lease__V1__ListLeasesRequest *request = (const Sandbox__Lease__V1__ListLeasesRequest *)message;
  if (service->phase != SERVICE_SERVING) {
    call_fail(call, lease_error(REASON_SERVER_UNAVAILABLE));
    return;
  }
  const struct scope_labels *labels = lease_lookup_labels(service, call);
  if (!labels)
    return;
  struct error *err = NULL;
  const char *pool = list_pool(request);
  if (pool && (strlen(pool) > LIMIT_POOL_NAME_BYTES ||
               !service->backend->operations->has_pool(service->backend, pool))) {
    error_set_field(&err, REASON_UNKNOWN_POOL, "pool", NULL);
    call_fail(call, err);
    return;
  }
  struct cursor position = {.limit = (uint32_t)list_limit(request)};
  memcpy(position.scope, labels->scope, sizeof(position.scope));
  if (pool)
    memcpy(position.pool, pool, strlen(pool));
  lease_life_expire(service);
  if (list_position(service, list_cursor(request), &position, &err) < 0)
    call_fail(call, err);
  else
    list_reply(service, call, &position);
}
