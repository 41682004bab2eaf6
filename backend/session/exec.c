/*
 * One command on the agent: started once, taken up again after a broken connection from the offsets that were got, and
 * bounded here whatever the agent says.
 */
#include "backend/session/exec.h"

#include "backend/session/reply.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/message.h"
#include "sandbox/agent/v1/agent.pb-c.h"
#include <stdio.h>
#include <string.h>

#define HELD_MOST (768 * 1024)         /* with a slow user: no attach before he has taken some */
#define INPUT_LIMIT (32 * 1024 * 1024) /* the user passes at most so much and what he was told to stop at */
#define SIGNALS 64
#define KILLED 9

static struct session_exec *exec_of(struct operation *operation) {
  return (struct session_exec *)(void *)operation;
}

/* --- its end --- */

/* end NULL: it could not be started. */
static void end_with(struct session_exec *exec, const struct session_end *end, struct error *err) {
  memory_free(exec->request);
  exec->request = NULL;
  buffer_free(&exec->input.kept);
  operation_finish(&exec->operation);
  exec->events->ended(exec->context, end, err);
  operation_told(&exec->operation);
}

static void end_as(struct session_exec *exec, enum session_ended ended_by) {
  struct session_end end = {.ended_by = ended_by,
                            .exit_code = 128 + KILLED,
                            .signal = KILLED,
                            .stdout_bytes = exec->got[0],
                            .stderr_bytes = exec->got[1]};
  end_with(exec, &end, NULL);
}

static void end_unstarted(struct session_exec *exec, enum reason reason, const char *detail) {
  struct error *err CLEANUP_ERROR = NULL;
  error_set_detail(&err, reason, "%.*s", DETAIL_SIZE, detail);
  end_with(exec, NULL, err);
}

/* The command may run, but nobody knows. */
static void end_lost(struct session_exec *exec, const char *detail) {
  char what[DETAIL_SIZE];
  snprintf(what, sizeof what, "%s", detail);
  log_write(LOG_INFO, "command_lost", LOG_TEXT("lease", exec->operation.session->lease), LOG_TEXT("detail", what));
  operation_reset(&exec->operation);
  if (exec->told || exec->forced)
    end_as(exec, exec->forced ? exec->forced : SESSION_ENDED_LOST);
  else
    end_unstarted(exec, REASON_SANDBOX_NOT_READY, detail);
}

/* Kills it. Without a connection that is an errand for the next one: the agent keeps the command until then. */
static void end_forced(struct session_exec *exec) {
  exec->operation.errand = exec->stage == EXEC_AWAY;
  if (exec->operation.errand)
    operation_due(&exec->operation, exec->away_since + session_patience.reattach);
  operation_reset(&exec->operation);
  end_as(exec, exec->forced);
}

void exec_force(struct session_exec *exec, enum session_ended ended_by) {
  if (!exec->forced)
    exec->forced = ended_by;
  operation_due(&exec->operation, 1);
}

/* --- starting and taking up --- */

static void set_due(struct session_exec *exec) {
  int64_t due = exec->wait_until;
  if (exec->timeout_at != 0 && (due == 0 || exec->timeout_at < due))
    due = exec->timeout_at;
  operation_due(&exec->operation, exec->forced ? 1 : due);
}

static void wait_for(struct session_exec *exec, enum exec_stage stage, int64_t patience) {
  exec->stage = stage;
  exec->wait_until = patience ? clock_boot() + patience : 0;
  set_due(exec);
}

/* From the break until the agent says that it runs, however many connections that takes. */
static void wait_away(struct session_exec *exec, enum exec_stage stage) {
  exec->stage = stage;
  exec->wait_until = exec->away_since + session_patience.reattach;
  set_due(exec);
}

static void start(struct session_exec *exec) {
  struct operation *operation = &exec->operation;
  if (operation_call(operation) != 0 || wire_call_send(operation->call, exec->request, exec->request_length) != 0) {
    end_lost(exec, "no memory, or too many calls");
    return;
  }
  exec->generation = operation->session->generation;
  if (exec->timeout != 0 && exec->timeout_at == 0)
    exec->timeout_at = clock_boot() + exec->timeout + session_patience.grace;
  exec->input.sent = exec->input.start;
  exec->input.end_sent = false;
  wait_for(exec, EXEC_STARTING, session_patience.start);
  exec_input_run(exec);
}

