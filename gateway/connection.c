#include "gateway/connection.h"

#include "base/limits.h"

#include <string.h>

/* What the next byte received is. */
enum state {
  STATE_HEAD,  /* part of a request's head */
  STATE_BODY,  /* part of the running request's body */
  STATE_READY, /* part of the next request: the running one is whole */
  STATE_REST   /* of no interest: the connection is closing */
};

enum writing { WRITING_NOTHING, WRITING_CONTINUE, WRITING_PART, WRITING_LAST };

enum {
  AHEAD_BYTES = LIMIT_HEADER_BYTES, /* sent ahead: from so much on, reading stops until the running request is answered */
  PENDING_BYTES = AHEAD_BYTES + CONNECTION_INPUT_BYTES,
  REST_BYTES = 262144, /* thrown away behind the last answer, besides the body that was announced */
};

static void process_pending(struct connection *connection);

/* Small steps */

static void set_timer(struct connection *connection, enum connection_timer timer) {
  connection->timer = (uint8_t)timer;
  connection->io->timer(connection, timer);
}

/* Sent-ahead bytes are bounded, held-back bodies are not read at all. */
static bool wants_input(const struct connection *connection) {
  if (connection->input_ended)
    return false;
  if (connection->state == STATE_BODY)
    return !connection->paused;
  return connection->state != STATE_READY || connection->pending.length < AHEAD_BYTES;
}

static void update_input(struct connection *connection) {
  if (connection->closed || connection->input_wanted == wants_input(connection))
    return;
  connection->input_wanted = !connection->input_wanted;
  connection->io->reading(connection, connection->input_wanted);
}

static void close_now(struct connection *connection) {
  connection->closed = true;
  connection->timer = CONNECTION_TIMER_NONE;
  buffer_free(&connection->pending);
  connection->io->close(connection);
}

/* Closes, with a request running or not. */
static void drop(struct connection *connection) {
  if (connection->active) {
    connection->active = false;
    connection->handler->gone(connection->request);
  }
  close_now(connection);
}

/* The body takes no more bytes. */
static void end_body(struct connection *connection, enum connection_body how) {
  connection->state = STATE_READY;
  connection->paused = false;
  if (how != CONNECTION_BODY_WHOLE)
    connection->keep_alive = false;
  if (!connection->accepted)
    return;
  if (connection->writing <= WRITING_CONTINUE)
    set_timer(connection, CONNECTION_TIMER_NONE);
  connection->handler->body_ended(connection->request, how);
}

/* Reading */

/* Nobody takes the request. */
static void fail_request(struct connection *connection) {
  connection->active = false;
  if (!connection->closed)
    close_now(connection);
}

static void refuse(struct connection *connection, const struct error *err) {
  connection->active = true;
  connection->accepted = false;
  connection->keep_alive = false;
  connection->state = STATE_READY;
  set_timer(connection, CONNECTION_TIMER_NONE);
  connection->request = connection->handler->refused(connection, err);
  if (!connection->request)
    fail_request(connection);
}

static void begin_request(struct connection *connection, const struct http_head *head, const char *bytes, size_t length) {
  connection->active = true;
  connection->accepted = connection->streamed = connection->paused = false;
  connection->last_answer = false;
  connection->keep_alive = head->keep_alive;
  connection->expects_continue = head->expects_continue;
  connection->is_chunked = head->chunked;
  connection->chunked = (struct http_chunked){0};
  connection->body_left = head->content_length;
  connection->state = head->chunked || head->content_length > 0 ? STATE_BODY : STATE_READY;
  set_timer(connection, CONNECTION_TIMER_NONE);
  connection->request = connection->handler->head(connection, head, bytes, length);
  if (!connection->request)
    fail_request(connection);
  else if (connection->accepted && connection->state == STATE_READY)
    connection->handler->body_ended(connection->request, CONNECTION_BODY_WHOLE);
}

/* These take bytes from the front and return how many; *more says whether it is worth going on. */

static size_t take_head(struct connection *connection, const char *bytes, size_t length, bool *more) {
  struct error *err CLEANUP_ERROR = NULL;
  struct http_head head;
  size_t used = 0;
  *more = false;
  if (length == 0)
    return 0;
  switch (http_head_read(bytes, length, connection->seen, &head, &used, &err)) {
  case HTTP_HEAD_PARTIAL:
    connection->seen = length;
    if (connection->timer != CONNECTION_TIMER_HEAD)
      set_timer(connection, CONNECTION_TIMER_HEAD);
    return 0;
  case HTTP_HEAD_WHOLE:
    connection->seen = 0;
    begin_request(connection, &head, bytes, used);
    *more = true;
    return used;
  case HTTP_HEAD_REFUSED:
    break;
  }
  connection->seen = 0;
  refuse(connection, err);
  return length;
}

