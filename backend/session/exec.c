/*
 * One command on the agent: started once, taken up again after a broken connection from the offsets that were got, and
 * bounded here whatever the agent says.
 */
#include "backend/session/internal.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/memory.h"
#include "base/message.h"
#include "sandbox/agent/v1/agent.pb-c.h"
#include <string.h>

enum { ID_BYTES = 16, STDIN_CHUNK = 65536, STDIN_KEPT = 1 << 20, STDIN_HIGH = 256 * 1024 };

#define REATTACH (30 * CLOCK_SECOND)
#define GRACE (2 * CLOCK_SECOND) /* what the agent's own timer gets before ours acts */

/* Standard input that the agent may not have taken: everything from `taken` on, in one buffer. */
struct input {
  uint8_t *bytes;
  size_t length, capacity;
  uint64_t start; /* offset of bytes[0] */
  uint64_t sent;  /* offset up to which it was queued on the present call */
  bool end, end_sent, waiting;
};

struct session_exec {
  struct operation operation;
  const struct session_exec_events *events;
  void *context;
  uint8_t id[ID_BYTES];
  char *command, *cwd;
  struct session_variable *environment; /* one block, strings behind it */
  size_t environment_count;
  int64_t timeout;
  uint64_t output_limit;
  bool stdin_open;
  bool sent;    /* RunStart was queued once */
  bool started; /* the agent said so on the present call */
  bool told;    /* the owner knows */
  uint64_t generation;
  uint64_t got[2];
  size_t held;  /* bytes given to the owner on the present call and not consumed */
  size_t stale; /* the same of former calls: no window to give back */
  struct input input;
  bool cancelled;
  enum session_ended forced; /* decided here; the agent's word does not count */
  bool has_end;
  struct session_end end;
};

static struct session_exec *exec_of(struct operation *operation)
{
  return (struct session_exec *)(void *)operation;
}

/* --- the end --- */

static void exec_release(struct session_exec *exec)
{
  memory_free(exec->command);
  memory_free(exec->cwd);
  memory_free(exec->environment);
  memory_free(exec->input.bytes);
  exec->command = exec->cwd = NULL;
  exec->environment = NULL;
  exec->input.bytes = NULL;
}

/* err is not freed. */
static void exec_finish(struct session_exec *exec, const struct session_end *end, struct error *err)
{
  const struct session_exec_events *events = exec->events;
  void *context = exec->context;
  struct session_end copy = end ? *end : (struct session_end){0};
  exec_release(exec);
  operation_finish(&exec->operation);
  events->ended(context, end ? &copy : NULL, err);
}

static void exec_finish_as(struct session_exec *exec, enum session_ended ended_by)
{
  struct session_end end = {.ended_by = ended_by, .exit_code = 137, .signal = 9, .stdout_bytes = exec->got[0], .stderr_bytes = exec->got[1]};
  exec_finish(exec, &end, NULL);
}

static void exec_not_started(struct session_exec *exec, enum reason reason, const char *detail)
{
  CLEANUP_ERROR struct error *err = NULL;
  error_set_detail(&err, reason, "%s", detail);
  exec_finish(exec, NULL, err);
}

/* Kills it; the end comes when the call is over. */
static void exec_force(struct session_exec *exec, enum session_ended ended_by)
{
  if (!exec->forced)
    exec->forced = ended_by;
  if (exec->operation.call) {
    wire_call_cancel(exec->operation.call);
    session_schedule(exec->operation.session);
  }
}

/* --- standard input --- */

static int input_append(struct input *input, const uint8_t *bytes, size_t length)
{
  if (input->length + length > input->capacity) {
    size_t capacity = input->capacity ? input->capacity : STDIN_CHUNK;
    while (capacity < input->length + length)
      capacity *= 2;
    uint8_t *grown = memory_resize(input->bytes, capacity);
    if (!grown)
      return -1;
    input->bytes = grown;
    input->capacity = capacity;
  }
  memcpy(input->bytes + input->length, bytes, length);
  input->length += length;
  return 0;
}

