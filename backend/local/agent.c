/*
 * Asking an agent: see agent.h.
 */
#include "backend/local/agent.h"

#include "backend/wire/wire.h"
#include "base/memory.h"
#include "base/message.h"
#include "sandbox/agent/v1/agent.pb-c.h"
#include <stdbool.h>
#include <string.h>

enum { PROTOCOL = 1, TIMEOUT_MILLISECONDS = 10000, READ_BYTES = 4096 };

struct local_agent {
  uv_pipe_t pipe;
  uv_timer_t timer;
  uv_connect_t connect;
  struct wire *wire;
  local_agent_answered *answered; /* NULL: nobody asks */
  void *context;
  uint64_t milliseconds, orphan;
  const char *broken; /* why the connection is of no use, or NULL */
  bool connected, taken, closing;
  bool receiving; /* within wire_receive, which must not be interrupted by wire_transmit */
  int handles; /* still open */
  uint8_t bytes[READ_BYTES];
};

struct agent_write {
  uv_write_t request;
  uint8_t bytes[];
};

static void handle_closed(uv_handle_t *handle) {
  struct local_agent *agent = handle->data;
  if (--agent->handles > 0)
    return;
  wire_free(agent->wire);
  memory_free(agent);
}

void local_agent_close(struct local_agent *agent) {
  if (agent == NULL || agent->closing)
    return;
  agent->closing = true;
  agent->answered = NULL;
  uv_close((uv_handle_t *)&agent->pipe, handle_closed);
  uv_close((uv_handle_t *)&agent->timer, handle_closed);
}

/* what NULL: it has taken the deadline. */
static void answer(struct local_agent *agent, const char *what) {
  local_agent_answered *answered = agent->answered;
  CLEANUP_ERROR struct error *err = NULL;
  uv_timer_stop(&agent->timer);
  agent->answered = NULL;
  if (answered == NULL)
    return;
  if (what != NULL)
    error_set_detail(&err, REASON_SANDBOX_NOT_READY, "the agent %s", what);
  answered(agent->context, err);
}

static void fail(struct local_agent *agent, const char *what) {
  if (agent->broken == NULL)
    agent->broken = what;
  uv_read_stop((uv_stream_t *)&agent->pipe);
  answer(agent, what);
}

static void on_written(uv_write_t *request, int status) {
  (void)status; /* a broken connection is noticed by reading */
  memory_free(request->data);
}

static int transmit(struct local_agent *agent) {
  const uint8_t *bytes;
  long length;
  while ((length = wire_transmit(agent->wire, &bytes, NULL)) > 0) {
    struct agent_write *write = memory_new(sizeof *write + (size_t)length);
    if (write == NULL)
      return -1;
    memcpy(write->bytes, bytes, (size_t)length);
    write->request.data = write;
    uv_buf_t buffer = uv_buf_init((char *)write->bytes, (unsigned)length);
    if (uv_write(&write->request, (uv_stream_t *)&agent->pipe, &buffer, 1, on_written) != 0) {
      memory_free(write);
      return -1;
    }
  }
  return length < 0 ? -1 : 0;
}

/* --- the call --- */

static void on_message(struct wire_call *call, void *context, const uint8_t *bytes, size_t length) {
  struct local_agent *agent = context;
  Sandbox__Agent__V1__ConfigureResponse *response = (Sandbox__Agent__V1__ConfigureResponse *)message_unpack(
    &sandbox__agent__v1__configure_response__descriptor, bytes, length, NULL);
  agent->taken = response != NULL && response->protocol == PROTOCOL;
  if (response != NULL)
    protobuf_c_message_free_unpacked(&response->base, NULL);
  wire_call_consume(call, length);
}

/* The wire may not be freed from within its callback. Closing is asynchronous, so whoever is told may close. */
static void on_ended(struct wire_call *call, void *context, int status, const char *text) {
  (void)call;
  (void)text;
  struct local_agent *agent = context;
  if (!agent->closing)
    answer(agent, status == WIRE_OK && agent->taken ? NULL : "refused its configuration");
}

