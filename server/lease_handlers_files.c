/*
 * ReadFile and WriteFile: one small file, whole, in one message.
 */
#include "base/memory.h"
#include "server/lease_command.h"
#include "server/lease_encode.h"
#include "server/lease_handlers.h"
#include "server/lease_state.h"
#include <string.h>

/* The reason a Consumer is told; `otherwise` for all that has no reason of its own here. The path as such was found to
 * stay inside the workspace before: what the sandbox calls invalid is something there that is no plain file. */
static struct error *file_error(const struct error *err, enum reason otherwise) {
  switch (error_reason(err)) {
  case REASON_SANDBOX_NOT_READY:
  case REASON_ABORTED:
    return lease_error_copy(err);
  case REASON_TRANSFER_TOO_LARGE:
    return lease_error(REASON_OUTPUT_TOO_LARGE);
  default: {
    struct error *translated = NULL;
    error_set_detail(&translated, otherwise, "%s: %s", reason_name(error_reason(err)), error_detail(err));
    return translated;
  }
  }
}

/* --- ReadFile --- */

struct file_read {
  struct lease_operation operation;
  struct session_read *session; /* NULL while it is being started, and once it has ended */
  size_t unconsumed;            /* bytes that came while it was being started */
  struct buffer content;
};

int lease_check_read(const ProtobufCMessage *message, struct error **err) {
  return lease_path_check(((const Sandbox__Lease__V1__ReadFileRequest *)message)->path, NULL, err);
}

static void read_stop(struct lease_operation *operation) {
  struct file_read *file = (struct file_read *)operation;
  buffer_free(&file->content);
  if (file->session)
    session_read_cancel(file->session);
}

static void read_free(struct lease_operation *operation) {
  struct file_read *file = (struct file_read *)operation;
  buffer_free(&file->content);
  memory_free(file);
}

static void read_info(void *context, uint64_t size, const uint8_t *sha256) {
  struct file_read *file = context;
  (void)sha256;
  /* Room for all of it at once. */
  if (size > LIMIT_FILE_BYTES)
    lease_operation_fail(&file->operation, lease_error(REASON_OUTPUT_TOO_LARGE));
  else if (size > 0 && file->operation.call && !buffer_reserve(&file->content, (size_t)size))
    lease_operation_fail(&file->operation, lease_error(REASON_INTERNAL));
  else
    lease_holding_set(&file->operation, file->content.capacity);
}

static void read_data(void *context, const uint8_t *bytes, size_t length) {
  struct file_read *file = context;
  if (file->operation.call && buffer_append(&file->content, bytes, length) < 0)
    lease_operation_fail(&file->operation, lease_error(REASON_FILE_READ_FAILED));
  if (file->session)
    session_read_consume(file->session, length);
  else
    file->unconsumed += length;
}

static void read_ended(void *context, struct error *err) {
  struct file_read *file = context;
  file->session = NULL;
  file->operation.running = false;
  if (err)
    lease_operation_fail(&file->operation, file_error(err, REASON_FILE_READ_FAILED));
  else if (file->operation.call && lease_holding_leave(&file->operation) < 0)
    lease_operation_fail(&file->operation, lease_error(REASON_INTERNAL));
  else if (file->operation.call)
    call_reply_buffer(lease_operation_answer(&file->operation), lease_encode_bytes(1, &file->content));
  lease_operation_settle(&file->operation);
}

static void read_begin(struct file_read *file, struct session *session, const char *path) {
  static const struct session_read_events session_events = {.info = read_info, .data = read_data, .ended = read_ended};
  static const struct call_events call_events = {.cancelled = lease_operation_cancelled};
  struct lease_operation *operation = &file->operation;
  lease_operation_hold(operation);
  operation->running = true;
  struct session_read *started = session_read_start(session, path, LIMIT_FILE_BYTES, false, &session_events, file);
  if (started && operation->running) {
    file->session = started;
    if (file->unconsumed > 0)
      session_read_consume(started, file->unconsumed);
  } else if (operation->running) {
    operation->running = false;
    lease_operation_fail(operation, lease_error(REASON_INTERNAL));
  }
  if (operation->call)
    call_watch(operation->call, &call_events, operation);
  else if (operation->running)
    read_stop(operation);
  lease_operation_drop(operation);
}

static const struct lease_operation_kind read_kind = {.stop = read_stop, .free = read_free};

