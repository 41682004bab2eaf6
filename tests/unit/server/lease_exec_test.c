/*
 * Exec and StreamExec over the doubles: rules, output, how a command ends, and flow control.
 */
#include "base/clock.h"
#include "tests/unit/server/check.h"
#include "tests/unit/server/fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_SIZE (LIMIT_LEASE_ID_BYTES + 1)

static struct call *exec_command(struct fixture *fixture, const char *id, Sandbox__Lease__V1__Command *command) {
  Sandbox__Lease__V1__ExecRequest request = SANDBOX__LEASE__V1__EXEC_REQUEST__INIT;
  request.lease_id = (char *)id;
  request.command = command;
  return call_double_start(fixture->service, "app", "ann", "Exec", &request.base);
}

static struct call *exec(struct fixture *fixture, const char *id, const char *text) {
  Sandbox__Lease__V1__Command command = SANDBOX__LEASE__V1__COMMAND__INIT;
  command.command = (char *)text;
  return exec_command(fixture, id, &command);
}

/* --- rules --- */

static void test_command_rules(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  const char *rule = "'command' must be a non-empty string";
  expect_failure(exec_command(fixture, id, NULL), REASON_INVALID_REQUEST, rule);
  expect_failure(exec(fixture, id, ""), REASON_INVALID_REQUEST, rule);
  expect_failure(exec(fixture, id, " \n\t"), REASON_INVALID_REQUEST, rule);
  /* Rules come before the Lease. */
  expect_failure(exec(fixture, "lease-none", ""), REASON_INVALID_REQUEST, rule);
  expect_failure(exec(fixture, "lease-none", "true"), REASON_LEASE_NOT_FOUND, NULL);

  const int64_t timeouts[] = {0, -1, INT64_MIN};
  for (size_t i = 0; i < COUNT_OF(timeouts); i++) {
    Sandbox__Lease__V1__Command command = SANDBOX__LEASE__V1__COMMAND__INIT;
    command.command = "true";
    command._timeout_seconds_case = SANDBOX__LEASE__V1__COMMAND___TIMEOUT_SECONDS_TIMEOUT_SECONDS;
    command.timeout_seconds = timeouts[i];
    expect_failure(exec_command(fixture, id, &command), REASON_INVALID_REQUEST, "'timeoutSeconds' must be a positive integer");
  }
  const char *escapes[] = {"..", "/etc", "a/../..", "/workspace/../x"};
  for (size_t i = 0; i < COUNT_OF(escapes); i++) {
    Sandbox__Lease__V1__Command command = SANDBOX__LEASE__V1__COMMAND__INIT;
    command.command = "true";
    command.cwd = (char *)escapes[i];
    expect_failure(exec_command(fixture, id, &command), REASON_INVALID_PATH, NULL);
  }
}

/* An Exec with `count` variables, all of this value; name_of NULL: they are all called so. */
static struct call *exec_env(struct fixture *fixture, const char *id, const char *name, size_t count, const char *value) {
  Sandbox__Lease__V1__Command__EnvEntry *entries = calloc(count, sizeof(*entries));
  Sandbox__Lease__V1__Command__EnvEntry **pointers = calloc(count, sizeof(*pointers));
  char(*names)[40] = calloc(count, sizeof(*names));
  for (size_t i = 0; i < count; i++) {
    sandbox__lease__v1__command__env_entry__init(&entries[i]);
    snprintf(names[i], sizeof(names[i]), "%s%zu", name, i);
    entries[i].key = count == 1 ? (char *)name : names[i];
    entries[i].value = (char *)value;
    pointers[i] = &entries[i];
  }
  Sandbox__Lease__V1__Command command = SANDBOX__LEASE__V1__COMMAND__INIT;
  command.command = "true";
  command.n_env = count;
  command.env = pointers;
  struct call *call = exec_command(fixture, id, &command);
  free(entries);
  free(pointers);
  free(names);
  return call;
}

