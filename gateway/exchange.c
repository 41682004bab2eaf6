/*
 * The life of an exchange, and what the connection says of its request.
 */
#include "gateway/exchange.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "gateway/peer.h"

#include <string.h>

/* Life */

static void exchange_free(struct exchange *exchange) {
  struct loop *loop = exchange->loop;
  if (exchange->handler && exchange->handler->close)
    exchange->handler->close(exchange);
  holding_end(&exchange->held);
  memory_free(exchange->state);
  h2o_linklist_unlink(&exchange->link);
  buffer_free(&exchange->body);
  buffer_free(&exchange->answer);
  error_free(&exchange->refusal);
  error_free(&exchange->failure);
  if (exchange->reply)
    protobuf_c_message_free_unpacked(exchange->reply, NULL);
  if (exchange->received)
    grpc_byte_buffer_destroy(exchange->received);
  rpc_client_call_release(exchange->call);
  memory_free(exchange);
  loop->exchange_count--;
  loop_released(loop);
}

void exchange_settle(struct exchange *exchange) {
  if (!exchange->connection && !exchange->running && !exchange->again)
    exchange_free(exchange);
}

static bool is_sane_id(struct http_text id) {
  for (size_t i = 0; i < id.length; i++) {
    char byte = id.data[i];
    bool letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9');
    if (!letter && byte != '.' && byte != '_' && byte != '-')
      return false;
  }
  return id.length > 0 && id.length < sizeof((struct exchange *)NULL)->request_id;
}

static void set_request_id(struct exchange *exchange) {
  struct http_text given = exchange_field(exchange, HTTP_REQUEST_ID);
  if (given.data && is_sane_id(given)) {
    memcpy(exchange->request_id, given.data, given.length);
    exchange->request_id_text = (struct http_text){.data = exchange->request_id, .length = given.length};
  } else {
    loop_request_id(exchange->loop, exchange->request_id);
    exchange->request_id_text = (struct http_text){.data = exchange->request_id, .length = LOOP_REQUEST_ID_BYTES - 1};
  }
}

static struct exchange *exchange_new(struct connection *connection, const struct http_head *head, const char *bytes,
                                     size_t length) {
  struct exchange *exchange = memory_zero(sizeof *exchange + length);
  if (!exchange)
    return NULL;
  exchange->loop = peer_loop(connection);
  exchange->connection = connection;
  buffer_init(&exchange->body, LIMIT_JSON_BODY_BYTES);
  buffer_init(&exchange->answer, SIZE_MAX / 2);
  if (head) {
    memcpy(exchange->text, bytes, length);
    exchange->head = *head;
    http_head_move(&exchange->head, bytes, exchange->text);
  }
  set_request_id(exchange);
  h2o_linklist_insert(&exchange->loop->exchanges, &exchange->link);
  exchange->loop->exchange_count++;
  return exchange;
}

/* What came with the request */

const char *exchange_lease_id(struct exchange *exchange, struct error **err) {
  struct http_text id = exchange->lease_id;
  /* The decoded id lies in our own copy of the target, and at least the version of HTTP follows it there. */
  if (memchr(id.data, '\0', id.length) || !text_valid(id.data, id.length)) {
    error_set(err, REASON_LEASE_NOT_FOUND, NULL);
    return NULL;
  }
  exchange->text[(id.data - exchange->text) + (ptrdiff_t)id.length] = '\0';
  return id.data;
}

struct http_text exchange_field(const struct exchange *exchange, enum http_field field) {
  if (exchange->head.repeated[field])
    return (struct http_text){.data = NULL, .length = 0};
  return exchange->head.fields[field];
}

/* From the connection */

static int check_length(const struct exchange *exchange, struct error **err) {
  if (exchange->head.has_length && exchange->head.content_length > LIMIT_JSON_BODY_BYTES)
    return error_set(err, REASON_BODY_TOO_LARGE, NULL);
  return 0;
}

static int begin(struct exchange *exchange, struct error **err) {
  const struct handler *handler = exchange->handler;
  if (handler->check && handler->check(exchange, err) < 0)
    return -1;
  switch (handler->body) {
  case HANDLER_BODY_JSON:
    if (check_length(exchange, err) < 0)
      return -1;
    connection_accept_body(exchange->connection, false);
    return 0;
  case HANDLER_BODY_STREAMED:
    if (handler->start(exchange, NULL, err) < 0)
      return -1;
    connection_accept_body(exchange->connection, true);
    return 0;
  case HANDLER_BODY_IGNORED:
    break;
  }
  return handler->start(exchange, NULL, err);
}

static int dispatch(struct exchange *exchange, struct error **err) {
  size_t length = exchange->head.target.length;
  char *target = exchange->text + (exchange->head.target.data - exchange->text);
  exchange->without_body = http_text_is(exchange->head.method, HTTP_TEXT("HEAD"));
  target_read(target, length, &exchange->target);
  struct route_match match = route_find(exchange->head.method, &exchange->target);
  exchange->handler = match.handler;
  exchange->lease_id = match.lease_id;
  exchange->allow = match.allow;
  if (match.handler)
    return begin(exchange, err);
  error_set(err, match.refusal, NULL);
  if (!match.open)
    return -1;
  exchange_fail(exchange, *err);
  error_free(err);
  return 0;
}

/* The exchange, or NULL if the connection was cut meanwhile. */
static struct exchange *held(struct exchange *exchange) {
  if (!exchange || exchange->connection)
    return exchange;
  exchange_settle(exchange);
  return NULL;
}

