/*
 * Writing one file: its announcement, then its bytes, then the agent's answer that it stands. A write whose connection
 * broke is not begun again, since the bytes are gone; the agent leaves the old file.
 */
#include "backend/session/internal.h"

#include "backend/session/reply.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/memory.h"
#include "sandbox/agent/v1/agent.pb-c.h"
#include <string.h>

#define QUEUE_HIGH (256 * 1024) /* the user waits */

struct session_write {
  struct operation operation;
  const struct session_write_events *events;
  void *context;
  char *path;
  uint64_t size;
  uint64_t given;      /* by the user */
  struct buffer early; /* given before the call stood */
  uint8_t sha256[DIGEST_SIZE];
  bool digest;
  bool make_parents;
  bool waiting;  /* the user was told to wait */
  bool complete; /* the user has given all */
  bool answered;
  bool cancelled;
  bool memory_short;
  size_t queued_before; /* when it was last looked whether anything moves */
};

static struct session_write *write_of(struct operation *operation) {
  return (struct session_write *)(void *)operation;
}

static void end_with(struct session_write *write, struct error *err) {
  operation_finish(&write->operation);
  write->events->ended(write->context, err);
  operation_told(&write->operation);
}

static void end_for(struct session_write *write, enum reason reason, const char *detail) {
  struct error *err CLEANUP_ERROR = NULL;
  operation_reset(&write->operation);
  error_set_detail(&err, reason, "%.*s", DETAIL_SIZE, detail);
  end_with(write, err);
}

/* --- bytes --- */

static int send_chunk(struct session_write *write, const uint8_t *bytes, size_t length) {
  uint8_t head[REPLY_HEAD_MOST];
  size_t used = reply_write_data_head(head, length);
  uint8_t *block = memory_new(WIRE_HEADROOM + used + length);
  if (!block)
    return -1;
  memcpy(block + WIRE_HEADROOM, head, used);
  memcpy(block + WIRE_HEADROOM + used, bytes, length);
  return wire_call_send_block(write->operation.call, block, WIRE_HEADROOM, used + length);
}

static int send_bytes(struct session_write *write, const uint8_t *bytes, size_t length) {
  while (length > 0) {
    size_t part = length < LIMIT_CHUNK_BYTES ? length : LIMIT_CHUNK_BYTES;
    if (send_chunk(write, bytes, part) != 0)
      return -1;
    bytes += part;
    length -= part;
  }
  session_schedule(write->operation.session);
  return 0;
}

static bool full(const struct session_write *write) {
  return !write->operation.call || wire_call_queued(write->operation.call) >= QUEUE_HIGH;
}

static void tell_wanted(struct session_write *write) {
  if (!write->waiting || full(write) || write->complete)
    return;
  write->waiting = false;
  write->events->wanted(write->context);
}

static int send_info(struct session_write *write) {
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
  return operation_send(&write->operation, &request.base);
}

/* --- what the connection tells --- */

/* Nothing good can come of it: it is about to be ended. */
static bool doomed(const struct session_write *write) {
  return write->cancelled || write->memory_short || write->given > write->size ||
         (write->complete && write->given != write->size);
}

static void write_open(struct operation *operation) {
  struct session_write *write = write_of(operation);
  if (doomed(write))
    return;
  if (operation_call(operation) != 0 || send_info(write) != 0 ||
      send_bytes(write, write->early.data, write->early.length) != 0) {
    end_for(write, REASON_SANDBOX_NOT_READY, "no memory, or too many calls");
    return;
  }
  buffer_free(&write->early);
  operation_due(operation, clock_boot() + session_patience.stalled);
  if (write->complete)
    wire_call_half_close(operation->call);
  tell_wanted(write);
}

static void write_message(struct operation *operation, const uint8_t *bytes, size_t length) {
  struct session_write *write = write_of(operation);
  wire_call_consume(operation->call, length);
  if (write->answered || !reply_is_write_response(bytes, length))
    connection_violated(operation->session, "a wrong answer to a file");
  else
    write->answered = true;
}

static void write_writable(struct operation *operation) {
  tell_wanted(write_of(operation));
}

static void write_closed(struct operation *operation, int status, const char *text) {
  struct session_write *write = write_of(operation);
  enum reason reason = reply_reason(text);
  bool known = reason == REASON_INVALID_PATH || reason == REASON_CONTENT_LENGTH_MISMATCH ||
               reason == REASON_CONTENT_DIGEST_MISMATCH;
  if (write->cancelled)
    end_for(write, REASON_ABORTED, "cancelled");
  else if (status != WIRE_OK)
    end_for(write, known ? reason : REASON_FILE_TRANSFER_FAILED, text);
  else if (!write->answered || !write->complete || write->given != write->size)
    end_for(write, REASON_FILE_TRANSFER_FAILED, "the agent ended the call early");
  else
    end_with(write, NULL);
}

