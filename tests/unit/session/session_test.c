/*
 * A session with an agent that keeps to the protocol: what each side is told, and what happens when connections fail.
 */
#include "base/clock.h"
#include "base/digest.h"
#include "base/memory.h"
#include "tests/unit/session/check.h"
#include "tests/unit/session/stage.h"
#include <stdlib.h>
#include <string.h>

#define EXITED SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_EXITED

static uint8_t *pattern(size_t length) {
  uint8_t *bytes = malloc(length + 1);
  assert_non_null(bytes);
  for (size_t i = 0; i < length; i++)
    bytes[i] = (uint8_t)(i * 7 + (i >> 9) * 3);
  return bytes;
}

/* --- commands --- */

static void a_command_is_told_to_the_agent_and_its_end_to_the_user(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct session_variable variables[] = {{"NAME", "value"}, {"EMPTY", ""}};
  struct session_command command = {.command = "make all",
                                    .cwd = "/workspace/a",
                                    .environment = variables,
                                    .environment_count = 2,
                                    .timeout = 1500 * CLOCK_MILLISECOND,
                                    .output_limit = 1000};
  struct user_run run = {0};
  user_run_start(&run, stage.session, &command);
  struct agent_call *call = stage_call(&stage, "Run", 1);
  assert_non_null(call->start);
  assert_string_equal(call->start->command, "make all");
  assert_string_equal(call->start->cwd, "/workspace/a");
  assert_int_equal(call->start->n_environment, 2);
  assert_string_equal(call->start->environment[0]->name, "NAME");
  assert_string_equal(call->start->environment[0]->value, "value");
  assert_string_equal(call->start->environment[1]->value, "");
  assert_int_equal(call->start->timeout_milliseconds, 1500);
  assert_int_equal(call->start->output_limit_bytes, 1000);
  assert_false(call->start->stdin);
  assert_int_equal(call->start->id.len, 16);
  assert_in_range(stage.agent.deadline, 3590000, 3600100); /* a little later than here */
  agent_started(call, 0);
  agent_output(call, 1, 0, "out", 3);
  agent_output(call, 2, 0, "err", 3);
  agent_output(call, 1, 3, "put", 3);
  agent_end(call, EXITED, 3, 0, 6, 3);
  agent_finish(call, WIRE_OK, "");
  run_until(&stage.loop, &run.ended);
  assert_true(run.started);
  assert_string_equal(buffer_text(&run.out[0]), "output");
  assert_string_equal(buffer_text(&run.out[1]), "err");
  assert_int_equal(run.end.ended_by, SESSION_ENDED_EXITED);
  assert_int_equal(run.end.exit_code, 3);
  assert_int_equal(run.end.stdout_bytes, 6);
  assert_int_equal(run.end.stderr_bytes, 3);
  user_run_free(&run);
  stage_clear(&stage);
}

static void every_way_to_end_is_told(void **state) {
  (void)state;
  static const struct {
    int by, exit_code, signal;
    enum session_ended expected;
    int expected_code;
  } ends[] = {
      {EXITED, 0, 0, SESSION_ENDED_EXITED, 0},
      {EXITED, 255, 0, SESSION_ENDED_EXITED, 255},
      {SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_SIGNALLED, 0, 15, SESSION_ENDED_SIGNALLED, 143},
      {SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_SIGNALLED, 192, 64, SESSION_ENDED_SIGNALLED, 192},
      {SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_TIMED_OUT, 0, 9, SESSION_ENDED_TIMED_OUT, 137},
      {SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_OUT_OF_MEMORY, 0, 9, SESSION_ENDED_OUT_OF_MEMORY, 137},
      {SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_OUTPUT_LIMIT, 0, 9, SESSION_ENDED_OUTPUT_LIMIT, 137},
      {SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_LOST, 0, 0, SESSION_ENDED_LOST, 0},
  };
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
    struct user_run run = {0};
    struct agent_call *former = agent_double_call(&stage.agent, "Run");
    stage_run(&stage, &run, "x");
    struct agent_call *call = stage_next_call(&stage, "Run", former);
    agent_started(call, 0);
    agent_end(call, ends[i].by, ends[i].exit_code, ends[i].signal, 0, 0);
    agent_finish(call, WIRE_OK, "");
    run_until(&stage.loop, &run.ended);
    assert_int_equal(run.end.ended_by, ends[i].expected);
    assert_int_equal(run.end.exit_code, ends[i].expected_code);
    assert_int_equal(run.end.signal, ends[i].signal);
    user_run_free(&run);
  }
  stage_clear(&stage);
}

/* The end counts when it is said; that the call then stays open is cleaned up later. */
static void an_end_does_not_wait_for_the_end_of_the_call(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct user_run run = {0};
  stage_run(&stage, &run, "x");
  struct agent_call *call = stage_call(&stage, "Run", 1);
  agent_started(call, 0);
  agent_end(call, EXITED, 0, 0, 0, 0);
  run_until(&stage.loop, &run.ended);
  assert_int_equal(run.end.ended_by, SESSION_ENDED_EXITED);
  assert_non_null(call->call);
  run_for(&stage.loop, 250);
  assert_null(call->call);
  assert_int_equal(call->status, WIRE_CANCELLED);
  assert_int_equal(stage.agent.connects, 1);
  user_run_free(&run);
  stage_clear(&stage);
}

