/*
 * The WriteFile call: `info`, then data into a target as it comes, and when the caller has closed its side the checks
 * of size and digest, and the rename.
 */
#include "backend/sandboxd/reply.h"
#include "backend/sandboxd/service.h"
#include "backend/sandboxd/target.h"
#include "base/digest.h"
#include "base/limits.h"
#include "base/memory.h"
#include "base/message.h"
#include <string.h>

struct write_call {
  struct agent *agent;
  struct wire_call *call;
  struct target target;
  bool begun; /* `info` came, and the target is open */
  bool digest;
  uint8_t announced[DIGEST_SIZE];
  struct digest hash;
  uint64_t size; /* announced */
  uint64_t written;
};

static int write_call_begin(struct write_call *write, const Sandbox__Agent__V1__WriteFileInfo *info,
                            struct error **err) {
  if (write->begun)
    return error_set_field(err, REASON_INVALID_REQUEST, "info", "'info' must come once");
  if (!info->file || (info->file->sha256.len && info->file->sha256.len != DIGEST_SIZE))
    return error_set_field(err, REASON_INVALID_REQUEST, "file",
                           "'file' must have a size, and a digest of 32 bytes or none");
  write->size = info->file->size_bytes;
  write->digest = info->file->sha256.len > 0;
  if (write->digest)
    memcpy(write->announced, info->file->sha256.data, DIGEST_SIZE);
  digest_start(&write->hash);
  if (target_open(&write->target, &write->agent->root, info->path, info->make_parents, false, err))
    return -1;
  write->begun = true;
  return 0;
}

static int write_call_data(struct write_call *write, const ProtobufCBinaryData *data, struct error **err) {
  if (!write->begun)
    return error_set_field(err, REASON_INVALID_REQUEST, "info", "'info' must come first");
  if (data->len > LIMIT_CHUNK_BYTES)
    return error_set_field(err, REASON_INVALID_REQUEST, "data", "'data' is longer than 131,072 bytes");
  if (data->len > write->size - write->written)
    return error_set_detail(err, REASON_CONTENT_LENGTH_MISMATCH, "more bytes came than announced");
  if (target_write(&write->target, data->data, data->len, err))
    return -1;
  if (write->digest)
    digest_update(&write->hash, data->data, data->len);
  write->written += data->len;
  return 0;
}

static int write_call_commit(struct write_call *write, struct error **err) {
  uint8_t digest[DIGEST_SIZE];
  if (!write->begun)
    return error_set_field(err, REASON_INVALID_REQUEST, "info", "there is no message");
  if (write->written != write->size)
    return error_set_detail(err, REASON_CONTENT_LENGTH_MISMATCH, "fewer bytes came than announced");
  digest_finish(&write->hash, digest);
  if (write->digest && !digest_equal(digest, write->announced, DIGEST_SIZE))
    return error_set_detail(err, REASON_CONTENT_DIGEST_MISMATCH, "the bytes have another digest");
  return target_commit(&write->target, err);
}

static int write_call_handle(struct write_call *write, const Sandbox__Agent__V1__WriteFileRequest *request,
                             struct error **err) {
  switch (request->request_case) {
  case SANDBOX__AGENT__V1__WRITE_FILE_REQUEST__REQUEST_INFO:
    return write_call_begin(write, request->info, err);
  case SANDBOX__AGENT__V1__WRITE_FILE_REQUEST__REQUEST_DATA:
    return write_call_data(write, &request->data, err);
  default:
    return error_set_field(err, REASON_INVALID_REQUEST, "request", "'request' is missing");
  }
}

/* The file system's space is given back before the caller is answered. */
static void write_call_fail(struct write_call *write, struct error **err) {
  target_close(&write->target);
  reply_failure(write->call, err);
}

static void write_call_message(struct wire_call *call, void *context, const uint8_t *bytes, size_t length) {
  struct write_call *write = context;
  struct error *err = NULL;
  Sandbox__Agent__V1__WriteFileRequest *request =
      (void *)message_unpack(&sandbox__agent__v1__write_file_request__descriptor, bytes, length, &err);
  if (!request || write_call_handle(write, request, &err))
    write_call_fail(write, &err);
  wire_call_consume(call, length);
  if (request)
    protobuf_c_message_free_unpacked(&request->base, NULL);
}

static void write_call_half_closed(struct wire_call *call, void *context) {
  struct write_call *write = context;
  struct error *err = NULL;
  const Sandbox__Agent__V1__WriteFileResponse response = SANDBOX__AGENT__V1__WRITE_FILE_RESPONSE__INIT;
  if (write_call_commit(write, &err)) {
    write_call_fail(write, &err);
    return;
  }
  int failed = reply_message(call, &response.base);
  wire_call_finish(call, failed ? WIRE_RESOURCE_EXHAUSTED : WIRE_OK, failed ? "INTERNAL out of memory" : "");
}

static void write_call_ended(struct wire_call *call, void *context, int status, const char *text) {
  struct write_call *write = context;
  (void)call;
  (void)status;
  (void)text;
  target_close(&write->target);
  write->agent->transfers--;
  memory_free(write);
}

static const struct wire_call_events write_call_events = {
    .message = write_call_message, .half_closed = write_call_half_closed, .ended = write_call_ended};

void write_call_opened(struct agent *agent, struct wire_call *call) {
  struct write_call *write = agent->transfers < AGENT_TRANSFERS ? memory_zero(sizeof *write) : NULL;
  if (!write) {
    wire_call_finish(call, WIRE_RESOURCE_EXHAUSTED, "FILE_TRANSFER_FAILED too many at once");
    return;
  }
  agent->transfers++;
  write->agent = agent;
  write->call = call;
  write->target = (struct target){.directory = -1, .file = -1};
  wire_call_accept(call, &write_call_events, write);
}
