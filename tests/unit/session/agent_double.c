#include "tests/unit/session/agent_double.h"

#include "base/memory.h"
#include "base/message.h"
#include "tests/unit/session/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- calls at the agent --- */

static void take_run(struct agent_call *call, const uint8_t *bytes, size_t length) {
  Sandbox__Agent__V1__RunRequest *request = (void *)message_unpack(&sandbox__agent__v1__run_request__descriptor, bytes,
                                                                   length, NULL);
  if (!request) {
    agent_finish(call, WIRE_INTERNAL, "INTERNAL out of memory"); /* only when a test fails allocations */
    return;
  }
  switch (request->request_case) {
  case SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_START:
  case SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_ATTACH:
    assert_null(call->first);
    call->first = request;
    if (request->request_case == SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_START)
      call->start = request->start;
    else
      call->attach = request->attach;
    return;
  case SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_STDIN:
    assert_int_equal(request->stdin->offset, call->input_offset);
    assert_in_range(request->stdin->data.len, 1, 65536);
    assert_int_equal(buffer_append(&call->input, request->stdin->data.data, request->stdin->data.len), 0);
    call->input_offset += request->stdin->data.len;
    break;
  case SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_STDIN_END:
    assert_false(call->input_ended);
    call->input_ended = true;
    break;
  case SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_SIGNAL:
    call->signals[call->signal_count++ % 64] = request->signal->number;
    break;
  default:
    fail_msg("a request of no kind");
  }
  protobuf_c_message_free_unpacked(&request->base, NULL);
}

static void take_write(struct agent_call *call, const uint8_t *bytes, size_t length) {
  Sandbox__Agent__V1__WriteFileRequest *request = (void *)message_unpack(
      &sandbox__agent__v1__write_file_request__descriptor, bytes, length, NULL);
  if (!request)
    return;
  if (request->request_case == SANDBOX__AGENT__V1__WRITE_FILE_REQUEST__REQUEST_DATA)
    assert_int_equal(buffer_append(&call->content, request->data.data, request->data.len), 0);
  protobuf_c_message_free_unpacked(&request->base, NULL);
}

static void take_configure(struct agent_call *call, const uint8_t *bytes, size_t length) {
  struct agent_double *agent = call->agent;
  Sandbox__Agent__V1__ConfigureRequest *request = (void *)message_unpack(
      &sandbox__agent__v1__configure_request__descriptor, bytes, length, NULL);
  if (!request)
    return;
  assert_int_equal(request->protocol, 1);
  assert_true(request->deadline_milliseconds > 0);
  agent->deadline = request->deadline_milliseconds;
  agent->configures++;
  protobuf_c_message_free_unpacked(&request->base, NULL);
  if (agent->no_configure)
    return;
  Sandbox__Agent__V1__ConfigureResponse response = SANDBOX__AGENT__V1__CONFIGURE_RESPONSE__INIT;
  response.protocol = 1;
  response.instance = (ProtobufCBinaryData){.data = agent->instance, .len = sizeof agent->instance};
  agent_send(call, &response.base);
  agent_finish(call, WIRE_OK, "");
}

static void on_message(struct wire_call *wire_call, void *context, const uint8_t *bytes, size_t length) {
  struct agent_call *call = context;
  size_t index = call->count++;
  if (strcmp(call->method, "Run") == 0)
    take_run(call, bytes, length);
  else if (strcmp(call->method, "WriteFile") == 0)
    take_write(call, bytes, length);
  else if (strcmp(call->method, "Configure") == 0)
    take_configure(call, bytes, length);
  if (call->agent->script && call->agent->script->message &&
      (call->agent->no_configure || strcmp(call->method, "Configure") != 0))
    call->agent->script->message(call, index);
  if (!call->hold)
    wire_call_consume(wire_call, length);
}

static void on_half_closed(struct wire_call *wire_call, void *context) {
  struct agent_call *call = context;
  (void)wire_call;
  call->half_closed = true;
  if (call->agent->script && call->agent->script->half_closed)
    call->agent->script->half_closed(call);
}