static void output_beyond_the_window_waits_for_the_user(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct user_run run = {.hold = true};
  stage_run(&stage, &run, "x");
  struct agent_call *call = stage_call(&stage, "Run", 1);
  agent_started(call, 0);
  uint8_t *bytes = pattern(100000);
  for (uint64_t i = 0; i < 20; i++)
    agent_output(call, 1 + (unsigned)(i % 2), i / 2 * 100000, bytes, 100000);
  agent_end(call, EXITED, 0, 0, 1000000, 1000000);
  agent_finish(call, WIRE_OK, "");
  run_for(&stage.loop, 30);
  assert_in_range(run.held, 100000, 262144);
  assert_in_range(session_memory(stage.session), 0, 400000);
  while (!run.ended) {
    size_t held = run.held;
    assert_in_range(held, 1, 262144);
    run.held = 0;
    session_exec_consume(run.exec, held);
    run_for(&stage.loop, 5);
  }
  assert_int_equal(run.out[0].length, 1000000);
  assert_int_equal(run.out[1].length, 1000000);
  free(bytes);
  user_run_free(&run);
  stage_clear(&stage);
}

static void standard_input_flows_and_is_held_back(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct user_run run = {0};
  struct session_command command = {.command = "cat", .cwd = "/workspace", .stdin_open = true};
  user_run_start(&run, stage.session, &command);
  /* Before the connection stands. */
  assert_true(session_exec_stdin(run.exec, (const uint8_t *)"early ", 6));
  struct agent_call *call = stage_call(&stage, "Run", 2);
  assert_true(call->start->stdin);
  call->hold = true;
  agent_started(call, 0);
  uint8_t *bytes = pattern(50000);
  size_t sent = 0;
  while (session_exec_stdin(run.exec, bytes, 50000)) {
    sent += 50000;
    run_for(&stage.loop, 2);
    assert_true(sent < 1000000);
  }
  sent += 50000;
  assert_in_range(sent, 300000, 700000);
  assert_int_equal(run.wanted, 0);
  call->hold = false;
  wire_call_consume(call->call, 10000000);
  agent_double_flush(&stage.agent);
  run_for(&stage.loop, 20);
  assert_int_equal(run.wanted, 1);
  session_exec_stdin_end(run.exec);
  while (!call->input_ended)
    run_for(&stage.loop, 1);
  assert_int_equal(call->input.length, 6 + sent);
  assert_memory_equal(call->input.data, "early ", 6);
  for (size_t i = 0; i < sent; i += 50000)
    assert_memory_equal(call->input.data + 6 + i, bytes, 50000);
  session_exec_signal(run.exec, 15);
  session_exec_signal(run.exec, 0);
  session_exec_signal(run.exec, 65);
  session_exec_signal(run.exec, 1);
  while (call->signal_count < 2)
    run_for(&stage.loop, 1);
  assert_int_equal(call->signals[0], 15);
  assert_int_equal(call->signals[1], 1);
  /* What comes when the command is over is dropped. */
  agent_end(call, EXITED, 0, 0, 0, 0);
  agent_finish(call, WIRE_OK, "");
  run_until(&stage.loop, &run.ended);
  free(bytes);
  user_run_free(&run);
  stage_clear(&stage);
}

static void a_cancel_resets_the_call(void **state) {
  (void)state;
  for (int when = 0; when < 4; when++) {
    struct stage stage;
    stage_set(&stage, NULL);
    stage_open(&stage);
    struct user_run run = {0};
    if (when == 0)
      stage.agent.never = true;
    stage_run(&stage, &run, "sleep 100");
    struct agent_call *call = NULL;
    if (when >= 1)
      call = stage_call(&stage, "Run", 1);
    if (when >= 2)
      agent_started(call, 0);
    if (when >= 2)
      run_until(&stage.loop, &run.started);
    if (when == 3)
      agent_output(call, 1, 0, "on its way", 10);
    session_exec_cancel(run.exec);
    session_exec_cancel(run.exec);
    assert_false(run.ended);
    run_until(&stage.loop, &run.ended);
    assert_int_equal(run.end.ended_by, SESSION_ENDED_CANCELLED);
    assert_int_equal(run.end.exit_code, 137);
    run_for(&stage.loop, 10);
    if (call)
      assert_int_equal(call->status, WIRE_CANCELLED);
    user_run_free(&run);
    stage_clear(&stage);
  }
}

/* The agent's own timer has a little longer; then it ends here, whatever the agent says. */
static void a_timeout_is_enforced_here_too(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct user_run run = {0};
  struct session_command command = {.command = "x", .cwd = "/workspace", .timeout = 50 * CLOCK_MILLISECOND};
  user_run_start(&run, stage.session, &command);
  struct agent_call *call = stage_call(&stage, "Run", 1);
  agent_started(call, 0);
  int64_t before = clock_boot();
  run_until(&stage.loop, &run.ended);
  assert_in_range((clock_boot() - before) / CLOCK_MILLISECOND, 120, 600);
  assert_int_equal(run.end.ended_by, SESSION_ENDED_TIMED_OUT);
  run_for(&stage.loop, 10);
  assert_int_equal(call->status, WIRE_CANCELLED);
  user_run_free(&run);
  stage_clear(&stage);
}

static void refused_commands_say_why(void **state) {
  (void)state;
  static const struct {
    int status;
    const char *text;
    enum reason expected;
  } cases[] = {
      {WIRE_UNKNOWN, "SANDBOX_NOT_READY too many commands", REASON_SANDBOX_NOT_READY},
      {WIRE_INTERNAL, "INTERNAL no memory", REASON_SANDBOX_NOT_READY},
      {WIRE_UNKNOWN, "INVALID_REQUEST id", REASON_INTERNAL},
      {WIRE_UNKNOWN, "UNAUTHORIZED is nothing an agent may say", REASON_SANDBOX_NOT_READY},
      {WIRE_UNKNOWN, "", REASON_SANDBOX_NOT_READY},
      {WIRE_OK, "", REASON_SANDBOX_NOT_READY},
  };
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct user_run run = {0};
    struct agent_call *former = agent_double_call(&stage.agent, "Run");
    stage_run(&stage, &run, "x");
    agent_finish(stage_next_call(&stage, "Run", former), cases[i].status, cases[i].text);
    run_until(&stage.loop, &run.ended);
    assert_int_equal(run.reason, cases[i].expected);
    user_run_free(&run);
  }
  /* One that was running is lost. */
  struct user_run run = {0};
  stage_run(&stage, &run, "x");
  run_for(&stage.loop, 20);
  struct agent_call *call = agent_double_call(&stage.agent, "Run");
  agent_started(call, 0);
  run_until(&stage.loop, &run.started);
  agent_finish(call, WIRE_INTERNAL, "INTERNAL");
  run_until(&stage.loop, &run.ended);
  assert_int_equal(run.reason, REASON_NONE);
  assert_int_equal(run.end.ended_by, SESSION_ENDED_LOST);
  user_run_free(&run);
  assert_int_equal(stage.agent.connects, 1);
  stage_clear(&stage);
}