static void deliver(struct connection *connection, const char *bytes, size_t length) {
  if (!connection->accepted)
    return;
  if (connection->streamed && connection->writing <= WRITING_CONTINUE)
    set_timer(connection, CONNECTION_TIMER_BODY);
  connection->handler->body(connection->request, bytes, length);
}

static size_t take_sized(struct connection *connection, const char *bytes, size_t length) {
  size_t piece = length < connection->body_left ? length : (size_t)connection->body_left;
  connection->body_left -= piece;
  if (piece > 0)
    deliver(connection, bytes, piece);
  if (connection->body_left == 0 && !connection->closed && connection->state == STATE_BODY)
    end_body(connection, CONNECTION_BODY_WHOLE);
  return piece;
}

static size_t take_chunked(struct connection *connection, const char *bytes, size_t length) {
  struct http_text data;
  size_t used = 0;
  switch (http_chunked_read(&connection->chunked, bytes, length, &used, &data)) {
  case HTTP_CHUNKED_MORE:
    break;
  case HTTP_CHUNKED_DATA:
    deliver(connection, data.data, data.length);
    break;
  case HTTP_CHUNKED_END:
    end_body(connection, CONNECTION_BODY_WHOLE);
    break;
  case HTTP_CHUNKED_MALFORMED:
    end_body(connection, CONNECTION_BODY_MALFORMED);
    return length;
  }
  return used;
}

static size_t take_body(struct connection *connection, const char *bytes, size_t length, bool *more) {
  size_t piece = length < CONNECTION_INPUT_BYTES ? length : CONNECTION_INPUT_BYTES;
  size_t used = connection->is_chunked ? take_chunked(connection, bytes, piece) : take_sized(connection, bytes, piece);
  *more = used < length;
  return used;
}

static size_t take_rest(struct connection *connection, size_t length) {
  if (length >= connection->body_left)
    close_now(connection);
  else
    connection->body_left -= length;
  return length;
}

static size_t take_once(struct connection *connection, const char *bytes, size_t length, bool *more) {
  *more = false;
  switch ((enum state)connection->state) {
  case STATE_HEAD:
    return take_head(connection, bytes, length, more);
  case STATE_BODY:
    return connection->paused ? 0 : take_body(connection, bytes, length, more);
  case STATE_REST:
    return take_rest(connection, length);
  case STATE_READY:
    break;
  }
  return 0;
}

static size_t take(struct connection *connection, const char *bytes, size_t length) {
  size_t at = 0;
  bool more = true;
  connection->taking = true;
  while (more && !connection->closed)
    at += take_once(connection, bytes + at, length - at, &more);
  connection->taking = false;
  return at;
}

static void process_pending(struct connection *connection) {
  if (connection->pending.length == 0 || connection->taking || connection->closed)
    return;
  size_t used = take(connection, (const char *)connection->pending.data, connection->pending.length);
  if (!connection->closed)
    buffer_consume(&connection->pending, used);
}

void connection_input(struct connection *connection, const char *bytes, size_t length) {
  if (connection->closed || length == 0)
    return;
  bool waiting = connection->pending.length > 0;
  size_t used = waiting ? 0 : take(connection, bytes, length);
  if (connection->closed)
    return;
  if (used < length && buffer_append(&connection->pending, bytes + used, length - used) < 0) {
    drop(connection);
    return;
  }
  if (waiting)
    process_pending(connection);
  update_input(connection);
}

/* Ends of things */

/* A client that ended its side early can still read an answer; one whose request was whole is taken for gone. */
void connection_input_ended(struct connection *connection) {
  if (connection->closed || connection->input_ended)
    return;
  connection->input_ended = true;
  if (connection->active && connection->state == STATE_BODY)
    end_body(connection, CONNECTION_BODY_CUT);
  else if (connection->active && connection->writing == WRITING_LAST)
    connection->keep_alive = false;
  else
    drop(connection);
  update_input(connection);
}

void connection_lost(struct connection *connection) {
  if (!connection->closed)
    drop(connection);
}

void connection_timeout(struct connection *connection) {
  if (connection->closed)
    return;
  struct error *err CLEANUP_ERROR = NULL;
  switch ((enum connection_timer)connection->timer) {
  case CONNECTION_TIMER_HEAD:
    error_set(&err, REASON_REQUEST_TIMEOUT, NULL);
    refuse(connection, err);
    break;
  case CONNECTION_TIMER_BODY:
    end_body(connection, CONNECTION_BODY_LATE);
    break;
  case CONNECTION_TIMER_NONE:
  case CONNECTION_TIMER_IDLE:
  case CONNECTION_TIMER_WRITE:
  case CONNECTION_TIMER_LINGER:
    drop(connection);
    break;
  }
  update_input(connection);
}