static int send_request(struct local_agent *agent) {
  static const struct wire_call_events events = {.message = on_message, .ended = on_ended};
  struct wire_call *call = wire_call_start(agent->wire, "/sandbox.agent.v1.AgentService/Configure", &events, agent);
  if (call == NULL)
    return -1;
  Sandbox__Agent__V1__ConfigureRequest request = SANDBOX__AGENT__V1__CONFIGURE_REQUEST__INIT;
  request.protocol = PROTOCOL;
  request.deadline_milliseconds = agent->milliseconds;
  request.orphan_milliseconds = agent->orphan;
  size_t length;
  uint8_t *packed = message_pack(&request.base, &length);
  if (packed == NULL || wire_call_send_owned(call, packed, length) != 0)
    return -1;
  wire_call_half_close(call);
  return agent->receiving ? 0 : transmit(agent);
}

static void on_timeout(uv_timer_t *timer) { fail(timer->data, "did not answer in time"); }

/* Asked of a connection that is broken already: told when the loop comes round. */
static void on_broken(uv_timer_t *timer) {
  struct local_agent *agent = timer->data;
  answer(agent, agent->broken);
}

void local_agent_configure(struct local_agent *agent, uint64_t milliseconds, uint64_t orphan,
                           local_agent_answered *answered, void *context) {
  agent->answered = answered;
  agent->context = context;
  agent->milliseconds = milliseconds;
  agent->orphan = orphan;
  agent->taken = false;
  if (agent->broken == NULL && agent->connected && send_request(agent) != 0)
    agent->broken = "could not be asked";
  if (agent->broken == NULL)
    uv_timer_start(&agent->timer, on_timeout, TIMEOUT_MILLISECONDS, 0);
  else
    uv_timer_start(&agent->timer, on_broken, 0, 0);
}

/* --- the connection --- */

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer) {
  (void)suggested;
  struct local_agent *agent = handle->data;
  *buffer = uv_buf_init((char *)agent->bytes, sizeof agent->bytes);
}

static void on_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer) {
  struct local_agent *agent = stream->data;
  if (length < 0) {
    fail(agent, "closed the connection");
    return;
  }
  agent->receiving = true;
  bool good = wire_receive(agent->wire, (const uint8_t *)buffer->base, (size_t)length, NULL) == 0;
  agent->receiving = false;
  if (agent->closing)
    return;
  if (!good || transmit(agent) != 0)
    fail(agent, "does not speak the protocol");
}

static void on_connected(uv_connect_t *connect, int status) {
  struct local_agent *agent = connect->data;
  if (agent->closing)
    return;
  if (status != 0) {
    fail(agent, "cannot be reached");
    return;
  }
  agent->connected = true;
  if (uv_read_start((uv_stream_t *)&agent->pipe, on_room, on_read) != 0 ||
      (agent->answered != NULL && send_request(agent) != 0))
    fail(agent, "could not be asked");
}

struct local_agent *local_agent_new(uv_loop_t *loop, const char *path) {
  /* Two calls: one may be asked for from within the end of the other. */
  static const struct wire_options options = {.role = WIRE_CLIENT, .message_limit = 4096, .call_window = 65536,
                                              .calls_limit = 2, .output_limit = 65536};
  static const struct wire_events events = {0};
  struct local_agent *agent = memory_zero(sizeof *agent);
  if (agent == NULL)
    return NULL;
  agent->wire = wire_new(&options, &events, agent);
  if (agent->wire == NULL) {
    memory_free(agent);
    return NULL;
  }
  agent->handles = 2;
  agent->connect.data = agent;
  uv_pipe_init(loop, &agent->pipe, 0);
  uv_timer_init(loop, &agent->timer);
  agent->pipe.data = agent->timer.data = agent;
  uv_pipe_connect(&agent->connect, &agent->pipe, path, on_connected);
  return agent;
}