/* --- connections --- */

static void operations_wait_for_the_connection_but_not_for_ever(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage.agent.refuse = REASON_SANDBOX_NOT_READY;
  stage_open(&stage);
  struct user_run run = {0};
  struct transfer read = {0}, write = {0};
  int64_t before = clock_boot();
  stage_run(&stage, &run, "x");
  transfer_read(&read, stage.session, "a", 10, false);
  transfer_write(&write, stage.session, "a", 10, NULL);
  run_until(&stage.loop, &run.ended);
  run_until(&stage.loop, &read.ended);
  run_until(&stage.loop, &write.ended);
  assert_in_range((clock_boot() - before) / CLOCK_MILLISECOND, 390, 1500);
  assert_int_equal(run.reason, REASON_SANDBOX_NOT_READY);
  assert_int_equal(read.reason, REASON_SANDBOX_NOT_READY);
  assert_int_equal(write.reason, REASON_SANDBOX_NOT_READY);
  assert_string_equal(run.detail, "refused by the test");
  /* It tried again and again, further and further apart. */
  assert_in_range(stage.agent.connects, 10, 100);
  user_run_free(&run);
  /* And gives up when nobody waits. */
  run_for(&stage.loop, 100);
  unsigned connects = stage.agent.connects;
  run_for(&stage.loop, 100);
  assert_int_equal(stage.agent.connects, connects);
  /* Until somebody comes. */
  stage.agent.refuse = REASON_NONE;
  memset(&run, 0, sizeof run);
  stage_run(&stage, &run, "y");
  struct agent_call *call = stage_call(&stage, "Run", 1);
  agent_started(call, 0);
  agent_end(call, EXITED, 0, 0, 0, 0);
  run_until(&stage.loop, &run.ended);
  assert_int_equal(run.end.ended_by, SESSION_ENDED_EXITED);
  user_run_free(&run);
  transfer_free(&read);
  transfer_free(&write);
  stage_clear(&stage);
}

static void an_operation_that_comes_before_the_connection_is_served_when_it_stands(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage.agent.refuse = REASON_SANDBOX_NOT_READY;
  stage_open(&stage);
  struct user_run run = {0};
  stage_run(&stage, &run, "x");
  run_for(&stage.loop, 50);
  stage.agent.refuse = REASON_NONE;
  struct agent_call *call = stage_call(&stage, "Run", 1);
  agent_started(call, 0);
  run_until(&stage.loop, &run.started);
  user_run_free(&run);
  stage_clear(&stage);
  assert_true(run.ended);
  assert_int_equal(run.end.ended_by, SESSION_ENDED_LOST);
}

static void a_sandbox_that_is_gone_ends_everything_at_once(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct user_run running = {0}, waiting = {0};
  struct transfer read = {0};
  stage_run(&stage, &running, "x");
  agent_started(stage_call(&stage, "Run", 1), 0);
  run_until(&stage.loop, &running.started);
  stage.agent.refuse = REASON_LEASE_NOT_FOUND;
  agent_double_cut(&stage.agent);
  stage_run(&stage, &waiting, "y");
  transfer_read(&read, stage.session, "a", 10, false);
  int64_t before = clock_boot();
  run_until(&stage.loop, &running.ended);
  run_until(&stage.loop, &waiting.ended);
  run_until(&stage.loop, &read.ended);
  assert_true(clock_boot() - before < 200 * CLOCK_MILLISECOND);
  assert_int_equal(running.end.ended_by, SESSION_ENDED_LOST);
  assert_int_equal(waiting.reason, REASON_SANDBOX_NOT_READY);
  assert_int_equal(read.reason, REASON_SANDBOX_NOT_READY);
  user_run_free(&running);
  user_run_free(&waiting);
  transfer_free(&read);
  stage_clear(&stage);
}

static void a_connection_that_never_stands_is_given_up(void **state) {
  (void)state;
  for (int how = 0; how < 2; how++) {
    struct stage stage;
    stage_set(&stage, NULL);
    stage.agent.never = how == 0;
    stage.agent.no_configure = how == 1; /* connected, and silent */
    stage_open(&stage);
    run_for(&stage.loop, 500);
    assert_int_equal(stage.agent.connects, 2);
    stage_clear(&stage);
  }
}

