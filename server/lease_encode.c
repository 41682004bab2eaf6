/*
 * Answers of the Lease service as protobuf. The large ones are written by hand: head, payload slices, tail.
 */
#include "server/lease_encode.h"

#include "base/clock.h"
#include "base/memory.h"
#include <grpc/byte_buffer.h>
#include <string.h>

/* Wire types of protobuf. */
enum { WIRE_VARINT = 0, WIRE_LENGTH = 2 };

/* A few bytes of protobuf being written. */
struct head {
  uint8_t bytes[64];
  size_t length;
};

static void head_varint(struct head *head, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    head->bytes[head->length++] = (uint8_t)(value | 0x80);
  head->bytes[head->length++] = (uint8_t)value;
}

static void head_number(struct head *head, uint32_t field, uint64_t value) {
  if (value == 0)
    return;
  head_varint(head, (uint64_t)field << 3 | WIRE_VARINT);
  head_varint(head, value);
}

static void head_length(struct head *head, uint32_t field, uint64_t length) {
  head_varint(head, (uint64_t)field << 3 | WIRE_LENGTH);
  head_varint(head, length);
}


static grpc_slice head_slice(const struct head *head) {
  return grpc_slice_from_copied_buffer((const char *)head->bytes, head->length);
}

/* Takes over the slices. */
static grpc_byte_buffer *join(grpc_slice *slices, size_t count) {
  grpc_byte_buffer *message = grpc_raw_byte_buffer_create(slices, count);
  for (size_t i = 0; i < count; i++)
    grpc_slice_unref(slices[i]);
  return message;
}

/* The bytes of a buffer, taken out of it. */
static grpc_slice buffer_slice(struct buffer *buffer) {
  size_t length = buffer->length;
  if (length == 0)
    return grpc_empty_slice();
  char *bytes = buffer_take(buffer);
  return grpc_slice_new_with_user_data(bytes, length, memory_free, bytes);
}

Google__Protobuf__Timestamp lease_timestamp(int64_t wall) {
  Google__Protobuf__Timestamp time = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
  time.seconds = wall / CLOCK_SECOND;
  time.nanos = (int32_t)(wall % CLOCK_SECOND);
  if (time.nanos < 0) {
    time.seconds--;
    time.nanos += (int32_t)CLOCK_SECOND;
  }
  return time;
}

void lease_message_fill(struct lease_message *message, const struct backend_sandbox *facts,
                        Sandbox__Lease__V1__LeaseStatus status) {
  sandbox__lease__v1__lease__init(&message->lease);
  message->created_at = lease_timestamp(facts->created_at);
  message->expires_at = lease_timestamp(facts->expires_at);
  message->last_used_at = lease_timestamp(facts->last_used_at);
  message->lease.id = (char *)facts->id;
  message->lease.pool = (char *)facts->pool;
  message->lease.status = status;
  message->lease.created_at = &message->created_at;
  message->lease.expires_at = &message->expires_at;
  message->lease.last_used_at = &message->last_used_at;
}

Sandbox__Lease__V1__EndedBy lease_ended_by(enum session_ended ended) {
  switch (ended) {
  case SESSION_ENDED_EXITED:
    return SANDBOX__LEASE__V1__ENDED_BY__ENDED_BY_EXITED;
  case SESSION_ENDED_SIGNALLED:
    return SANDBOX__LEASE__V1__ENDED_BY__ENDED_BY_SIGNALLED;
  case SESSION_ENDED_TIMED_OUT:
    return SANDBOX__LEASE__V1__ENDED_BY__ENDED_BY_TIMED_OUT;
  case SESSION_ENDED_CANCELLED:
    return SANDBOX__LEASE__V1__ENDED_BY__ENDED_BY_CANCELLED;
  case SESSION_ENDED_OUT_OF_MEMORY:
    return SANDBOX__LEASE__V1__ENDED_BY__ENDED_BY_OUT_OF_MEMORY;
  case SESSION_ENDED_LEASE:
    return SANDBOX__LEASE__V1__ENDED_BY__ENDED_BY_LEASE_ENDED;
  case SESSION_ENDED_LOST:
  case SESSION_ENDED_OUTPUT_LIMIT:
    break;
  }
  return SANDBOX__LEASE__V1__ENDED_BY__ENDED_BY_SANDBOX_LOST;
}

grpc_byte_buffer *lease_encode_exec(struct buffer *out, struct buffer *errors, int exit_code,
                                    Sandbox__Lease__V1__EndedBy ended_by) {
  grpc_slice slices[5];
  size_t count = 0;
  struct buffer *streams[] = {out, errors};
  for (uint32_t i = 0; i < 2; i++) {
    if (streams[i]->length == 0)
      continue;
    struct head head = {0};
    head_length(&head, i + 1, streams[i]->length);
    slices[count++] = head_slice(&head);
    slices[count++] = buffer_slice(streams[i]);
  }
  struct head tail = {0};
  head_number(&tail, 3, (uint64_t)(int64_t)exit_code);
  head_number(&tail, 4, (uint64_t)ended_by);
  slices[count++] = head_slice(&tail);
  return join(slices, count);
}

grpc_byte_buffer *lease_encode_output(struct send_batch *batch) {
  struct head inner = {0};
  head_number(&inner, 1, (uint64_t)batch->stream);
  head_number(&inner, 2, batch->offset);
  head_length(&inner, 3, batch->length);
  struct head outer = {0};
  head_length(&outer, 2, inner.length + batch->length);
  memcpy(outer.bytes + outer.length, inner.bytes, inner.length);
  outer.length += inner.length;
  batch->slices[0] = head_slice(&outer);
  return join(batch->slices, batch->count);
}

grpc_byte_buffer *lease_encode_data(uint32_t field, struct send_batch *batch) {
  struct head head = {0};
  head_length(&head, field, batch->length);
  batch->slices[0] = head_slice(&head);
  return join(batch->slices, batch->count);
}

grpc_byte_buffer *lease_encode_bytes(uint32_t field, struct buffer *bytes) {
  struct head head = {0};
  if (bytes->length > 0)
    head_length(&head, field, bytes->length);
  grpc_slice slices[] = {head_slice(&head), buffer_slice(bytes)};
  return join(slices, 2);
}