static void on_writable(struct wire_call *wire_call, void *context) {
  struct agent_call *call = context;
  (void)wire_call;
  if (call->agent->script && call->agent->script->writable)
    call->agent->script->writable(call);
}

static void on_ended(struct wire_call *wire_call, void *context, int status, const char *text) {
  struct agent_call *call = context;
  (void)wire_call;
  (void)text;
  call->status = status;
  call->call = NULL;
}

static const struct wire_call_events call_events = {
    .message = on_message, .half_closed = on_half_closed, .writable = on_writable, .ended = on_ended};

static void on_opened(struct wire *wire, void *context, struct wire_call *wire_call, const char *path) {
  struct agent_double *agent = context;
  (void)wire;
  assert_true(agent->call_count < sizeof agent->calls / sizeof agent->calls[0]);
  struct agent_call *call = calloc(1, sizeof *call);
  assert_non_null(call);
  call->agent = agent;
  call->call = wire_call;
  call->status = -1;
  buffer_init(&call->input, 64 * 1024 * 1024);
  buffer_init(&call->content, 128 * 1024 * 1024);
  const char *slash = strrchr(path, '/');
  snprintf(call->method, sizeof call->method, "%s", slash ? slash + 1 : path);
  agent->calls[agent->call_count++] = call;
  wire_call_accept(wire_call, &call_events, call);
}

static const struct wire_events wire_events = {.opened = on_opened};

/* --- bytes --- */

static void move_to_agent(struct agent_double *agent) {
  if (agent->stuck || agent->to_agent.length == 0)
    return;
  struct buffer bytes = agent->to_agent;
  buffer_init(&agent->to_agent, bytes.limit);
  if (agent->wire && !agent->mute && wire_receive(agent->wire, bytes.data, bytes.length, NULL) != 0) {
    buffer_free(&bytes);
    agent_double_cut(agent);
    return;
  }
  buffer_free(&bytes);
  if (agent->open)
    agent->events.drained(agent->events.context);
}

void agent_double_flush(struct agent_double *agent) {
  const uint8_t *bytes;
  long length;
  while (agent->wire && !agent->mute && agent->to_session.length < 4 * 1024 * 1024 &&
         (length = wire_transmit(agent->wire, &bytes, NULL)) > 0)
    agent_double_raw(agent, bytes, (size_t)length);
}

static size_t next_piece(struct agent_double *agent, size_t length) {
  size_t piece = agent->split && agent->split < length ? agent->split : length;
  return agent->seed && piece > 1 ? 1 + (size_t)rand_r(&agent->seed) % piece : piece;
}

/* All that is there, in pieces; each in a block of its own, so that a read beyond it is seen. */
static void move_to_session(struct agent_double *agent) {
  struct buffer bytes = agent->to_session;
  buffer_init(&agent->to_session, bytes.limit);
  for (size_t done = 0; done < bytes.length && agent->open && !agent->paused;) {
    size_t piece = next_piece(agent, bytes.length - done);
    uint8_t *copy = malloc(piece);
    assert_non_null(copy);
    memcpy(copy, bytes.data + done, piece);
    done += piece;
    agent->events.received(agent->events.context, copy, piece);
    free(copy);
  }
  buffer_free(&bytes);
}

static void on_pump(uv_idle_t *idle) {
  struct agent_double *agent = idle->data;
  if (agent->open)
    move_to_agent(agent);
  if (agent->open)
    agent_double_flush(agent);
  if (agent->open && agent->script && agent->script->flushed)
    agent->script->flushed(agent);
  if (agent->open)
    move_to_session(agent);
  bool more = agent->open && ((agent->to_agent.length > 0 && !agent->stuck) || agent->to_session.length > 0 ||
                              (agent->wire && !agent->mute && wire_wants_transmit(agent->wire)));
  if (!more)
    uv_idle_stop(&agent->pump);
}

static void wake(struct agent_double *agent) {
  if (!agent->freed)
    uv_idle_start(&agent->pump, on_pump);
}

