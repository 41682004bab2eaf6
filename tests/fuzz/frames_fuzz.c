/*
 * WebSocket frames: whatever a server sends, in one piece or in many, the same messages come out of it, a refusal
 * included, and what is answered stays small. The first byte says how the rest is split.
 */
// Sources: backend/websocket/frames.c base/*.c
// Libraries: -lwslay -lcjson -lcrypto -lprotobuf-c
#include "backend/websocket/frames.h"
#include "base/memory.h"
#include "tests/fuzz/fuzz.h"
#include <string.h>

struct story {
  struct buffer output, text;
};

static void on_received(void *context, const uint8_t *bytes, size_t length, bool first, bool last) {
  struct story *story = context;
  if (first)
    buffer_append_byte(&story->text, '<');
  if (length > 0)
    buffer_append(&story->text, bytes, length);
  if (last)
    buffer_append_byte(&story->text, '>');
}

static void on_closed(void *context, unsigned code, const char *text, size_t length) {
  struct story *story = context;
  PROMISE(code >= 1000 && code <= 4999 && length <= FRAMES_CONTROL_BYTES);
  buffer_append_format(&story->text, "closed %u", code);
  buffer_append(&story->text, text, length);
}

/* Returns whether it was taken whole. */
static int play(struct story *story, const uint8_t *bytes, size_t size, size_t piece) {
  static const struct frames_events events = {.received = on_received, .closed = on_closed};
  CLEANUP_ERROR struct error *err = NULL;
  int result = 0;
  buffer_init(&story->output, 1 << 20);
  buffer_init(&story->text, 1 << 20);
  struct frames *frames = frames_new(&story->output, &events, story);
  PROMISE(frames != NULL);
  for (size_t at = 0; at < size && result == 0; at += piece) {
    size_t some = size - at < piece ? size - at : piece;
    CLEANUP_MEMORY uint8_t *copy = memory_new(some);
    memcpy(copy, bytes + at, some);
    result = frames_receive(frames, copy, some, &err);
    PROMISE((result == 0) == (err == NULL));
  }
  PROMISE(story->text.length <= 4 * size + 20);
  PROMISE(story->output.length <= 3 * size + 140);
  frames_free(frames);
  return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct story whole, split;
  if (size < 2)
    return 0;
  int result = play(&whole, data + 1, size - 1, size);
  PROMISE(play(&split, data + 1, size - 1, (size_t)data[0] + 1) == result);
  /* How much of a frame that is refused later was told depends on the splitting. */
  size_t common = whole.text.length < split.text.length ? whole.text.length : split.text.length;
  PROMISE(result != 0 || whole.text.length == split.text.length);
  PROMISE(common == 0 || memcmp(whole.text.data, split.text.data, common) == 0);
  buffer_free(&whole.output);
  buffer_free(&whole.text);
  buffer_free(&split.output);
  buffer_free(&split.text);
  return 0;
}