static void attach(struct session_exec *exec) {
  Sandbox__Agent__V1__RunAttach attach = SANDBOX__AGENT__V1__RUN_ATTACH__INIT;
  attach.id = (ProtobufCBinaryData){.data = exec->id, .len = EXEC_ID_BYTES};
  attach.stdout_offset = exec->got[0];
  attach.stderr_offset = exec->got[1];
  Sandbox__Agent__V1__RunRequest request = SANDBOX__AGENT__V1__RUN_REQUEST__INIT;
  request.request_case = SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_ATTACH;
  request.attach = &attach;
  exec->stage = EXEC_ATTACHING;
  if (operation_call(&exec->operation) == 0 && operation_send(&exec->operation, &request.base) == 0) {
    if (!exec->operation.finished)
      wait_away(exec, EXEC_ATTACHING);
  } else if (!exec->operation.finished) {
    end_lost(exec, "no memory, or too many calls");
  }
}

static void exec_open(struct operation *operation) {
  struct session_exec *exec = exec_of(operation);
  bool same = exec->generation == operation->session->generation;
  if (exec->forced && !operation->finished)
    return; /* it is about to be ended */
  if (exec->stage == EXEC_NEW) {
    start(exec);
  } else if (!same && operation->finished) {
    operation->errand = false;
    operation_done(operation);
  } else if (!same) {
    end_lost(exec, "the agent is not the one that it was");
  } else if (operation->finished || exec->held + exec->stale <= HELD_MOST) {
    attach(exec);
  }
}

static void exec_lost(struct operation *operation, bool violated) {
  struct session_exec *exec = exec_of(operation);
  exec->stale += exec->held;
  exec->held = 0;
  if (exec->away_since == 0)
    exec->away_since = clock_boot();
  if (violated)
    end_lost(exec, "the agent broke the protocol");
  else
    wait_away(exec, EXEC_AWAY);
}

static void exec_overdue(struct operation *operation, int64_t now) {
  struct session_exec *exec = exec_of(operation);
  if (operation->finished) {
    operation->errand = false;
    operation_done(operation);
    return;
  }
  if (!exec->forced && exec->timeout_at != 0 && exec->timeout_at <= now)
    exec->forced = SESSION_ENDED_TIMED_OUT;
  if (exec->forced)
    end_forced(exec);
  else if (exec->wait_until != 0 && exec->wait_until <= now)
    end_lost(exec, operation->session->detail[0] ? operation->session->detail : "no answer in time");
  else
    set_due(exec);
}

/* --- what the agent says --- */

static void send_signals(struct session_exec *exec) {
  for (int number = 1; exec->signals != 0 && number <= SIGNALS; number++) {
    uint64_t bit = (uint64_t)1 << (number - 1);
    if (!(exec->signals & bit))
      continue;
    exec->signals &= ~bit;
    Sandbox__Agent__V1__Signal signal = SANDBOX__AGENT__V1__SIGNAL__INIT;
    signal.number = number;
    Sandbox__Agent__V1__RunRequest request = SANDBOX__AGENT__V1__RUN_REQUEST__INIT;
    request.request_case = SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_SIGNAL;
    request.signal = &signal;
    if (operation_send(&exec->operation, &request.base) != 0)
      exec_force(exec, SESSION_ENDED_LOST); /* without memory */
  }
}

static const char *take_started(struct session_exec *exec, const struct reply *reply) {
  bool fresh = exec->stage == EXEC_STARTING;
  if (!fresh && exec->stage != EXEC_ATTACHING)
    return "it says twice that a command runs";
  if (exec->operation.finished) { /* that was the errand */
    exec->operation.errand = false;
    operation_reset(&exec->operation);
    return NULL;
  }
  if (fresh ? reply->offset != 0 : exec_input_resume(exec, reply->offset) != 0)
    return "an impossible offset of standard input";
  memory_free(exec->request);
  exec->request = NULL;
  exec->away_since = 0;
  wait_for(exec, EXEC_RUNNING, 0);
  if (!exec->told) {
    exec->told = true;
    exec->events->started(exec->context);
  }
  if (exec->operation.finished)
    return NULL;
  send_signals(exec);
  exec_input_run(exec);
  exec_input_tell(exec);
  return NULL;
}