static void read_found(struct lease_service *service, struct call *call, const ProtobufCMessage *message,
                       struct lease *lease, struct error *err) {
  char path[LIMIT_PATH_BYTES + 1];
  if (!err)
    lease_path_check(((const Sandbox__Lease__V1__ReadFileRequest *)message)->path, path, &err);
  struct file_read *file = err ? NULL : memory_zero(sizeof(*file));
  if (!file) {
    call_fail(call, err ? err : lease_error(REASON_INTERNAL));
    return;
  }
  buffer_init(&file->content, LIMIT_FILE_BYTES);
  struct session *session = lease_operation_begin(&file->operation, &read_kind, service, call, lease);
  if (session)
    read_begin(file, session, path);
}

void lease_handle_read(struct call *call, const ProtobufCMessage *message, void *context) {
  lease_lookup(context, call, ((const Sandbox__Lease__V1__ReadFileRequest *)message)->lease_id, message, read_found);
}

/* --- WriteFile --- */

struct file_write {
  struct lease_operation operation;
  struct session_write *session; /* NULL while it is being started, and once it has ended */
  const uint8_t *content;        /* the request's: valid while the call waits */
  size_t length, given;
  bool finished;
};

int lease_check_write(const ProtobufCMessage *message, struct error **err) {
  const Sandbox__Lease__V1__WriteFileRequest *request = (const Sandbox__Lease__V1__WriteFileRequest *)message;
  if (lease_path_check(request->path, NULL, err) < 0)
    return -1;
  if (request->content.len > LIMIT_FILE_BYTES)
    return error_set_field(err, REASON_INVALID_REQUEST, "content", "'content' must have at most 10485760 bytes");
  return 0;
}

static void write_stop(struct lease_operation *operation) {
  struct file_write *file = (struct file_write *)operation;
  if (file->session)
    session_write_cancel(file->session);
}

static void write_free(struct lease_operation *operation) {
  memory_free((struct file_write *)operation);
}

/* Gives the session what it has room for. */
static void write_give(void *context) {
  struct file_write *file = context;
  lease_operation_hold(&file->operation);
  bool room = true;
  while (room && file->session && file->operation.call && file->given < file->length) {
    size_t length = file->length - file->given;
    if (length > LIMIT_CHUNK_BYTES)
      length = LIMIT_CHUNK_BYTES;
    const uint8_t *bytes = file->content + file->given;
    file->given += length;
    room = session_write_data(file->session, bytes, length);
  }
  if (file->session && file->operation.call && file->given == file->length && !file->finished) {
    file->finished = true;
    session_write_finish(file->session);
  }
  lease_operation_drop(&file->operation);
}

static void write_ended(void *context, struct error *err) {
  struct file_write *file = context;
  file->session = NULL;
  file->operation.running = false;
  if (err) {
    lease_operation_fail(&file->operation, file_error(err, REASON_FILE_WRITE_FAILED));
  } else if (file->operation.call) {
    Sandbox__Lease__V1__WriteFileResponse reply = SANDBOX__LEASE__V1__WRITE_FILE_RESPONSE__INIT;
    call_reply(lease_operation_answer(&file->operation), &reply.base);
  }
  lease_operation_settle(&file->operation);
}

static void write_begin(struct file_write *file, struct session *session, const char *path) {
  static const struct session_write_events session_events = {.wanted = write_give, .ended = write_ended};
  static const struct call_events call_events = {.cancelled = lease_operation_cancelled};
  struct lease_operation *operation = &file->operation;
  lease_operation_hold(operation);
  operation->running = true;
  struct session_write *started = session_write_start(session, path, file->length, NULL, true, &session_events, file);
  if (started && operation->running) {
    file->session = started;
  } else if (operation->running) {
    operation->running = false;
    lease_operation_fail(operation, lease_error(REASON_INTERNAL));
  }
  if (operation->call) {
    call_watch(operation->call, &call_events, operation);
    write_give(file);
  }
  lease_operation_drop(operation);
}

static const struct lease_operation_kind write_kind = {.stop = write_stop, .free = write_free};

static void write_found(struct lease_service *service, struct call *call, const ProtobufCMessage *message,
                        struct lease *lease, struct error *err) {
  const Sandbox__Lease__V1__WriteFileRequest *request = (const Sandbox__Lease__V1__WriteFileRequest *)message;
  char path[LIMIT_PATH_BYTES + 1];
  if (!err)
    lease_path_check(request->path, path, &err);
  struct file_write *file = err ? NULL : memory_zero(sizeof(*file));
  if (!file) {
    call_fail(call, err ? err : lease_error(REASON_INTERNAL));
    return;
  }
  file->content = request->content.data;
  file->length = request->content.len;
  struct session *session = lease_operation_begin(&file->operation, &write_kind, service, call, lease);
  if (session)
    write_begin(file, session, path);
}

void lease_handle_write(struct call *call, const ProtobufCMessage *message, void *context) {
  lease_lookup(context, call, ((const Sandbox__Lease__V1__WriteFileRequest *)message)->lease_id, message, write_found);
}
