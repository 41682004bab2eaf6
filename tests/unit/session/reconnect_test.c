/* Commands whose connection breaks: they are taken up where they were, and never run twice. */
#include "base/clock.h"
#include "base/memory.h"
#include "tests/unit/session/check.h"
#include "tests/unit/session/stage.h"
#include <stdlib.h>
#include <string.h>

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
  uint8_t *bytes = user_pattern(130000);
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

/* An agent that configures well and does one thing to every command that it is asked for. */
enum mischief { REFUSES_ATTACHES, CUTS_AT_ATTACHES, FORGETS_AND_CUTS_AT_STARTS };
static enum mischief mischief;
static bool cut_due;

static void make_mischief(struct agent_call *call, size_t index) {
  if (index > 0 || strcmp(call->method, "Run") != 0)
    return;
  if (mischief == FORGETS_AND_CUTS_AT_STARTS && call->attach)
    agent_finish(call, WIRE_UNKNOWN, "NOT_FOUND");
  else if (mischief == REFUSES_ATTACHES && call->attach)
    agent_finish(call, WIRE_UNAVAILABLE, "");
  else if (mischief == FORGETS_AND_CUTS_AT_STARTS || call->attach)
    cut_due = true;
  else
    agent_started(call, 0);
}

static void cut_if_due(struct agent_double *agent) {
  if (!cut_due)
    return;
  cut_due = false;
  agent_double_cut(agent);
}

/* However often it connects: a command that the agent does not take up again is given up. */
static void an_agent_that_takes_nothing_up_is_not_asked_for_ever(void **state) {
  (void)state;
  static const struct agent_script script = {.message = make_mischief, .flushed = cut_if_due};
  for (mischief = REFUSES_ATTACHES; mischief <= FORGETS_AND_CUTS_AT_STARTS; mischief++) {
    struct stage stage;
    cut_due = false;
    stage_set(&stage, &script);
    stage_open(&stage);
    struct user_run run = {0};
    stage_run(&stage, &run, "x");
    if (mischief != FORGETS_AND_CUTS_AT_STARTS) {
      run_until(&stage.loop, &run.started);
      agent_double_cut(&stage.agent);
    }
    int64_t before = clock_boot();
    run_until_within(&stage.loop, &run.ended, 5);
    assert_true(clock_boot() - before < 2 * CLOCK_SECOND);
    if (mischief == FORGETS_AND_CUTS_AT_STARTS)
      assert_int_equal(run.reason, REASON_SANDBOX_NOT_READY);
    else
      assert_int_equal(run.end.ended_by, SESSION_ENDED_LOST);
    assert_in_range(stage.agent.connects, mischief == REFUSES_ATTACHES ? 2 : 3, 100);
    user_run_free(&run);
    stage_clear(&stage);
  }
}

static void cut_every_call(struct agent_call *call, size_t index) {
  (void)index;
  cut_due = strcmp(call->method, "Configure") != 0;
}

static void a_read_that_breaks_every_connection_is_not_begun_for_ever(void **state) {
  (void)state;
  static const struct agent_script script = {.message = cut_every_call, .flushed = cut_if_due};
  struct stage stage;
  cut_due = false;
  stage_set(&stage, &script);
  stage_open(&stage);
  struct transfer read = {0};
  transfer_read(&read, stage.session, "a", 10, false);
  run_until_within(&stage.loop, &read.ended, 5);
  assert_int_equal(read.reason, REASON_SANDBOX_NOT_READY);
  assert_in_range(stage.agent.connects, 3, 100);
  transfer_free(&read);
  stage_clear(&stage);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_running_command_is_taken_up_where_it_was),
      cmocka_unit_test(a_command_that_may_not_have_arrived_is_asked_for_first),
      cmocka_unit_test(a_command_that_the_agent_forgot_is_lost),
      cmocka_unit_test(another_agent_knows_no_command_of_the_former_one),
      cmocka_unit_test(a_command_without_connection_is_waited_for_a_while),
      cmocka_unit_test(a_command_cancelled_without_connection_is_killed_with_the_next),
      cmocka_unit_test(a_slow_user_bounds_what_attaching_again_brings),
      cmocka_unit_test(an_agent_that_takes_nothing_up_is_not_asked_for_ever),
      cmocka_unit_test(a_read_that_breaks_every_connection_is_not_begun_for_ever),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
