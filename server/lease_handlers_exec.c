/*
 * Exec: one command to its end, its whole output in one answer.
 */
#include "base/memory.h"
#include "server/lease_command.h"
#include "server/lease_encode.h"
#include "server/lease_handlers.h"
#include "server/lease_state.h"

struct exec {
  struct lease_operation operation;
  struct session_exec *session; /* NULL once it has ended */
  struct buffer streams[2];     /* stdout, stderr */
};

int lease_check_exec(const ProtobufCMessage *message, struct error **err) {
  const Sandbox__Lease__V1__ExecRequest *request = (const Sandbox__Lease__V1__ExecRequest *)message;
  return lease_command_check(request->command, err);
}

static void exec_drop_output(struct exec *exec) {
  buffer_free(&exec->streams[0]);
  buffer_free(&exec->streams[1]);
}

static void exec_stop(struct lease_operation *operation) {
  struct exec *exec = (struct exec *)operation;
  exec_drop_output(exec);
  session_exec_cancel(exec->session);
}

static void exec_free(struct lease_operation *operation) {
  struct exec *exec = (struct exec *)operation;
  exec_drop_output(exec);
  memory_free(exec);
}

static void exec_output(void *context, int stream, uint64_t offset, const uint8_t *bytes, size_t length) {
  struct exec *exec = context;
  (void)offset;
  struct buffer *buffer = &exec->streams[stream == 1 ? 0 : 1];
  if (exec->operation.call && buffer_append(buffer, bytes, length) < 0) {
    bool full = length > LIMIT_OUTPUT_BYTES - buffer->length;
    lease_operation_fail(&exec->operation, lease_error(full ? REASON_OUTPUT_TOO_LARGE : REASON_INTERNAL));
  }
  lease_holding_set(&exec->operation, exec->streams[0].capacity + exec->streams[1].capacity);
  session_exec_consume(exec->session, length);
}

static void exec_answer(struct exec *exec, const struct session_end *end) {
  switch (end->ended_by) {
  case SESSION_ENDED_EXITED:
  case SESSION_ENDED_SIGNALLED:
  case SESSION_ENDED_OUT_OF_MEMORY:
    if (lease_holding_leave(&exec->operation) < 0) {
      lease_operation_fail(&exec->operation, lease_error(REASON_INTERNAL));
      return;
    }
    call_reply_buffer(lease_operation_answer(&exec->operation),
                      lease_encode_exec(&exec->streams[0], &exec->streams[1], end->exit_code,
                                        lease_ended_by(end->ended_by)));
    return;
  case SESSION_ENDED_OUTPUT_LIMIT:
    lease_operation_fail(&exec->operation, lease_error(REASON_OUTPUT_TOO_LARGE));
    return;
  case SESSION_ENDED_TIMED_OUT:
  case SESSION_ENDED_CANCELLED:
  case SESSION_ENDED_LEASE:
    lease_operation_fail(&exec->operation, lease_error(REASON_ABORTED));
    return;
  case SESSION_ENDED_LOST:
    break;
  }
  lease_operation_fail(&exec->operation, lease_error(REASON_SANDBOX_NOT_READY));
}

static void exec_ended(void *context, const struct session_end *end, struct error *err) {
  struct exec *exec = context;
  exec->session = NULL;
  exec->operation.running = false;
  if (exec->operation.call && err)
    lease_operation_fail(&exec->operation, lease_error_copy(err));
  else if (exec->operation.call)
    exec_answer(exec, end);
  lease_operation_settle(&exec->operation);
}

static void exec_ignore(void *context) {
  (void)context;
}

static void exec_begin(struct exec *exec, struct session *session, const struct session_command *command) {
  static const struct session_exec_events session_events = {
    .started = exec_ignore, .output = exec_output, .stdin_wanted = exec_ignore, .ended = exec_ended};
  static const struct call_events call_events = {.cancelled = lease_operation_cancelled};
  exec->session = session_exec_start(session, command, &session_events, exec);
  if (!exec->session) {
    lease_operation_fail(&exec->operation, lease_error(REASON_INTERNAL));
    lease_operation_settle(&exec->operation);
    return;
  }
  exec->operation.running = true;
  call_watch(exec->operation.call, &call_events, &exec->operation);
}

static const struct lease_operation_kind exec_kind = {.stop = exec_stop, .free = exec_free};

static void exec_found(struct lease_service *service, struct call *call, const ProtobufCMessage *message,
                       struct lease *lease, struct error *err) {
  const Sandbox__Lease__V1__ExecRequest *request = (const Sandbox__Lease__V1__ExecRequest *)message;
  struct lease_command command;
  if (!err)
    lease_command_fill(&command, request->command, &err);
  struct exec *exec = err ? NULL : memory_zero(sizeof(*exec));
  if (!exec) {
    call_fail(call, err ? err : lease_error(REASON_INTERNAL));
    return;
  }
  buffer_init(&exec->streams[0], LIMIT_OUTPUT_BYTES);
  buffer_init(&exec->streams[1], LIMIT_OUTPUT_BYTES);
  struct session *session = lease_operation_begin(&exec->operation, &exec_kind, service, call, lease);
  if (!session)
    return;
  command.command.output_limit = LIMIT_OUTPUT_BYTES;
  exec_begin(exec, session, &command.command);
}

void lease_handle_exec(struct call *call, const ProtobufCMessage *message, void *context) {
  const Sandbox__Lease__V1__ExecRequest *request = (const Sandbox__Lease__V1__ExecRequest *)message;
  lease_lookup(context, call, request->lease_id, message, exec_found);
}