static void test_environment_rules(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  const char *bad[] = {"", "1A", "A-B", "A B", "A=B", "\xc3\x84"};
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    struct call *call = exec_env(fixture, id, bad[i], 1, "");
    assert_string_equal(call->field, "env");
    expect_failure(call, REASON_INVALID_REQUEST, "'env' names must match [A-Za-z_][A-Za-z0-9_]*");
  }
  expect_failure(exec_env(fixture, id, "N", LIMIT_ENV_ENTRIES + 1, ""), REASON_INVALID_REQUEST,
                 "'env' must have at most 256 entries");
  char *value = calloc(1, LIMIT_ENV_BYTES + 1);
  assert_non_null(value);
  memset(value, 'v', LIMIT_ENV_BYTES);
  expect_failure(exec_env(fixture, id, "N", 1, value), REASON_INVALID_REQUEST, "'env' must have at most 131072 bytes in all");
  value[LIMIT_ENV_BYTES - 1] = 0;
  struct call *call = exec_env(fixture, id, "N", 1, value);
  expect_waiting(call);
  session_double_exec_end(session_double_exec(), SESSION_ENDED_EXITED, 0);
  expect_reply(call);
  free(value);
  call = exec_env(fixture, id, "_x", LIMIT_ENV_ENTRIES, "1");
  assert_int_equal(session_double_exec()->work.environment_count, LIMIT_ENV_ENTRIES);
  session_double_exec_end(session_double_exec(), SESSION_ENDED_EXITED, 0);
  expect_reply(call);

  /* The same name twice: a map on the wire is a list. */
  Sandbox__Lease__V1__Command__EnvEntry twice = SANDBOX__LEASE__V1__COMMAND__ENV_ENTRY__INIT;
  twice.key = "A";
  Sandbox__Lease__V1__Command command = SANDBOX__LEASE__V1__COMMAND__INIT;
  command.command = "true";
  command.n_env = 2;
  command.env = (Sandbox__Lease__V1__Command__EnvEntry *[]){&twice, &twice};
  expect_failure(exec_command(fixture, id, &command), REASON_INVALID_REQUEST, "'env' names must not repeat");
}

static void test_command_is_passed_on(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  const char *paths[][2] = {{"", "/workspace"},       {"a/./b", "/workspace/a/b"}, {"/workspace", "/workspace"},
                            {".", "/workspace"},      {"/workspace/c/", "/workspace/c"}};
  for (size_t i = 0; i < COUNT_OF(paths); i++) {
    Sandbox__Lease__V1__Command command = SANDBOX__LEASE__V1__COMMAND__INIT;
    command.command = "echo $A";
    command.cwd = (char *)paths[i][0];
    command._timeout_seconds_case = SANDBOX__LEASE__V1__COMMAND___TIMEOUT_SECONDS_TIMEOUT_SECONDS;
    command.timeout_seconds = i == 0 ? INT64_MAX : 3;
    struct call *call = exec_command(fixture, id, &command);
    const struct session_work *work = &session_double_exec()->work;
    assert_string_equal(work->command, "echo $A");
    assert_string_equal(work->cwd, paths[i][1]);
    assert_int_equal(work->timeout, (i == 0 ? 86400 : 3) * CLOCK_SECOND);
    assert_int_equal(work->output_limit, LIMIT_OUTPUT_BYTES);
    assert_false(work->stdin_open);
    session_double_exec_end(session_double_exec(), SESSION_ENDED_EXITED, 0);
    expect_reply(call);
  }
  assert_int_equal(session_double.opened, 1);
}

/* --- Exec --- */

static void test_exec_answers(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  struct call *call = exec(fixture, id, "true");
  struct session_exec *command = session_double_exec();
  session_double_output(command, 1, 0, "out", 3);
  session_double_output(command, 2, 0, "e\0r", 3);
  session_double_output(command, 1, 3, "put\xff", 4);
  assert_int_equal(command->work.consumed, 10);
  session_double_exec_end(command, SESSION_ENDED_SIGNALLED, 137);
  ProtobufCMessage *message = call_double_reply(call, &sandbox__lease__v1__exec_response__descriptor);
  const Sandbox__Lease__V1__ExecResponse *reply = (const Sandbox__Lease__V1__ExecResponse *)message;
  assert_int_equal(reply->stdout.len, 7);
  assert_memory_equal(reply->stdout.data, "output\xff", 7);
  assert_int_equal(reply->stderr.len, 3);
  assert_memory_equal(reply->stderr.data, "e\0r", 3);
  assert_int_equal(reply->exit_code, 137);
  assert_int_equal(reply->ended_by, SANDBOX__LEASE__V1__ENDED_BY__ENDED_BY_SIGNALLED);
  protobuf_c_message_free_unpacked(message, NULL);
  call_double_free(call);
}

