/*
 * The kept connection of a session: made at once, configured first, pinged while idle, made again when it breaks and
 * somebody waits for it.
 */
#include "backend/session/internal.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/message.h"
#include "sandbox/agent/v1/agent.pb-c.h"
#include <string.h>

enum { PROTOCOL = 1, INSTANCE_BYTES = 16, CALLS_LIMIT = 512, TRANSPORT_HIGH = 1 << 20 };

#define MESSAGE_LIMIT (LIMIT_CHUNK_BYTES + 4096)
#define CALL_WINDOW (512 * 1024)
#define OUTPUT_LIMIT (256 * 1024)
#define CONNECT_TIMEOUT (10 * CLOCK_SECOND)
#define REATTACH_MILLISECONDS 30000
#define PING_MILLISECONDS 15000
#define PONG_MILLISECONDS 10000
#define BACKOFF_FIRST_MILLISECONDS 20
#define BACKOFF_MAX_MILLISECONDS 1000

enum session_state {
  SESSION_IDLE,        /* not connected, and nobody waits for it */
  SESSION_CONNECTING,  /* transport, then Configure */
  SESSION_WAITING,     /* before another attempt */
  SESSION_OPEN,
  SESSION_CLOSED,
};

struct session {
  uv_loop_t *loop;
  struct transport *transport;
  struct wire *wire;
  enum session_state state;
  struct operation *operations;
  uv_idle_t flush;   /* runs once when something was queued */
  uv_timer_t timer;  /* of the state: connect timeout, next attempt, ping */
  uv_timer_t guard;
  int handles;
  int64_t deadline, connect_timeout;
  unsigned failures;
  bool running;      /* the wire is at work: it may not be freed, nor run again */
  bool broken;       /* to be torn down once it is not */
  bool paused;       /* the transport has too much queued */
  bool ponging;      /* a ping is out */
  bool connected;    /* the transport is */
  uint64_t generation;
  bool has_instance;
  uint8_t instance[INSTANCE_BYTES];
  char lease[LIMIT_LEASE_ID_BYTES + 1];
};

static void session_connect(struct session *session);
static void session_run(struct session *session);

/* --- operations --- */

static void operation_unlink(struct operation *operation)
{
  if (operation->previous)
    operation->previous->next = operation->next;
  else
    operation->session->operations = operation->next;
  if (operation->next)
    operation->next->previous = operation->previous;
}

static void operation_free(struct operation *operation)
{
  operation_unlink(operation);
  memory_free(operation);
}

void operation_finish(struct operation *operation)
{
  operation->finished = true;
  operation->guard = 0;
  if (!operation->call)
    operation_free(operation);
}

static void on_message(struct wire_call *call, void *context, const uint8_t *bytes, size_t length)
{
  struct operation *operation = context;
  if (operation->finished || operation->session->broken)
    wire_call_consume(call, length);
  else
    operation->kind->message(operation, bytes, length);
}

static void on_writable(struct wire_call *call, void *context)
{
  (void)call;
  struct operation *operation = context;
  if (!operation->finished && operation->kind->writable)
    operation->kind->writable(operation);
}

static void on_ended(struct wire_call *call, void *context, int status, const char *text)
{
  (void)call;
  struct operation *operation = context;
  operation->call = NULL;
  if (operation->finished)
    operation_free(operation);
  else
    operation->kind->closed(operation, status, text);
}

struct wire_call *operation_call(struct operation *operation, const char *path)
{
  static const struct wire_call_events events = {.message = on_message, .writable = on_writable, .ended = on_ended};
  operation->call = wire_call_start(operation->session->wire, path, &events, operation);
  operation->waiting_since = 0;
  session_schedule(operation->session);
  return operation->call;
}

int operation_send(struct operation *operation, const ProtobufCMessage *message)
{
  size_t length;
  uint8_t *packed = operation->call ? message_pack(message, &length) : NULL;
  session_schedule(operation->session);
  return packed ? wire_call_send_owned(operation->call, packed, length) : -1;
}

void operation_add(struct session *session, struct operation *operation, const struct operation_kind *kind)
{
  operation->kind = kind;
  operation->session = session;
  operation->waiting_since = clock_boot();
  operation->patience = session->connect_timeout;
  operation->next = session->operations;
  if (operation->next)
    operation->next->previous = operation;
  session->operations = operation;
  session_schedule(session); /* opened there: nothing is called back before the caller has its pointer */
}