void connection_stop(struct connection *connection) {
  if (connection->closed)
    return;
  connection->stopping = true;
  if (!connection->active && connection->state == STATE_HEAD)
    close_now(connection);
}

/* Closing with unread bytes would reset the connection and could take the answer away from the client. */
static void linger(struct connection *connection) {
  uint64_t announced = connection->state != STATE_BODY ? 0 : connection->is_chunked ? LIMIT_JSON_BODY_BYTES : connection->body_left;
  buffer_free(&connection->pending);
  connection->state = STATE_REST;
  connection->body_left = (announced < LIMIT_TRANSFER_BYTES ? announced : LIMIT_TRANSFER_BYTES) + REST_BYTES;
  if (connection->input_ended) {
    close_now(connection);
    return;
  }
  connection->io->end(connection);
  set_timer(connection, CONNECTION_TIMER_LINGER);
}

static void next_request(struct connection *connection) {
  connection->state = STATE_HEAD;
  connection->timer = CONNECTION_TIMER_NONE;
  process_pending(connection);
  if (connection->closed || connection->active || connection->timer == CONNECTION_TIMER_HEAD)
    return;
  buffer_free(&connection->pending);
  set_timer(connection, CONNECTION_TIMER_IDLE);
}

static void finish(struct connection *connection) {
  bool again = connection->keep_alive && !connection->last_answer && !connection->stopping &&
               connection->state == STATE_READY;
  connection->active = false;
  connection->handler->done(connection->request);
  if (again)
    next_request(connection);
  else
    linger(connection);
}

/* Writing */

void connection_written(struct connection *connection) {
  if (connection->closed)
    return;
  enum writing writing = (enum writing)connection->writing;
  connection->writing = WRITING_NOTHING;
  if (writing == WRITING_LAST) {
    finish(connection);
  } else if (writing == WRITING_PART) {
    set_timer(connection, CONNECTION_TIMER_NONE);
    connection->handler->drained(connection->request);
  } else if (connection->waiting_count > 0) {
    size_t count = connection->waiting_count;
    connection->waiting_count = 0;
    connection_respond(connection, connection->waiting, count, connection->waiting_last);
  }
  update_input(connection);
}

void connection_accept_body(struct connection *connection, bool streamed) {
  static const struct http_text go_on = {.data = "HTTP/1.1 100 Continue\r\n\r\n", .length = 25};
  connection->accepted = true;
  connection->streamed = streamed;
  if (connection->state != STATE_BODY)
    return;
  set_timer(connection, CONNECTION_TIMER_BODY);
  if (connection->expects_continue) {
    connection->writing = WRITING_CONTINUE;
    connection->io->write(connection, &go_on, 1);
  }
}

void connection_pause_body(struct connection *connection, bool paused) {
  if (connection->closed || connection->state != STATE_BODY || connection->paused == paused)
    return;
  connection->paused = paused;
  set_timer(connection, paused ? CONNECTION_TIMER_NONE : CONNECTION_TIMER_BODY);
  if (connection->taking)
    return;
  if (!paused)
    process_pending(connection);
  update_input(connection);
}

bool connection_will_close(struct connection *connection) {
  if (!connection->keep_alive || connection->stopping || connection->state != STATE_READY)
    connection->last_answer = true;
  return connection->last_answer;
}

void connection_respond(struct connection *connection, const struct http_text *pieces, size_t count, bool last) {
  if (connection->writing == WRITING_CONTINUE) {
    for (size_t i = 0; i < count; i++)
      connection->waiting[i] = pieces[i];
    connection->waiting_count = (uint8_t)count;
    connection->waiting_last = last;
    return;
  }
  connection->writing = last ? WRITING_LAST : WRITING_PART;
  /* No more of the body is of interest, so none may be held back: the client must be able to finish sending. */
  connection->accepted = false;
  connection->paused = false;
  set_timer(connection, CONNECTION_TIMER_WRITE);
  connection->io->write(connection, pieces, count);
  if (!connection->taking)
    update_input(connection);
}

void connection_cut(struct connection *connection) {
  connection->active = false;
  close_now(connection);
}

/* Life */

void connection_init(struct connection *connection, const struct connection_io *io,
                     const struct connection_handler *handler) {
  memset(connection, 0, sizeof *connection);
  connection->io = io;
  connection->handler = handler;
  connection->input_wanted = true;
  buffer_init(&connection->pending, PENDING_BYTES);
  set_timer(connection, CONNECTION_TIMER_IDLE);
}

void connection_free(struct connection *connection) { buffer_free(&connection->pending); }