static void test_exec_ends(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  const struct {
    enum session_ended ended_by;
    enum reason reason; /* REASON_NONE: a reply */
  } ends[] = {{SESSION_ENDED_EXITED, REASON_NONE},
              {SESSION_ENDED_OUT_OF_MEMORY, REASON_NONE},
              {SESSION_ENDED_TIMED_OUT, REASON_ABORTED},
              {SESSION_ENDED_CANCELLED, REASON_ABORTED},
              {SESSION_ENDED_LEASE, REASON_ABORTED},
              {SESSION_ENDED_LOST, REASON_SANDBOX_NOT_READY},
              {SESSION_ENDED_OUTPUT_LIMIT, REASON_OUTPUT_TOO_LARGE}};
  for (size_t i = 0; i < COUNT_OF(ends); i++) {
    struct call *call = exec(fixture, id, "true");
    session_double_exec_end(session_double_exec(), ends[i].ended_by, 1);
    if (ends[i].reason == REASON_NONE)
      expect_reply(call);
    else
      expect_failure(call, ends[i].reason, NULL);
  }
  struct call *call = exec(fixture, id, "true");
  session_double_exec_fail(session_double_exec(), REASON_SANDBOX_NOT_READY);
  expect_failure(call, REASON_SANDBOX_NOT_READY, NULL);
  fixture->backend.no_transport = true;
  expect_reply(release(fixture, id));
  acquire_id(fixture, "key", id);
  expect_failure(exec(fixture, id, "true"), REASON_SANDBOX_NOT_READY, NULL);
}

static void test_exec_output_is_bounded_here_too(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  uint8_t *block = calloc(1, LIMIT_OUTPUT_BYTES);
  assert_non_null(block);
  struct call *call = exec(fixture, id, "true");
  struct session_exec *command = session_double_exec();
  session_double_output(command, 1, 0, block, LIMIT_OUTPUT_BYTES);
  session_double_output(command, 2, 0, block, LIMIT_OUTPUT_BYTES);
  expect_waiting(call);
  session_double_output(command, 2, LIMIT_OUTPUT_BYTES, block, 1);
  assert_true(command->work.cancelled);
  expect_failure(call, REASON_OUTPUT_TOO_LARGE, NULL);
  session_double_output(command, 1, LIMIT_OUTPUT_BYTES, block, 10);
  assert_int_equal(command->work.consumed, command->work.given);
  session_double_exec_end(command, SESSION_ENDED_CANCELLED, 0);

  call = exec(fixture, id, "true");
  command = session_double_exec();
  session_double_output(command, 1, 0, block, LIMIT_OUTPUT_BYTES);
  session_double_output(command, 2, 0, block, LIMIT_OUTPUT_BYTES);
  session_double_exec_end(command, SESSION_ENDED_EXITED, 0);
  assert_true(grpc_byte_buffer_length(call->reply) > 2 * LIMIT_OUTPUT_BYTES);
  expect_reply(call);
  free(block);
}

static void test_exec_cancelled(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  struct call *call = exec(fixture, id, "true");
  struct session_exec *command = session_double_exec();
  call_double_cancel(call);
  expect_failure(call, REASON_ABORTED, NULL);
  assert_true(command->work.cancelled);
  session_double_output(command, 1, 0, "late", 4);
  assert_int_equal(command->work.consumed, 4);
  session_double_exec_end(command, SESSION_ENDED_CANCELLED, 0);
}

static void test_exec_ends_with_the_lease(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  struct call *first = exec(fixture, id, "true"), *second = exec(fixture, id, "true");
  call_double_cancel(second);
  expect_failure(second, REASON_ABORTED, NULL);
  expect_reply(release(fixture, id));
  expect_failure(first, REASON_ABORTED, NULL);
  expect_failure(exec(fixture, id, "true"), REASON_LEASE_NOT_ACTIVE, NULL);

  acquire_id(fixture, "key", id);
  first = exec(fixture, id, "true");
  backend_double_end(&fixture->backend, id, BACKEND_END_LOST);
  expect_failure(first, REASON_SANDBOX_NOT_READY, NULL);
}