static void operations_open(struct session *session)
{
  for (struct operation *operation = session->operations, *next; operation; operation = next) {
    next = operation->next;
    if (!operation->call && !operation->finished)
      operation->kind->open(operation);
  }
}

/* Those that have waited too long; all of them if the sandbox is gone. */
static void operations_abandon(struct session *session, bool all, enum session_ended why, const struct error *err)
{
  int64_t now = clock_boot();
  for (struct operation *operation = session->operations, *next; operation; operation = next) {
    next = operation->next;
    if (!operation->finished && !operation->call && (all || now - operation->waiting_since >= operation->patience))
      operation->kind->abandon(operation, why, err);
  }
}

static bool operations_wait(const struct session *session)
{
  for (struct operation *operation = session->operations; operation; operation = operation->next)
    if (!operation->finished && !operation->call)
      return true;
  return false;
}

uint64_t session_generation(const struct session *session)
{
  return session->generation;
}

/* --- guards --- */

static void on_guard(uv_timer_t *timer)
{
  struct session *session = timer->data;
  int64_t now = clock_boot();
  for (struct operation *operation = session->operations, *next; operation; operation = next) {
    next = operation->next;
    if (!operation->finished && operation->guard && operation->guard <= now) {
      operation->guard = 0;
      operation->on_guard(operation);
    }
  }
  session_guard_changed(session);
}

void session_guard_changed(struct session *session)
{
  int64_t first = INT64_MAX;
  for (struct operation *operation = session->operations; operation; operation = operation->next)
    if (operation->guard && operation->guard < first)
      first = operation->guard;
  if (session->state == SESSION_CLOSED)
    return;
  int64_t left = first - clock_boot();
  if (first == INT64_MAX)
    uv_timer_stop(&session->guard);
  else
    uv_timer_start(&session->guard, on_guard, left > 0 ? (uint64_t)(left / CLOCK_MILLISECOND) + 1 : 0, 0);
}

/* --- the end of a connection --- */

static void on_attempt(uv_timer_t *timer)
{
  session_connect(timer->data);
}

static void session_retry(struct session *session)
{
  if (!operations_wait(session)) {
    session->state = SESSION_IDLE;
    uv_timer_stop(&session->timer);
    return;
  }
  unsigned shift = session->failures < 6 ? session->failures : 6;
  uint64_t wait = (uint64_t)BACKOFF_FIRST_MILLISECONDS << shift;
  uint8_t random;
  random_bytes(&random, 1);
  wait = wait < BACKOFF_MAX_MILLISECONDS ? wait : BACKOFF_MAX_MILLISECONDS;
  session->state = SESSION_WAITING;
  session->failures++;
  uv_timer_start(&session->timer, on_attempt, wait / 2 + wait * random / 512, 0);
}

static void wire_end(struct session *session)
{
  struct wire *wire = session->wire;
  session->wire = NULL;
  session->running = true; /* its calls are told; they may start nothing on it */
  wire_free(wire);
  session->running = false;
}

/* Not while the wire is at work. */
static void session_teardown(struct session *session, const struct error *err, bool gone)
{
  if (session->connected || session->state == SESSION_CONNECTING)
    session->transport->operations->disconnect(session->transport);
  session->connected = session->broken = session->ponging = session->paused = false;
  session->state = SESSION_WAITING;
  wire_end(session);
  operations_abandon(session, gone, SESSION_ENDED_LOST, err);
  session_retry(session);
}

static void session_lose(struct session *session, enum reason reason, const char *what)
{
  CLEANUP_ERROR struct error *err = NULL;
  error_set_detail(&err, reason, "%s", what);
  log_write(LOG_INFO, "session_lost", LOG_TEXT("lease", session->lease), LOG_REASON(err), LOG_DETAIL(err));
  session_teardown(session, err, reason == REASON_LEASE_NOT_FOUND);
}

void session_violated(struct session *session, const char *what)
{
  log_write(LOG_WARNING, "agent_violated_protocol", LOG_TEXT("lease", session->lease), LOG_TEXT("detail", what));
  session->broken = true;
  session->generation++; /* whatever it says it runs is not believed any more */
  session->has_instance = false;
  session_schedule(session);
}

/* --- running the wire --- */

static void wire_pump(struct session *session)
{
  const uint8_t *bytes;
  long length;
  while (!session->broken && !session->paused && (length = wire_transmit(session->wire, &bytes, NULL)) != 0) {
    if (length < 0 || session->transport->operations->write(session->transport, bytes, (size_t)length) < 0) {
      session->broken = true;
      return;
    }
    session->paused = session->transport->operations->queued(session->transport) > TRANSPORT_HIGH;
  }
}

