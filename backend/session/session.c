/*
 * A session's life, the list of its operations, and its one timer: for the state of the connection, for the Lease's
 * deadline and for whatever an operation waits for.
 */
#include "backend/session/internal.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/message.h"
#include <stdio.h>

/* --- operations --- */

void operation_add(struct session *session, struct operation *operation, const struct operation_kind *kind) {
  operation->kind = kind;
  operation->session = session;
  operation->next = session->operations;
  operation->link = &session->operations;
  if (operation->next)
    operation->next->link = &operation->next;
  session->operations = operation;
  session_schedule(session);
}

static void operation_free(struct operation *operation) {
  struct session *session = operation->session;
  if (session->cursor == operation)
    session->cursor = operation->next;
  *operation->link = operation->next;
  if (operation->next)
    operation->next->link = operation->link;
  operation->kind->release(operation);
  memory_free(operation);
}

void operation_finish(struct operation *operation) {
  operation->finished = operation->telling = true;
  if (!operation->call)
    return;
  wire_call_half_close(operation->call);
  operation_due(operation, clock_boot() + session_patience.closing);
  session_schedule(operation->session);
}

void operation_done(struct operation *operation) {
  if (operation->finished && !operation->telling && !operation->call && !operation->errand)
    operation_free(operation);
}

void operation_told(struct operation *operation) {
  operation->telling = false;
  operation_done(operation);
}

static void on_message(struct wire_call *call, void *context, const uint8_t *bytes, size_t length) {
  struct operation *operation = context;
  struct session *session = operation->session;
  (void)call;
  if (session->broken || session_over(session) || (operation->finished && !operation->errand))
    return;
  session->noise -= length < session->noise ? length : session->noise;
  operation->kind->message(operation, bytes, length);
}

static void on_writable(struct wire_call *call, void *context) {
  struct operation *operation = context;
  (void)call;
  if (!operation->finished && operation->kind->writable)
    operation->kind->writable(operation);
}

static void on_ended(struct wire_call *call, void *context, int status, const char *text) {
  struct operation *operation = context;
  struct session *session = operation->session;
  (void)call;
  operation->call = NULL;
  if (!operation->finished && (session->tearing || session->violated)) {
    operation->kind->lost(operation, session->violated);
  } else if (!operation->finished) {
    operation->kind->closed(operation, status, text);
  } else {
    operation->errand = operation->errand && session->tearing && !session->violated;
    operation_done(operation);
  }
}

int operation_call(struct operation *operation) {
  static const struct wire_call_events events = {.message = on_message, .writable = on_writable, .ended = on_ended};
  operation->call = wire_call_start(operation->session->wire, operation->kind->method, &events, operation);
  session_schedule(operation->session);
  return operation->call ? 0 : -1;
}

int operation_send(struct operation *operation, const ProtobufCMessage *message) {
  size_t length;
  uint8_t *packed = operation->call ? message_pack(message, &length) : NULL;
  session_schedule(operation->session);
  return packed ? wire_call_send_owned(operation->call, packed, length) : -1;
}

void operation_consume(struct operation *operation, size_t length) {
  if (!operation->call || length == 0)
    return;
  wire_call_consume(operation->call, length);
  session_schedule(operation->session);
}

void operation_reset(struct operation *operation) {
  if (!operation->call)
    return;
  wire_call_cancel(operation->call);
  session_schedule(operation->session);
}

void operation_due(struct operation *operation, int64_t when) {
  operation->due = when;
  if (when != 0)
    session_due(operation->session, when);
}

/* --- walks --- */

#define EACH(session, operation)                                                                                       \
  struct operation *operation = (session)->operations;                                                                 \
  operation && ((session)->cursor = operation->next, true);                                                            \
  operation = (session)->cursor

void session_open_operations(struct session *session) {
  for (EACH(session, operation)) {
    if (session->state != SESSION_OPEN || session->broken)
      return;
    if (!operation->call && (!operation->finished || operation->errand))
      operation->kind->open(operation);
  }
}

void session_fail_operations(struct session *session, const struct error *why) {
  for (EACH(session, operation)) {
    operation->errand = false;
    if (operation->finished)
      operation_done(operation);
    else if (!operation->call)
      operation->kind->fail(operation, why);
  }
}

