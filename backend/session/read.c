/*
 * Reading one file: its announcement, then its bytes, counted and, where a digest was asked for, digested here too. A
 * read whose connection broke before anything came begins again; a later one cannot, since the file may have changed.
 */
#include "backend/session/internal.h"

#include "backend/session/reply.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/memory.h"
#include "sandbox/agent/v1/agent.pb-c.h"
#include <string.h>

#define WINDOW_MORE (256 * 1024) /* on top of the connection's own for each call: see session.h */

struct session_read {
  struct operation operation;
  const struct session_read_events *events;
  void *context;
  char *path;
  uint64_t max_bytes;
  uint64_t size, got;
  size_t held; /* with the user */
  bool digest; /* was asked for */
  bool informed;
  bool cancelled;
  bool waiting; /* for a connection: due is the end of that */
  int64_t broken_at; /* when a connection broke first; 0: none has */
  struct digest running;
  bool differs; /* from what was announced: the last bytes were not given */
  uint8_t sha256[DIGEST_SIZE];
};

static struct session_read *read_of(struct operation *operation) {
  return (struct session_read *)(void *)operation;
}

static void end_with(struct session_read *read, struct error *err) {
  operation_finish(&read->operation);
  read->events->ended(read->context, err);
  operation_told(&read->operation);
}

static void end_for(struct session_read *read, enum reason reason, const char *detail) {
  struct error *err CLEANUP_ERROR = NULL;
  operation_reset(&read->operation);
  error_set_detail(&err, reason, "%.*s", DETAIL_SIZE, detail);
  end_with(read, err);
}

static void read_wait(struct session_read *read, int64_t since) {
  read->waiting = true;
  operation_due(&read->operation, since + read->operation.session->connect_timeout);
}

static void read_open(struct operation *operation) {
  struct session_read *read = read_of(operation);
  if (read->cancelled)
    return; /* it is about to be ended */
  Sandbox__Agent__V1__ReadFileRequest request = SANDBOX__AGENT__V1__READ_FILE_REQUEST__INIT;
  request.path = read->path;
  request.max_bytes = read->max_bytes;
  request.digest = read->digest;
  if (operation_call(operation) != 0 || operation_send(operation, &request.base) != 0) {
    end_for(read, REASON_SANDBOX_NOT_READY, "no memory, or too many calls");
    return;
  }
  wire_call_half_close(operation->call);
  wire_call_widen(operation->call, WINDOW_MORE);
  read->waiting = false;
  operation_due(operation, clock_boot() + session_patience.stalled);
}

static const char *take_info(struct session_read *read, const struct reply *reply) {
  if (read->informed || reply->size > read->max_bytes || (read->digest && reply->length != DIGEST_SIZE))
    return "an impossible announcement of a file";
  read->informed = true;
  read->size = reply->size;
  digest_start(&read->running);
  if (read->digest)
    memcpy(read->sha256, reply->digest, DIGEST_SIZE);
  read->events->info(read->context, read->size, read->digest ? read->sha256 : NULL);
  return NULL;
}

static bool as_announced(struct session_read *read) {
  uint8_t sha256[DIGEST_SIZE];
  digest_finish(&read->running, sha256);
  return digest_equal(sha256, read->sha256, DIGEST_SIZE);
}

static const char *take_data(struct session_read *read, const struct reply *reply) {
  if (!read->informed || reply->length > read->size - read->got)
    return "more of a file than was announced";
  read->got += reply->length;
  read->held += reply->length;
  if (read->digest)
    digest_update(&read->running, reply->bytes, reply->length);
  /* Before the last bytes are out: who counts them has the whole file then, and looks no further. */
  read->differs = read->got == read->size && read->digest && !as_announced(read);
  if (!read->differs)
    read->events->data(read->context, reply->bytes, reply->length);
  return NULL;
}

static void read_message(struct operation *operation, const uint8_t *bytes, size_t length) {
  struct session_read *read = read_of(operation);
  struct session *session = operation->session;
  struct reply reply;
  const char *wrong = "an answer that cannot be read";
  if (read->cancelled)
    return;
  reply_read_file(bytes, length, &reply);
  wire_call_consume(operation->call, reply.kind == REPLY_DATA ? length - reply.length : length);
  if (reply.kind == REPLY_INFO)
    wrong = take_info(read, &reply);
  else if (reply.kind == REPLY_DATA)
    wrong = take_data(read, &reply);
  if (wrong)
    connection_violated(session, wrong);
  else if (read->differs)
    end_for(read, REASON_FILE_TRANSFER_FAILED, "the file is not what was announced");
  else if (!operation->finished && !read->cancelled)
    operation_due(operation, clock_boot() + session_patience.stalled);
}