/* What was sent and lies further back than any window is with the agent for certain. */
static void input_trim(struct input *input)
{
  uint64_t behind = input->sent - input->start;
  if (behind <= STDIN_KEPT)
    return;
  size_t drop = (size_t)(behind - STDIN_KEPT);
  memmove(input->bytes, input->bytes + drop, input->length - drop);
  input->length -= drop;
  input->start += drop;
}

static void input_send(struct session_exec *exec)
{
  struct input *input = &exec->input;
  struct operation *operation = &exec->operation;
  while (operation->call && exec->started && input->sent < input->start + input->length &&
         wire_call_queued(operation->call) < STDIN_HIGH) {
    size_t at = (size_t)(input->sent - input->start), length = input->length - at;
    if (length > STDIN_CHUNK)
      length = STDIN_CHUNK;
    Sandbox__Agent__V1__StdinChunk chunk = SANDBOX__AGENT__V1__STDIN_CHUNK__INIT;
    chunk.data = (ProtobufCBinaryData){.data = input->bytes + at, .len = length};
    chunk.offset = input->sent;
    Sandbox__Agent__V1__RunRequest request = SANDBOX__AGENT__V1__RUN_REQUEST__INIT;
    request.request_case = SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_STDIN;
    request.stdin = &chunk;
    if (operation_send(operation, &request.base) < 0)
      return; /* the call is over, or memory is short: `writable` or the next call tries again */
    input->sent += length;
  }
  input_trim(input);
  if (operation->call && exec->started && input->end && !input->end_sent && input->sent == input->start + input->length) {
    Sandbox__Agent__V1__StdinEnd end = SANDBOX__AGENT__V1__STDIN_END__INIT;
    Sandbox__Agent__V1__RunRequest request = SANDBOX__AGENT__V1__RUN_REQUEST__INIT;
    request.request_case = SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_STDIN_END;
    request.stdin_end = &end;
    input->end_sent = operation_send(operation, &request.base) == 0;
  }
}

static bool input_full(const struct session_exec *exec)
{
  return exec->input.start + exec->input.length - exec->input.sent >= STDIN_HIGH;
}

static void input_wanted(struct session_exec *exec)
{
  if (!exec->input.waiting || input_full(exec))
    return;
  exec->input.waiting = false;
  exec->events->stdin_wanted(exec->context);
}

bool session_exec_stdin(struct session_exec *exec, const uint8_t *bytes, size_t length)
{
  if (!exec->stdin_open || exec->input.end || exec->has_end)
    return true;
  if (input_append(&exec->input, bytes, length) < 0) {
    exec_force(exec, SESSION_ENDED_LOST); /* a gap would be worse */
    return true;
  }
  input_send(exec);
  exec->input.waiting = input_full(exec);
  return !exec->input.waiting;
}

void session_exec_stdin_end(struct session_exec *exec)
{
  exec->input.end = true;
  if (exec->stdin_open)
    input_send(exec);
}

void session_exec_signal(struct session_exec *exec, int number)
{
  Sandbox__Agent__V1__Signal signal_message = SANDBOX__AGENT__V1__SIGNAL__INIT;
  signal_message.number = number;
  Sandbox__Agent__V1__RunRequest request = SANDBOX__AGENT__V1__RUN_REQUEST__INIT;
  request.request_case = SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_SIGNAL;
  request.signal = &signal_message;
  if (exec->sent)
    operation_send(&exec->operation, &request.base);
}

/* --- starting and taking up --- */

