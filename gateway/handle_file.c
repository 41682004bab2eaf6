/*
 * POST /v1/leases/{id}/files/read and …/write: whole small files as text or base64 in JSON.
 */
#include "gateway/exchange.h"
#include "gateway/route.h"
#include "gateway/translate.h"

#include "base/limits.h"
#include "base/memory.h"
#include "base/text.h"

#include <string.h>

enum { DEADLINE_MS = LIMIT_TRANSFER_SECONDS * 1000 };

/* What the answer says again. */
struct file_state {
  enum translate_encoding encoding;
  char *path;
};

static void close_state(struct exchange *exchange) {
  struct file_state *state = exchange->state;
  if (state)
    memory_free(state->path);
}

static int keep_state(struct exchange *exchange, const char *path, enum translate_encoding encoding, struct error **err) {
  struct file_state *state = memory_zero(sizeof *state);
  exchange->state = state;
  if (!state || !(state->path = memory_string(path)))
    return error_set_memory(err);
  state->encoding = encoding;
  return 0;
}

/* Reading */

static int read_start(struct exchange *exchange, const struct json *json, struct error **err) {
  static const struct exchange_method method = {.path = "/sandbox.lease.v1.LeaseService/ReadFile",
                                                .reply = &sandbox__lease__v1__read_file_response__descriptor,
                                                .deadline_ms = DEADLINE_MS};
  Sandbox__Lease__V1__ReadFileRequest request = SANDBOX__LEASE__V1__READ_FILE_REQUEST__INIT;
  enum translate_encoding encoding;
  request.lease_id = (char *)exchange_lease_id(exchange, err);
  if (!request.lease_id || translate_text(json, "path", &request.path, err) < 0 ||
      translate_encoding(json, &encoding, err) < 0 || keep_state(exchange, request.path, encoding, err) < 0)
    return -1;
  return exchange_call(exchange, &method, &request.base, err);
}

static void read_answer(struct exchange *exchange, const ProtobufCMessage *reply) {
  const Sandbox__Lease__V1__ReadFileResponse *file = (const Sandbox__Lease__V1__ReadFileResponse *)reply;
  const struct file_state *state = exchange->state;
  bool base64 = state->encoding == TRANSLATE_BASE64;
  json_body_add_text(&exchange->json, "{\"path\":\"");
  json_body_add(&exchange->json, JSON_BODY_ESCAPE, state->path, strlen(state->path));
  json_body_add_text(&exchange->json, "\",\"content\":\"");
  json_body_add(&exchange->json, base64 ? JSON_BODY_BASE64 : JSON_BODY_ESCAPE, file->content.data, file->content.len);
  json_body_add_text(&exchange->json, base64 ? "\",\"encoding\":\"base64\"}" : "\",\"encoding\":\"utf8\"}");
  exchange_reply_long_json(exchange);
}

const struct handler handle_file_read = {
    .body = HANDLER_BODY_JSON, .start = read_start, .answer = read_answer, .close = close_state};

/* Writing */

/* The text, or the bytes it stands for, which are put into `decoded`. */
static int content_bytes(struct json_text text, enum translate_encoding encoding, struct buffer *decoded,
                         ProtobufCBinaryData *bytes, struct error **err) {
  if (encoding == TRANSLATE_UTF8) {
    *bytes = (ProtobufCBinaryData){.len = text.length, .data = (uint8_t *)(uintptr_t)text.data};
    return 0;
  }
  if (text_unbase64(decoded, text.data, text.length) < 0)
    return error_set_field(err, REASON_INVALID_REQUEST, "content", "'content' must be valid base64");
  *bytes = (ProtobufCBinaryData){.len = decoded->length, .data = decoded->data};
  return 0;
}

static int write_start(struct exchange *exchange, const struct json *json, struct error **err) {
  static const struct exchange_method method = {.path = "/sandbox.lease.v1.LeaseService/WriteFile",
                                                .reply = &sandbox__lease__v1__write_file_response__descriptor,
                                                .deadline_ms = DEADLINE_MS};
  Sandbox__Lease__V1__WriteFileRequest request = SANDBOX__LEASE__V1__WRITE_FILE_REQUEST__INIT;
  enum translate_encoding encoding;
  struct json_text content;
  struct buffer decoded CLEANUP_BUFFER;
  buffer_init(&decoded, LIMIT_JSON_BODY_BYTES);
  request.lease_id = (char *)exchange_lease_id(exchange, err);
  if (!request.lease_id || translate_text(json, "path", &request.path, err) < 0 ||
      json_get_text(json, "content", &content, err) < 0 || translate_encoding(json, &encoding, err) < 0)
    return -1;
  if (!content.data)
    return error_set_field(err, REASON_INVALID_REQUEST, "content", "'content' must be a string");
  if (content_bytes(content, encoding, &decoded, &request.content, err) < 0 ||
      keep_state(exchange, request.path, encoding, err) < 0)
    return -1;
  return exchange_call(exchange, &method, &request.base, err);
}

static int write_path(struct buffer *out, const struct file_state *state) {
  return buffer_append_string(out, "{\"path\":") < 0 ? -1 : json_write_string(out, state->path, strlen(state->path));
}

static void write_answer(struct exchange *exchange, const ProtobufCMessage *reply) {
  (void)reply;
  if (write_path(&exchange->answer, exchange->state) < 0 || buffer_append_byte(&exchange->answer, '}') < 0)
    exchange_fail(exchange, NULL);
  else
    exchange_reply_json(exchange, 200);
}

const struct handler handle_file_write = {
    .body = HANDLER_BODY_JSON, .start = write_start, .answer = write_answer, .close = close_state};
