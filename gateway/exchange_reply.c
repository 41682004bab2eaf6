/*
 * The answer of an exchange.
 */
#include "gateway/exchange.h"

#include "base/log.h"

enum { SLICE_BYTES = 32768 }; /* of a long JSON body, made at once */

/* Whether an answer may begin now; it then has. */
static bool take_turn(struct exchange *exchange) {
  if (!exchange->connection || exchange->answered)
    return false;
  exchange->answered = true;
  return true;
}

static enum reply_connection connection_word(struct exchange *exchange) {
  if (connection_will_close(exchange->connection))
    return REPLY_CONNECTION_CLOSE;
  return exchange->head.minor_version == 0 ? REPLY_CONNECTION_KEEP : REPLY_CONNECTION_DEFAULT;
}

/* Fills in what every head has. */
static struct http_text make_head(struct exchange *exchange, struct reply *reply) {
  reply->date = loop_date(exchange->loop);
  reply->request_id = exchange->request_id_text;
  reply->connection = connection_word(exchange);
  return (struct http_text){.data = exchange->answer_head, .length = reply_head(reply, exchange->answer_head)};
}

static void respond_whole(struct exchange *exchange, struct reply *reply) {
  const struct buffer *body = &exchange->answer;
  reply->content_length = body->length;
  struct http_text pieces[2] = {make_head(exchange, reply), {.data = (const char *)body->data, .length = body->length}};
  bool has_body = body->length > 0 && !exchange->without_body;
  connection_respond(exchange->connection, pieces, has_body ? 2 : 1, true);
}

void exchange_reply_json(struct exchange *exchange, int status) {
  if (!take_turn(exchange))
    return;
  struct reply reply = {.status = status, .content = REPLY_JSON};
  respond_whole(exchange, &reply);
}

/* Long JSON: the length first, then the same again to the client; a slice in each turn of the loop, so that other requests get
 * theirs. */

static struct exchange *of_again(struct loop_event *event) {
  struct exchange *exchange = (struct exchange *)(void *)((char *)event - offsetof(struct exchange, again_event));
  exchange->again = false;
  return exchange;
}

static void later(struct exchange *exchange, void (*run)(struct loop_event *event)) {
  exchange->again = true;
  exchange->again_event.run = run;
  loop_later(exchange->loop, &exchange->again_event);
}

/* Makes the next slice; returns as json_body_next does. */
static int make_slice(struct exchange *exchange) {
  buffer_clear(&exchange->answer);
  int more = json_body_next(&exchange->json, SLICE_BYTES, &exchange->answer);
  if (more < 0)
    exchange_cut(exchange);
  return more;
}

static void begin_long_json(struct exchange *exchange) {
  struct reply reply = {.status = 200, .content = REPLY_JSON, .content_length = exchange->json_measured};
  struct http_text head = make_head(exchange, &reply);
  exchange->json_length = exchange->json_measured;
  json_body_rewind(&exchange->json);
  connection_respond(exchange->connection, &head, 1, false);
}

static void measure(struct loop_event *event) {
  struct exchange *exchange = of_again(event);
  int more = exchange->connection ? make_slice(exchange) : -1;
  exchange->json_measured += exchange->answer.length;
  if (more > 0)
    later(exchange, measure);
  else if (more == 0)
    begin_long_json(exchange);
  exchange_settle(exchange);
}

static void write_slice(struct loop_event *event) {
  struct exchange *exchange = of_again(event);
  int more = exchange->connection ? make_slice(exchange) : -1;
  if (more >= 0)
    exchange_write(exchange, (struct http_text){.data = (const char *)exchange->answer.data, .length = exchange->answer.length},
                   more == 0);
  exchange_settle(exchange);
}

void exchange_json_drained(struct exchange *exchange) {
  exchange_hold_answer(exchange);
  later(exchange, write_slice);
}

void exchange_reply_long_json(struct exchange *exchange) {
  if (json_body_size(&exchange->json) > SLICE_BYTES) {
    if (take_turn(exchange))
      later(exchange, measure);
  } else if (json_body_next(&exchange->json, SIZE_MAX, &exchange->answer) < 0) {
    exchange_fail(exchange, NULL);
  } else {
    exchange_reply_json(exchange, 200);
  }
}

void exchange_reply_empty(struct exchange *exchange) {
  if (!take_turn(exchange))
    return;
  struct reply reply = {.status = 204, .content = REPLY_EMPTY};
  buffer_free(&exchange->answer);
  respond_whole(exchange, &reply);
}

/* What went wrong on our side is told to the operator; the Consumer gets the same request id. */
static void log_failure(const struct exchange *exchange, const struct error *err) {
  enum reason reason = error_reason(err);
  if (reason == REASON_INTERNAL || reason == REASON_SERVER_UNAVAILABLE)
    log_write(LOG_WARNING, "request_failed", LOG_TEXT("request", exchange->request_id), LOG_REASON(err), LOG_DETAIL(err));
}

void exchange_fail(struct exchange *exchange, const struct error *err) {
  if (!take_turn(exchange))
    return;
  log_failure(exchange, err);
  enum reason reason = error_reason(err);
  struct reply reply = {.status = reason_http_status(reason),
                        .content = REPLY_JSON,
                        .allow = reason == REASON_METHOD_NOT_ALLOWED ? exchange->allow : NULL,
                        .retry_after_seconds = reply_retry_after(err)};
  buffer_free(&exchange->answer);
  if (reply_error_body(&exchange->answer, err, exchange->request_id_text) < 0)
    exchange_cut(exchange);
  else
    respond_whole(exchange, &reply);
}

void exchange_reply_file(struct exchange *exchange, uint64_t length, const char *content_digest) {
  if (!take_turn(exchange))
    return;
  struct reply reply = {
      .status = 200, .content = REPLY_OCTETS, .content_length = length, .content_digest = content_digest};
  struct http_text head = make_head(exchange, &reply);
  connection_respond(exchange->connection, &head, 1, length == 0);
}

void exchange_write(struct exchange *exchange, struct http_text piece, bool last) {
  if (exchange->connection)
    connection_respond(exchange->connection, &piece, 1, last);
}

void exchange_cut(struct exchange *exchange) {
  struct connection *connection = exchange->connection;
  if (!connection)
    return;
  exchange->answered = true;
  exchange->connection = NULL;
  exchange_cancel(exchange);
  connection_cut(connection);
}
