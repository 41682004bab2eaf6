/*
 * Files to and from the agent: each one call, bounded here whatever the agent says.
 */
#include "backend/session/internal.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/memory.h"
#include "base/message.h"
#include "sandbox/agent/v1/agent.pb-c.h"
#include <string.h>

enum { WRITE_HIGH = 512 * 1024 };

static void file_error(struct error **err, enum reason reason, const char *detail)
{
  error_set_detail(err, reason, "%s", detail);
}

/* --- reading --- */

struct session_read {
  struct operation operation;
  const struct session_read_events *events;
  void *context;
  char *path;
  uint64_t max_bytes, size, got;
  size_t held;
  bool digest, informed, cancelled;
  struct digest running;
  uint8_t sha256[DIGEST_SIZE];
};

static struct session_read *read_of(struct operation *operation)
{
  return (struct session_read *)(void *)operation;
}

/* err is freed; NULL is success. */
static void read_finish(struct session_read *read, struct error *err)
{
  const struct session_read_events *events = read->events;
  void *context = read->context;
  memory_free(read->path);
  read->path = NULL;
  operation_finish(&read->operation);
  events->ended(context, err);
  error_free(&err);
}

static void read_fail(struct session_read *read, enum reason reason, const char *detail)
{
  struct error *err = NULL;
  if (read->operation.call)
    wire_call_cancel(read->operation.call);
  session_schedule(read->operation.session);
  file_error(&err, reason, detail);
  read_finish(read, err);
}

static void read_open(struct operation *operation)
{
  struct session_read *read = read_of(operation);
  Sandbox__Agent__V1__ReadFileRequest request = SANDBOX__AGENT__V1__READ_FILE_REQUEST__INIT;
  request.path = read->path;
  request.max_bytes = read->max_bytes;
  request.digest = read->digest;
  if (!operation_call(operation, "/sandbox.agent.v1.AgentService/ReadFile") || operation_send(operation, &request.base) < 0)
    read_fail(read, REASON_SANDBOX_NOT_READY, "the call could not be started");
  else
    wire_call_half_close(operation->call);
}

static const char *info_take(struct session_read *read, const Sandbox__Agent__V1__FileInfo *info)
{
  if (read->informed || info->size_bytes > read->max_bytes || (read->digest && info->sha256.len != DIGEST_SIZE))
    return "an impossible announcement of a file";
  read->informed = true;
  read->size = info->size_bytes;
  if (read->digest)
    memcpy(read->sha256, info->sha256.data, DIGEST_SIZE);
  digest_start(&read->running);
  read->events->info(read->context, read->size, read->digest ? read->sha256 : NULL);
  return NULL;
}

static const char *data_take(struct session_read *read, const ProtobufCBinaryData *data, size_t *kept)
{
  if (!read->informed || data->len == 0 || data->len > LIMIT_CHUNK_BYTES || data->len > read->size - read->got)
    return "more of a file than was announced";
  read->got += data->len;
  read->held += data->len;
  *kept = data->len;
  if (read->digest)
    digest_update(&read->running, data->data, data->len);
  read->events->data(read->context, data->data, data->len);
  return NULL;
}

static void read_message(struct operation *operation, const uint8_t *bytes, size_t length)
{
  struct session_read *read = read_of(operation);
  struct wire_call *call = operation->call;
  Sandbox__Agent__V1__ReadFileResponse *response = (Sandbox__Agent__V1__ReadFileResponse *)message_unpack(
      &sandbox__agent__v1__read_file_response__descriptor, bytes, length, NULL);
  const char *wrong = "an answer that cannot be read";
  size_t kept = 0;
  if (response && response->response_case == SANDBOX__AGENT__V1__READ_FILE_RESPONSE__RESPONSE_INFO)
    wrong = info_take(read, response->info);
  else if (response && response->response_case == SANDBOX__AGENT__V1__READ_FILE_RESPONSE__RESPONSE_DATA)
    wrong = data_take(read, &response->data, &kept);
  wire_call_consume(call, length - kept);
  if (response)
    protobuf_c_message_free_unpacked(&response->base, NULL);
  if (wrong) {
    session_violated(operation->session, wrong);
    read_fail(read, REASON_FILE_TRANSFER_FAILED, wrong);
  }
}

static void read_closed(struct operation *operation, int status, const char *text)
{
  static const enum reason allowed[] = {REASON_INVALID_PATH, REASON_FILE_NOT_FOUND, REASON_TRANSFER_TOO_LARGE, REASON_NONE};
  struct session_read *read = read_of(operation);
  uint8_t sha256[DIGEST_SIZE];
  digest_finish(&read->running, sha256);
  if (read->cancelled)
    read_fail(read, REASON_ABORTED, "cancelled");
  else if (status != WIRE_OK)
    read_fail(read, status_reason(status, text, allowed, REASON_FILE_TRANSFER_FAILED), text);
  else if (!read->informed || read->got != read->size || (read->digest && !digest_equal(sha256, read->sha256, DIGEST_SIZE)))
    read_fail(read, REASON_FILE_TRANSFER_FAILED, "the file came cut short or changed");
  else
    read_finish(read, NULL);
}