static void a_running_command_is_taken_up_where_it_was(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct user_run run = {0};
  struct session_command command = {.command = "cat", .cwd = "/workspace", .stdin_open = true};
  user_run_start(&run, stage.session, &command);
  struct agent_call *call = stage_call(&stage, "Run", 1);
  uint8_t id[16];
  memcpy(id, call->start->id.data, 16);
  agent_started(call, 0);
  agent_output(call, 1, 0, "abc", 3);
  agent_output(call, 2, 0, "E", 1);
  session_exec_stdin(run.exec, (const uint8_t *)"0123456789", 10);
  session_exec_stdin_end(run.exec);
  run_for(&stage.loop, 10);
  assert_true(call->input_ended);
  agent_double_cut(&stage.agent);
  session_exec_signal(run.exec, 2); /* while there is no connection */
  call = stage_next_call(&stage, "Run", call);
  assert_non_null(call->attach);
  assert_memory_equal(call->attach->id.data, id, 16);
  assert_int_equal(call->attach->stdout_offset, 3);
  assert_int_equal(call->attach->stderr_offset, 1);
  assert_int_equal(call->count, 1);
  agent_started(call, 4); /* only so much had arrived */
  while (!call->input_ended || call->signal_count == 0)
    run_for(&stage.loop, 1);
  assert_int_equal(call->input.length, 6);
  assert_memory_equal(call->input.data, "456789", 6);
  assert_int_equal(call->signals[0], 2);
  agent_output(call, 1, 3, "def", 3);
  agent_end(call, EXITED, 0, 0, 6, 1);
  agent_finish(call, WIRE_OK, "");
  run_until(&stage.loop, &run.ended);
  assert_int_equal(run.end.ended_by, SESSION_ENDED_EXITED);
  assert_string_equal(buffer_text(&run.out[0]), "abcdef");
  assert_string_equal(buffer_text(&run.out[1]), "E");
  user_run_free(&run);
  stage_clear(&stage);
}

/* RunStart may have arrived or not when the connection broke before RunStarted came. */
static void a_command_that_may_not_have_arrived_is_asked_for_first(void **state) {
  (void)state;
  for (int arrived = 0; arrived < 2; arrived++) {
    struct stage stage;
    stage_set(&stage, NULL);
    stage_open(&stage);
    struct user_run run = {0};
    stage_run(&stage, &run, "x");
    struct agent_call *call = stage_call(&stage, "Run", 1);
    uint8_t id[16];
    memcpy(id, call->start->id.data, 16);
    agent_double_cut(&stage.agent);
    call = stage_next_call(&stage, "Run", call);
    assert_non_null(call->attach);
    assert_memory_equal(call->attach->id.data, id, 16);
    if (!arrived) {
      agent_finish(call, WIRE_UNKNOWN, "NOT_FOUND no such command");
      call = stage_next_call(&stage, "Run", call);
      assert_non_null(call->start);
      assert_memory_equal(call->start->id.data, id, 16);
    }
    agent_started(call, 0);
    agent_end(call, EXITED, 0, 0, 0, 0);
    agent_finish(call, WIRE_OK, "");
    run_until(&stage.loop, &run.ended);
    assert_int_equal(run.reason, REASON_NONE);
    assert_int_equal(run.end.ended_by, SESSION_ENDED_EXITED);
    user_run_free(&run);
    stage_clear(&stage);
  }
}

static void a_command_that_the_agent_forgot_is_lost(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct user_run run = {0};
  stage_run(&stage, &run, "x");
  struct agent_call *call = stage_call(&stage, "Run", 1);
  agent_started(call, 0);
  run_until(&stage.loop, &run.started);
  agent_double_cut(&stage.agent);
  call = stage_next_call(&stage, "Run", call);
  assert_non_null(call->attach);
  agent_finish(call, WIRE_UNKNOWN, "NOT_FOUND");
  run_until(&stage.loop, &run.ended);
  assert_int_equal(run.end.ended_by, SESSION_ENDED_LOST);
  user_run_free(&run);
  stage_clear(&stage);
}

static void another_agent_knows_no_command_of_the_former_one(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct user_run started = {0}, sent = {0};
  stage_run(&stage, &started, "x");
  agent_started(stage_call(&stage, "Run", 1), 0);
  run_until(&stage.loop, &started.started);
  stage_run(&stage, &sent, "y");
  run_for(&stage.loop, 10);
  stage.agent.instance[3]++;
  agent_double_cut(&stage.agent);
  run_until(&stage.loop, &started.ended);
  run_until(&stage.loop, &sent.ended);
  assert_int_equal(started.end.ended_by, SESSION_ENDED_LOST);
  assert_int_equal(sent.reason, REASON_SANDBOX_NOT_READY);
  assert_null(agent_double_call(&stage.agent, "Run")->attach);
  user_run_free(&started);
  user_run_free(&sent);
  stage_clear(&stage);
}

static void a_command_without_connection_is_waited_for_a_while(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct user_run run = {0};
  stage_run(&stage, &run, "x");
  agent_started(stage_call(&stage, "Run", 1), 0);
  run_until(&stage.loop, &run.started);
  stage.agent.refuse = REASON_SANDBOX_NOT_READY;
  int64_t before = clock_boot();
  agent_double_cut(&stage.agent);
  run_until(&stage.loop, &run.ended);
  assert_in_range((clock_boot() - before) / CLOCK_MILLISECOND, 290, 1000);
  assert_int_equal(run.end.ended_by, SESSION_ENDED_LOST);
  user_run_free(&run);
  stage_clear(&stage);
}

/* Nobody waits for it any more, but it still runs in the sandbox: it is taken up once more, to be killed. */
static void a_command_cancelled_without_connection_is_killed_with_the_next(void **state) {
  (void)state;
  for (int timed_out = 0; timed_out < 2; timed_out++) {
    struct stage stage;
    stage_set(&stage, NULL);
    stage_open(&stage);
    struct user_run run = {0};
    struct session_command command = {
        .command = "x", .cwd = "/workspace", .timeout = timed_out ? 30 * CLOCK_MILLISECOND : 0};
    user_run_start(&run, stage.session, &command);
    struct agent_call *call = stage_call(&stage, "Run", 1);
    agent_started(call, 0);
    run_until(&stage.loop, &run.started);
    stage.agent.refuse = REASON_SANDBOX_NOT_READY;
    agent_double_cut(&stage.agent);
    if (!timed_out)
      session_exec_cancel(run.exec);
    run_until(&stage.loop, &run.ended);
    assert_int_equal(run.end.ended_by, timed_out ? SESSION_ENDED_TIMED_OUT : SESSION_ENDED_CANCELLED);
    run_for(&stage.loop, 20);
    stage.agent.refuse = REASON_NONE;
    call = stage_next_call(&stage, "Run", call);
    assert_non_null(call->attach);
    agent_started(call, 0);
    agent_output(call, 1, 0, "ignored", 7);
    while (call->status < 0)
      run_for(&stage.loop, 1);
    assert_int_equal(call->status, WIRE_CANCELLED);
    user_run_free(&run);
    stage_clear(&stage);
  }
}

