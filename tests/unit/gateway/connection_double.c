#include "tests/unit/gateway/connection_double.h"

#include <assert.h>
#include <string.h>

static struct connection_double *of(struct connection *connection) {
  return (struct connection_double *)(void *)((char *)connection - offsetof(struct connection_double, connection));
}

static void tell(struct connection_double *client, const char *text) {
  if (client->body_bytes > 0)
    assert(buffer_append_format(&client->story, "body %zu;", client->body_bytes) == 0);
  client->body_bytes = 0;
  assert(buffer_append_format(&client->story, "%s;", text) == 0);
}

/* Socket */

static void on_write(struct connection *connection, const struct http_text *pieces, size_t count) {
  struct connection_double *client = of(connection);
  assert(!client->writing && !client->closed && !client->ended);
  client->writing = true;
  for (size_t i = 0; i < count; i++)
    assert(buffer_append(&client->written, pieces[i].data, pieces[i].length) == 0);
}

static void on_end(struct connection *connection) {
  assert(!of(connection)->closed && !of(connection)->ended);
  of(connection)->ended = true;
  tell(of(connection), "end");
}

static void on_close(struct connection *connection) {
  assert(!of(connection)->closed);
  of(connection)->closed = true;
  tell(of(connection), "close");
}

static void on_timer(struct connection *connection, enum connection_timer timer) {
  assert(!of(connection)->closed);
  of(connection)->timer = timer;
  of(connection)->timers_set++;
}

static void on_reading(struct connection *connection, bool wanted) {
  assert(!of(connection)->closed && of(connection)->reading != wanted);
  of(connection)->reading = wanted;
}

static const struct connection_io io = {on_write, on_end, on_close, on_timer, on_reading};

/* Handler */

void double_answer(struct connection_double *client) {
  bool close = connection_will_close(&client->connection);
  const struct http_text pieces[] = {HTTP_TEXT("answer"), close ? HTTP_TEXT("(close)") : HTTP_TEXT(""), HTTP_TEXT(".")};
  connection_respond(&client->connection, pieces, 3, true);
}

static void *on_head(struct connection *connection, const struct http_head *head, const char *bytes, size_t length) {
  struct connection_double *client = of(connection);
  assert(head->target.data >= bytes && head->target.data + head->target.length <= bytes + length);
  char line[256];
  struct buffer text;
  buffer_borrow(&text, line, sizeof line);
  assert(buffer_append_format(&text, "head %.*s %.*s", (int)head->method.length, head->method.data,
                              (int)(head->target.length < 100 ? head->target.length : 100), head->target.data) == 0);
  tell(client, buffer_text(&text));
  if (client->accept)
    connection_accept_body(connection, client->stream);
  else if (client->answer)
    double_answer(client);
  return client;
}

static void *on_refused(struct connection *connection, const struct error *err) {
  struct connection_double *client = of(connection);
  tell(client, reason_name(error_reason(err)));
  assert(connection_will_close(connection));
  double_answer(client);
  return client;
}

static void on_body(void *request, const char *bytes, size_t length) {
  struct connection_double *client = request;
  assert(length > 0);
  client->body_bytes += length;
  assert(buffer_append(&client->body, bytes, length) == 0);
}

static void on_body_ended(void *request, enum connection_body how) {
  static const char *const names[] = {"whole", "cut", "late", "malformed"};
  struct connection_double *client = request;
  tell(client, names[how]);
  assert(buffer_append_byte(&client->body, '|') == 0);
  if (client->answer)
    double_answer(client);
}

static void on_drained(void *request) { tell(request, "drained"); }
static void on_done(void *request) { tell(request, "done"); }
static void on_gone(void *request) { tell(request, "gone"); }

static const struct connection_handler handler = {on_head,    on_refused, on_body, on_body_ended,
                                                  on_drained, on_done,    on_gone};

/* Driving */

void double_start(struct connection_double *client) {
  *client = (struct connection_double){.accept = true, .answer = true, .write_at_once = true, .reading = true};
  buffer_init(&client->story, 1 << 20);
  assert(buffer_reserve(&client->story, 4096) != NULL); /* the story goes on when memory is made to fail */
  buffer_init(&client->body, 256 << 20);
  buffer_init(&client->written, 1 << 20);
  connection_init(&client->connection, &io, &handler);
}

void double_end(struct connection_double *client) {
  connection_free(&client->connection);
  buffer_free(&client->story);
  buffer_free(&client->body);
  buffer_free(&client->written);
}

void double_written(struct connection_double *client) {
  assert(client->writing);
  client->writing = false;
  connection_written(&client->connection);
}

size_t double_feed(struct connection_double *client, const char *bytes, size_t length, size_t piece) {
  size_t at = 0;
  while (at < length && client->reading && !client->closed) {
    size_t next = length - at < piece ? length - at : piece;
    /* A copy of its own, so that the sanitizer sees a read behind the end and a use after the call. */
    struct buffer copy CLEANUP_BUFFER;
    buffer_init(&copy, next);
    assert(buffer_append(&copy, bytes + at, next) == 0);
    connection_input(&client->connection, (const char *)copy.data, next);
    at += next;
    while (client->write_at_once && client->writing && !client->closed)
      double_written(client);
  }
  return at;
}

size_t double_feed_text(struct connection_double *client, const char *text) {
  return double_feed(client, text, strlen(text), CONNECTION_INPUT_BYTES);
}

const char *double_story(struct connection_double *client) {
  static char story[4096];
  if (client->body_bytes > 0)
    assert(buffer_append_format(&client->story, "body %zu;", client->body_bytes) == 0);
  client->body_bytes = 0;
  strncpy(story, buffer_text(&client->story), sizeof story - 1);
  buffer_clear(&client->story);
  return story;
}