/* Opens what waits and writes what is queued, until neither is left. */
static void session_run(struct session *session)
{
  if (session->running || session->state == SESSION_CLOSED)
    return;
  if (session->state == SESSION_IDLE && operations_wait(session))
    session_connect(session);
  if (!session->wire)
    return;
  session->running = true;
  if (session->state == SESSION_OPEN && !session->broken)
    operations_open(session);
  if (session->connected)
    wire_pump(session);
  session->running = false;
  if (session->broken)
    session_lose(session, REASON_SANDBOX_NOT_READY, "the connection was given up");
}

static void on_flush(uv_idle_t *idle)
{
  struct session *session = idle->data;
  uv_idle_stop(idle);
  session_run(session);
}

void session_schedule(struct session *session)
{
  if (session->state != SESSION_CLOSED)
    uv_idle_start(&session->flush, on_flush);
}

/* --- Configure --- */

static void on_ping(uv_timer_t *timer)
{
  struct session *session = timer->data;
  if (session->ponging) {
    session_lose(session, REASON_SANDBOX_NOT_READY, "the agent does not answer pings");
    return;
  }
  session->ponging = wire_ping(session->wire) == 0;
  uv_timer_start(timer, on_ping, PONG_MILLISECONDS, 0);
  session_schedule(session);
}

static void ping_later(struct session *session)
{
  session->ponging = false;
  uv_timer_start(&session->timer, on_ping, PING_MILLISECONDS, 0);
}

static void on_pong(struct wire *wire, void *context)
{
  (void)wire;
  struct session *session = context;
  if (session->ponging && session->state == SESSION_OPEN)
    ping_later(session);
}

static void configured(struct session *session, const uint8_t *instance)
{
  if (!session->has_instance || memcmp(session->instance, instance, INSTANCE_BYTES) != 0)
    session->generation++;
  session->has_instance = true;
  memcpy(session->instance, instance, INSTANCE_BYTES);
  session->state = SESSION_OPEN;
  session->failures = 0;
  ping_later(session);
  session_schedule(session);
}

static void on_configure_message(struct wire_call *call, void *context, const uint8_t *bytes, size_t length)
{
  struct session *session = context;
  Sandbox__Agent__V1__ConfigureResponse *response = (Sandbox__Agent__V1__ConfigureResponse *)message_unpack(
      &sandbox__agent__v1__configure_response__descriptor, bytes, length, NULL);
  wire_call_consume(call, length);
  if (session->state == SESSION_CONNECTING && response && response->protocol == PROTOCOL && response->instance.len == INSTANCE_BYTES)
    configured(session, response->instance.data);
  else
    session_violated(session, "malformed answer to Configure");
  if (response)
    protobuf_c_message_free_unpacked(&response->base, NULL);
}

static void on_configure_ended(struct wire_call *call, void *context, int status, const char *text)
{
  (void)call;
  (void)status;
  (void)text;
  struct session *session = context;
  if (session->state == SESSION_CONNECTING)
    session->broken = true;
}

static int configure_send(struct session *session)
{
  static const struct wire_options options = {.role = WIRE_CLIENT,       .message_limit = MESSAGE_LIMIT, .call_window = CALL_WINDOW,
                                              .calls_limit = CALLS_LIMIT, .output_limit = OUTPUT_LIMIT};
  static const struct wire_events events = {.pong = on_pong};
  static const struct wire_call_events call_events = {.message = on_configure_message, .ended = on_configure_ended};
  session->wire = wire_new(&options, &events, session);
  struct wire_call *call =
      session->wire ? wire_call_start(session->wire, "/sandbox.agent.v1.AgentService/Configure", &call_events, session) : NULL;
  if (!call)
    return -1;
  int64_t left = session->deadline - clock_boot();
  Sandbox__Agent__V1__ConfigureRequest request = SANDBOX__AGENT__V1__CONFIGURE_REQUEST__INIT;
  request.protocol = PROTOCOL;
  request.deadline_milliseconds = left > 0 ? (uint64_t)(left / CLOCK_MILLISECOND) + 1 : 1;
  request.reattach_milliseconds = REATTACH_MILLISECONDS;
  size_t length;
  uint8_t *packed = message_pack(&request.base, &length);
  if (!packed || wire_call_send_owned(call, packed, length) < 0)
    return -1;
  wire_call_half_close(call);
  return 0;
}

/* --- the transport --- */