/* A user who takes nothing, and a connection that breaks again and again: what he holds does not grow without end. */
static void a_slow_user_bounds_what_attaching_again_brings(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct user_run run = {.hold = true};
  stage_run(&stage, &run, "x");
  struct agent_call *call = stage_call(&stage, "Run", 1);
  uint8_t *bytes = pattern(130000);
  for (int round = 0; round < 20; round++) {
    agent_started(call, 0);
    for (uint64_t i = 0; i < 3; i++)
      agent_output(call, 1, run.out[0].length + i * 130000, bytes, 130000);
    run_for(&stage.loop, 10);
    if (run.held > 800000)
      break;
    struct agent_call *former = call;
    agent_double_cut(&stage.agent);
    for (int i = 0; i < 100 && call == former; i++) {
      run_for(&stage.loop, 1);
      struct agent_call *latest = agent_double_call(&stage.agent, "Run");
      if (latest != former && latest->count > 0)
        call = latest;
    }
    if (call == former)
      break;
  }
  assert_in_range(run.held, 700000, 1100000);
  assert_false(run.ended);
  if (stage.agent.open && call->call)
    agent_double_cut(&stage.agent);
  run_for(&stage.loop, 20);
  /* When he takes it, the command goes on. */
  call = agent_double_call(&stage.agent, "Run");
  session_exec_consume(run.exec, run.held);
  call = stage_next_call(&stage, "Run", call);
  assert_int_equal(call->attach->stdout_offset, run.out[0].length);
  free(bytes);
  stage_clear(&stage);
  user_run_free(&run);
}

static void silence_is_answered_by_a_ping_and_silence_again_by_a_new_connection(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  run_for(&stage.loop, 30);
  size_t received = stage.agent.received;
  run_for(&stage.loop, 400);
  assert_int_equal(stage.agent.connects, 1);
  assert_true(stage.agent.received >= received + 2 * 17);
  stage.agent.mute = true;
  struct user_run run = {0};
  stage_run(&stage, &run, "x");
  run_for(&stage.loop, 150);
  assert_int_equal(stage.agent.connects, 1);
  run_for(&stage.loop, 150);
  assert_in_range(stage.agent.connects, 2, 3);
  stage_clear(&stage);
  user_run_free(&run);
}

static void the_end_of_the_lease_ends_everything(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open_until(&stage, clock_boot() + 100 * CLOCK_MILLISECOND);
  struct user_run running = {0}, late = {0};
  struct transfer read = {0}, write = {0};
  stage_run(&stage, &running, "x");
  agent_started(stage_call(&stage, "Run", 1), 0);
  transfer_read(&read, stage.session, "a", 10, false);
  transfer_write(&write, stage.session, "a", 10, NULL);
  assert_in_range(stage.agent.deadline, 100, 200); /* a little later than here */
  run_until(&stage.loop, &running.ended);
  assert_int_equal(running.end.ended_by, SESSION_ENDED_LEASE);
  assert_true(read.ended && write.ended);
  assert_int_equal(read.reason, REASON_ABORTED);
  assert_int_equal(write.reason, REASON_ABORTED);
  assert_false(stage.agent.open);
  stage_run(&stage, &late, "y");
  assert_false(late.ended);
  run_until(&stage.loop, &late.ended);
  assert_int_equal(late.end.ended_by, SESSION_ENDED_LEASE);
  assert_int_equal(stage.agent.connects, 1);
  user_run_free(&running);
  user_run_free(&late);
  transfer_free(&read);
  transfer_free(&write);
  stage_clear(&stage);
}

/* Closing within a callback. */
static void close_now(struct user_run *run) {
  struct stage *stage = run->user;
  if (stage->session)
    session_close(stage->session, SESSION_ENDED_LEASE);
  stage->session = NULL;
}

static void a_session_may_be_closed_within_any_callback(void **state) {
  (void)state;
  for (int how = 0; how < 4; how++) {
    struct stage stage;
    stage_set(&stage, NULL);
    stage_open(&stage);
    struct user_run first = {.user = &stage}, second = {0};
    struct transfer read = {0};
    if (how == 0)
      first.on_output = close_now;
    else
      first.on_end = close_now;
    stage_run(&stage, &second, "y");
    stage_run(&stage, &first, "x");
    transfer_read(&read, stage.session, "a", 100, false);
    run_for(&stage.loop, 10);
    for (size_t i = 0; i < stage.agent.call_count; i++) {
      struct agent_call *call = stage.agent.calls[i];
      if (strcmp(call->method, "Run") != 0)
        continue;
      agent_started(call, 0);
      if (strcmp(call->start->command, "x") != 0)
        continue;
      agent_output(call, 1, 0, "a", 1);
      if (how == 1)
        agent_end(call, EXITED, 0, 0, 1, 0);
      agent_output(call, 2, 0, "b", 1);
      agent_output(call, 1, 1, "c", 1);
    }
    if (how == 2) {
      run_for(&stage.loop, 10);
      session_exec_cancel(first.exec);
    }
    if (how == 3) { /* while the connection is torn down */
      run_for(&stage.loop, 10);
      agent_double_raw(&stage.agent, "garbage garbage garbage garbage", 31);
    }
    run_until(&stage.loop, &first.ended);
    assert_null(stage.session);
    assert_true(second.ended);
    assert_true(read.ended);
    if (how < 3)
      assert_int_equal(second.end.ended_by, SESSION_ENDED_LEASE);
    stage_clear(&stage);
    user_run_free(&first);
    user_run_free(&second);
    transfer_free(&read);
  }
}

