/*
 * DownloadFile: the session reads, the client takes. Bytes count against the session's window until the message with
 * them has left, so the server holds a window's worth of a file and no more.
 */
#include "base/memory.h"
#include "rpc/message.h"
#include "server/lease_command.h"
#include "server/lease_encode.h"
#include "server/lease_handlers.h"
#include "server/lease_transfer.h"
#include <string.h>

enum { DOWNLOAD_DATA_FIELD = 2 };

struct download {
  struct lease_transfer transfer;
  struct session_read *session; /* NULL while it is being started, and once it has ended */
  struct send_queue data;
  uint64_t received; /* bytes */
  size_t sending;    /* bytes of the message that is under way */
  size_t unconsumed; /* bytes dropped while it was being started */
  bool busy;         /* a message is under way */
  bool has_info, info_sent;
  uint64_t size;
  uint8_t sha256[DIGEST_SIZE];
};

int lease_check_download(const ProtobufCMessage *message, struct error **err) {
  return lease_path_check(((const Sandbox__Lease__V1__DownloadFileRequest *)message)->path, NULL, err);
}

static void download_stop(struct lease_operation *operation) {
  struct download *download = (struct download *)operation;
  size_t held = download->data.length + download->sending;
  send_queue_clear(&download->data);
  download->sending = 0;
  if (!download->session) {
    download->unconsumed += held;
    return;
  }
  if (held > 0)
    session_read_consume(download->session, held);
  session_read_cancel(download->session);
}

static void download_free(struct lease_operation *operation) {
  struct download *download = (struct download *)operation;
  lease_transfer_leave(&download->transfer);
  send_queue_clear(&download->data);
  memory_free(download);
}

static const struct lease_operation_kind download_kind = {.stop = download_stop, .free = download_free};

/* --- to the client --- */

static grpc_byte_buffer *download_info_message(struct download *download) {
  Sandbox__Lease__V1__FileInfo info = SANDBOX__LEASE__V1__FILE_INFO__INIT;
  info.size_bytes = (int64_t)download->size;
  info.sha256 = (ProtobufCBinaryData){.data = download->sha256, .len = sizeof(download->sha256)};
  Sandbox__Lease__V1__DownloadFileResponse response = SANDBOX__LEASE__V1__DOWNLOAD_FILE_RESPONSE__INIT;
  response.response_case = SANDBOX__LEASE__V1__DOWNLOAD_FILE_RESPONSE__RESPONSE_INFO;
  response.info = &info;
  return rpc_pack(&response.base);
}

static void download_send(struct download *download) {
  struct lease_operation *operation = &download->transfer.operation;
  struct send_batch batch;
  grpc_byte_buffer *message = NULL;
  if (download->busy || !operation->call || !download->has_info)
    return;
  if (!download->info_sent) {
    message = download_info_message(download);
    download->info_sent = true;
  } else if (send_queue_take(&download->data, &batch) == 0) {
    download->sending = batch.length;
    message = lease_encode_data(DOWNLOAD_DATA_FIELD, &batch);
  } else {
    if (!operation->running)
      call_finish(lease_operation_answer(operation));
    return;
  }
  if (message) {
    download->busy = true;
    call_send(operation->call, message);
  } else {
    lease_operation_fail(operation, lease_error(REASON_INTERNAL));
  }
}

static void download_sent(void *context) {
  struct download *download = context;
  struct lease_operation *operation = &download->transfer.operation;
  size_t sent = download->sending;
  download->busy = false;
  download->sending = 0;
  lease_operation_hold(operation);
  if (download->session && sent > 0)
    session_read_consume(download->session, sent);
  download_send(download);
  lease_operation_drop(operation);
}

/* --- from the session --- */

static void download_info(void *context, uint64_t size, const uint8_t *sha256) {
  struct download *download = context;
  struct lease_operation *operation = &download->transfer.operation;
  if (download->has_info || !sha256 || size > LIMIT_TRANSFER_BYTES) {
    lease_operation_fail(operation, lease_error(REASON_FILE_TRANSFER_FAILED));
    return;
  }
  download->has_info = true;
  download->size = size;
  memcpy(download->sha256, sha256, sizeof(download->sha256));
  download_send(download);
}

static void download_data(void *context, const uint8_t *bytes, size_t length) {
  struct download *download = context;
  struct lease_operation *operation = &download->transfer.operation;
  if (operation->call && send_queue_append(&download->data, 0, download->received, bytes, length) == 0) {
    download->received += length;
    download_send(download);
    return;
  }
  if (operation->call)
    lease_operation_fail(operation, lease_error(REASON_INTERNAL));
  if (download->session)
    session_read_consume(download->session, length);
  else
    download->unconsumed += length;
}

static void download_ended(void *context, struct error *err) {
  struct download *download = context;
  struct lease_operation *operation = &download->transfer.operation;
  download->session = NULL;
  operation->running = false;
  if (err || !download->has_info)
    lease_operation_fail(operation, lease_transfer_error(err));
  else
    download_send(download);
  lease_operation_settle(operation);
}

/* --- the call --- */

static void download_begin(struct download *download, struct session *session, const char *path) {
  static const struct session_read_events session_events = {
    .info = download_info, .data = download_data, .ended = download_ended};
  static const struct call_events call_events = {.sent = download_sent, .cancelled = lease_operation_cancelled};
  struct lease_operation *operation = &download->transfer.operation;
  lease_operation_hold(operation);
  /* Watched first: what the session gives at once is sent at once. */
  call_watch(operation->call, &call_events, download);
  operation->running = true;
  struct session_read *started =
    session_read_start(session, path, LIMIT_TRANSFER_BYTES, true, &session_events, download);
  if (started && operation->running) {
    download->session = started;
    if (download->unconsumed > 0)
      session_read_consume(started, download->unconsumed);
    if (!operation->call)
      download_stop(operation);
  } else if (operation->running) {
    operation->running = false;
    lease_operation_fail(operation, lease_error(REASON_INTERNAL));
  }
  lease_operation_drop(operation);
}

static void download_found(struct lease_service *service, struct call *call, const ProtobufCMessage *message,
                           struct lease *lease, struct error *err) {
  char path[LIMIT_PATH_BYTES + 1];
  if (!err)
    lease_path_check(((const Sandbox__Lease__V1__DownloadFileRequest *)message)->path, path, &err);
  struct download *download = err ? NULL : memory_zero(sizeof(*download));
  if (!download) {
    call_fail(call, err ? err : lease_error(REASON_INTERNAL));
    return;
  }
  struct session *session = lease_transfer_begin(&download->transfer, &download_kind, service, call, lease);
  if (session)
    download_begin(download, session, path);
}

void lease_handle_download(struct call *call, const ProtobufCMessage *message, void *context) {
  const Sandbox__Lease__V1__DownloadFileRequest *request = (const Sandbox__Lease__V1__DownloadFileRequest *)message;
  lease_lookup(context, call, request->lease_id, message, download_found);
}
