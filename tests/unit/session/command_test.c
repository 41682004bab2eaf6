/* Commands with an agent that keeps to the protocol: what each side is told, and who waits for whom. */
#include "base/clock.h"
#include "base/memory.h"
#include "tests/unit/session/check.h"
#include "tests/unit/session/stage.h"
#include <stdlib.h>
#include <string.h>

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
  uint8_t *bytes = user_pattern(100000);
  for (uint64_t i = 0; i < 20; i++)
    agent_output(call, 1 + (unsigned)(i % 2), i / 2 * 100000, bytes, 100000);
  agent_end(call, EXITED, 0, 0, 1000000, 1000000);
  agent_finish(call, WIRE_OK, "");
  RUN_UNTIL(&stage.loop, run.held >= 200000);
  run_for(&stage.loop, 30);
  assert_in_range(session_memory(stage.session), 0, 400000);
  while (!run.ended) {
    size_t held = run.held;
    assert_in_range(held, 1, 262144);
    run.held = 0;
    session_exec_consume(run.exec, held);
    RUN_UNTIL(&stage.loop, run.held > 0 || run.ended);
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
  uint8_t *bytes = user_pattern(50000);
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
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
