/* The kept connection: made, waited for, pinged and given up; and the session's end, at whatever moment. */
#include "base/clock.h"
#include "base/memory.h"
#include "tests/unit/session/check.h"
#include "tests/unit/session/stage.h"
#include <stdlib.h>
#include <string.h>

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
      cmocka_unit_test(operations_wait_for_the_connection_but_not_for_ever),
      cmocka_unit_test(an_operation_that_comes_before_the_connection_is_served_when_it_stands),
      cmocka_unit_test(a_sandbox_that_is_gone_ends_everything_at_once),
      cmocka_unit_test(a_connection_that_never_stands_is_given_up),
      cmocka_unit_test(silence_is_answered_by_a_ping_and_silence_again_by_a_new_connection),
      cmocka_unit_test(the_end_of_the_lease_ends_everything),
      cmocka_unit_test(a_session_may_be_closed_within_any_callback),
      cmocka_unit_test(operations_may_be_started_within_callbacks),
      cmocka_unit_test(nothing_depends_on_how_the_bytes_are_split),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