void agent_double_raw(struct agent_double *agent, const void *bytes, size_t length) {
  assert_int_equal(buffer_append(&agent->to_session, bytes, length), 0);
  wake(agent);
}

/* --- the transport --- */

static struct agent_double *agent_of(const struct transport *transport) {
  return (struct agent_double *)(void *)((char *)(uintptr_t)transport - offsetof(struct agent_double, transport));
}

static void close_connection(struct agent_double *agent) {
  agent->open = agent->connecting = false;
  uv_timer_stop(&agent->later);
  buffer_clear(&agent->to_agent);
  buffer_clear(&agent->to_session);
  struct wire *wire = agent->wire;
  agent->wire = NULL;
  wire_free(wire);
}

static void on_later(uv_timer_t *timer) {
  struct agent_double *agent = timer->data;
  agent->connecting = false;
  if (agent->refuse != REASON_NONE) {
    struct error *err CLEANUP_ERROR = NULL;
    error_set_detail(&err, agent->refuse, "refused by the test");
    agent->events.connected(agent->events.context, err);
    return;
  }
  const struct wire_options options = {.role = WIRE_SERVER,
                                       .message_limit = 2 * 1024 * 1024,
                                       .call_window = agent->call_window ? agent->call_window : 256 * 1024,
                                       .calls_limit = 512,
                                       .output_limit = 256 * 1024};
  agent->open = true;
  if (!agent->raw)
    agent->wire = wire_new(&options, &wire_events, agent);
  agent->events.connected(agent->events.context, NULL);
  wake(agent);
}

static void double_connect(struct transport *transport, const struct transport_events *events) {
  struct agent_double *agent = agent_of(transport);
  assert_false(agent->open || agent->connecting || agent->freed);
  agent->events = *events;
  agent->connecting = true;
  agent->paused = false;
  agent->connects++;
  if (!agent->never)
    uv_timer_start(&agent->later, on_later, 0, 0);
}

static int double_write(struct transport *transport, const uint8_t *bytes, size_t length) {
  struct agent_double *agent = agent_of(transport);
  if (!agent->open)
    return -1;
  agent->received += length;
  if (buffer_append(&agent->to_agent, bytes, length) != 0)
    return -1;
  if (agent->to_agent.length > agent->most_queued)
    agent->most_queued = agent->to_agent.length;
  wake(agent);
  return 0;
}

static size_t double_queued(const struct transport *transport) {
  return agent_of(transport)->to_agent.length;
}

static void double_pause(struct transport *transport, bool paused) {
  agent_of(transport)->paused = paused;
}

static void double_disconnect(struct transport *transport) {
  close_connection(agent_of(transport));
}

static void double_free(struct transport *transport) {
  struct agent_double *agent = agent_of(transport);
  assert_false(agent->freed);
  close_connection(agent);
  agent->freed = true;
  uv_close((uv_handle_t *)&agent->pump, NULL);
  uv_close((uv_handle_t *)&agent->later, NULL);
}

void agent_double_cut(struct agent_double *agent) {
  struct error *err CLEANUP_ERROR = NULL;
  if (!agent->open)
    return;
  close_connection(agent);
  error_set_detail(&err, REASON_SANDBOX_NOT_READY, "cut by the test");
  agent->events.lost(agent->events.context, err);
}

void agent_double_init(struct agent_double *agent, uv_loop_t *loop, const struct agent_script *script) {
  static const struct transport_operations operations = {.connect = double_connect,
                                                         .write = double_write,
                                                         .queued = double_queued,
                                                         .pause = double_pause,
                                                         .disconnect = double_disconnect,
                                                         .free = double_free};
  memset(agent, 0, sizeof *agent);
  agent->loop = loop;
  agent->script = script;
  agent->transport.operations = &operations;
  memset(agent->instance, 7, sizeof agent->instance);
  buffer_init(&agent->to_session, 256 * 1024 * 1024);
  buffer_init(&agent->to_agent, 256 * 1024 * 1024);
  uv_idle_init(loop, &agent->pump);
  uv_timer_init(loop, &agent->later);
  agent->pump.data = agent->later.data = agent;
}