static void on_connected(void *context, struct error *err)
{
  struct session *session = context;
  if (err) {
    log_write(LOG_INFO, "session_not_connected", LOG_TEXT("lease", session->lease), LOG_REASON(err), LOG_DETAIL(err));
    session->state = SESSION_WAITING;
    operations_abandon(session, error_reason(err) == REASON_LEASE_NOT_FOUND, SESSION_ENDED_LOST, err);
    session_retry(session);
    return;
  }
  session->connected = true;
  if (configure_send(session) < 0)
    session_lose(session, REASON_INTERNAL, "out of memory");
  else
    session_run(session);
}

static void on_received(void *context, const uint8_t *bytes, size_t length)
{
  struct session *session = context;
  CLEANUP_ERROR struct error *err = NULL;
  if (!session->wire || session->running)
    return;
  session->running = true;
  if (wire_receive(session->wire, bytes, length, &err) < 0)
    session->broken = true;
  session->running = false;
  session_run(session);
}

static void on_drained(void *context)
{
  struct session *session = context;
  session->paused = false;
  session_run(session);
}

static void on_lost(void *context, struct error *err)
{
  struct session *session = context;
  session->connected = false;
  if (session->running)
    session->broken = true;
  else
    session_lose(session, error_reason(err), error_detail(err));
}

static void on_connect_timeout(uv_timer_t *timer)
{
  session_lose(timer->data, REASON_SANDBOX_NOT_READY, "no connection in time");
}

static void session_connect(struct session *session)
{
  const struct transport_events events = {.connected = on_connected, .received = on_received, .drained = on_drained,
                                          .lost = on_lost, .context = session};
  session->state = SESSION_CONNECTING;
  uv_timer_start(&session->timer, on_connect_timeout, (uint64_t)(session->connect_timeout / CLOCK_MILLISECOND), 0);
  session->transport->operations->connect(session->transport, &events);
}

/* --- life --- */

static void on_closed(uv_handle_t *handle)
{
  struct session *session = handle->data;
  if (--session->handles > 0)
    return;
  wire_end(session);
  memory_free(session);
}

struct session *session_new(const struct session_options *options)
{
  struct session *session = memory_zero(sizeof *session);
  if (!session) {
    options->transport->operations->free(options->transport);
    return NULL;
  }
  session->loop = options->loop;
  session->transport = options->transport;
  session->deadline = options->deadline;
  session->connect_timeout = options->connect_timeout ? options->connect_timeout : CONNECT_TIMEOUT;
  strncat(session->lease, options->lease, sizeof session->lease - 1);
  uv_idle_init(session->loop, &session->flush);
  uv_timer_init(session->loop, &session->timer);
  uv_timer_init(session->loop, &session->guard);
  session->flush.data = session->timer.data = session->guard.data = session;
  session->handles = 3;
  session_connect(session);
  return session;
}

void session_close(struct session *session, enum session_ended why)
{
  CLEANUP_ERROR struct error *err = NULL;
  error_set(&err, why == SESSION_ENDED_LEASE ? REASON_ABORTED : REASON_SANDBOX_NOT_READY, NULL);
  session->state = SESSION_CLOSED;
  for (struct operation *operation = session->operations, *next; operation; operation = next) {
    next = operation->next;
    if (!operation->finished)
      operation->kind->abandon(operation, why, err);
  }
  session->transport->operations->free(session->transport);
  uv_close((uv_handle_t *)&session->flush, on_closed);
  uv_close((uv_handle_t *)&session->timer, on_closed);
  uv_close((uv_handle_t *)&session->guard, on_closed);
}

size_t session_memory(const struct session *session)
{
  size_t total = sizeof *session;
  for (const struct operation *operation = session->operations; operation; operation = operation->next)
    total += sizeof *operation + (operation->call ? wire_call_queued(operation->call) : 0);
  return total;
}

enum reason status_reason(int status, const char *text, const enum reason *allowed, enum reason otherwise)
{
  char name[64];
  size_t length = strcspn(text, " ");
  if (length >= sizeof name)
    return otherwise;
  memcpy(name, text, length);
  name[length] = '\0';
  enum reason reason = reason_find(name);
  for (; *allowed != REASON_NONE; allowed++)
    if (*allowed == reason)
      return reason;
  /* The agent's own reasons have this status too; without one of them the connection broke. */
  return status == WIRE_UNAVAILABLE && reason == REASON_NONE ? REASON_SANDBOX_NOT_READY : otherwise;
}
