/*
 * GET /v1/leases: the caller's Leases, page by page.
 */
#include "gateway/exchange.h"
#include "gateway/route.h"
#include "gateway/translate.h"

#include "base/limits.h"
#include "base/memory.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

enum { DEADLINE_MS = 30000 };

enum { POOL, LIMIT, CURSOR, PARAMETERS };
static const char *const names[PARAMETERS] = {"pool", "limit", "cursor"};

/* What the query says; strings that memory_free frees. */
struct list_query {
  char *values[PARAMETERS];
};

static void query_free(struct list_query *query) {
  for (size_t i = 0; i < PARAMETERS; i++)
    memory_free(query->values[i]);
}

static int refuse(struct error **err, const char *name, const char *rule) {
  char message[64];
  snprintf(message, sizeof message, "'%s' %s", name, rule);
  return error_set(err, REASON_INVALID_REQUEST, message);
}

static int keep_parameter(struct list_query *query, struct http_text name, struct http_text value, struct error **err) {
  size_t at = 0;
  while (at < PARAMETERS && !(name.length == strlen(names[at]) && memcmp(name.data, names[at], name.length) == 0))
    at++;
  if (at == PARAMETERS)
    return error_set(err, REASON_INVALID_REQUEST, "Unknown query parameter");
  if (query->values[at])
    return refuse(err, names[at], "must be given once");
  if (text_blank(value.data, value.length))
    return refuse(err, names[at], "must be a non-empty string");
  if (!text_valid(value.data, value.length) || memchr(value.data, '\0', value.length))
    return refuse(err, names[at], "must be text without U+0000");
  query->values[at] = memory_string_of(value.data, value.length);
  return query->values[at] ? 0 : error_set_memory(err);
}

static int query_read(struct list_query *query, struct target *target, struct error **err) {
  struct http_text name, value;
  int more;
  while ((more = target_next_parameter(target, &name, &value, err)) > 0)
    if (keep_parameter(query, name, value, err) < 0)
      return -1;
  return more;
}

/* Canonical: no sign, no leading zero. What is well formed but out of range gets the same words. */
static int read_limit(const char *text, int64_t *limit, struct error **err) {
  *limit = 0;
  size_t length = strlen(text);
  for (size_t i = 0; i < length; i++) {
    if (text[i] < '0' || text[i] > '9' || length > 3 || text[0] == '0')
      return error_set(err, REASON_INVALID_REQUEST, "limit must be an integer between 1 and 100");
    *limit = *limit * 10 + (text[i] - '0');
  }
  return 0;
}

static int start(struct exchange *exchange, const struct json *json, struct error **err) {
  static const struct exchange_method method = {.path = "/sandbox.lease.v1.LeaseService/ListLeases",
                                                .reply = &sandbox__lease__v1__list_leases_response__descriptor,
                                                .deadline_ms = DEADLINE_MS};
  (void)json;
  struct list_query query __attribute__((cleanup(query_free))) = {{NULL}};
  Sandbox__Lease__V1__ListLeasesRequest request = SANDBOX__LEASE__V1__LIST_LEASES_REQUEST__INIT;
  if (query_read(&query, &exchange->target, err) < 0)
    return -1;
  if (query.values[POOL]) {
    request._pool_case = SANDBOX__LEASE__V1__LIST_LEASES_REQUEST___POOL_POOL;
    request.pool = query.values[POOL];
  }
  if (query.values[CURSOR]) {
    request._cursor_case = SANDBOX__LEASE__V1__LIST_LEASES_REQUEST___CURSOR_CURSOR;
    request.cursor = query.values[CURSOR];
  }
  if (query.values[LIMIT]) {
    request._limit_case = SANDBOX__LEASE__V1__LIST_LEASES_REQUEST___LIMIT_LIMIT;
    if (read_limit(query.values[LIMIT], &request.limit, err) < 0)
      return -1;
  }
  return exchange_call(exchange, &method, &request.base, err);
}

static int write_page(struct buffer *out, const Sandbox__Lease__V1__ListLeasesResponse *page) {
  if (buffer_append_string(out, "{\"leases\":[") < 0)
    return -1;
  for (size_t i = 0; i < page->n_leases; i++)
    if ((i > 0 && buffer_append_byte(out, ',') < 0) || translate_lease(out, page->leases[i]) < 0)
      return -1;
  if (page->_next_cursor_case != SANDBOX__LEASE__V1__LIST_LEASES_RESPONSE___NEXT_CURSOR_NEXT_CURSOR)
    return buffer_append_string(out, "],\"nextCursor\":null}");
  if (buffer_append_string(out, "],\"nextCursor\":") < 0 ||
      json_write_string(out, page->next_cursor, strlen(page->next_cursor)) < 0)
    return -1;
  return buffer_append_byte(out, '}');
}

static void answer(struct exchange *exchange, const ProtobufCMessage *reply) {
  if (write_page(&exchange->answer, (const Sandbox__Lease__V1__ListLeasesResponse *)reply) < 0)
    exchange_fail(exchange, NULL);
  else
    exchange_reply_json(exchange, 200);
}

const struct handler handle_list = {.start = start, .answer = answer};