void agent_double_free(struct agent_double *agent) {
  for (size_t i = 0; i < agent->call_count; i++) {
    struct agent_call *call = agent->calls[i];
    if (call->first)
      protobuf_c_message_free_unpacked(&call->first->base, NULL);
    buffer_free(&call->input);
    buffer_free(&call->content);
    free(call);
  }
  buffer_free(&agent->to_session);
  buffer_free(&agent->to_agent);
}

struct agent_call *agent_double_call(struct agent_double *agent, const char *method) {
  for (size_t i = agent->call_count; i-- > 0;)
    if (strcmp(agent->calls[i]->method, method) == 0)
      return agent->calls[i];
  return NULL;
}

/* --- answers --- */

void agent_send(struct agent_call *call, const ProtobufCMessage *message) {
  size_t length;
  uint8_t *packed = call->call ? message_pack(message, &length) : NULL;
  if (packed)
    wire_call_send_owned(call->call, packed, length);
  wake(call->agent);
}

void agent_started(struct agent_call *call, uint64_t stdin_offset) {
  Sandbox__Agent__V1__RunStarted started = SANDBOX__AGENT__V1__RUN_STARTED__INIT;
  Sandbox__Agent__V1__RunResponse response = SANDBOX__AGENT__V1__RUN_RESPONSE__INIT;
  started.stdin_offset = stdin_offset;
  response.response_case = SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_STARTED;
  response.started = &started;
  if (call->attach)
    call->input_offset = stdin_offset;
  agent_send(call, &response.base);
}

void agent_output(struct agent_call *call, unsigned stream, uint64_t offset, const void *bytes, size_t length) {
  Sandbox__Agent__V1__OutputChunk output = SANDBOX__AGENT__V1__OUTPUT_CHUNK__INIT;
  Sandbox__Agent__V1__RunResponse response = SANDBOX__AGENT__V1__RUN_RESPONSE__INIT;
  output.stream = stream;
  output.offset = offset;
  output.data = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)bytes, .len = length};
  response.response_case = SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_OUTPUT;
  response.output = &output;
  agent_send(call, &response.base);
}

void agent_end(struct agent_call *call, int ended_by, int exit_code, int signal, uint64_t out, uint64_t err) {
  Sandbox__Agent__V1__RunEnd end = SANDBOX__AGENT__V1__RUN_END__INIT;
  Sandbox__Agent__V1__RunResponse response = SANDBOX__AGENT__V1__RUN_RESPONSE__INIT;
  end.ended_by = (Sandbox__Agent__V1__RunEndedBy)ended_by;
  end.exit_code = exit_code;
  end.signal = signal;
  end.stdout_bytes = out;
  end.stderr_bytes = err;
  response.response_case = SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_END;
  response.end = &end;
  agent_send(call, &response.base);
}

void agent_info(struct agent_call *call, uint64_t size, const uint8_t *sha256) {
  Sandbox__Agent__V1__FileInfo info = SANDBOX__AGENT__V1__FILE_INFO__INIT;
  Sandbox__Agent__V1__ReadFileResponse response = SANDBOX__AGENT__V1__READ_FILE_RESPONSE__INIT;
  info.size_bytes = size;
  info.sha256 = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)sha256, .len = sha256 ? 32 : 0};
  response.response_case = SANDBOX__AGENT__V1__READ_FILE_RESPONSE__RESPONSE_INFO;
  response.info = &info;
  agent_send(call, &response.base);
}

void agent_data(struct agent_call *call, const void *bytes, size_t length) {
  Sandbox__Agent__V1__ReadFileResponse response = SANDBOX__AGENT__V1__READ_FILE_RESPONSE__INIT;
  response.response_case = SANDBOX__AGENT__V1__READ_FILE_RESPONSE__RESPONSE_DATA;
  response.data = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)bytes, .len = length};
  agent_send(call, &response.base);
}

void agent_finish(struct agent_call *call, int status, const char *text) {
  if (call->call)
    wire_call_finish(call->call, status, text);
  wake(call->agent);
}