static int start_send(struct session_exec *exec)
{
  Sandbox__Agent__V1__RunStart start = SANDBOX__AGENT__V1__RUN_START__INIT;
  start.id = (ProtobufCBinaryData){.data = exec->id, .len = ID_BYTES};
  start.command = exec->command;
  start.cwd = exec->cwd;
  start.timeout_milliseconds = (uint64_t)(exec->timeout / CLOCK_MILLISECOND);
  start.output_limit_bytes = exec->output_limit;
  start.stdin = exec->stdin_open;
  size_t count = exec->environment_count;
  CLEANUP_MEMORY Sandbox__Agent__V1__EnvironmentVariable *variables = memory_array(count + 1, sizeof *variables);
  CLEANUP_MEMORY Sandbox__Agent__V1__EnvironmentVariable **pointers = memory_array(count + 1, sizeof *pointers);
  if (!variables || !pointers)
    return -1;
  for (size_t i = 0; i < count; i++) {
    sandbox__agent__v1__environment_variable__init(&variables[i]);
    variables[i].name = (char *)exec->environment[i].name;
    variables[i].value = (char *)exec->environment[i].value;
    pointers[i] = &variables[i];
  }
  start.environment = pointers;
  start.n_environment = count;
  Sandbox__Agent__V1__RunRequest request = SANDBOX__AGENT__V1__RUN_REQUEST__INIT;
  request.request_case = SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_START;
  request.start = &start;
  return operation_send(&exec->operation, &request.base);
}

static int attach_send(struct session_exec *exec)
{
  Sandbox__Agent__V1__RunAttach attach = SANDBOX__AGENT__V1__RUN_ATTACH__INIT;
  attach.id = (ProtobufCBinaryData){.data = exec->id, .len = ID_BYTES};
  attach.stdout_offset = exec->got[0];
  attach.stderr_offset = exec->got[1];
  Sandbox__Agent__V1__RunRequest request = SANDBOX__AGENT__V1__RUN_REQUEST__INIT;
  request.request_case = SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_ATTACH;
  request.attach = &attach;
  return operation_send(&exec->operation, &request.base);
}

static void exec_open(struct operation *operation)
{
  struct session_exec *exec = exec_of(operation);
  uint64_t generation = session_generation(operation->session);
  if (exec->forced && !exec->sent) {
    exec_finish_as(exec, exec->forced);
    return;
  }
  if (exec->sent && exec->generation != generation) {
    exec_finish_as(exec, exec->forced ? exec->forced : SESSION_ENDED_LOST);
    return;
  }
  bool again = exec->sent;
  exec->started = false;
  exec->stale += exec->held;
  exec->held = 0;
  if (!operation_call(operation, "/sandbox.agent.v1.AgentService/Run") || (again ? attach_send(exec) : start_send(exec)) < 0) {
    if (operation->call)
      wire_call_cancel(operation->call);
    if (!exec->forced)
      exec->forced = SESSION_ENDED_LOST;
    if (!operation->call)
      exec_finish_as(exec, exec->forced);
    return;
  }
  exec->sent = true;
  exec->generation = generation;
  operation->patience = REATTACH;
  if (!again && exec->timeout) {
    operation->guard = clock_boot() + exec->timeout + GRACE;
    session_guard_changed(operation->session);
  }
}

/* --- what the agent says --- */

static void started_take(struct session_exec *exec, const Sandbox__Agent__V1__RunStarted *started)
{
  struct input *input = &exec->input;
  bool first = !exec->started;
  if (!first || started->stdin_offset < input->start || started->stdin_offset > input->start + input->length) {
    session_violated(exec->operation.session, "started with an impossible offset, or twice");
    return;
  }
  exec->started = true;
  input->sent = started->stdin_offset;
  input->end_sent = false;
  if (exec->forced) {
    exec_force(exec, exec->forced); /* cancelled while the connection was away */
    return;
  }
  if (!exec->told) {
    exec->told = true;
    exec->events->started(exec->context);
  }
  input_send(exec);
  input_wanted(exec);
}

