/*
 * PUT /v1/leases/{id}/files/content: a streamed file, from the client to the sandbox. While one message is on its way to the
 * server the next one fills; when that is full too, the client is not read any more.
 *
 * What was received is told to the server and nothing else: a body that ends too early, or with another digest, is the
 * server's to refuse, which keeps the old file.
 */
#include "gateway/content.h"
#include "gateway/exchange.h"
#include "gateway/route.h"

#include "base/limits.h"
#include "base/memory.h"
#include "base/text.h"
#include "rpc/message.h"

#include "sandbox/lease/v1/lease.pb-c.h"

#include <grpc/slice.h>
#include <string.h>

enum { DATA_FIELD = 2, CHUNK_BYTES = 4 * CONNECTION_INPUT_BYTES };

struct upload {
  grpc_slice chunk;    /* being filled; empty if there is none */
  size_t filled;       /* of the chunk */
  bool sending;        /* a message is under way */
  bool broken;         /* no message can be sent any more */
  bool ended;          /* there is no more to come from the client */
  uint8_t sha256[32];
  char path[LIMIT_PATH_BYTES + 2];
};

static bool is_media_type(struct http_text value, struct http_text wanted) {
  const char *end = value.length > 0 ? memchr(value.data, ';', value.length) : NULL;
  size_t length = end ? (size_t)(end - value.data) : value.length;
  while (length > 0 && (value.data[length - 1] == ' ' || value.data[length - 1] == '\t'))
    length--;
  return http_text_is_any_case((struct http_text){.data = value.data, .length = length}, wanted);
}

/* "sha-256=:<base64 of 32 bytes>:" and nothing else. */
static int read_digest(struct http_text value, uint8_t sha256[static 32], struct error **err) {
  static const char start[] = "sha-256=:";
  size_t before = sizeof start - 1;
  struct buffer bytes;
  char memory[33];
  buffer_borrow(&bytes, memory, sizeof memory);
  if (value.length < before + 1 || memcmp(value.data, start, before) != 0 || value.data[value.length - 1] != ':' ||
      text_unbase64(&bytes, value.data + before, value.length - before - 1) < 0 || bytes.length != 32)
    return error_set(err, REASON_INVALID_CONTENT_DIGEST, NULL);
  memcpy(sha256, bytes.data, 32);
  return 0;
}

static int check(struct exchange *exchange, struct error **err) {
  struct upload *upload = memory_zero(sizeof *upload);
  if (!upload)
    return error_set_memory(err);
  upload->chunk = grpc_empty_slice();
  exchange->state = upload;
  if (content_path(exchange, upload->path, sizeof upload->path, err) < 0)
    return -1;
  if (!is_media_type(exchange_field(exchange, HTTP_CONTENT_TYPE), HTTP_TEXT("application/octet-stream")))
    return error_set(err, REASON_UNSUPPORTED_MEDIA_TYPE, NULL);
  if (!exchange->head.has_length)
    return error_set(err, REASON_LENGTH_REQUIRED, NULL);
  if (exchange->head.content_length > LIMIT_TRANSFER_BYTES)
    return error_set(err, REASON_TRANSFER_TOO_LARGE, NULL);
  return read_digest(exchange_field(exchange, HTTP_CONTENT_DIGEST), upload->sha256, err);
}

static int start(struct exchange *exchange, const struct json *json, struct error **err) {
  static const struct exchange_method method = {.path = "/sandbox.lease.v1.LeaseService/UploadFile",
                                                .reply = &sandbox__lease__v1__upload_file_response__descriptor};
  (void)json;
  struct upload *upload = exchange->state;
  Sandbox__Lease__V1__FileInfo file = SANDBOX__LEASE__V1__FILE_INFO__INIT;
  file.size_bytes = (int64_t)exchange->head.content_length;
  file.sha256 = (ProtobufCBinaryData){.len = sizeof upload->sha256, .data = upload->sha256};
  Sandbox__Lease__V1__UploadFileInfo info = SANDBOX__LEASE__V1__UPLOAD_FILE_INFO__INIT;
  info.lease_id = (char *)exchange_lease_id(exchange, err);
  info.path = upload->path;
  info.file = &file;
  if (!info.lease_id)
    return -1;
  Sandbox__Lease__V1__UploadFileRequest request = SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__INIT;
  request.request_case = SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__REQUEST_INFO;
  request.info = &info;
  if (exchange_stream(exchange, &method, &request.base, false, err) < 0)
    return -1;
  exchange_receive(exchange);
  return 0;
}

/* Sends what there is, or says that there is no more. */
static void send_next(struct exchange *exchange) {
  struct upload *upload = exchange->state;
  if (upload->sending || upload->broken)
    return;
  if (upload->filled == 0) {
    if (upload->ended)
      exchange_half_close(exchange);
    return;
  }
  grpc_slice payload = grpc_slice_sub_no_ref(upload->chunk, 0, upload->filled);
  upload->chunk = grpc_empty_slice();
  upload->filled = 0;
  upload->sending = true;
  exchange_send(exchange, rpc_pack_bytes(DATA_FIELD, payload));
}

static void streamed(struct exchange *exchange, const char *bytes, size_t length) {
  struct upload *upload = exchange->state;
  if (GRPC_SLICE_LENGTH(upload->chunk) == 0)
    upload->chunk = grpc_slice_malloc(CHUNK_BYTES);
  memcpy(GRPC_SLICE_START_PTR(upload->chunk) + upload->filled, bytes, length);
  upload->filled += length;
  send_next(exchange);
  if (CHUNK_BYTES - upload->filled < CONNECTION_INPUT_BYTES)
    connection_pause_body(exchange->connection, true);
}

static void stream_ended(struct exchange *exchange, enum connection_body how) {
  struct upload *upload = exchange->state;
  upload->ended = true;
  if (how == CONNECTION_BODY_WHOLE || how == CONNECTION_BODY_CUT)
    send_next(exchange);
  else
    exchange_cancel(exchange);
}

static void sent(struct exchange *exchange, bool ok) {
  struct upload *upload = exchange->state;
  upload->sending = false;
  upload->broken = !ok;
  send_next(exchange);
  if (ok)
    connection_pause_body(exchange->connection, false);
}

static void message(struct exchange *exchange, grpc_byte_buffer *reply) {
  (void)exchange;
  (void)reply; /* empty */
}

static void ended(struct exchange *exchange, const struct error *err) {
  struct upload *upload = exchange->state;
  if (err || !upload->ended)
    exchange_fail(exchange, err);
  else
    exchange_reply_empty(exchange);
}

static void close_state(struct exchange *exchange) {
  struct upload *upload = exchange->state;
  if (upload)
    grpc_slice_unref(upload->chunk);
}

const struct handler handle_upload = {.body = HANDLER_BODY_STREAMED,
                                      .check = check,
                                      .start = start,
                                      .streamed = streamed,
                                      .stream_ended = stream_ended,
                                      .message = message,
                                      .sent = sent,
                                      .ended = ended,
                                      .close = close_state};