static void write_lost(struct operation *operation, bool violated) {
  struct session_write *write = write_of(operation);
  if (violated)
    end_for(write, REASON_SANDBOX_NOT_READY, "the agent broke the protocol");
  else
    end_for(write, REASON_FILE_TRANSFER_FAILED, "the connection broke");
}

/* Is it the agent that keeps us waiting? */
static bool stalled(struct session_write *write) {
  size_t queued = wire_call_queued(write->operation.call);
  bool moved = queued != write->queued_before;
  write->queued_before = queued;
  return !moved && (queued > 0 || write->complete);
}

static void write_overdue(struct operation *operation, int64_t now) {
  struct session_write *write = write_of(operation);
  if (write->cancelled)
    end_for(write, REASON_ABORTED, "cancelled");
  else if (write->memory_short)
    end_for(write, REASON_FILE_TRANSFER_FAILED, "out of memory");
  else if (doomed(write))
    end_for(write, REASON_CONTENT_LENGTH_MISMATCH, "not as many bytes as announced");
  else if (!operation->call)
    end_for(write, REASON_SANDBOX_NOT_READY, operation->session->detail);
  else if (stalled(write))
    end_for(write, REASON_FILE_TRANSFER_FAILED, "the agent takes nothing");
  else
    operation_due(operation, now + session_patience.stalled);
}

static void write_fail(struct operation *operation, const struct error *why) {
  end_for(write_of(operation), REASON_SANDBOX_NOT_READY, error_detail(why));
}

static void write_abandon(struct operation *operation, enum session_ended why) {
  struct session_write *write = write_of(operation);
  bool aborted = why == SESSION_ENDED_LEASE || write->cancelled;
  end_for(write, aborted ? REASON_ABORTED : REASON_SANDBOX_NOT_READY, "the session was closed");
}

static void write_release(struct operation *operation) {
  struct session_write *write = write_of(operation);
  memory_free(write->path);
  buffer_free(&write->early);
}

static size_t write_memory(const struct operation *operation) {
  const struct session_write *write = (const struct session_write *)(const void *)operation;
  return sizeof *write + strlen(write->path) + write->early.capacity;
}

/* --- what the user asks for --- */

struct session_write *session_write_start(struct session *session, const char *path, uint64_t size,
                                          const uint8_t *sha256, bool make_parents,
                                          const struct session_write_events *events, void *context) {
  static const struct operation_kind kind = {.method = "/sandbox.agent.v1.AgentService/WriteFile",
                                             .open = write_open,
                                             .message = write_message,
                                             .writable = write_writable,
                                             .closed = write_closed,
                                             .lost = write_lost,
                                             .overdue = write_overdue,
                                             .fail = write_fail,
                                             .abandon = write_abandon,
                                             .release = write_release,
                                             .memory = write_memory};
  struct session_write *write = memory_zero(sizeof *write);
  if (!write)
    return NULL;
  write->path = memory_string(path);
  if (!write->path) {
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
  buffer_init(&write->early, SIZE_MAX);
  operation_add(session, &write->operation, &kind);
  operation_due(&write->operation, clock_boot() + session->connect_timeout);
  return write;
}

bool session_write_data(struct session_write *write, const uint8_t *bytes, size_t length) {
  struct operation *operation = &write->operation;
  if (operation->finished || write->cancelled || write->complete)
    return true;
  write->given += length;
  if (write->given > write->size) {
    operation_due(operation, 1);
    return true;
  }
  int result = operation->call ? send_bytes(write, bytes, length) : buffer_append(&write->early, bytes, length);
  if (result != 0) {
    write->memory_short = true;
    operation_due(operation, 1);
  }
  write->waiting = full(write);
  return !write->waiting;
}

void session_write_finish(struct session_write *write) {
  struct operation *operation = &write->operation;
  if (operation->finished || write->complete)
    return;
  write->complete = true;
  if (write->given != write->size) {
    operation_due(operation, 1); /* never half-closed: the agent cannot take it for whole */
    return;
  }
  if (operation->call)
    wire_call_half_close(operation->call);
  session_schedule(operation->session);
}

void session_write_cancel(struct session_write *write) {
  write->cancelled = true;
  if (!write->operation.finished)
    operation_due(&write->operation, 1);
}