/* Returns how many bytes the owner now holds. */
static size_t output_take(struct session_exec *exec, const Sandbox__Agent__V1__OutputChunk *chunk)
{
  if (chunk->stream < 1 || chunk->stream > 2 || chunk->offset != exec->got[chunk->stream - 1] || chunk->data.len == 0 ||
      chunk->data.len > LIMIT_CHUNK_BYTES || exec->has_end) {
    session_violated(exec->operation.session, "output that is out of order");
    return 0;
  }
  uint64_t *got = &exec->got[chunk->stream - 1], offset = *got;
  if (exec->output_limit && offset + chunk->data.len > exec->output_limit) {
    exec_force(exec, SESSION_ENDED_OUTPUT_LIMIT);
    return 0;
  }
  *got += chunk->data.len;
  exec->held += chunk->data.len;
  exec->events->output(exec->context, (int)chunk->stream, offset, chunk->data.data, chunk->data.len);
  return chunk->data.len;
}

static enum session_ended ended_by(Sandbox__Agent__V1__RunEndedBy by)
{
  switch (by) {
  case SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_EXITED:
    return SESSION_ENDED_EXITED;
  case SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_SIGNALLED:
    return SESSION_ENDED_SIGNALLED;
  case SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_TIMED_OUT:
    return SESSION_ENDED_TIMED_OUT;
  case SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_OUT_OF_MEMORY:
    return SESSION_ENDED_OUT_OF_MEMORY;
  case SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_OUTPUT_LIMIT:
    return SESSION_ENDED_OUTPUT_LIMIT;
  default:
    return SESSION_ENDED_LOST;
  }
}

static void end_take(struct session_exec *exec, const Sandbox__Agent__V1__RunEnd *end)
{
  enum session_ended by = ended_by(end->ended_by);
  bool whole = end->stdout_bytes == exec->got[0] && end->stderr_bytes == exec->got[1];
  if (exec->has_end || end->exit_code < 0 || end->exit_code > 255 || end->signal < 0 || end->signal > 64 ||
      (!whole && by != SESSION_ENDED_OUTPUT_LIMIT && by != SESSION_ENDED_LOST)) {
    session_violated(exec->operation.session, "an end that does not fit the output");
    return;
  }
  exec->has_end = true;
  exec->end = (struct session_end){.ended_by = by,
                                   .exit_code = end->signal ? 128 + end->signal : end->exit_code,
                                   .signal = end->signal,
                                   .stdout_bytes = exec->got[0],
                                   .stderr_bytes = exec->got[1]};
}

/* Returns how many bytes of the message the owner now holds. */
static size_t response_take(struct session_exec *exec, const Sandbox__Agent__V1__RunResponse *response)
{
  switch (response->response_case) {
  case SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_STARTED:
    started_take(exec, response->started);
    return 0;
  case SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_OUTPUT:
    return exec->forced ? 0 : output_take(exec, response->output);
  case SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_END:
    if (!exec->forced)
      end_take(exec, response->end);
    return 0;
  default:
    session_violated(exec->operation.session, "an answer of no kind");
    return 0;
  }
}

static void exec_message(struct operation *operation, const uint8_t *bytes, size_t length)
{
  struct wire_call *call = operation->call;
  Sandbox__Agent__V1__RunResponse *response =
      (Sandbox__Agent__V1__RunResponse *)message_unpack(&sandbox__agent__v1__run_response__descriptor, bytes, length, NULL);
  size_t kept = 0;
  if (response)
    kept = response_take(exec_of(operation), response);
  else
    session_violated(operation->session, "an answer that cannot be read");
  wire_call_consume(call, length - kept); /* the payload is given back by session_exec_consume */
  if (response)
    protobuf_c_message_free_unpacked(&response->base, NULL);
}

static void exec_writable(struct operation *operation)
{
  struct session_exec *exec = exec_of(operation);
  input_send(exec);
  input_wanted(exec);
}

static void exec_closed(struct operation *operation, int status, const char *text)
{
  static const enum reason allowed[] = {REASON_INVALID_REQUEST, REASON_NONE};
  struct session_exec *exec = exec_of(operation);
  if (exec->forced)
    exec_finish_as(exec, exec->forced);
  else if (exec->has_end)
    exec_finish(exec, &exec->end, NULL);
  else if (status == WIRE_UNAVAILABLE)
    operation->waiting_since = clock_boot();
  else if (!exec->told)
    exec_not_started(exec, status_reason(status, text, allowed, REASON_SANDBOX_NOT_READY), text);
  else
    exec_finish_as(exec, SESSION_ENDED_LOST);
}

