/*
 * UploadFile: the client sends, the session writes. The next message is asked of the client only while the session
 * has room, so the server holds one message and what the session has queued. The old file stays until the session has
 * seen the announced size and digest.
 */
#include "base/memory.h"
#include "rpc/message.h"
#include "server/lease_command.h"
#include "server/lease_encode.h"
#include "server/lease_handlers.h"
#include "server/lease_transfer.h"

enum { UPLOAD_DATA_FIELD = 2, UPLOAD_MESSAGE_MAX = 1048576 };

struct upload {
  struct lease_transfer transfer;
  struct session_write *session; /* NULL while it is being started, and once it has ended */
  uint64_t size, received;       /* bytes announced, and come */
  bool receiving;                /* the client's next message was asked for */
  bool finished;                 /* all bytes are with the session */
};

int lease_check_upload(const ProtobufCMessage *message, struct error **err) {
  const Sandbox__Lease__V1__UploadFileRequest *request = (const Sandbox__Lease__V1__UploadFileRequest *)message;
  if (request->request_case != SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__REQUEST_INFO)
    return error_set_field(err, REASON_INVALID_REQUEST, "info", "The first message must be 'info'");
  if (lease_path_check(request->info->path, NULL, err) < 0)
    return -1;
  const Sandbox__Lease__V1__FileInfo *file = request->info->file;
  if (!file || file->size_bytes < 0)
    return error_set_field(err, REASON_INVALID_REQUEST, "file", "'file' must say the size and digest of the content");
  if (file->size_bytes > LIMIT_TRANSFER_BYTES)
    return error_set_field(err, REASON_TRANSFER_TOO_LARGE, "size_bytes", NULL);
  if (file->sha256.len != DIGEST_SIZE)
    return error_set_field(err, REASON_INVALID_CONTENT_DIGEST, "sha256", NULL);
  return 0;
}

static void upload_stop(struct lease_operation *operation) {
  struct upload *upload = (struct upload *)operation;
  if (upload->session)
    session_write_cancel(upload->session);
}

static void upload_free(struct lease_operation *operation) {
  struct upload *upload = (struct upload *)operation;
  lease_transfer_leave(&upload->transfer);
  memory_free(upload);
}

static const struct lease_operation_kind upload_kind = {.stop = upload_stop, .free = upload_free};

/* --- from the client --- */

static void upload_receive(struct upload *upload) {
  if (!upload->transfer.operation.call || upload->receiving || upload->finished)
    return;
  upload->receiving = true;
  call_receive(upload->transfer.operation.call);
}

/* Returns 0, or -1 and *err. *more: whether the next message may be asked for at once. */
static int upload_give(struct upload *upload, const uint8_t *bytes, size_t length, bool *more, struct error **err) {
  if (length > UPLOAD_MESSAGE_MAX)
    return error_set_field(err, REASON_INVALID_REQUEST, "data", "'data' must have at most 1048576 bytes");
  if (length > upload->size - upload->received)
    return error_set(err, REASON_CONTENT_LENGTH_MISMATCH, NULL);
  upload->received += length;
  if (upload->session && length > 0)
    *more = session_write_data(upload->session, bytes, length);
  return 0;
}

static int upload_decode(struct upload *upload, grpc_byte_buffer *message, bool *more, struct error **err) {
  grpc_slice payload;
  if (rpc_unpack_bytes(UPLOAD_DATA_FIELD, message, &payload)) {
    int result = upload_give(upload, GRPC_SLICE_START_PTR(payload), GRPC_SLICE_LENGTH(payload), more, err);
    grpc_slice_unref(payload);
    return result;
  }
  ProtobufCMessage *unpacked = rpc_unpack(&sandbox__lease__v1__upload_file_request__descriptor, message, err);
  if (!unpacked)
    return -1;
  const Sandbox__Lease__V1__UploadFileRequest *request = (const Sandbox__Lease__V1__UploadFileRequest *)unpacked;
  int result = 0;
  if (request->request_case == SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__REQUEST_DATA)
    result = upload_give(upload, request->data.data, request->data.len, more, err);
  else if (request->request_case == SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__REQUEST_INFO)
    result = error_set_field(err, REASON_INVALID_REQUEST, "info", "'info' must be the first message and no other");
  protobuf_c_message_free_unpacked(unpacked, NULL);
  return result;
}

