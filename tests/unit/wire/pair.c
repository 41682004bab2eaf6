#include "tests/unit/wire/pair.h"
#include "base/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_message(struct wire_call *call, void *context, const uint8_t *bytes, size_t length) {
  struct record *record = context;
  record->messages++;
  record->last_length = length;
  if (buffer_append(&record->bytes, bytes, length) != 0)
    record->send_failures++;
  if (record->echo && wire_call_send(call, bytes, length) != 0)
    record->send_failures++;
  if (record->consume)
    wire_call_consume(call, length);
  if (record->cancel)
    wire_call_cancel(call);
}

static void on_half_closed(struct wire_call *call, void *context) {
  struct record *record = context;
  record->half_closed++;
  if (record->finish)
    wire_call_finish(call, WIRE_OK, "");
}

static void on_writable(struct wire_call *call, void *context) {
  struct record *record = context;
  (void)call;
  record->writable++;
}

static void on_ended(struct wire_call *call, void *context, int status, const char *text) {
  struct record *record = context;
  (void)call;
  record->ended++;
  record->status = status;
  snprintf(record->text, sizeof record->text, "%s", text);
  record->call = NULL;
}

const struct wire_call_events record_events = {
    .message = on_message, .half_closed = on_half_closed, .writable = on_writable, .ended = on_ended};

void record_init(struct record *record) {
  *record = (struct record){.consume = true, .status = -1};
  buffer_init(&record->bytes, 64 * 1024 * 1024);
}

void record_free(struct record *record) {
  buffer_free(&record->bytes);
}

static void on_opened(struct wire *wire, void *context, struct wire_call *call, const char *path) {
  struct pair *pair = context;
  (void)wire;
  pair->opened++;
  snprintf(pair->path, sizeof pair->path, "%s", path);
  if (!pair->accept)
    return;
  pair->accept->call = call;
  wire_call_accept(call, &record_events, pair->accept);
}

static void on_pong(struct wire *wire, void *context) {
  struct pair *pair = context;
  (void)wire;
  pair->pongs++;
}

static const struct wire_events events = {.opened = on_opened, .pong = on_pong};

int pair_open(struct pair *pair, const struct wire_options *client, const struct wire_options *server) {
  struct wire_options options = {
      .message_limit = 1024 * 1024, .call_window = 256 * 1024, .calls_limit = 16, .output_limit = 64 * 1024};
  struct wire_options client_options = client ? *client : options, server_options = server ? *server : options;
  client_options.role = WIRE_CLIENT;
  server_options.role = WIRE_SERVER;
  memset(pair, 0, sizeof *pair);
  pair->client = wire_new(&client_options, &events, pair);
  pair->server = wire_new(&server_options, &events, pair);
  if (pair->client && pair->server)
    return 0;
  pair_close(pair);
  return -1;
}

void pair_close(struct pair *pair) {
  wire_free(pair->client);
  wire_free(pair->server);
  pair->client = pair->server = NULL;
}

/* Each piece goes through a block of exactly its size, so that a read beyond it is seen. */
static int give(struct wire *wire, const uint8_t *bytes, size_t length) {
  uint8_t *copy = malloc(length);
  if (!copy)
    abort();
  memcpy(copy, bytes, length);
  struct error *err CLEANUP_ERROR = NULL;
  int result = wire_receive(wire, copy, length, &err);
  free(copy);
  return result;
}

static size_t piece_of(struct pair *pair, size_t left) {
  size_t piece = pair->split == 0 || pair->split > left ? left : pair->split;
  if (pair->seed != 0 && piece > 1)
    piece = 1 + (size_t)rand_r(&pair->seed) % piece;
  return piece;
}

bool pair_step(struct pair *pair, bool from_client) {
  struct wire *from = from_client ? pair->client : pair->server, *to = from_client ? pair->server : pair->client;
  int *from_result = from_client ? &pair->client_result : &pair->server_result;
  int *to_result = from_client ? &pair->server_result : &pair->client_result;
  const uint8_t *bytes;
  struct error *err CLEANUP_ERROR = NULL;
  if (*from_result != 0)
    return false;
  long length = wire_transmit(from, &bytes, &err);
  if (length < 0)
    *from_result = -1;
  if (length <= 0)
    return false;
  pair->pieces++;
  pair->carried += (size_t)length;
  for (size_t done = 0; done < (size_t)length && *to_result == 0;) {
    size_t piece = piece_of(pair, (size_t)length - done);
    *to_result = give(to, bytes + done, piece);
    done += piece;
  }
  return true;
}

void pair_pump(struct pair *pair) {
  for (bool moved = true; moved;) {
    moved = pair_step(pair, true);
    while (pair_step(pair, false))
      moved = true;
  }
}
