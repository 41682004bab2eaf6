/*
 * GET /v1/leases/{id}/files/content: a streamed file, from the sandbox to the client. While the socket takes one piece the next
 * one is asked for, and no more than that. The last piece is held back until the server has said that all is well, so that
 * a client never gets a whole body of a transfer that failed.
 */
#include "gateway/content.h"
#include "gateway/exchange.h"
#include "gateway/route.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "rpc/message.h"

#include "sandbox/lease/v1/lease.pb-c.h"

#include <grpc/slice.h>

enum { DATA_FIELD = 2 };

struct download {
  bool known; /* size and digest have come */
  uint64_t size, received;
  char digest[64]; /* the header's value */
  bool busy;       /* the head or a piece is being written */
  bool ended;      /* the server has said that all is well */
  grpc_slice piece; /* being written */
  grpc_slice next;  /* to be written then; empty if there is none */
};

static int start(struct exchange *exchange, const struct json *json, struct error **err) {
  static const struct exchange_method method = {.path = "/sandbox.lease.v1.LeaseService/DownloadFile",
                                                .reply = &sandbox__lease__v1__download_file_response__descriptor};
  (void)json;
  char path[LIMIT_PATH_BYTES + 2];
  struct download *download = memory_zero(sizeof *download);
  if (!download)
    return error_set_memory(err);
  download->piece = download->next = grpc_empty_slice();
  exchange->state = download;
  Sandbox__Lease__V1__DownloadFileRequest request = SANDBOX__LEASE__V1__DOWNLOAD_FILE_REQUEST__INIT;
  request.path = path;
  if (content_path(exchange, path, sizeof path, err) < 0)
    return -1;
  request.lease_id = (char *)exchange_lease_id(exchange, err);
  if (!request.lease_id || exchange_stream(exchange, &method, &request.base, true, err) < 0)
    return -1;
  exchange_receive(exchange);
  return 0;
}

static void fail(struct exchange *exchange, const struct error *err) {
  if (!exchange->answered) {
    exchange_fail(exchange, err);
    return;
  }
  log_write(LOG_WARNING, "download_cut", LOG_TEXT("request", exchange->request_id), LOG_REASON(err), LOG_DETAIL(err));
  exchange_cut(exchange);
}

static void begin(struct exchange *exchange, const Sandbox__Lease__V1__FileInfo *info) {
  struct download *download = exchange->state;
  struct buffer digest;
  buffer_borrow(&digest, download->digest, sizeof download->digest);
  if (info->size_bytes < 0 || info->size_bytes > LIMIT_TRANSFER_BYTES || info->sha256.len != 32 ||
      buffer_append_string(&digest, "sha-256=:") < 0 || text_base64(&digest, info->sha256.data, info->sha256.len) < 0 ||
      buffer_append_byte(&digest, ':') < 0) {
    fail(exchange, NULL);
    return;
  }
  download->known = true;
  download->size = (uint64_t)info->size_bytes;
  if (download->size > 0) {
    download->busy = true;
    exchange_reply_file(exchange, download->size, download->digest);
  }
  exchange_receive(exchange);
}

/* Writes the next piece if it is time, and asks for the one behind it. */
static void write_next(struct exchange *exchange) {
  struct download *download = exchange->state;
  bool last = download->received == download->size;
  if (download->busy || GRPC_SLICE_LENGTH(download->next) == 0 || (last && !download->ended))
    return;
  grpc_slice_unref(download->piece);
  download->piece = download->next;
  download->next = grpc_empty_slice();
  download->busy = true;
  if (!last)
    exchange_receive(exchange);
  const char *bytes = (const char *)GRPC_SLICE_START_PTR(download->piece);
  exchange_write(exchange, (struct http_text){.data = bytes, .length = GRPC_SLICE_LENGTH(download->piece)}, last);
}

static void give(struct exchange *exchange, grpc_slice piece) {
  struct download *download = exchange->state;
  size_t length = GRPC_SLICE_LENGTH(piece);
  grpc_slice_unref(download->next);
  download->next = piece;
  if (!download->known || length > download->size - download->received) {
    fail(exchange, NULL);
    return;
  }
  download->received += length;
  if (download->received == download->size || length == 0)
    exchange_receive(exchange); /* its end */
  write_next(exchange);
}

static void message(struct exchange *exchange, grpc_byte_buffer *buffer) {
  grpc_slice piece;
  if (!buffer)
    return; /* `ended` follows */
  if (rpc_unpack_bytes(DATA_FIELD, buffer, &piece)) {
    give(exchange, piece);
    return;
  }
  struct download *download = exchange->state;
  struct error *err CLEANUP_ERROR = NULL;
  ProtobufCMessage *unpacked = rpc_unpack(&sandbox__lease__v1__download_file_response__descriptor, buffer, &err);
  const Sandbox__Lease__V1__DownloadFileResponse *response = (const Sandbox__Lease__V1__DownloadFileResponse *)unpacked;
  if (response && response->response_case == SANDBOX__LEASE__V1__DOWNLOAD_FILE_RESPONSE__RESPONSE_INFO && !download->known)
    begin(exchange, response->info);
  else
    fail(exchange, NULL);
  if (unpacked)
    protobuf_c_message_free_unpacked(unpacked, NULL);
}

static void drained(struct exchange *exchange) {
  struct download *download = exchange->state;
  download->busy = false;
  write_next(exchange);
}

static void ended(struct exchange *exchange, const struct error *err) {
  struct download *download = exchange->state;
  download->ended = true;
  if (err || !download->known || download->received != download->size)
    fail(exchange, err);
  else if (download->size == 0)
    exchange_reply_file(exchange, 0, download->digest);
  else
    write_next(exchange);
}

static void close_state(struct exchange *exchange) {
  struct download *download = exchange->state;
  if (!download)
    return;
  grpc_slice_unref(download->piece);
  grpc_slice_unref(download->next);
}

const struct handler handle_download = {
    .start = start, .message = message, .drained = drained, .ended = ended, .close = close_state};