/* A new command from within the end of the one before, a hundred times. */
static void start_next(struct user_run *run) {
  struct stage *stage = run->user;
  if (run->held++ == 100)
    return;
  buffer_free(&run->out[0]);
  buffer_free(&run->out[1]);
  run->started = run->ended = false;
  stage_run(stage, run, "again");
}

static void answer_at_once(struct agent_call *call, size_t index) {
  if (index > 0 || strcmp(call->method, "Run") != 0)
    return;
  agent_started(call, 0);
  agent_end(call, EXITED, 0, 0, 0, 0);
  agent_finish(call, WIRE_OK, "");
}

static void operations_may_be_started_within_callbacks(void **state) {
  (void)state;
  static const struct agent_script script = {.message = answer_at_once};
  struct stage stage;
  stage_set(&stage, &script);
  stage_open(&stage);
  struct user_run run = {.user = &stage, .on_end = start_next};
  stage_run(&stage, &run, "first");
  int64_t end = clock_boot() + 10 * CLOCK_SECOND;
  while (run.held <= 100 && clock_boot() < end)
    run_for(&stage.loop, 1);
  assert_int_equal(run.held, 101);
  assert_int_equal(stage.agent.call_count, 102);
  user_run_free(&run);
  stage_clear(&stage);
}

/* --- files --- */

static void a_file_is_read(void **state) {
  (void)state;
  uint8_t *bytes = pattern(300000), sha256[32];
  struct digest digest;
  digest_start(&digest);
  digest_update(&digest, bytes, 300000);
  digest_finish(&digest, sha256);
  for (int with_digest = 0; with_digest < 2; with_digest++) {
    struct stage stage;
    stage_set(&stage, NULL);
    stage_open(&stage);
    struct transfer read = {0};
    transfer_read(&read, stage.session, "a/b", 300000, with_digest);
    struct agent_call *call = stage_call(&stage, "ReadFile", 1);
    assert_true(call->half_closed);
    agent_info(call, 300000, with_digest ? sha256 : NULL);
    agent_data(call, bytes, 131072);
    agent_data(call, bytes + 131072, 131072);
    agent_data(call, bytes + 262144, 300000 - 262144);
    run_for(&stage.loop, 10);
    assert_false(read.ended);
    agent_finish(call, WIRE_OK, "");
    run_until(&stage.loop, &read.ended);
    assert_int_equal(read.reason, REASON_NONE);
    assert_int_equal(read.content.length, 300000);
    assert_memory_equal(read.content.data, bytes, 300000);
    transfer_free(&read);
    stage_clear(&stage);
  }
  free(bytes);
}

static void an_empty_file_is_read(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct transfer read = {0};
  transfer_read(&read, stage.session, "a", 0, false);
  struct agent_call *call = stage_call(&stage, "ReadFile", 1);
  agent_info(call, 0, NULL);
  agent_finish(call, WIRE_OK, "");
  run_until(&stage.loop, &read.ended);
  assert_int_equal(read.reason, REASON_NONE);
  assert_true(read.informed);
  transfer_free(&read);
  stage_clear(&stage);
}

static void reading_waits_for_the_user(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct transfer read = {.hold = true};
  transfer_read(&read, stage.session, "a", 10000000, false);
  struct agent_call *call = stage_call(&stage, "ReadFile", 1);
  uint8_t *bytes = pattern(100000);
  agent_info(call, 5000000, NULL);
  for (int i = 0; i < 50; i++)
    agent_data(call, bytes, 100000);
  agent_finish(call, WIRE_OK, "");
  run_for(&stage.loop, 30);
  assert_in_range(read.held, 400000, 524288);
  /* However long: it is his turn. */
  run_for(&stage.loop, 400);
  while (!read.ended) {
    size_t held = read.held;
    assert_in_range(held, 1, 524288);
    read.held = 0;
    session_read_consume(read.read, held);
    run_for(&stage.loop, 5);
  }
  assert_int_equal(read.reason, REASON_NONE);
  assert_int_equal(read.content.length, 5000000);
  free(bytes);
  transfer_free(&read);
  stage_clear(&stage);
}

static void failed_reads_and_writes_say_why(void **state) {
  (void)state;
  static const struct {
    const char *text;
    enum reason reading, writing;
  } cases[] = {
      {"INVALID_PATH a symlink", REASON_INVALID_PATH, REASON_INVALID_PATH},
      {"FILE_NOT_FOUND", REASON_FILE_NOT_FOUND, REASON_FILE_TRANSFER_FAILED},
      {"TRANSFER_TOO_LARGE", REASON_TRANSFER_TOO_LARGE, REASON_FILE_TRANSFER_FAILED},
      {"CONTENT_LENGTH_MISMATCH", REASON_FILE_TRANSFER_FAILED, REASON_CONTENT_LENGTH_MISMATCH},
      {"CONTENT_DIGEST_MISMATCH", REASON_FILE_TRANSFER_FAILED, REASON_CONTENT_DIGEST_MISMATCH},
      {"FILE_TRANSFER_FAILED disk", REASON_FILE_TRANSFER_FAILED, REASON_FILE_TRANSFER_FAILED},
      {"LEASE_NOT_FOUND", REASON_FILE_TRANSFER_FAILED, REASON_FILE_TRANSFER_FAILED},
      {"", REASON_FILE_TRANSFER_FAILED, REASON_FILE_TRANSFER_FAILED},
  };
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct transfer read = {0}, write = {0};
    int status = i % 2 ? WIRE_UNAVAILABLE : WIRE_UNKNOWN;
    struct agent_call *reading = agent_double_call(&stage.agent, "ReadFile");
    struct agent_call *writing = agent_double_call(&stage.agent, "WriteFile");
    transfer_read(&read, stage.session, "a", 10, false);
    transfer_write(&write, stage.session, "a", 10, NULL);
    agent_finish(stage_next_call(&stage, "ReadFile", reading), status, cases[i].text);
    agent_finish(stage_next_call(&stage, "WriteFile", writing), status, cases[i].text);
    run_until(&stage.loop, &read.ended);
    run_until(&stage.loop, &write.ended);
    assert_int_equal(read.reason, cases[i].reading);
    assert_int_equal(write.reason, cases[i].writing);
    transfer_free(&read);
    transfer_free(&write);
  }
  stage_clear(&stage);
}