static void test_use_moves_last_used(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  assert_int_equal(fixture->backend.touches, 0);
  int64_t before = clock_wall();
  struct call *call = exec(fixture, id, "true");
  assert_int_equal(fixture->backend.touches, 1);
  session_double_exec_end(session_double_exec(), SESSION_ENDED_EXITED, 0);
  expect_reply(call);
  assert_int_equal(fixture->backend.touches, 2);
  assert_true(backend_double_find(&fixture->backend, id)->last_used_at >= before);
  call = get(fixture, id);
  ProtobufCMessage *message = call_double_reply(call, &sandbox__lease__v1__get_lease_response__descriptor);
  assert_true(((Sandbox__Lease__V1__GetLeaseResponse *)message)->lease->last_used_at->seconds >= before / CLOCK_SECOND);
  protobuf_c_message_free_unpacked(message, NULL);
  call_double_free(call);
}

/* --- StreamExec --- */

static struct call *stream(struct fixture *fixture, const char *id, bool with_stdin) {
  Sandbox__Lease__V1__Command command = SANDBOX__LEASE__V1__COMMAND__INIT;
  command.command = "cat";
  Sandbox__Lease__V1__StreamExecStart start = SANDBOX__LEASE__V1__STREAM_EXEC_START__INIT;
  start.lease_id = (char *)id;
  start.command = &command;
  start.stdin = with_stdin;
  Sandbox__Lease__V1__StreamExecRequest request = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__INIT;
  request.request_case = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__REQUEST_START;
  request.start = &start;
  return call_double_start(fixture->service, "app", "ann", "StreamExec", &request.base);
}

static void stream_stdin(struct call *call, const void *bytes, size_t length) {
  Sandbox__Lease__V1__StreamExecRequest request = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__INIT;
  request.request_case = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__REQUEST_STDIN;
  request.stdin = (ProtobufCBinaryData){.data = (uint8_t *)bytes, .len = length};
  call_double_message(call, &request.base);
}

static void stream_signal(struct call *call, int number) {
  Sandbox__Lease__V1__Signal signal = SANDBOX__LEASE__V1__SIGNAL__INIT;
  signal.number = number;
  Sandbox__Lease__V1__StreamExecRequest request = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__INIT;
  request.request_case = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__REQUEST_SIGNAL;
  request.signal = &signal;
  call_double_message(call, &request.base);
}

static void stream_stdin_end(struct call *call) {
  Sandbox__Lease__V1__StdinEnd end = SANDBOX__LEASE__V1__STDIN_END__INIT;
  Sandbox__Lease__V1__StreamExecRequest request = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__INIT;
  request.request_case = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__REQUEST_STDIN_END;
  request.stdin_end = &end;
  call_double_message(call, &request.base);
}

/* The n-th message, which must be of this kind; the caller frees. */
static Sandbox__Lease__V1__StreamExecResponse *sent(const struct call *call, size_t n,
                                                    Sandbox__Lease__V1__StreamExecResponse__ResponseCase kind) {
  Sandbox__Lease__V1__StreamExecResponse *response = (Sandbox__Lease__V1__StreamExecResponse *)call_double_sent_message(
    call, n, &sandbox__lease__v1__stream_exec_response__descriptor);
  assert_int_equal(response->response_case, kind);
  return response;
}

static void expect_output(const struct call *call, size_t n, int number, int64_t offset, const char *text) {
  Sandbox__Lease__V1__StreamExecResponse *response = sent(call, n, SANDBOX__LEASE__V1__STREAM_EXEC_RESPONSE__RESPONSE_OUTPUT);
  assert_int_equal(response->output->stream, number);
  assert_int_equal(response->output->offset, offset);
  assert_int_equal(response->output->data.len, strlen(text));
  assert_memory_equal(response->output->data.data, text, strlen(text));
  protobuf_c_message_free_unpacked(&response->base, NULL);
}

static void expect_ended(const struct call *call, size_t n, Sandbox__Lease__V1__EndedBy ended_by, int exit_code) {
  Sandbox__Lease__V1__StreamExecResponse *response = sent(call, n, SANDBOX__LEASE__V1__STREAM_EXEC_RESPONSE__RESPONSE_ENDED);
  assert_int_equal(response->ended->ended_by, ended_by);
  assert_int_equal(response->ended->exit_code, exit_code);
  protobuf_c_message_free_unpacked(&response->base, NULL);
}

static void expect_started(const struct call *call) {
  protobuf_c_message_free_unpacked(&sent(call, 0, SANDBOX__LEASE__V1__STREAM_EXEC_RESPONSE__RESPONSE_STARTED)->base, NULL);
}

static void expect_finished(struct call *call) {
  assert_int_equal(call->outcome, CALL_FINISHED);
  call_double_free(call);
}