static void read_abandon(struct operation *operation, enum session_ended why, const struct error *err)
{
  struct session_read *read = read_of(operation);
  read_fail(read, why == SESSION_ENDED_LEASE || read->cancelled ? REASON_ABORTED : REASON_SANDBOX_NOT_READY, error_detail(err));
}

static void read_guard(struct operation *operation)
{
  if (!operation->call)
    read_fail(read_of(operation), REASON_ABORTED, "cancelled");
}

struct session_read *session_read_start(struct session *session, const char *path, uint64_t max_bytes, bool digest,
                                        const struct session_read_events *events, void *context)
{
  static const struct operation_kind kind = {.open = read_open, .message = read_message, .closed = read_closed, .abandon = read_abandon};
  struct session_read *read = memory_zero(sizeof *read);
  if (!read || !(read->path = memory_string(path))) {
    memory_free(read);
    return NULL;
  }
  read->events = events;
  read->context = context;
  read->max_bytes = max_bytes;
  read->digest = digest;
  read->operation.on_guard = read_guard;
  digest_start(&read->running);
  operation_add(session, &read->operation, &kind);
  return read;
}

void session_read_consume(struct session_read *read, size_t length)
{
  if (length > read->held)
    length = read->held;
  read->held -= length;
  if (length && read->operation.call) {
    wire_call_consume(read->operation.call, length);
    session_schedule(read->operation.session);
  }
}

/* Ends in a later turn of the loop: by the call's end, or at once by the guard if there is no call. */
static void operation_cancel(struct operation *operation)
{
  if (operation->call) {
    wire_call_cancel(operation->call);
    session_schedule(operation->session);
    return;
  }
  operation->guard = clock_boot();
  session_guard_changed(operation->session);
}

void session_read_cancel(struct session_read *read)
{
  read->cancelled = true;
  operation_cancel(&read->operation);
}

/* --- writing --- */

struct session_write {
  struct operation operation;
  const struct session_write_events *events;
  void *context;
  char *path;
  uint64_t size;
  uint8_t sha256[DIGEST_SIZE];
  struct buffer early; /* what came before the call stood */
  bool digest, make_parents, waiting, done, answered, cancelled;
};

static struct session_write *write_of(struct operation *operation)
{
  return (struct session_write *)(void *)operation;
}

static void write_finish(struct session_write *write, struct error *err)
{
  const struct session_write_events *events = write->events;
  void *context = write->context;
  memory_free(write->path);
  write->path = NULL;
  buffer_free(&write->early);
  operation_finish(&write->operation);
  events->ended(context, err);
  error_free(&err);
}

static void write_fail(struct session_write *write, enum reason reason, const char *detail)
{
  struct error *err = NULL;
  if (write->operation.call)
    wire_call_cancel(write->operation.call);
  session_schedule(write->operation.session);
  file_error(&err, reason, detail);
  write_finish(write, err);
}

/* field 2, wire type 2 of WriteFileRequest, and the length: the only framing a chunk has. */
static size_t chunk_prefix(uint8_t prefix[static 6], size_t length)
{
  size_t used = 0;
  prefix[used++] = 0x12;
  for (; length > 0x7f; length >>= 7)
    prefix[used++] = (uint8_t)(length & 0x7f) | 0x80;
  prefix[used++] = (uint8_t)length;
  return used;
}

static int chunk_send(struct session_write *write, const uint8_t *bytes, size_t length)
{
  uint8_t prefix[6];
  size_t used = chunk_prefix(prefix, length);
  uint8_t *block = memory_new(WIRE_HEADROOM + used + length);
  if (!block)
    return -1;
  memcpy(block + WIRE_HEADROOM, prefix, used);
  memcpy(block + WIRE_HEADROOM + used, bytes, length);
  return wire_call_send_block(write->operation.call, block, WIRE_HEADROOM, used + length);
}

/* Queues bytes as chunks; a call that cannot take them is cancelled. */
static void data_send(struct session_write *write, const uint8_t *bytes, size_t length)
{
  while (length > 0) {
    size_t part = length < LIMIT_CHUNK_BYTES ? length : LIMIT_CHUNK_BYTES;
    if (chunk_send(write, bytes, part) < 0) {
      wire_call_cancel(write->operation.call);
      return;
    }
    bytes += part;
    length -= part;
  }
}