/* The client has sent all it has. */
static int upload_finish(struct upload *upload, struct error **err) {
  if (upload->received != upload->size)
    return error_set(err, REASON_CONTENT_LENGTH_MISMATCH, NULL);
  upload->finished = true;
  if (upload->session)
    session_write_finish(upload->session);
  return 0;
}

static void upload_message(void *context, grpc_byte_buffer *message) {
  struct upload *upload = context;
  struct lease_operation *operation = &upload->transfer.operation;
  struct error *err = NULL;
  bool more = true;
  upload->receiving = false;
  lease_operation_hold(operation);
  int result = message ? upload_decode(upload, message, &more, &err) : upload_finish(upload, &err);
  if (result < 0)
    lease_operation_fail(operation, err);
  else if (more)
    upload_receive(upload);
  lease_operation_drop(operation);
}

/* --- from the session --- */

static void upload_wanted(void *context) {
  struct upload *upload = context;
  if (upload->session)
    upload_receive(upload);
}

static void upload_ended(void *context, struct error *err) {
  struct upload *upload = context;
  struct lease_operation *operation = &upload->transfer.operation;
  upload->session = NULL;
  operation->running = false;
  if (err) {
    lease_operation_fail(operation, lease_transfer_error(err));
  } else if (operation->call) {
    Sandbox__Lease__V1__UploadFileResponse reply = SANDBOX__LEASE__V1__UPLOAD_FILE_RESPONSE__INIT;
    call_reply(lease_operation_answer(operation), &reply.base);
  }
  lease_operation_settle(operation);
}

/* --- the call --- */

static void upload_begin(struct upload *upload, struct session *session, const char *path, const uint8_t *sha256) {
  static const struct session_write_events session_events = {.wanted = upload_wanted, .ended = upload_ended};
  static const struct call_events call_events = {.message = upload_message, .cancelled = lease_operation_cancelled};
  struct lease_operation *operation = &upload->transfer.operation;
  lease_operation_hold(operation);
  operation->running = true;
  struct session_write *started =
    session_write_start(session, path, upload->size, sha256, false, &session_events, upload);
  if (started && operation->running) {
    upload->session = started;
  } else if (operation->running) {
    operation->running = false;
    lease_operation_fail(operation, lease_error(REASON_INTERNAL));
  }
  if (operation->call) {
    call_watch(operation->call, &call_events, upload);
    upload_receive(upload);
  }
  lease_operation_drop(operation);
}

static void upload_found(struct lease_service *service, struct call *call, const ProtobufCMessage *message,
                         struct lease *lease, struct error *err) {
  const Sandbox__Lease__V1__UploadFileInfo *info = ((const Sandbox__Lease__V1__UploadFileRequest *)message)->info;
  char path[LIMIT_PATH_BYTES + 1];
  if (!err)
    lease_path_check(info->path, path, &err);
  struct upload *upload = err ? NULL : memory_zero(sizeof(*upload));
  if (!upload) {
    call_fail(call, err ? err : lease_error(REASON_INTERNAL));
    return;
  }
  upload->size = (uint64_t)info->file->size_bytes;
  struct session *session = lease_transfer_begin(&upload->transfer, &upload_kind, service, call, lease);
  if (session)
    upload_begin(upload, session, path, info->file->sha256.data);
}

void lease_handle_upload(struct call *call, const ProtobufCMessage *message, void *context) {
  const Sandbox__Lease__V1__UploadFileRequest *request = (const Sandbox__Lease__V1__UploadFileRequest *)message;
  lease_lookup(context, call, request->info->lease_id, message, upload_found);
}
