/*
 * The kept connection of a session: made at once, configured first, pinged while nothing is heard, made again when it
 * breaks. An agent that breaks the protocol, or that sends much that is no use, gets it closed.
 */
#include "backend/session/internal.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/message.h"
#include "sandbox/agent/v1/agent.pb-c.h"
#include <stdio.h>
#include <string.h>

#define PROTOCOL 1

#define MESSAGE_LIMIT (LIMIT_CHUNK_BYTES + 1024)
#define CALL_WINDOW (256 * 1024)
#define CALLS_LIMIT 512
#define OUTPUT_LIMIT (64 * 1024)
#define TRANSPORT_HIGH (1024 * 1024) /* queued there: nothing more is written */

#define BACKOFF_SHIFT_MOST 6
#define UNASKED_ATTEMPTS 4 /* while no operation waits */

/* Bytes in a second that belong to no running operation. What is on its way to a cancelled one counts too. */
#define NOISE_LIMIT (16 * 1024 * 1024)

static void connect_now(struct session *session);

static void note(struct session *session, const char *what) {
  snprintf(session->detail, sizeof session->detail, "%s", what);
}

/* --- its end --- */

static void end_wire(struct session *session) {
  struct wire *wire = session->wire;
  session->wire = NULL;
  session->tearing = true;
  wire_free(wire);
  session->tearing = false;
}

void connection_end(struct session *session) {
  if (session->state != SESSION_CLOSED && (session->connected || session->state == SESSION_CONNECTING))
    session->transport->operations->disconnect(session->transport);
  session->connected = session->broken = session->full = false;
  session->pinged_at = 0;
  session->due = 0;
  end_wire(session);
}

static int64_t backoff(unsigned failures) {
  if (failures == 0)
    return 0;
  unsigned shift = failures - 1 < BACKOFF_SHIFT_MOST ? failures - 1 : BACKOFF_SHIFT_MOST;
  int64_t wait = session_patience.backoff_first << shift;
  uint8_t random;
  random_bytes(&random, sizeof random);
  wait = wait < session_patience.backoff_most ? wait : session_patience.backoff_most;
  return wait / 2 + wait * random / 512;
}

static void retry(struct session *session, bool unasked) {
  session->due = 0;
  if (session->state == SESSION_CLOSED)
    return;
  session->state = SESSION_IDLE;
  if (!session_waited_for(session) && !(unasked && session->failures < UNASKED_ATTEMPTS))
    return;
  session->state = SESSION_WAITING;
  session->due = clock_boot() + backoff(session->failures);
  session->failures++;
  session_due(session, session->due);
}

/* Not while the wire is running. */
static void lose(struct session *session) {
  bool violated = session->violated;
  if (session->state == SESSION_OPEN && clock_boot() - session->opened_at >= session_patience.steady)
    session->failures = 0;
  log_write(violated ? LOG_WARNING : LOG_INFO, violated ? "agent_broke_protocol" : "session_lost",
            LOG_TEXT("lease", session->lease), LOG_TEXT("detail", session->detail));
  if (violated) {
    session->generation++; /* what it says it runs is not believed any more */
    session->has_instance = false;
  }
  connection_end(session);
  session->violated = false;
  retry(session, !violated);
}

static void lose_for(struct session *session, const char *what) {
  note(session, what);
  if (session->running)
    session->broken = true;
  else
    lose(session);
}

void connection_violated(struct session *session, const char *what) {
  if (session->broken)
    return;
  session->broken = session->violated = true;
  note(session, what);
}

/* --- running the wire --- */

static void pump(struct session *session) {
  const struct transport_operations *transport = session->transport->operations;
  while (session->state != SESSION_CLOSED && session->connected && !session->broken && !session->full) {
    struct error *err CLEANUP_ERROR = NULL;
    const uint8_t *bytes;
    long length = wire_transmit(session->wire, &bytes, &err);
    if (length == 0 || session->state == SESSION_CLOSED)
      return;
    if (length < 0) {
      connection_violated(session, error_detail(err));
    } else if (transport->write(session->transport, bytes, (size_t)length) != 0) {
      lose_for(session, "the connection broke while writing");
    } else {
      session->full = transport->queued(session->transport) > TRANSPORT_HIGH;
    }
  }
}

void connection_run(struct session *session) {
  if (session->running || session->state == SESSION_CLOSED)
    return;
  if (session->state == SESSION_EXPIRED)
    session_abandon_operations(session, SESSION_ENDED_LEASE);
  if (session->state == SESSION_IDLE && session_waited_for(session))
    connect_now(session);
  if (!session->wire || session->running)
    return;
  session->running = true;
  if (session->state == SESSION_OPEN)
    session_open_operations(session);
  pump(session);
  session->running = false;
  if (session->broken)
    lose(session);
}

/* --- pings --- */

static void keep_alive(struct session *session, int64_t now) {
  if (session->pinged_at != 0 && session->heard_at < session->pinged_at) {
    lose_for(session, "the agent does not answer pings");
    return;
  }
  session->pinged_at = 0;
  session->due = session->heard_at + session_patience.silence;
  if (session->due > now)
    return;
  session->pinged_at = now;
  session->due = now + session_patience.pong;
  if (wire_ping(session->wire) != 0)
    lose_for(session, "out of memory");
}

void connection_overdue(struct session *session, int64_t now) {
  if (session->state == SESSION_CONNECTING)
    lose_for(session, "no connection in time");
  else if (session->state == SESSION_WAITING)
    connect_now(session);
  else if (session->state == SESSION_OPEN)
    keep_alive(session, now);
}