static void test_stream_in_order(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  struct call *call = stream(fixture, id, false);
  struct session_exec *command = session_double_exec();
  assert_int_equal(command->work.output_limit, 0);
  assert_int_equal(call->sent_count, 0);
  command->events->started(command->work.context);
  assert_int_equal(call->sent_count, 1);
  expect_started(call);

  /* What comes while a message is under way is gathered; it counts against the window until it has left. */
  session_double_output(command, 1, 0, "a", 1);
  session_double_output(command, 1, 1, "b", 1);
  session_double_output(command, 2, 0, "c", 1);
  session_double_output(command, 1, 2, "d", 1);
  assert_int_equal(call->sent_count, 1);
  assert_int_equal(command->work.consumed, 0);
  call_double_sent(call);
  expect_output(call, 1, 1, 0, "ab");
  assert_int_equal(command->work.consumed, 0);
  call_double_sent(call);
  assert_int_equal(command->work.consumed, 2);
  expect_output(call, 2, 2, 0, "c");
  session_double_exec_end(command, SESSION_ENDED_EXITED, 3);
  call_double_sent(call);
  expect_output(call, 3, 1, 2, "d");
  call_double_sent(call);
  expect_ended(call, 4, SANDBOX__LEASE__V1__ENDED_BY__ENDED_BY_EXITED, 3);
  expect_waiting(call);
  call_double_sent(call);
  assert_int_equal(call->sent_count, 5);
  expect_finished(call);
}

static void test_stream_stdin(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  struct call *call = stream(fixture, id, true);
  struct session_exec *command = session_double_exec();
  assert_true(command->work.stdin_open);
  stream_stdin(call, "one", 3);
  assert_true(call->receiving);
  /* No room: the client is not asked for more until there is. */
  command->work.full = true;
  stream_stdin(call, "two", 3);
  assert_false(call->receiving);
  session_double_wanted(&command->work);
  assert_true(call->receiving);
  stream_signal(call, 15);
  assert_int_equal(command->work.signal, 15);
  stream_stdin(call, "", 0);
  stream_stdin_end(call);
  assert_true(command->work.finished);
  assert_int_equal(command->work.input.length, 6);
  assert_memory_equal(command->work.input.data, "onetwo", 6);
  call_double_message(call, NULL);
  session_double_exec_end(command, SESSION_ENDED_EXITED, 0);
  call_double_sent(call);
  expect_finished(call);

  /* The half-close ends standard input as well. */
  call = stream(fixture, id, true);
  command = session_double_exec();
  call_double_message(call, NULL);
  assert_true(command->work.finished);
  session_double_exec_end(command, SESSION_ENDED_EXITED, 0);
  call_double_sent(call);
  expect_finished(call);
}

static void test_stream_refuses(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  Sandbox__Lease__V1__StreamExecRequest request = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__INIT;
  const char *first = "The first message must be 'start'";
  expect_failure(call_double_start(fixture->service, "app", "ann", "StreamExec", &request.base), REASON_INVALID_REQUEST, first);
  request.request_case = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__REQUEST_STDIN;
  expect_failure(call_double_start(fixture->service, "app", "ann", "StreamExec", &request.base), REASON_INVALID_REQUEST, first);

  static const int bad_signals[] = {0, -1, 65};
  for (size_t i = 0; i < 3 + COUNT_OF(bad_signals); i++) {
    struct call *call = stream(fixture, id, i == 1);
    struct session_exec *command = session_double_exec();
    const char *message = "'number' must be a signal between 1 and 64";
    if (i == 0) {
      stream_stdin(call, "x", 1);
      message = "'stdin' is not open";
    } else if (i == 1) {
      stream_stdin_end(call);
      stream_stdin(call, "x", 1);
      message = "'stdin' is not open";
    } else if (i == 2) {
      Sandbox__Lease__V1__StreamExecStart start = SANDBOX__LEASE__V1__STREAM_EXEC_START__INIT;
      request.request_case = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__REQUEST_START;
      request.start = &start;
      call_double_message(call, &request.base);
      message = "'start' must be the first message and no other";
    } else {
      stream_signal(call, bad_signals[i - 3]);
    }
    assert_true(command->work.cancelled);
    expect_failure(call, REASON_INVALID_REQUEST, message);
    session_double_exec_end(command, SESSION_ENDED_CANCELLED, 0);
  }
}