static void a_file_is_written(void **state) {
  (void)state;
  uint8_t *bytes = pattern(1000000);
  for (int early = 0; early < 2; early++) {
    struct stage stage;
    stage_set(&stage, NULL);
    stage_open(&stage);
    struct transfer write = {0};
    uint8_t sha256[32] = {1, 2, 3};
    if (!early)
      run_for(&stage.loop, 10);
    transfer_write(&write, stage.session, "dir/file", 1000000, sha256);
    size_t given = 0;
    while (given < 1000000) {
      given += 100000;
      if (!session_write_data(write.write, bytes + given - 100000, 100000) && given < 1000000) {
        unsigned wanted = write.wanted;
        for (int i = 0; i < 1000 && write.wanted == wanted; i++)
          run_for(&stage.loop, 1);
        assert_int_equal(write.wanted, wanted + 1);
      }
    }
    session_write_finish(write.write);
    struct agent_call *call = stage_call(&stage, "WriteFile", 1);
    while (!call->half_closed)
      run_for(&stage.loop, 1);
    assert_int_equal(call->content.length, 1000000);
    assert_memory_equal(call->content.data, bytes, 1000000);
    assert_false(write.ended);
    Sandbox__Agent__V1__WriteFileResponse response = SANDBOX__AGENT__V1__WRITE_FILE_RESPONSE__INIT;
    agent_send(call, &response.base);
    agent_finish(call, WIRE_OK, "");
    run_until(&stage.loop, &write.ended);
    assert_int_equal(write.reason, REASON_NONE);
    transfer_free(&write);
    stage_clear(&stage);
  }
  free(bytes);
}

static void a_write_of_another_length_than_announced_is_no_file(void **state) {
  (void)state;
  for (int how = 0; how < 4; how++) {
    struct stage stage;
    stage_set(&stage, NULL);
    stage_open(&stage);
    struct transfer write = {0};
    if (how >= 2)
      run_for(&stage.loop, 10);
    transfer_write(&write, stage.session, "a", 10, NULL);
    if (how == 3)
      run_for(&stage.loop, 10);
    if (how % 2 == 0) {
      session_write_data(write.write, (const uint8_t *)"123456789", 9);
      session_write_finish(write.write);
    } else {
      session_write_data(write.write, (const uint8_t *)"12345678901", 11);
    }
    assert_false(write.ended);
    run_until(&stage.loop, &write.ended);
    assert_int_equal(write.reason, REASON_CONTENT_LENGTH_MISMATCH);
    run_for(&stage.loop, 20);
    struct agent_call *call = agent_double_call(&stage.agent, "WriteFile");
    if (call) {
      assert_false(call->half_closed);
      assert_int_equal(call->status, WIRE_CANCELLED);
    }
    transfer_free(&write);
    stage_clear(&stage);
  }
}

static void transfers_can_be_cancelled(void **state) {
  (void)state;
  for (int connected = 0; connected < 2; connected++) {
    struct stage stage;
    stage_set(&stage, NULL);
    stage.agent.never = !connected;
    stage_open(&stage);
    struct transfer read = {0}, write = {0};
    transfer_read(&read, stage.session, "a", 10, false);
    transfer_write(&write, stage.session, "a", 10, NULL);
    if (connected)
      run_for(&stage.loop, 20);
    session_read_cancel(read.read);
    session_write_cancel(write.write);
    assert_false(read.ended || write.ended);
    run_until(&stage.loop, &read.ended);
    run_until(&stage.loop, &write.ended);
    assert_int_equal(read.reason, REASON_ABORTED);
    assert_int_equal(write.reason, REASON_ABORTED);
    run_for(&stage.loop, 10);
    if (connected) {
      assert_int_equal(agent_double_call(&stage.agent, "ReadFile")->status, WIRE_CANCELLED);
      assert_int_equal(agent_double_call(&stage.agent, "WriteFile")->status, WIRE_CANCELLED);
    }
    transfer_free(&read);
    transfer_free(&write);
    stage_clear(&stage);
  }
}

static void a_broken_connection_ends_transfers_that_have_begun(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct transfer begun = {0}, fresh = {0}, write = {0};
  transfer_read(&begun, stage.session, "begun", 10, false);
  agent_info(stage_call(&stage, "ReadFile", 1), 5, NULL);
  agent_data(agent_double_call(&stage.agent, "ReadFile"), "abc", 3);
  run_until(&stage.loop, &begun.informed);
  transfer_read(&fresh, stage.session, "fresh", 10, false);
  transfer_write(&write, stage.session, "w", 10, NULL);
  run_for(&stage.loop, 10);
  struct agent_call *call = agent_double_call(&stage.agent, "ReadFile");
  agent_double_cut(&stage.agent);
  assert_true(begun.ended && write.ended);
  assert_int_equal(begun.reason, REASON_FILE_TRANSFER_FAILED);
  assert_int_equal(write.reason, REASON_FILE_TRANSFER_FAILED);
  assert_false(fresh.ended);
  call = stage_next_call(&stage, "ReadFile", call);
  agent_info(call, 2, NULL);
  agent_data(call, "ok", 2);
  agent_finish(call, WIRE_OK, "");
  run_until(&stage.loop, &fresh.ended);
  assert_int_equal(fresh.reason, REASON_NONE);
  transfer_free(&begun);
  transfer_free(&fresh);
  transfer_free(&write);
  stage_clear(&stage);
}

