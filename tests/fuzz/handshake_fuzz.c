/*
 * The answer to the request that opens a WebSocket: in one piece or in many it is judged alike, and of a refusal no
 * more is kept than is said. The first byte says how the rest is split; '@' stands for the right Sec-WebSocket-Accept.
 */
// Sources: backend/websocket/handshake.c base/*.c
// Libraries: -lcjson -lcrypto -lprotobuf-c
#include "backend/websocket/handshake.h"
#include "base/memory.h"
#include "tests/fuzz/fuzz.h"
#include <string.h>

static void spell(const struct handshake *handshake, const uint8_t *data, size_t size, struct buffer *bytes) {
  buffer_init(bytes, 1 << 20);
  for (size_t i = 0; i < size; i++)
    if (data[i] == '@')
      buffer_append_string(bytes, handshake->accept);
    else
      buffer_append(bytes, data + i, 1);
}

static int play(struct handshake *handshake, const uint8_t *data, size_t size, size_t piece, size_t *left) {
  static const struct websocket_endpoint endpoint = {.host = "h", .port = 1};
  static const struct websocket_request request = {
      .endpoint = &endpoint, .target = "/", .protocol = "v5.channel.k8s.io"};
  CLEANUP_ERROR struct error *err = NULL;
  CLEANUP_BUFFER struct buffer out;
  CLEANUP_BUFFER struct buffer bytes;
  int result = 0;
  buffer_init(&out, 65536);
  PROMISE(handshake_start(handshake, &request, &out, NULL) == 0);
  spell(handshake, data, size, &bytes);
  *left = bytes.length;
  while (*left > 0 && result == 0 && handshake->state < HANDSHAKE_OPEN) {
    size_t some = *left < piece ? *left : piece, used;
    CLEANUP_MEMORY uint8_t *copy = memory_new(some);
    memcpy(copy, bytes.data + (bytes.length - *left), some);
    result = handshake_receive(handshake, copy, some, &used, &err);
    PROMISE(used <= some && (result == 0) == (err == NULL));
    *left -= used;
  }
  if (result == 0 && handshake->state == HANDSHAKE_REFUSED)
    PROMISE(handshake->refusal.body_length <= HANDSHAKE_BODY_BYTES && handshake->refusal.status != 101 &&
            handshake->refusal.body[handshake->refusal.body_length] == '\0');
  return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct handshake whole, split;
  size_t whole_left, split_left;
  if (size < 2)
    return 0;
  int result = play(&whole, data + 1, size - 1, 1 << 20, &whole_left);
  PROMISE(play(&split, data + 1, size - 1, (size_t)data[0] + 1, &split_left) == result);
  PROMISE(result != 0 || (whole.state == split.state && whole_left == split_left));
  handshake_free(&whole);
  handshake_free(&split);
  return 0;
}
