/*
 * POST /v1/leases: acquire a Lease.
 */
#include "gateway/exchange.h"
#include "gateway/route.h"
#include "gateway/translate.h"

#include "base/limits.h"
#include "base/text.h"

#include <string.h>

static int check(struct exchange *exchange, struct error **err) {
  if (exchange->target.query_length > 0)
    return error_set(err, REASON_INVALID_REQUEST, "Acquire does not accept query parameters");
  return 0;
}

/* The contract puts the pool before the key. Both are the server's to judge, except for a header that no message can
 * carry: it goes as an empty key. */
static int read_key(struct exchange *exchange, char key[static LIMIT_IDEMPOTENCY_KEY_BYTES + 2]) {
  struct http_text given = exchange_field(exchange, HTTP_IDEMPOTENCY_KEY);
  key[0] = '\0';
  if (!given.data || !text_valid(given.data, given.length))
    return 0;
  /* One byte over the limit is enough for the server to see that it is too long. */
  size_t length = given.length > LIMIT_IDEMPOTENCY_KEY_BYTES ? LIMIT_IDEMPOTENCY_KEY_BYTES + 1 : given.length;
  memcpy(key, given.data, length);
  key[length] = '\0';
  return 0;
}

static int start(struct exchange *exchange, const struct json *json, struct error **err) {
  static const struct exchange_method method = {.path = "/sandbox.lease.v1.LeaseService/AcquireLease",
                                                .reply = &sandbox__lease__v1__acquire_lease_response__descriptor};
  Sandbox__Lease__V1__AcquireLeaseRequest request = SANDBOX__LEASE__V1__ACQUIRE_LEASE_REQUEST__INIT;
  char key[LIMIT_IDEMPOTENCY_KEY_BYTES + 2];
  bool has_ttl = false;
  if (translate_text(json, "pool", &request.pool, err) < 0 ||
      json_get_integer(json, "ttlSeconds", &has_ttl, &request.ttl_seconds, err) < 0)
    return -1;
  if (has_ttl)
    request._ttl_seconds_case = SANDBOX__LEASE__V1__ACQUIRE_LEASE_REQUEST___TTL_SECONDS_TTL_SECONDS;
  read_key(exchange, key);
  request.idempotency_key = key;
  return exchange_call(exchange, &method, &request.base, err);
}

static void answer(struct exchange *exchange, const ProtobufCMessage *reply) {
  const Sandbox__Lease__V1__AcquireLeaseResponse *acquired = (const Sandbox__Lease__V1__AcquireLeaseResponse *)reply;
  struct buffer *out = &exchange->answer;
  if (!acquired->lease || buffer_append_string(out, "{\"lease\":") < 0 || translate_lease(out, acquired->lease) < 0 ||
      buffer_append_string(out, acquired->replayed ? ",\"replayed\":true}" : ",\"replayed\":false}") < 0)
    exchange_fail(exchange, NULL);
  else
    exchange_reply_json(exchange, 201);
}

const struct handler handle_acquire = {.body = HANDLER_BODY_JSON, .check = check, .start = start, .answer = answer};