static void a_transfer_that_does_not_move_is_ended(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct transfer read = {0}, taken = {0}, untaken = {0}, idle = {0};
  uint8_t *bytes = pattern(900000);
  transfer_read(&read, stage.session, "a", 10, false);
  transfer_write(&taken, stage.session, "b", 5, NULL);
  session_write_data(taken.write, bytes, 5);
  session_write_finish(taken.write);
  run_for(&stage.loop, 10);
  transfer_write(&idle, stage.session, "d", 5, NULL);
  run_for(&stage.loop, 10);
  transfer_write(&untaken, stage.session, "c", 900000, NULL);
  run_for(&stage.loop, 10);
  agent_double_call(&stage.agent, "WriteFile")->hold = true;
  session_write_data(untaken.write, bytes, 900000);
  run_until(&stage.loop, &read.ended);
  run_until(&stage.loop, &taken.ended);
  run_until(&stage.loop, &untaken.ended);
  assert_int_equal(read.reason, REASON_FILE_TRANSFER_FAILED);
  assert_int_equal(taken.reason, REASON_FILE_TRANSFER_FAILED);
  assert_int_equal(untaken.reason, REASON_FILE_TRANSFER_FAILED);
  /* That one waits for its user. */
  run_for(&stage.loop, 400);
  assert_false(idle.ended);
  stage_clear(&stage);
  free(bytes);
  transfer_free(&read);
  transfer_free(&taken);
  transfer_free(&untaken);
  transfer_free(&idle);
}

/* An agent that reads nothing: what is written to it is bounded. */
static void an_agent_that_does_not_read_is_not_written_to_for_ever(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage.agent.call_window = 64 * 1024 * 1024;
  stage_open(&stage);
  run_for(&stage.loop, 10);
  struct transfer write = {0};
  transfer_write(&write, stage.session, "a", 64000000, NULL);
  run_for(&stage.loop, 10);
  stage.agent.stuck = true;
  uint8_t *bytes = pattern(1000000);
  size_t given = 0;
  while (given < 60 && session_write_data(write.write, bytes, 100000)) {
    given++;
    run_for(&stage.loop, 1);
  }
  assert_in_range(given, 5, 30);
  assert_in_range(stage.agent.most_queued, 1, 1400000);
  stage.agent.stuck = false;
  agent_double_flush(&stage.agent);
  free(bytes);
  stage_clear(&stage);
  transfer_free(&write);
}

static void nothing_depends_on_how_the_bytes_are_split(void **state) {
  (void)state;
  static const struct agent_script script = {.message = answer_at_once};
  for (unsigned seed = 1; seed < 30; seed++) {
    struct stage stage;
    stage_set(&stage, &script);
    stage.agent.split = seed < 10 ? seed : 100 * seed;
    stage.agent.seed = seed;
    stage_open(&stage);
    struct user_run run = {0};
    stage_run(&stage, &run, "x");
    run_until(&stage.loop, &run.ended);
    assert_int_equal(run.end.ended_by, SESSION_ENDED_EXITED);
    user_run_free(&run);
    stage_clear(&stage);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_command_is_told_to_the_agent_and_its_end_to_the_user),
      cmocka_unit_test(every_way_to_end_is_told),
      cmocka_unit_test(an_end_does_not_wait_for_the_end_of_the_call),
      cmocka_unit_test(output_beyond_the_window_waits_for_the_user),
      cmocka_unit_test(standard_input_flows_and_is_held_back),
      cmocka_unit_test(a_cancel_resets_the_call),
      cmocka_unit_test(a_timeout_is_enforced_here_too),
      cmocka_unit_test(refused_commands_say_why),
      cmocka_unit_test(operations_wait_for_the_connection_but_not_for_ever),
      cmocka_unit_test(an_operation_that_comes_before_the_connection_is_served_when_it_stands),
      cmocka_unit_test(a_sandbox_that_is_gone_ends_everything_at_once),
      cmocka_unit_test(a_connection_that_never_stands_is_given_up),
      cmocka_unit_test(a_running_command_is_taken_up_where_it_was),
      cmocka_unit_test(a_command_that_may_not_have_arrived_is_asked_for_first),
      cmocka_unit_test(a_command_that_the_agent_forgot_is_lost),
      cmocka_unit_test(another_agent_knows_no_command_of_the_former_one),
      cmocka_unit_test(a_command_without_connection_is_waited_for_a_while),
      cmocka_unit_test(a_command_cancelled_without_connection_is_killed_with_the_next),
      cmocka_unit_test(a_slow_user_bounds_what_attaching_again_brings),
      cmocka_unit_test(silence_is_answered_by_a_ping_and_silence_again_by_a_new_connection),
      cmocka_unit_test(the_end_of_the_lease_ends_everything),
      cmocka_unit_test(a_session_may_be_closed_within_any_callback),
      cmocka_unit_test(operations_may_be_started_within_callbacks),
      cmocka_unit_test(a_file_is_read),
      cmocka_unit_test(an_empty_file_is_read),
      cmocka_unit_test(reading_waits_for_the_user),
      cmocka_unit_test(failed_reads_and_writes_say_why),
      cmocka_unit_test(a_file_is_written),
      cmocka_unit_test(a_write_of_another_length_than_announced_is_no_file),
      cmocka_unit_test(transfers_can_be_cancelled),
      cmocka_unit_test(a_broken_connection_ends_transfers_that_have_begun),
      cmocka_unit_test(a_transfer_that_does_not_move_is_ended),
      cmocka_unit_test(an_agent_that_does_not_read_is_not_written_to_for_ever),
      cmocka_unit_test(nothing_depends_on_how_the_bytes_are_split),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
