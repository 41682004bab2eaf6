#include "agent.h"

#include "backend/wire/wire.h"
#include "base/memory.h"
#include "base/message.h"
#include "sandbox/agent/v1/agent.pb-c.h"
#include <stdbool.h>
#include <string.h>

enum { PROTOCOL = 1, TIMEOUT_MILLISECONDS = 10000, READ_BYTES = 4096 };

struct agent_ask {
  uv_pipe_t pipe;
  uv_timer_t timer;
  uv_connect_t connect;
  struct wire *wire;
  agent_answered *answered; /* NULL once called or cancelled */
  void *context;
  uint64_t deadline, orphan;
  bool taken, closing;
  bool keep, kept; /* to be kept open after success, and now is */
  int handles; /* still open */
  uint8_t bytes[READ_BYTES];
};

struct agent_write {
  uv_write_t request;
  uint8_t bytes[];
};

static void handle_closed(uv_handle_t *handle)
{
  struct agent_ask *ask = handle->data;
  if (--ask->handles > 0)
    return;
  wire_free(ask->wire);
  memory_free(ask);
}

static void ask_close(struct agent_ask *ask)
{
  if (ask->closing)
    return;
  ask->closing = true;
  uv_close((uv_handle_t *)&ask->pipe, handle_closed);
  uv_close((uv_handle_t *)&ask->timer, handle_closed);
}

/* Takes over *err. */
static void ask_finish(struct agent_ask *ask, struct error *err)
{
  agent_answered *answered = ask->answered;
  ask->answered = NULL;
  ask->kept = ask->keep && !err;
  if (ask->kept)
    uv_timer_stop(&ask->timer);
  else
    ask_close(ask);
  if (answered)
    answered(ask->context, err);
  error_free(&err);
}

static void ask_fail(struct agent_ask *ask, const char *what)
{
  struct error *err = NULL;
  error_set_detail(&err, REASON_SANDBOX_NOT_READY, "the agent %s", what);
  ask_finish(ask, err);
}

static void on_written(uv_write_t *request, int status)
{
  (void)status; /* a broken connection is noticed by reading */
  memory_free(request->data);
}

static int ask_transmit(struct agent_ask *ask)
{
  const uint8_t *bytes;
  long length;
  while ((length = wire_transmit(ask->wire, &bytes, NULL)) > 0) {
    struct agent_write *write = memory_new(sizeof *write + (size_t)length);
    if (!write)
      return -1;
    memcpy(write->bytes, bytes, (size_t)length);
    write->request.data = write;
    uv_buf_t buffer = uv_buf_init((char *)write->bytes, (unsigned)length);
    if (uv_write(&write->request, (uv_stream_t *)&ask->pipe, &buffer, 1, on_written) < 0) {
      memory_free(write);
      return -1;
    }
  }
  return length < 0 ? -1 : 0;
}

/* --- the call --- */

static void on_message(struct wire_call *call, void *context, const uint8_t *bytes, size_t length)
{
  struct agent_ask *ask = context;
  Sandbox__Agent__V1__ConfigureResponse *response = (Sandbox__Agent__V1__ConfigureResponse *)message_unpack(
      &sandbox__agent__v1__configure_response__descriptor, bytes, length, NULL);
  ask->taken = response && response->protocol == PROTOCOL;
  if (response)
    protobuf_c_message_free_unpacked(&response->base, NULL);
  wire_call_consume(call, length);
}

/* The wire may not be freed from within its callback: closing is asynchronous, so this may be. */
static void on_ended(struct wire_call *call, void *context, int status, const char *text)
{
  (void)call;
  (void)text;
  struct agent_ask *ask = context;
  if (ask->closing || ask->kept)
    return;
  if (status == WIRE_OK && ask->taken)
    ask_finish(ask, NULL);
  else
    ask_fail(ask, "refused its configuration");
}

static const struct wire_call_events call_events = {.message = on_message, .ended = on_ended};

static int ask_send(struct agent_ask *ask)
{
  static const struct wire_options options = {.role = WIRE_CLIENT,       .message_limit = 4096, .call_window = 65536,
                                              .calls_limit = 1,          .output_limit = 65536};
  static const struct wire_events events = {0};
  ask->wire = wire_new(&options, &events, ask);
  struct wire_call *call =
      ask->wire ? wire_call_start(ask->wire, "/sandbox.agent.v1.AgentService/Configure", &call_events, ask) : NULL;
  if (!call)
    return -1;
  Sandbox__Agent__V1__ConfigureRequest request = SANDBOX__AGENT__V1__CONFIGURE_REQUEST__INIT;
  request.protocol = PROTOCOL;
  request.deadline_milliseconds = ask->deadline;
  request.orphan_milliseconds = ask->orphan;
  size_t length;
  uint8_t *packed = message_pack(&request.base, &length);
  if (!packed || wire_call_send_owned(call, packed, length) < 0)
    return -1;
  wire_call_half_close(call);
  return ask_transmit(ask);
}

/* --- the connection --- */

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
  (void)suggested;
  struct agent_ask *ask = handle->data;
  *buffer = uv_buf_init((char *)ask->bytes, sizeof ask->bytes);
}

static void on_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer)
{
  struct agent_ask *ask = stream->data;
  bool broken = length < 0 || wire_receive(ask->wire, (const uint8_t *)buffer->base, (size_t)length, NULL) < 0;
  if (ask->closing)
    return;
  broken = broken || ask_transmit(ask) < 0;
  if (broken && ask->kept)
    uv_read_stop(stream); /* the end of the process says the rest */
  else if (broken)
    ask_fail(ask, length < 0 ? "closed the connection" : "does not speak the protocol");
}

static void on_connected(uv_connect_t *connect, int status)
{
  struct agent_ask *ask = connect->data;
  if (ask->closing)
    return;
  if (status < 0)
    ask_fail(ask, uv_strerror(status));
  else if (uv_read_start((uv_stream_t *)&ask->pipe, on_room, on_read) < 0 || ask_send(ask) < 0)
    ask_fail(ask, "could not be asked");
}

static void on_timeout(uv_timer_t *timer)
{
  ask_fail(timer->data, "did not answer in time");
}

struct agent_ask *agent_configure(uv_loop_t *loop, const char *path, uint64_t milliseconds, uint64_t orphan, bool keep,
                                  agent_answered *answered, void *context)
{
  struct agent_ask *ask = memory_zero(sizeof *ask);
  if (!ask)
    return NULL;
  ask->answered = answered;
  ask->context = context;
  ask->deadline = milliseconds;
  ask->orphan = orphan;
  ask->keep = keep;
  ask->handles = 2;
  ask->connect.data = ask;
  uv_pipe_init(loop, &ask->pipe, 0);
  uv_timer_init(loop, &ask->timer);
  ask->pipe.data = ask->timer.data = ask;
  uv_timer_start(&ask->timer, on_timeout, TIMEOUT_MILLISECONDS, 0);
  uv_pipe_connect(&ask->connect, &ask->pipe, path, on_connected);
  return ask;
}

void agent_cancel(struct agent_ask *ask)
{
  ask->answered = NULL;
  ask_close(ask);
}