/* --- Configure --- */

static void take_configuration(struct session *session, const uint8_t *instance) {
  if (session->has_instance && memcmp(session->instance, instance, INSTANCE_BYTES) != 0)
    session->generation++;
  session->has_instance = true;
  memcpy(session->instance, instance, INSTANCE_BYTES);
  session->state = SESSION_OPEN;
  session->opened_at = clock_boot();
  session->due = session->opened_at + session_patience.silence;
  session_due(session, session->due);
}

static void on_configure_message(struct wire_call *call, void *context, const uint8_t *bytes, size_t length) {
  struct session *session = context;
  (void)call;
  if (session->broken || session_over(session))
    return;
  Sandbox__Agent__V1__ConfigureResponse *response = (void *)message_unpack(
      &sandbox__agent__v1__configure_response__descriptor, bytes, length, NULL);
  if (session->state == SESSION_CONNECTING && response && response->protocol == PROTOCOL &&
      response->instance.len == INSTANCE_BYTES)
    take_configuration(session, response->instance.data);
  else
    connection_violated(session, "a wrong answer to Configure");
  if (response)
    protobuf_c_message_free_unpacked(&response->base, NULL);
}

static void on_configure_ended(struct wire_call *call, void *context, int status, const char *text) {
  struct session *session = context;
  (void)call;
  (void)text;
  if (session->tearing || session->broken || session->state != SESSION_CONNECTING)
    return;
  char what[64];
  snprintf(what, sizeof what, "Configure was refused with status %d", status);
  lose_for(session, what);
}

static int configure(struct session *session) {
  static const struct wire_options options = {.role = WIRE_CLIENT,
                                              .message_limit = MESSAGE_LIMIT,
                                              .call_window = CALL_WINDOW,
                                              .calls_limit = CALLS_LIMIT,
                                              .output_limit = OUTPUT_LIMIT};
  static const struct wire_events events = {0};
  static const struct wire_call_events call_events = {.message = on_configure_message, .ended = on_configure_ended};
  session->wire = wire_new(&options, &events, session);
  struct wire_call *call = session->wire ? wire_call_start(session->wire, "/sandbox.agent.v1.AgentService/Configure",
                                                           &call_events, session)
                                         : NULL;
  if (!call)
    return -1;
  /* The agent's own end is for when we are gone: ours comes first, so that operations end for the right reason. */
  int64_t left = session->deadline - clock_boot() + session_patience.grace;
  Sandbox__Agent__V1__ConfigureRequest request = SANDBOX__AGENT__V1__CONFIGURE_REQUEST__INIT;
  request.protocol = PROTOCOL;
  request.deadline_milliseconds = left > CLOCK_MILLISECOND ? (uint64_t)(left / CLOCK_MILLISECOND) : 1;
  request.reattach_milliseconds = (uint64_t)(session_patience.reattach / CLOCK_MILLISECOND);
  size_t length;
  uint8_t *packed = message_pack(&request.base, &length);
  if (!packed || wire_call_send_owned(call, packed, length) != 0)
    return -1;
  wire_call_half_close(call);
  return 0;
}

/* --- the transport --- */

static void on_connected(void *context, struct error *err) {
  struct session *session = context;
  if (err) {
    note(session, error_detail(err));
    log_write(LOG_INFO, "session_not_connected", LOG_TEXT("lease", session->lease), LOG_REASON(err), LOG_DETAIL(err));
    session->state = SESSION_IDLE;
    bool gone = error_reason(err) == REASON_LEASE_NOT_FOUND;
    if (gone)
      session_fail_operations(session, err);
    retry(session, !gone);
    return;
  }
  session->connected = true;
  session->heard_at = session->noise_since = clock_boot();
  session->noise = 0;
  if (configure(session) != 0)
    lose_for(session, "out of memory");
  else
    connection_run(session);
}

/* Whoever floods us with what is no use is cut. */
static void count_noise(struct session *session, size_t length) {
  if (session->heard_at - session->noise_since > CLOCK_SECOND) {
    session->noise_since = session->heard_at;
    session->noise = 0;
  }
  session->noise += length;
}

static void on_received(void *context, const uint8_t *bytes, size_t length) {
  struct session *session = context;
  struct error *err CLEANUP_ERROR = NULL;
  if (!session->wire || session->running)
    return;
  session->heard_at = clock_boot();
  count_noise(session, length);
  session->running = true;
  if (wire_receive(session->wire, bytes, length, &err) != 0)
    connection_violated(session, error_detail(err));
  else if (session->noise > NOISE_LIMIT)
    connection_violated(session, "too many bytes that are no use");
  session->running = false;
  if (session->state == SESSION_CLOSED)
    return;
  if (session->broken)
    lose(session);
  else
    connection_run(session);
}

static void on_drained(void *context) {
  struct session *session = context;
  session->full = false;
  connection_run(session);
}

static void on_lost(void *context, struct error *err) {
  struct session *session = context;
  session->connected = false;
  lose_for(session, error_detail(err));
}

static void connect_now(struct session *session) {
  const struct transport_events events = {
      .connected = on_connected, .received = on_received, .drained = on_drained, .lost = on_lost, .context = session};
  session->state = SESSION_CONNECTING;
  session->due = clock_boot() + session->connect_timeout;
  session_due(session, session->due);
  session->transport->operations->connect(session->transport, &events);
}

void connection_start(struct session *session) {
  connect_now(session);
}