static const char *take_output(struct session_exec *exec, const struct reply *reply) {
  uint64_t *got = &exec->got[reply->stream - 1], offset = *got;
  if (reply->offset != offset || reply->length > UINT64_MAX - offset)
    return "output that is not what comes next";
  size_t length = reply->length;
  bool over = exec->output_limit != 0 && length > exec->output_limit - offset;
  if (over)
    length = (size_t)(exec->output_limit - offset);
  *got += length;
  exec->held += length;
  if (length > 0)
    exec->events->output(exec->context, reply->stream, offset, reply->bytes, length);
  if (over && !exec->operation.finished)
    exec_force(exec, SESSION_ENDED_OUTPUT_LIMIT);
  return NULL;
}

static enum session_ended ended_by(int by) {
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

static const char *take_end(struct session_exec *exec, const struct reply *reply) {
  enum session_ended by = ended_by(reply->ended_by);
  bool whole = reply->stdout_bytes == exec->got[0] && reply->stderr_bytes == exec->got[1];
  if (!whole && by != SESSION_ENDED_OUTPUT_LIMIT && by != SESSION_ENDED_LOST)
    return "an end that does not fit the output";
  if ((by == SESSION_ENDED_SIGNALLED) != (reply->signal != 0) && by <= SESSION_ENDED_SIGNALLED)
    return "an end that contradicts itself";
  struct session_end end = {.ended_by = by,
                            .exit_code = reply->signal ? 128 + reply->signal : reply->exit_code,
                            .signal = reply->signal,
                            .stdout_bytes = exec->got[0],
                            .stderr_bytes = exec->got[1]};
  end_with(exec, &end, NULL);
  return NULL;
}

static const char *take(struct session_exec *exec, const struct reply *reply) {
  if (reply->kind == REPLY_STARTED)
    return take_started(exec, reply);
  if (exec->operation.finished || exec->forced)
    return NULL;
  if (exec->stage != EXEC_RUNNING)
    return "output of a command before it was started";
  if (reply->kind == REPLY_OUTPUT)
    return take_output(exec, reply);
  return reply->kind == REPLY_END ? take_end(exec, reply) : "an answer of no kind";
}

static void exec_message(struct operation *operation, const uint8_t *bytes, size_t length) {
  struct session_exec *exec = exec_of(operation);
  struct session *session = operation->session;
  struct reply reply;
  reply_read_run(bytes, length, &reply);
  /* Output is given back by session_exec_consume, and what the user was not given is not given back at all. */
  wire_call_consume(operation->call, reply.kind == REPLY_OUTPUT ? length - reply.length : length);
  const char *wrong = reply.kind == REPLY_BAD ? "an answer that cannot be read" : take(exec, &reply);
  if (wrong)
    connection_violated(session, wrong);
}

static void exec_writable(struct operation *operation) {
  struct session_exec *exec = exec_of(operation);
  exec_input_run(exec);
  exec_input_tell(exec);
}

/* The agent ended the call and did not say how the command ended. */
static void exec_closed(struct operation *operation, int status, const char *text) {
  struct session_exec *exec = exec_of(operation);
  enum reason reason = reply_reason(text);
  bool unseen = exec->stage == EXEC_ATTACHING && !exec->told && reason == REASON_NOT_FOUND;
  if (unseen && exec->request && clock_boot() - exec->away_since < session_patience.restart && !exec->forced) {
    wait_for(exec, EXEC_NEW, session_patience.start);
    session_schedule(operation->session);
  } else if (exec->told || exec->forced) {
    end_lost(exec, text);
  } else {
    /* What the agent calls internal is the sandbox's own trouble: a command may have killed the agent's helpers. */
    bool ours = reason == REASON_INVALID_REQUEST;
    end_unstarted(exec, ours && status != WIRE_OK ? REASON_INTERNAL : REASON_SANDBOX_NOT_READY, text);
  }
}

static void exec_fail(struct operation *operation, const struct error *why) {
  end_lost(exec_of(operation), error_detail(why));
}

static void exec_abandon(struct operation *operation, enum session_ended why) {
  struct session_exec *exec = exec_of(operation);
  end_as(exec, exec->forced ? exec->forced : why);
}

static void exec_release(struct operation *operation) {
  struct session_exec *exec = exec_of(operation);
  memory_free(exec->request);
  buffer_free(&exec->input.kept);
}

static size_t exec_memory(const struct operation *operation) {
  const struct session_exec *exec = (const struct session_exec *)(const void *)operation;
  return sizeof *exec + exec->request_length + exec->input.kept.capacity;
}

/* --- what the user asks for --- */

static uint8_t *pack_start(const struct session_exec *exec, const struct session_command *command, size_t *length) {
  size_t count = command->environment_count;
  CLEANUP_MEMORY Sandbox__Agent__V1__EnvironmentVariable *variables = memory_array(count + 1, sizeof *variables);
  CLEANUP_MEMORY Sandbox__Agent__V1__EnvironmentVariable **pointers = memory_array(count + 1, sizeof *pointers);
  if (!variables || !pointers)
    return NULL;
  for (size_t i = 0; i < count; i++) {
    sandbox__agent__v1__environment_variable__init(&variables[i]);
    variables[i].name = (char *)(uintptr_t)command->environment[i].name;
    variables[i].value = (char *)(uintptr_t)command->environment[i].value;
    pointers[i] = &variables[i];
  }
  Sandbox__Agent__V1__RunStart message = SANDBOX__AGENT__V1__RUN_START__INIT;
  message.id = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)exec->id, .len = EXEC_ID_BYTES};
  message.command = (char *)(uintptr_t)command->command;
  message.cwd = (char *)(uintptr_t)command->cwd;
  message.environment = pointers;
  message.n_environment = count;
  message.timeout_milliseconds = ((uint64_t)command->timeout + CLOCK_MILLISECOND - 1) / CLOCK_MILLISECOND;
  message.output_limit_bytes = command->output_limit;
  message.stdin = command->stdin_open;
  Sandbox__Agent__V1__RunRequest request = SANDBOX__AGENT__V1__RUN_REQUEST__INIT;
  request.request_case = SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_START;
  request.start = &message;
  return message_pack(&request.base, length);
}