static void write_wanted(struct session_write *write)
{
  if (write->waiting && write->operation.call && wire_call_queued(write->operation.call) < WRITE_HIGH) {
    write->waiting = false;
    write->events->wanted(write->context);
  }
}

static void write_open(struct operation *operation)
{
  struct session_write *write = write_of(operation);
  Sandbox__Agent__V1__FileInfo file = SANDBOX__AGENT__V1__FILE_INFO__INIT;
  file.size_bytes = write->size;
  file.sha256 = (ProtobufCBinaryData){.data = write->sha256, .len = write->digest ? DIGEST_SIZE : 0};
  Sandbox__Agent__V1__WriteFileInfo info = SANDBOX__AGENT__V1__WRITE_FILE_INFO__INIT;
  info.path = write->path;
  info.file = &file;
  info.make_parents = write->make_parents;
  Sandbox__Agent__V1__WriteFileRequest request = SANDBOX__AGENT__V1__WRITE_FILE_REQUEST__INIT;
  request.request_case = SANDBOX__AGENT__V1__WRITE_FILE_REQUEST__REQUEST_INFO;
  request.info = &info;
  if (!operation_call(operation, "/sandbox.agent.v1.AgentService/WriteFile") || operation_send(operation, &request.base) < 0) {
    write_fail(write, REASON_SANDBOX_NOT_READY, "the call could not be started");
    return;
  }
  data_send(write, write->early.data, write->early.length);
  buffer_free(&write->early);
  if (write->done)
    wire_call_half_close(operation->call);
  write_wanted(write);
}

static void write_message(struct operation *operation, const uint8_t *bytes, size_t length)
{
  (void)bytes;
  write_of(operation)->answered = true;
  wire_call_consume(operation->call, length);
}

static void write_writable(struct operation *operation)
{
  write_wanted(write_of(operation));
}

static void write_closed(struct operation *operation, int status, const char *text)
{
  static const enum reason allowed[] = {REASON_INVALID_PATH, REASON_CONTENT_LENGTH_MISMATCH, REASON_CONTENT_DIGEST_MISMATCH, REASON_NONE};
  struct session_write *write = write_of(operation);
  if (write->cancelled)
    write_fail(write, REASON_ABORTED, "cancelled");
  else if (status != WIRE_OK)
    write_fail(write, status_reason(status, text, allowed, REASON_FILE_TRANSFER_FAILED), text);
  else if (!write->answered || !write->done)
    write_fail(write, REASON_FILE_TRANSFER_FAILED, "the agent ended the call early");
  else
    write_finish(write, NULL);
}

static void write_abandon(struct operation *operation, enum session_ended why, const struct error *err)
{
  struct session_write *write = write_of(operation);
  write_fail(write, why == SESSION_ENDED_LEASE || write->cancelled ? REASON_ABORTED : REASON_SANDBOX_NOT_READY, error_detail(err));
}

static void write_guard(struct operation *operation)
{
  if (!operation->call)
    write_fail(write_of(operation), REASON_ABORTED, "cancelled");
}

struct session_write *session_write_start(struct session *session, const char *path, uint64_t size, const uint8_t *sha256,
                                          bool make_parents, const struct session_write_events *events, void *context)
{
  static const struct operation_kind kind = {.open = write_open, .message = write_message, .writable = write_writable,
                                             .closed = write_closed, .abandon = write_abandon};
  struct session_write *write = memory_zero(sizeof *write);
  if (!write || !(write->path = memory_string(path))) {
    memory_free(write);
    return NULL;
  }
  write->events = events;
  write->context = context;
  write->size = size;
  write->digest = sha256 != NULL;
  if (sha256)
    memcpy(write->sha256, sha256, DIGEST_SIZE);
  write->make_parents = make_parents;
  buffer_init(&write->early, size + 1);
  write->operation.on_guard = write_guard;
  operation_add(session, &write->operation, &kind);
  return write;
}

bool session_write_data(struct session_write *write, const uint8_t *bytes, size_t length)
{
  struct operation *operation = &write->operation;
  if (operation->finished || write->cancelled)
    return true;
  if (operation->call)
    data_send(write, bytes, length);
  else if (buffer_append(&write->early, bytes, length) < 0)
    session_write_cancel(write);
  session_schedule(operation->session);
  write->waiting = !operation->call || wire_call_queued(operation->call) >= WRITE_HIGH;
  return !write->waiting;
}

void session_write_finish(struct session_write *write)
{
  write->done = true;
  if (write->operation.call) {
    wire_call_half_close(write->operation.call);
    session_schedule(write->operation.session);
  }
}

void session_write_cancel(struct session_write *write)
{
  write->cancelled = true;
  operation_cancel(&write->operation);
}