void session_abandon_operations(struct session *session, enum session_ended why) {
  for (EACH(session, operation)) {
    operation->errand = false;
    if (operation->finished)
      operation_done(operation);
    else
      operation->kind->abandon(operation, why);
  }
}

bool session_waited_for(const struct session *session) {
  for (const struct operation *operation = session->operations; operation; operation = operation->next)
    if (!operation->call && (!operation->finished || operation->errand))
      return true;
  return false;
}

static void overdue_operations(struct session *session, int64_t now) {
  for (EACH(session, operation)) {
    if (session->state == SESSION_CLOSED)
      return;
    if (operation->due == 0 || operation->due > now)
      continue;
    operation->due = 0;
    if (operation->finished && operation->call)
      operation_reset(operation);
    else
      operation->kind->overdue(operation, now);
  }
}

/* --- time --- */

bool session_over(const struct session *session) {
  return session->state == SESSION_EXPIRED || session->state == SESSION_CLOSED;
}

static void rearm(struct session *session) {
  int64_t first = session->state == SESSION_EXPIRED ? INT64_MAX : session->deadline;
  if (session->due != 0 && session->due < first)
    first = session->due;
  for (const struct operation *operation = session->operations; operation; operation = operation->next)
    if (operation->due != 0 && operation->due < first)
      first = operation->due;
  if (first != INT64_MAX)
    session_due(session, first);
}

static void expire(struct session *session) {
  session_abandon_operations(session, SESSION_ENDED_LEASE);
  if (session->state == SESSION_CLOSED)
    return;
  connection_end(session);
  session->state = SESSION_EXPIRED;
}

static void on_timer(uv_timer_t *timer) {
  struct session *session = timer->data;
  int64_t now = clock_boot();
  session->armed = 0;
  if (session->state != SESSION_EXPIRED && session->deadline <= now)
    expire(session);
  else if (session->due != 0 && session->due <= now)
    connection_overdue(session, now);
  overdue_operations(session, now);
  rearm(session);
  connection_run(session);
}

void session_due(struct session *session, int64_t when) {
  if (session->state == SESSION_CLOSED || (session->armed != 0 && session->armed <= when))
    return;
  int64_t left = when - clock_boot();
  uint64_t milliseconds = left > 0 ? ((uint64_t)left + CLOCK_MILLISECOND - 1) / CLOCK_MILLISECOND : 0;
  session->armed = when > 0 ? when : 1;
  uv_timer_start(&session->timer, on_timer, milliseconds, 0);
}

static void on_flush(uv_idle_t *idle) {
  uv_idle_stop(idle);
  connection_run(idle->data);
}

void session_schedule(struct session *session) {
  if (session->state != SESSION_CLOSED)
    uv_idle_start(&session->flush, on_flush);
}

/* --- life --- */

struct session *session_new(const struct session_options *options) {
  struct session *session = memory_zero(sizeof *session);
  if (!session) {
    options->transport->operations->free(options->transport);
    return NULL;
  }
  session->loop = options->loop;
  session->transport = options->transport;
  session->deadline = options->deadline;
  session->connect_timeout = options->connect_timeout > 0 ? options->connect_timeout : session_patience.connect;
  snprintf(session->lease, sizeof session->lease, "%s", options->lease);
  uv_timer_init(session->loop, &session->timer);
  uv_idle_init(session->loop, &session->flush);
  session->timer.data = session->flush.data = session;
  session->handles = 2;
  session_due(session, session->deadline);
  connection_start(session);
  return session;
}

static void on_closed(uv_handle_t *handle) {
  struct session *session = handle->data;
  if (--session->handles > 0)
    return;
  connection_end(session);
  session_abandon_operations(session, SESSION_ENDED_LOST);
  memory_free(session);
}

void session_close(struct session *session, enum session_ended why) {
  if (session->state == SESSION_CLOSED)
    return;
  session->state = SESSION_CLOSED;
  session_abandon_operations(session, why);
  session->connected = false;
  session->transport->operations->free(session->transport);
  uv_close((uv_handle_t *)&session->timer, on_closed);
  uv_close((uv_handle_t *)&session->flush, on_closed);
}

size_t session_memory(const struct session *session) {
  size_t total = sizeof *session + (session->wire ? wire_memory(session->wire) : 0);
  for (const struct operation *operation = session->operations; operation; operation = operation->next)
    total += operation->kind->memory(operation);
  return total;
}