/* The client goes away with output waiting: the command is killed, and nothing of its window is lost. */
static void test_stream_cancelled(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  struct call *call = stream(fixture, id, true);
  struct session_exec *command = session_double_exec();
  session_double_output(command, 1, 0, "under way", 9);
  session_double_output(command, 1, 9, "waiting", 7);
  call_double_cancel(call);
  expect_failure(call, REASON_ABORTED, NULL);
  assert_true(command->work.cancelled);
  session_double_output(command, 1, 16, "late", 4);
  assert_int_equal(command->work.consumed, 20);
  command->events->started(command->work.context);
  command->events->stdin_wanted(command->work.context);
  session_double_exec_end(command, SESSION_ENDED_CANCELLED, 0);
}

static void test_stream_ends(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  struct call *call = stream(fixture, id, false);
  session_double_exec_end(session_double_exec(), SESSION_ENDED_TIMED_OUT, 137);
  expect_ended(call, 0, SANDBOX__LEASE__V1__ENDED_BY__ENDED_BY_TIMED_OUT, 137);
  call_double_sent(call);
  expect_finished(call);

  call = stream(fixture, id, false);
  session_double_exec_fail(session_double_exec(), REASON_SANDBOX_NOT_READY);
  expect_failure(call, REASON_SANDBOX_NOT_READY, NULL);

  /* The Lease ends while output waits: what was given still reaches the client, then how it ended. */
  call = stream(fixture, id, false);
  session_double_output(session_double_exec(), 1, 0, "one", 3);
  session_double_output(session_double_exec(), 1, 3, "two", 3);
  expect_reply(release(fixture, id));
  call_double_sent(call);
  expect_output(call, 1, 1, 3, "two");
  call_double_sent(call);
  expect_ended(call, 2, SANDBOX__LEASE__V1__ENDED_BY__ENDED_BY_LEASE_ENDED, 0);
  call_double_sent(call);
  expect_finished(call);
}

/* Stopping does not wait for a client that does not read. */
static void test_stop_with_running_commands(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE], other[ID_SIZE];
  acquire_id(fixture, "key", id);
  acquire_id(fixture, "other", other);
  struct call *unary = exec(fixture, id, "true"), *streaming = stream(fixture, id, false), *orphan = stream(fixture, other, false);
  session_double_output(session_double_exec(), 1, 0, "one", 3);
  expect_reply(release(fixture, other));
  expect_waiting(orphan);
  fixture_close(fixture);
  expect_failure(unary, REASON_ABORTED, NULL);
  expect_failure(streaming, REASON_ABORTED, NULL);
  expect_failure(orphan, REASON_ABORTED, NULL);
}

/* The Lease has ended and the client does not read what is left for it: it gets a sweep interval, no more. */
static void test_reader_that_sleeps_is_cut_off(void **state) {
  struct fixture *fixture = calloc(1, sizeof(*fixture));
  assert_non_null(fixture);
  *state = fixture;
  setenv("SANDBOX_SWEEP_INTERVAL", "1s", 1);
  fixture_open(fixture);
  unsetenv("SANDBOX_SWEEP_INTERVAL");
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  struct call *call = stream(fixture, id, false);
  session_double_output(session_double_exec(), 1, 0, "one", 3);
  expect_reply(release(fixture, id));
  while (fixture->backend.sweeps == 0)
    uv_run(&fixture->loop, UV_RUN_ONCE);
  expect_waiting(call);
  while (call->outcome == CALL_WAITING)
    uv_run(&fixture->loop, UV_RUN_ONCE);
  expect_failure(call, REASON_ABORTED, NULL);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
    WITH_FIXTURE(test_command_rules),
    WITH_FIXTURE(test_environment_rules),
    WITH_FIXTURE(test_command_is_passed_on),
    WITH_FIXTURE(test_exec_answers),
    WITH_FIXTURE(test_exec_ends),
    WITH_FIXTURE(test_exec_output_is_bounded_here_too),
    WITH_FIXTURE(test_exec_cancelled),
    WITH_FIXTURE(test_exec_ends_with_the_lease),
    WITH_FIXTURE(test_use_moves_last_used),
    WITH_FIXTURE(test_stream_in_order),
    WITH_FIXTURE(test_stream_stdin),
    WITH_FIXTURE(test_stream_refuses),
    WITH_FIXTURE(test_stream_cancelled),
    WITH_FIXTURE(test_stream_ends),
    WITH_FIXTURE(test_stop_with_running_commands),
    cmocka_unit_test_teardown(test_reader_that_sleeps_is_cut_off, fixture_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
