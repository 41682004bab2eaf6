/*
 * Packing straight into a gRPC slice and unpacking straight from one: a message is copied only when gRPC delivers it in
 * several pieces. The `bytes` messages are read and written by hand, so that their payload is never copied by us.
 */
#include "rpc/message.h"

#include "base/message.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <stdbool.h>
#include <string.h>

enum { WIRE_LENGTH_DELIMITED = 2, VARINT_BYTES = 10 };

grpc_byte_buffer *rpc_pack(const ProtobufCMessage *message) {
  size_t length = protobuf_c_message_get_packed_size(message);
  grpc_slice slice = grpc_slice_malloc(length);
  protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
  grpc_byte_buffer *bytes = grpc_raw_byte_buffer_create(&slice, 1);
  grpc_slice_unref(slice);
  return bytes;
}

/* The whole message as one slice, which the caller unrefs. Returns 0, or -1 for a compressed message: a few bytes could
 * grow to gigabytes, so neither side of ours accepts compression. */
static int message_slice(grpc_byte_buffer *bytes, grpc_slice *slice) {
  if (bytes->type != GRPC_BB_RAW || bytes->data.raw.compression != GRPC_COMPRESS_NONE)
    return -1;
  if (bytes->data.raw.slice_buffer.count == 1) {
    *slice = grpc_slice_ref(bytes->data.raw.slice_buffer.slices[0]);
    return 0;
  }
  grpc_byte_buffer_reader reader;
  if (!grpc_byte_buffer_reader_init(&reader, bytes))
    return -1;
  *slice = grpc_byte_buffer_reader_readall(&reader);
  grpc_byte_buffer_reader_destroy(&reader);
  return 0;
}

ProtobufCMessage *rpc_unpack(const ProtobufCMessageDescriptor *descriptor, grpc_byte_buffer *bytes,
                             struct error **err) {
  grpc_slice slice;
  if (message_slice(bytes, &slice) < 0) {
    error_set(err, REASON_INVALID_REQUEST, NULL);
    return NULL;
  }
  ProtobufCMessage *message = message_unpack(descriptor, GRPC_SLICE_START_PTR(slice), GRPC_SLICE_LENGTH(slice), err);
  grpc_slice_unref(slice);
  return message;
}

static size_t varint_write(uint64_t value, uint8_t *out) {
  size_t length = 0;
  while (value >= 0x80) {
    out[length++] = (uint8_t)(value | 0x80);
    value >>= 7;
  }
  out[length++] = (uint8_t)value;
  return length;
}

/* Returns how many bytes the number took, 0 if there is none. */
static size_t varint_read(const uint8_t *bytes, size_t length, uint64_t *value) {
  *value = 0;
  for (size_t i = 0; i < length && i < VARINT_BYTES; i++) {
    *value |= (uint64_t)(bytes[i] & 0x7f) << (7 * i);
    if (bytes[i] < 0x80)
      return i + 1;
  }
  return 0;
}

grpc_byte_buffer *rpc_pack_bytes(uint32_t field, grpc_slice payload) {
  uint8_t head[2 * VARINT_BYTES];
  size_t length = varint_write((uint64_t)field << 3 | WIRE_LENGTH_DELIMITED, head);
  length += varint_write(GRPC_SLICE_LENGTH(payload), head + length);
  grpc_slice slices[2] = {grpc_slice_from_copied_buffer((const char *)head, length), payload};
  grpc_byte_buffer *bytes = grpc_raw_byte_buffer_create(slices, 2);
  grpc_slice_unref(slices[0]);
  grpc_slice_unref(payload);
  return bytes;
}

bool rpc_unpack_bytes(uint32_t field, grpc_byte_buffer *bytes, grpc_slice *payload) {
  grpc_slice slice;
  if (message_slice(bytes, &slice) < 0)
    return false;
  const uint8_t *start = GRPC_SLICE_START_PTR(slice);
  size_t length = GRPC_SLICE_LENGTH(slice);
  uint64_t tag, size;
  size_t tag_length = varint_read(start, length, &tag);
  size_t size_length = tag_length > 0 ? varint_read(start + tag_length, length - tag_length, &size) : 0;
  bool matches = size_length > 0 && tag == ((uint64_t)field << 3 | WIRE_LENGTH_DELIMITED) &&
                 size == length - tag_length - size_length;
  if (matches)
    *payload = grpc_slice_sub(slice, tag_length + size_length, length);
  grpc_slice_unref(slice);
  return matches;
}
