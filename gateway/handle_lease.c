/*
 * GET, DELETE /v1/leases/{id} and POST /v1/leases/{id}/release: one Lease by its id.
 */
#include "gateway/exchange.h"
#include "gateway/route.h"
#include "gateway/translate.h"

enum { DEADLINE_MS = 30000 };

static void reply_lease(struct exchange *exchange, const Sandbox__Lease__V1__Lease *lease) {
  if (lease && translate_only_lease(&exchange->answer, lease) == 0)
    exchange_reply_json(exchange, 200);
  else
    exchange_fail(exchange, NULL);
}

/* The messages have const-less strings. */
static int read_id(struct exchange *exchange, char **id, struct error **err) {
  *id = (char *)exchange_lease_id(exchange, err);
  return *id ? 0 : -1;
}

static int get_start(struct exchange *exchange, const struct json *json, struct error **err) {
  static const struct exchange_method method = {.path = "/sandbox.lease.v1.LeaseService/GetLease",
                                                .reply = &sandbox__lease__v1__get_lease_response__descriptor,
                                                .deadline_ms = DEADLINE_MS};
  (void)json;
  Sandbox__Lease__V1__GetLeaseRequest request = SANDBOX__LEASE__V1__GET_LEASE_REQUEST__INIT;
  if (read_id(exchange, &request.lease_id, err) < 0)
    return -1;
  return exchange_call(exchange, &method, &request.base, err);
}

static void get_answer(struct exchange *exchange, const ProtobufCMessage *reply) {
  reply_lease(exchange, ((const Sandbox__Lease__V1__GetLeaseResponse *)reply)->lease);
}

const struct handler handle_get = {.start = get_start, .answer = get_answer};

static int release_start(struct exchange *exchange, const struct json *json, struct error **err) {
  static const struct exchange_method method = {.path = "/sandbox.lease.v1.LeaseService/ReleaseLease",
                                                .reply = &sandbox__lease__v1__release_lease_response__descriptor,
                                                .deadline_ms = DEADLINE_MS};
  (void)json;
  Sandbox__Lease__V1__ReleaseLeaseRequest request = SANDBOX__LEASE__V1__RELEASE_LEASE_REQUEST__INIT;
  if (read_id(exchange, &request.lease_id, err) < 0)
    return -1;
  return exchange_call(exchange, &method, &request.base, err);
}

static void release_answer(struct exchange *exchange, const ProtobufCMessage *reply) {
  reply_lease(exchange, ((const Sandbox__Lease__V1__ReleaseLeaseResponse *)reply)->lease);
}

const struct handler handle_release = {.start = release_start, .answer = release_answer};

static int delete_start(struct exchange *exchange, const struct json *json, struct error **err) {
  static const struct exchange_method method = {.path = "/sandbox.lease.v1.LeaseService/DeleteLease",
                                                .reply = &sandbox__lease__v1__delete_lease_response__descriptor,
                                                .deadline_ms = DEADLINE_MS};
  (void)json;
  Sandbox__Lease__V1__DeleteLeaseRequest request = SANDBOX__LEASE__V1__DELETE_LEASE_REQUEST__INIT;
  if (read_id(exchange, &request.lease_id, err) < 0)
    return -1;
  return exchange_call(exchange, &method, &request.base, err);
}

static void delete_answer(struct exchange *exchange, const ProtobufCMessage *reply) {
  (void)reply;
  exchange_reply_empty(exchange);
}

const struct handler handle_delete = {.start = delete_start, .answer = delete_answer};
