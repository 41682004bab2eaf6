/*
 * Standard input of a command. Bytes are kept until the agent has confirmed them through the window of the call, so
 * that after a broken connection they can be sent again from wherever the agent stopped.
 */
#include "backend/session/exec.h"

#include "backend/session/reply.h"
#include "base/memory.h"
#include "sandbox/agent/v1/agent.pb-c.h"
#include <string.h>

#define CHUNK 65536
#define QUEUE_HIGH (64 * 1024)   /* in the wire's queue: `writable` comes when it is less */
#define UNSENT_HIGH (192 * 1024) /* the user waits */
#define FORGET_STEP (64 * 1024)  /* so that bytes are moved rarely */
/* Sent and not confirmed: far more than the agent's window, so an agent that takes more of it breaks the rules. */
#define UNCONFIRMED_MOST (4 * 1024 * 1024)

static uint64_t end_of(const struct exec_input *input) {
  return input->start + input->kept.length;
}

static size_t unsent(const struct exec_input *input) {
  return (size_t)(end_of(input) - input->sent);
}

static bool can_send(const struct session_exec *exec) {
  return exec->operation.call && (exec->stage == EXEC_RUNNING || exec->stage == EXEC_STARTING);
}

static int send_chunk(struct session_exec *exec, size_t length) {
  struct exec_input *input = &exec->input;
  uint8_t head[REPLY_HEAD_MOST];
  size_t used = reply_write_stdin_head(head, input->sent, length);
  uint8_t *block = memory_new(WIRE_HEADROOM + used + length);
  if (!block)
    return -1;
  memcpy(block + WIRE_HEADROOM, head, used);
  memcpy(block + WIRE_HEADROOM + used, input->kept.data + (input->sent - input->start), length);
  if (wire_call_send_block(exec->operation.call, block, WIRE_HEADROOM, used + length) != 0)
    return -1;
  input->sent += length;
  if (input->most < input->sent)
    input->most = input->sent;
  return 0;
}

static int send_end(struct session_exec *exec) {
  Sandbox__Agent__V1__StdinEnd end = SANDBOX__AGENT__V1__STDIN_END__INIT;
  Sandbox__Agent__V1__RunRequest request = SANDBOX__AGENT__V1__RUN_REQUEST__INIT;
  request.request_case = SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_STDIN_END;
  request.stdin_end = &end;
  if (operation_send(&exec->operation, &request.base) != 0)
    return -1;
  exec->input.end_sent = true;
  return 0;
}

static int send_all(struct session_exec *exec) {
  struct exec_input *input = &exec->input;
  while (unsent(input) > 0 && wire_call_queued(exec->operation.call) < QUEUE_HIGH)
    if (send_chunk(exec, unsent(input) < CHUNK ? unsent(input) : CHUNK) != 0)
      return -1;
  return unsent(input) == 0 && input->end && !input->end_sent && !input->none ? send_end(exec) : 0;
}

/* What is queued, and what left and was not confirmed, may not have arrived. Everything before that has. Only while it
 * runs: until then the confirmations may be for RunStart. */
static void forget(struct session_exec *exec) {
  struct exec_input *input = &exec->input;
  struct wire_call *call = exec->operation.call;
  if (!call || exec->stage != EXEC_RUNNING || input->sent == input->start)
    return;
  uint64_t behind = input->sent - input->start;
  uint64_t open = (uint64_t)wire_call_queued(call) + wire_call_unconfirmed(call);
  uint64_t arrived = open < behind ? behind - open : 0;
  if (arrived >= FORGET_STEP || arrived == input->kept.length) {
    buffer_consume(&input->kept, (size_t)arrived);
    input->start += arrived;
  }
  if (open > UNCONFIRMED_MOST)
    connection_violated(exec->operation.session, "the agent's window is too large");
}

void exec_input_run(struct session_exec *exec) {
  if (exec->operation.finished || !can_send(exec))
    return;
  if (send_all(exec) != 0)
    exec_force(exec, SESSION_ENDED_LOST); /* without memory; a gap would be worse */
  forget(exec);
  session_schedule(exec->operation.session);
}

int exec_input_resume(struct session_exec *exec, uint64_t offset) {
  struct exec_input *input = &exec->input;
  if (offset < input->start || offset > input->most)
    return -1;
  input->sent = offset;
  input->end_sent = false;
  return 0;
}

void exec_input_tell(struct session_exec *exec) {
  struct exec_input *input = &exec->input;
  if (!input->waiting || unsent(input) >= UNSENT_HIGH)
    return;
  input->waiting = false;
  exec->events->stdin_wanted(exec->context);
}

bool session_exec_stdin(struct session_exec *exec, const uint8_t *bytes, size_t length) {
  struct exec_input *input = &exec->input;
  if (exec->operation.finished || input->none || input->end || exec->forced)
    return true;
  if (buffer_append(&input->kept, bytes, length) != 0) {
    exec_force(exec, SESSION_ENDED_LOST);
    return true;
  }
  exec_input_run(exec);
  input->waiting = unsent(input) >= UNSENT_HIGH;
  return !input->waiting;
}

void session_exec_stdin_end(struct session_exec *exec) {
  exec->input.end = true;
  exec_input_run(exec);
}