static void exec_abandon(struct operation *operation, enum session_ended why, const struct error *err)
{
  struct session_exec *exec = exec_of(operation);
  if (exec->has_end && !exec->forced)
    exec_finish(exec, &exec->end, NULL);
  else if (exec->forced)
    exec_finish_as(exec, exec->forced);
  else if (!exec->sent && why == SESSION_ENDED_LOST)
    exec_not_started(exec, REASON_SANDBOX_NOT_READY, error_detail(err));
  else
    exec_finish_as(exec, why);
}

static void exec_overdue(struct operation *operation)
{
  struct session_exec *exec = exec_of(operation);
  exec_force(exec, SESSION_ENDED_TIMED_OUT);
  if (!operation->call)
    exec_finish_as(exec, SESSION_ENDED_TIMED_OUT);
}

/* --- the interface --- */

/* One block: the list, then the strings. */
static struct session_variable *environment_copy(const struct session_variable *from, size_t count)
{
  size_t size = (count + 1) * sizeof *from;
  for (size_t i = 0; i < count; i++)
    size += strlen(from[i].name) + strlen(from[i].value) + 2;
  struct session_variable *copy = memory_new(size);
  char *at = copy ? (char *)(copy + count + 1) : NULL;
  for (size_t i = 0; copy && i < count; i++) {
    copy[i].name = at;
    at = stpcpy(at, from[i].name) + 1;
    copy[i].value = at;
    at = stpcpy(at, from[i].value) + 1;
  }
  return copy;
}

struct session_exec *session_exec_start(struct session *session, const struct session_command *command,
                                        const struct session_exec_events *events, void *context)
{
  static const struct operation_kind kind = {.open = exec_open, .message = exec_message, .writable = exec_writable,
                                             .closed = exec_closed, .abandon = exec_abandon};
  struct session_exec *exec = memory_zero(sizeof *exec);
  if (!exec)
    return NULL;
  exec->command = memory_string(command->command);
  exec->cwd = memory_string(command->cwd);
  exec->environment = environment_copy(command->environment, command->environment_count);
  if (!exec->command || !exec->cwd || !exec->environment) {
    exec_release(exec);
    memory_free(exec);
    return NULL;
  }
  exec->environment_count = command->environment_count;
  exec->events = events;
  exec->context = context;
  exec->timeout = command->timeout;
  exec->output_limit = command->output_limit;
  exec->stdin_open = command->stdin_open;
  exec->operation.on_guard = exec_overdue;
  random_bytes(exec->id, ID_BYTES);
  operation_add(session, &exec->operation, &kind);
  return exec;
}

void session_exec_consume(struct session_exec *exec, size_t length)
{
  size_t stale = length < exec->stale ? length : exec->stale;
  exec->stale -= stale;
  length -= stale;
  if (length > exec->held)
    length = exec->held;
  exec->held -= length;
  if (length && exec->operation.call) {
    wire_call_consume(exec->operation.call, length);
    session_schedule(exec->operation.session);
  }
}

static void exec_cancel_now(struct operation *operation)
{
  struct session_exec *exec = exec_of(operation);
  if (!operation->call && !exec->sent)
    exec_finish_as(exec, exec->forced);
}

void session_exec_cancel(struct session_exec *exec)
{
  exec_force(exec, SESSION_ENDED_CANCELLED);
  if (exec->operation.call)
    return;
  /* Nothing to wait for, or a connection to come; never called back from here. */
  exec->operation.on_guard = exec->sent ? exec_overdue : exec_cancel_now;
  exec->operation.guard = clock_boot() + (exec->sent ? REATTACH : 0);
  session_guard_changed(exec->operation.session);
}