static void *on_head(struct connection *connection, const struct http_head *head, const char *bytes, size_t length) {
  struct exchange *exchange = exchange_new(connection, head, bytes, length);
  struct error *err = NULL;
  if (exchange && dispatch(exchange, &err) < 0)
    exchange_refuse(exchange, err);
  return held(exchange);
}

static void *on_refused(struct connection *connection, const struct error *err) {
  struct exchange *exchange = exchange_new(connection, NULL, NULL, 0);
  if (exchange)
    exchange_fail(exchange, err);
  return held(exchange);
}

/* Once an answer is decided, the rest of the body is of no interest. */
static bool is_decided(const struct exchange *exchange) { return exchange->answered || exchange->refusal; }

void exchange_drop_body(struct exchange *exchange) {
  holding_end(&exchange->held);
  buffer_free(&exchange->body);
}

static struct exchange *of_holding(struct holding *holding) {
  return (struct exchange *)(void *)((char *)holding - offsetof(struct exchange, held));
}

/* The body has grown. Others that do not may have to go for it. */
static void hold_body(struct exchange *exchange) {
  struct holding *excess;
  holding_set(&exchange->loop->bodies, &exchange->held, exchange->body.capacity);
  while ((excess = holdings_excess(&exchange->loop->bodies, &exchange->held))) {
    struct exchange *still = of_holding(excess);
    struct error *err = NULL;
    error_set_detail(&err, REASON_SERVER_UNAVAILABLE, "too much is held for bodies that are not whole");
    exchange_refuse(still, err);
    exchange_settle(still);
  }
}

void exchange_hold_answer(struct exchange *exchange) {
  struct holding *excess;
  holding_set(&exchange->loop->answers, &exchange->held, exchange->reply_bytes);
  while ((excess = holdings_excess(&exchange->loop->answers, &exchange->held))) {
    struct exchange *still = of_holding(excess);
    log_write(LOG_WARNING, "answer_cut", LOG_TEXT("request", still->request_id));
    holding_end(excess);
    exchange_cut(still);
    exchange_settle(still);
  }
}

static void json_append(struct exchange *exchange, const char *bytes, size_t length) {
  if (buffer_append(&exchange->body, bytes, length) == 0) {
    hold_body(exchange);
    return;
  }
  struct error *err = NULL;
  if (length > LIMIT_JSON_BODY_BYTES - exchange->body.length)
    error_set(&err, REASON_BODY_TOO_LARGE, NULL);
  else
    error_set_memory(&err);
  exchange_refuse(exchange, err);
}

static void on_body(void *request, const char *bytes, size_t length) {
  struct exchange *exchange = request;
  if (is_decided(exchange))
    return;
  if (exchange->handler->body == HANDLER_BODY_STREAMED)
    exchange->handler->streamed(exchange, bytes, length);
  else
    json_append(exchange, bytes, length);
  exchange_settle(exchange);
}

static int json_whole(struct exchange *exchange, struct error **err) {
  struct json *json CLEANUP_JSON = json_parse((const char *)exchange->body.data, exchange->body.length, err);
  if (!json)
    return -1;
  if (!json_is_object(json))
    return error_set(err, REASON_INVALID_JSON, NULL);
  if (exchange->handler->start(exchange, json, err) < 0)
    return -1;
  exchange_drop_body(exchange);
  return 0;
}

static void json_ended(struct exchange *exchange, enum connection_body how) {
  struct error *err = NULL;
  switch (how) {
  case CONNECTION_BODY_WHOLE:
    if (json_whole(exchange, &err) == 0)
      return;
    break;
  case CONNECTION_BODY_CUT:
    error_set(&err, REASON_INVALID_JSON, NULL);
    break;
  case CONNECTION_BODY_LATE:
    error_set(&err, REASON_REQUEST_TIMEOUT, NULL);
    break;
  case CONNECTION_BODY_MALFORMED:
    error_set(&err, REASON_INVALID_REQUEST, "Malformed chunked body");
    break;
  }
  exchange_refuse(exchange, err);
}

static void on_body_ended(void *request, enum connection_body how) {
  struct exchange *exchange = request;
  if (is_decided(exchange))
    return;
  if (exchange->handler->body == HANDLER_BODY_STREAMED)
    exchange->handler->stream_ended(exchange, how);
  else
    json_ended(exchange, how);
  exchange_settle(exchange);
}

static void on_drained(void *request) {
  struct exchange *exchange = request;
  if (exchange->json_length > 0)
    exchange_json_drained(exchange);
  else if (exchange->handler->drained)
    exchange->handler->drained(exchange);
  exchange_settle(exchange);
}

/* Whoever waits for the RPC is served or gone: nobody wants to know the rest. */
static void on_over(void *request) {
  struct exchange *exchange = request;
  exchange->connection = NULL;
  exchange_cancel(exchange);
  exchange_settle(exchange);
}

const struct connection_handler exchange_connection_handler = {
    .head = on_head,
    .refused = on_refused,
    .body = on_body,
    .body_ended = on_body_ended,
    .drained = on_drained,
    .done = on_over,
    .gone = on_over,
};

void exchange_abort(struct exchange *exchange) {
  if (exchange->running) {
    exchange->aborted = true;
    exchange_cancel(exchange);
  } else {
    exchange_cut(exchange);
    exchange_settle(exchange);
  }
}
