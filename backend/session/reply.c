/*
 * Reading the agent's messages and writing those with payloads. Output and file data make up nearly all bytes: they are
 * read by hand, without copying, and only in the form that every serialiser writes, fields by their numbers and each
 * once. Everything else goes through message_unpack.
 */
#include "backend/session/reply.h"

#include "base/limits.h"
#include "base/message.h"
#include "sandbox/agent/v1/agent.pb-c.h"
#include <string.h>

/* Field number and wire type. */
#define TAG(field, type) ((uint8_t)((field) << 3 | (type)))
#define VARINT 0
#define BYTES 2

#define SMALL 1024 /* every message without payload fits */

struct reader {
  const uint8_t *at, *end;
};

/* Canonical or not, at most ten bytes. */
static bool read_varint(struct reader *reader, uint64_t *value) {
  *value = 0;
  for (unsigned shift = 0; shift < 64 && reader->at < reader->end; shift += 7) {
    uint8_t byte = *reader->at++;
    if (shift == 63 && byte > 1)
      return false;
    *value |= (uint64_t)(byte & 0x7F) << shift;
    if (!(byte & 0x80))
      return true;
  }
  return false;
}

/* A length that must reach exactly to the end. */
static bool read_last(struct reader *reader, const uint8_t **bytes, size_t *length) {
  uint64_t value;
  if (!read_varint(reader, &value) || value != (uint64_t)(reader->end - reader->at))
    return false;
  *bytes = reader->at;
  *length = (size_t)value;
  return true;
}

static bool read_tag(struct reader *reader, uint8_t tag) {
  if (reader->at >= reader->end || *reader->at != tag)
    return false;
  reader->at++;
  return true;
}

static bool chunk_fits(size_t length) {
  return length > 0 && length <= LIMIT_CHUNK_BYTES;
}

/* RunResponse { output { stream, offset unless 0, data } }, fields in this order. */
static bool read_plain_output(struct reader reader, struct reply *reply) {
  uint64_t stream;
  if (!read_tag(&reader, TAG(2, BYTES)) || !read_last(&reader, &reply->bytes, &reply->length))
    return false;
  if (!read_tag(&reader, TAG(1, VARINT)) || !read_varint(&reader, &stream) || stream < 1 || stream > 2)
    return false;
  reply->offset = 0;
  if (read_tag(&reader, TAG(2, VARINT)) && !read_varint(&reader, &reply->offset))
    return false;
  if (!read_tag(&reader, TAG(3, BYTES)) || !read_last(&reader, &reply->bytes, &reply->length))
    return false;
  reply->stream = (int)stream;
  reply->kind = chunk_fits(reply->length) ? REPLY_OUTPUT : REPLY_BAD;
  return true;
}

static void take_end(const Sandbox__Agent__V1__RunEnd *end, struct reply *reply) {
  int by = (int)end->ended_by;
  if (by < SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_EXITED ||
      by > SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_LOST)
    return;
  if (end->exit_code < 0 || end->exit_code > 255 || end->signal < 0 || end->signal > 64)
    return;
  reply->ended_by = by;
  reply->exit_code = end->exit_code;
  reply->signal = end->signal;
  reply->stdout_bytes = end->stdout_bytes;
  reply->stderr_bytes = end->stderr_bytes;
  reply->kind = REPLY_END;
}

void reply_read_run(const uint8_t *message, size_t length, struct reply *reply) {
  *reply = (struct reply){.kind = REPLY_BAD};
  if (read_plain_output((struct reader){message, message + length}, reply))
    return;
  *reply = (struct reply){.kind = REPLY_BAD};
  if (length > SMALL)
    return;
  Sandbox__Agent__V1__RunResponse *response = (void *)message_unpack(&sandbox__agent__v1__run_response__descriptor,
                                                                     message, length, NULL);
  if (!response)
    return;
  if (response->response_case == SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_STARTED) {
    reply->offset = response->started->stdin_offset;
    reply->kind = REPLY_STARTED;
  } else if (response->response_case == SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_END) {
    take_end(response->end, reply);
  }
  protobuf_c_message_free_unpacked(&response->base, NULL);
}

static void take_info(const Sandbox__Agent__V1__FileInfo *info, struct reply *reply) {
  reply->size = info->size_bytes;
  reply->length = info->sha256.len;
  if (reply->length != 0 && reply->length != sizeof reply->digest)
    return;
  if (reply->length != 0)
    memcpy(reply->digest, info->sha256.data, reply->length);
  reply->bytes = reply->digest;
  reply->kind = REPLY_INFO;
}

void reply_read_file(const uint8_t *message, size_t length, struct reply *reply) {
  struct reader reader = {message, message + length};
  *reply = (struct reply){.kind = REPLY_BAD};
  if (read_tag(&reader, TAG(2, BYTES)) && read_last(&reader, &reply->bytes, &reply->length)) {
    reply->kind = chunk_fits(reply->length) ? REPLY_DATA : REPLY_BAD;
    return;
  }
  if (length > SMALL)
    return;
  Sandbox__Agent__V1__ReadFileResponse *response = (void *)message_unpack(
      &sandbox__agent__v1__read_file_response__descriptor, message, length, NULL);
  if (!response)
    return;
  if (response->response_case == SANDBOX__AGENT__V1__READ_FILE_RESPONSE__RESPONSE_INFO)
    take_info(response->info, reply);
  protobuf_c_message_free_unpacked(&response->base, NULL);
}

bool reply_is_write_response(const uint8_t *message, size_t length) {
  return length <= SMALL &&
         message_check(&sandbox__agent__v1__write_file_response__descriptor, message, length, NULL) == 0;
}

enum reason reply_reason(const char *text) {
  char name[64];
  size_t length = strcspn(text, " ");
  if (length >= sizeof name)
    return REASON_NONE;
  memcpy(name, text, length);
  name[length] = '\0';
  return reason_find(name);
}

/* --- writing --- */

static size_t varint_size(uint64_t value) {
  size_t size = 1;
  while (value >>= 7)
    size++;
  return size;
}

static uint8_t *write_varint(uint8_t *out, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    *out++ = (uint8_t)(value | 0x80);
  *out++ = (uint8_t)value;
  return out;
}

/* RunRequest.stdin (3) with StdinChunk.offset (2) and, last, StdinChunk.data (1): readers take fields in any order. */
size_t reply_write_stdin_head(uint8_t head[static REPLY_HEAD_MOST], uint64_t offset, size_t length) {
  uint8_t *at = head;
  *at++ = TAG(3, BYTES);
  at = write_varint(at, 1 + varint_size(offset) + 1 + varint_size(length) + length);
  *at++ = TAG(2, VARINT);
  at = write_varint(at, offset);
  *at++ = TAG(1, BYTES);
  return (size_t)(write_varint(at, length) - head);
}

/* WriteFileRequest.data (2). */
size_t reply_write_data_head(uint8_t head[static REPLY_HEAD_MOST], size_t length) {
  head[0] = TAG(2, BYTES);
  return (size_t)(write_varint(head + 1, length) - head);
}
