/*
 * Answers: see reply.h. The two messages that carry many bytes, OutputChunk and file data, are encoded here by hand
 * into the block that the wire sends, so that the bytes are copied once, or not at all.
 */
#include "backend/sandboxd/reply.h"

#include "base/limits.h"
#include "base/memory.h"
#include "base/message.h"
#include "sandbox/agent/v1/agent.pb-c.h"
#include <stdio.h>

#define REPLY_VARINT_BYTES 10
#define REPLY_TAG(field, type) ((uint8_t)((field) << 3 | (type)))
enum { REPLY_TYPE_VARINT = 0, REPLY_TYPE_BYTES = 2 };

static size_t reply_varint_size(uint64_t value) {
  size_t size = 1;
  while (value >>= 7)
    size++;
  return size;
}

static uint8_t *reply_varint(uint8_t *out, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    *out++ = (uint8_t)(value | 0x80);
  *out++ = (uint8_t)value;
  return out;
}

int reply_message(struct wire_call *call, const ProtobufCMessage *message) {
  size_t length;
  uint8_t *block = message_pack(message, &length);
  return block ? wire_call_send_owned(call, block, length) : -1;
}

/* RunResponse.output (2) with OutputChunk.stream (1), offset (2; left out if 0, as proto3 has it) and data (3). */
int reply_output(struct wire_call *call, uint32_t stream, struct spool *spool, size_t length) {
  uint64_t offset = spool->sent;
  size_t inner = 2 + (offset ? 1 + reply_varint_size(offset) : 0) + 1 + reply_varint_size(length) + length;
  uint8_t *block = memory_new(WIRE_HEADROOM + 1 + REPLY_VARINT_BYTES + inner);
  if (!block)
    return -1;
  uint8_t *at = block + WIRE_HEADROOM;
  *at++ = REPLY_TAG(2, REPLY_TYPE_BYTES);
  at = reply_varint(at, inner);
  *at++ = REPLY_TAG(1, REPLY_TYPE_VARINT);
  *at++ = (uint8_t)stream;
  if (offset) {
    *at++ = REPLY_TAG(2, REPLY_TYPE_VARINT);
    at = reply_varint(at, offset);
  }
  *at++ = REPLY_TAG(3, REPLY_TYPE_BYTES);
  at = reply_varint(at, length);
  spool_take(spool, at, length);
  at += length;
  return wire_call_send_block(call, block, WIRE_HEADROOM, (size_t)(at - block) - WIRE_HEADROOM);
}

static size_t reply_data_head(size_t length) { return 1 + reply_varint_size(length); }

uint8_t *reply_data_new(size_t length) { return memory_new(WIRE_HEADROOM + reply_data_head(length) + length); }

uint8_t *reply_data_bytes(uint8_t *block, size_t length) { return block + WIRE_HEADROOM + reply_data_head(length); }

/* ReadFileResponse.data (2). */
int reply_data(struct wire_call *call, uint8_t *block, size_t length) {
  uint8_t *at = block + WIRE_HEADROOM;
  *at++ = REPLY_TAG(2, REPLY_TYPE_BYTES);
  reply_varint(at, length);
  return wire_call_send_block(call, block, WIRE_HEADROOM, reply_data_head(length) + length);
}

void reply_failure(struct wire_call *call, struct error **err) {
  char text[512];
  const char *detail = error_detail(*err);
  enum reason reason = error_reason(*err);
  snprintf(text, sizeof text, "%s %s", reason_name(reason), *detail ? detail : error_message(*err));
  wire_call_finish(call, reason_grpc_code(reason), text);
  error_free(err);
}