struct session_exec *session_exec_start(struct session *session, const struct session_command *command,
                                        const struct session_exec_events *events, void *context) {
  static const struct operation_kind kind = {.method = "/sandbox.agent.v1.AgentService/Run",
                                             .open = exec_open,
                                             .message = exec_message,
                                             .writable = exec_writable,
                                             .closed = exec_closed,
                                             .lost = exec_lost,
                                             .overdue = exec_overdue,
                                             .fail = exec_fail,
                                             .abandon = exec_abandon,
                                             .release = exec_release,
                                             .memory = exec_memory};
  struct session_exec *exec = memory_zero(sizeof *exec);
  if (!exec)
    return NULL;
  random_bytes(exec->id, EXEC_ID_BYTES);
  exec->request = pack_start(exec, command, &exec->request_length);
  if (!exec->request) {
    memory_free(exec);
    return NULL;
  }
  exec->events = events;
  exec->context = context;
  exec->timeout = command->timeout;
  exec->output_limit = command->output_limit;
  exec->input.none = !command->stdin_open;
  buffer_init(&exec->input.kept, INPUT_LIMIT);
  operation_add(session, &exec->operation, &kind);
  wait_for(exec, EXEC_NEW, session->connect_timeout);
  return exec;
}

void session_exec_consume(struct session_exec *exec, size_t length) {
  size_t stale = length < exec->stale ? length : exec->stale;
  exec->stale -= stale;
  length -= stale;
  if (length > exec->held)
    length = exec->held;
  exec->held -= length;
  operation_consume(&exec->operation, length);
  if (stale > 0 && exec->stage == EXEC_AWAY)
    session_schedule(exec->operation.session); /* an attach may have waited for it */
}

void session_exec_signal(struct session_exec *exec, int number) {
  if (number < 1 || number > SIGNALS || exec->operation.finished)
    return;
  exec->signals |= (uint64_t)1 << (number - 1);
  if (exec->operation.call && (exec->stage == EXEC_RUNNING || exec->stage == EXEC_STARTING))
    send_signals(exec);
}

void session_exec_cancel(struct session_exec *exec) {
  if (!exec->operation.finished)
    exec_force(exec, SESSION_ENDED_CANCELLED);
}