/* What the user was given is exactly what was announced. Bytes were compared with the last of them. */
static bool whole(struct session_read *read) {
  return read->informed && read->got == read->size && (!read->digest || read->size > 0 || as_announced(read));
}

static void read_closed(struct operation *operation, int status, const char *text) {
  struct session_read *read = read_of(operation);
  enum reason reason = reply_reason(text);
  bool known = reason == REASON_INVALID_PATH || reason == REASON_FILE_NOT_FOUND || reason == REASON_TRANSFER_TOO_LARGE;
  if (read->cancelled)
    end_for(read, REASON_ABORTED, "cancelled");
  else if (status != WIRE_OK)
    end_for(read, known ? reason : REASON_FILE_TRANSFER_FAILED, text);
  else if (!whole(read))
    end_for(read, REASON_FILE_TRANSFER_FAILED, "the file is not what was announced");
  else
    end_with(read, NULL);
}

static void read_lost(struct operation *operation, bool violated) {
  struct session_read *read = read_of(operation);
  if (read->broken_at == 0)
    read->broken_at = clock_boot();
  if (violated)
    end_for(read, REASON_SANDBOX_NOT_READY, "the agent broke the protocol");
  else if (read->informed)
    end_for(read, REASON_FILE_TRANSFER_FAILED, "the connection broke");
  else if (!read->cancelled)
    read_wait(read, read->broken_at);
}

static void read_overdue(struct operation *operation, int64_t now) {
  struct session_read *read = read_of(operation);
  if (read->cancelled)
    end_for(read, REASON_ABORTED, "cancelled");
  else if (read->waiting)
    end_for(read, REASON_SANDBOX_NOT_READY, operation->session->detail);
  else if (read->held > 0)
    operation_due(operation, now + session_patience.stalled); /* the user's turn */
  else
    end_for(read, REASON_FILE_TRANSFER_FAILED, "the agent sends nothing");
}

static void read_fail(struct operation *operation, const struct error *why) {
  end_for(read_of(operation), REASON_SANDBOX_NOT_READY, error_detail(why));
}

static void read_abandon(struct operation *operation, enum session_ended why) {
  struct session_read *read = read_of(operation);
  bool aborted = why == SESSION_ENDED_LEASE || read->cancelled;
  end_for(read, aborted ? REASON_ABORTED : REASON_SANDBOX_NOT_READY, "the session was closed");
}

static void read_release(struct operation *operation) {
  memory_free(read_of(operation)->path);
}

static size_t read_memory(const struct operation *operation) {
  const struct session_read *read = (const struct session_read *)(const void *)operation;
  return sizeof *read + strlen(read->path);
}

struct session_read *session_read_start(struct session *session, const char *path, uint64_t max_bytes, bool digest,
                                        const struct session_read_events *events, void *context) {
  static const struct operation_kind kind = {.method = "/sandbox.agent.v1.AgentService/ReadFile",
                                             .open = read_open,
                                             .message = read_message,
                                             .closed = read_closed,
                                             .lost = read_lost,
                                             .overdue = read_overdue,
                                             .fail = read_fail,
                                             .abandon = read_abandon,
                                             .release = read_release,
                                             .memory = read_memory};
  struct session_read *read = memory_zero(sizeof *read);
  if (!read)
    return NULL;
  read->path = memory_string(path);
  if (!read->path) {
    memory_free(read);
    return NULL;
  }
  read->events = events;
  read->context = context;
  read->max_bytes = max_bytes;
  read->digest = digest;
  operation_add(session, &read->operation, &kind);
  read_wait(read, clock_boot());
  return read;
}

void session_read_consume(struct session_read *read, size_t length) {
  if (length > read->held)
    length = read->held;
  read->held -= length;
  operation_consume(&read->operation, length);
}

void session_read_cancel(struct session_read *read) {
  read->cancelled = true;
  if (!read->operation.finished)
    operation_due(&read->operation, 1);
}
