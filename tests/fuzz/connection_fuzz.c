/*
 * The gateway's connection: whatever a client sends, in one piece or in many, the same requests come out of it. The first
 * byte says how requests are answered, the second how the rest is split.
 */
// Sources: gateway/connection.c gateway/http_*.c tests/unit/gateway/connection_double.c base/*.c
// Libraries: -lh2o-evloop -lcjson -lcrypto -lprotobuf-c
#include "tests/fuzz/fuzz.h"
#include "tests/unit/gateway/connection_double.h"
#include <string.h>

enum { ACCEPT = 1, STREAM = 2, ANSWER = 4, END = 8, TIMEOUT = 16, STOP = 32, HOLD = 64 };

static void play(struct connection_double *client, uint8_t script, const uint8_t *bytes, size_t size, size_t piece) {
  double_start(client);
  client->accept = script & ACCEPT;
  client->stream = script & STREAM;
  client->answer = script & ANSWER;
  client->write_at_once = !(script & HOLD);
  double_feed(client, (const char *)bytes, size, piece);
}

/* What can happen at the end; nothing may break. */
static void finish(struct connection_double *client, uint8_t script) {
  if (script & STOP)
    connection_stop(&client->connection);
  if ((script & END) && client->reading)
    connection_input_ended(&client->connection);
  if ((script & TIMEOUT) && client->timer != CONNECTION_TIMER_NONE)
    connection_timeout(&client->connection);
  for (int i = 0; i < 1000 && client->writing && !client->closed; i++)
    double_written(client);
  connection_lost(&client->connection);
  PROMISE(client->closed && !client->connection.active);
  double_end(client);
}

/* How soon a request is refused, and for which of its faults, may depend on the splitting; what came before it may not. */
static void forget_refusal(struct buffer *story) {
  static const char *const reasons[] = {"INVALID_REQUEST", "HEADERS_TOO_LARGE", "URI_TOO_LONG"};
  for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
    const char *refusal = strstr(buffer_text(story), reasons[i]);
    if (refusal != NULL)
      buffer_truncate(story, (size_t)(refusal - buffer_text(story)));
  }
}

static bool agree(const struct buffer *a, const struct buffer *b) {
  size_t common = a->length < b->length ? a->length : b->length;
  return common == 0 || memcmp(a->data, b->data, common) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct connection_double whole, split;
  if (size < 2)
    return 0;
  uint8_t script = data[0];
  play(&whole, script, data + 2, size - 2, CONNECTION_INPUT_BYTES);
  play(&split, script, data + 2, size - 2, (size_t)data[1] + 1);
  forget_refusal(&whole.story);
  forget_refusal(&split.story);
  PROMISE(agree(&whole.story, &split.story));
  PROMISE(agree(&whole.body, &split.body));
  PROMISE(agree(&whole.written, &split.written));
  finish(&whole, script);
  finish(&split, script);
  return 0;
}
