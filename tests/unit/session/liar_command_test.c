/* An agent that lies about commands, in messages that are well framed. */
#include "base/clock.h"
#include "base/memory.h"
#include "tests/unit/session/check.h"
#include "tests/unit/session/liar.h"
#include <stdlib.h>
#include <string.h>

static void output_before_started(struct agent_call *call) {
  agent_output(call, 1, 0, "x", 1);
}

static void end_before_started(struct agent_call *call) {
  agent_end(call, EXITED, 0, 0, 0, 0);
}

static void started_twice(struct agent_call *call) {
  agent_started(call, 0);
  agent_started(call, 0);
}

static void started_with_input(struct agent_call *call) {
  agent_started(call, 1);
}

static void a_gap(struct agent_call *call) {
  agent_started(call, 0);
  agent_output(call, 1, 0, "abc", 3);
  agent_output(call, 1, 4, "x", 1);
}

static void an_overlap(struct agent_call *call) {
  agent_started(call, 0);
  agent_output(call, 1, 0, "abc", 3);
  agent_output(call, 1, 2, "x", 1);
}

static void a_first_gap(struct agent_call *call) {
  agent_started(call, 0);
  agent_output(call, 2, UINT64_MAX, "x", 1);
}

static void the_other_streams_offset(struct agent_call *call) {
  agent_started(call, 0);
  agent_output(call, 1, 0, "abc", 3);
  agent_output(call, 2, 3, "x", 1);
}

static void a_third_stream(struct agent_call *call) {
  agent_started(call, 0);
  agent_output(call, 3, 0, "x", 1);
}

static void no_stream(struct agent_call *call) {
  agent_started(call, 0);
  agent_output(call, 0, 0, "x", 1);
}

static void empty_output(struct agent_call *call) {
  agent_started(call, 0);
  agent_output(call, 1, 0, "", 0);
}

static void long_output(struct agent_call *call) {
  agent_started(call, 0);
  agent_output(call, 1, 0, liar_zeros, LIMIT_CHUNK_BYTES + 1);
}

static void too_long_a_message(struct agent_call *call) {
  agent_started(call, 0);
  agent_output(call, 1, 0, liar_zeros, LIMIT_CHUNK_BYTES + 2000);
}

static void a_total_too_small(struct agent_call *call) {
  agent_started(call, 0);
  agent_output(call, 1, 0, "abc", 3);
  agent_end(call, EXITED, 0, 0, 2, 0);
}

static void a_total_too_large(struct agent_call *call) {
  agent_started(call, 0);
  agent_end(call, EXITED, 0, 0, 0, 1);
}

static void an_exit_with_a_signal(struct agent_call *call) {
  agent_started(call, 0);
  agent_end(call, EXITED, 0, 9, 0, 0);
}

static void a_signal_without_one(struct agent_call *call) {
  agent_started(call, 0);
  agent_end(call, SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_SIGNALLED, 1, 0, 0, 0);
}

static void an_end_of_no_kind(struct agent_call *call) {
  agent_started(call, 0);
  agent_end(call, 0, 0, 0, 0, 0);
}

static void an_end_from_elsewhere(struct agent_call *call) {
  agent_started(call, 0);
  agent_end(call, 99, 0, 0, 0, 0);
}

static void an_exit_code_out_of_range(struct agent_call *call) {
  agent_started(call, 0);
  agent_end(call, EXITED, 256, 0, 0, 0);
}

static void a_signal_out_of_range(struct agent_call *call) {
  agent_started(call, 0);
  agent_end(call, SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_SIGNALLED, 0, 65, 0, 0);
}

static void an_empty_message(struct agent_call *call) {
  agent_started(call, 0);
  wire_call_send(call->call, liar_zeros, 0);
  agent_started(call, 0);
}

static void garbage_for_a_message(struct agent_call *call) {
  agent_started(call, 0);
  wire_call_send(call->call, (const uint8_t *)"\xFF\xFF\xFF\xFF\xFF\xFF", 6);
  agent_started(call, 0);
}

static void a_message_of_another_call(struct agent_call *call) {
  agent_started(call, 0);
  agent_info(call, 5, NULL);
}

static void no_word_of_the_end(struct agent_call *call) {
  agent_started(call, 0);
  agent_finish(call, WIRE_OK, "");
}

static void a_reset(struct agent_call *call) {
  agent_started(call, 0);
  agent_double_flush(call->agent);
  wire_call_cancel(call->call);
  agent_double_flush(call->agent);
}

static void a_failure_with_a_reason_of_ours(struct agent_call *call) {
  agent_started(call, 0);
  agent_finish(call, 16, "LEASE_NOT_FOUND \xFF\xFE%00");
}

static void a_flood_of_status_text(struct agent_call *call) {
  char *text = malloc(100001);
  assert_non_null(text);
  memset(text, '%', 100000);
  text[100000] = '\0';
  agent_started(call, 0);
  agent_finish(call, WIRE_INTERNAL, text);
  free(text);
}

static const struct lie lies[] = {
    {"output before it started", output_before_started, 0, false},
    {"an end before it started", end_before_started, 0, false},
    {"started twice", started_twice, SESSION_ENDED_LOST, false},
    {"started with input", started_with_input, 0, false},
    {"a gap", a_gap, SESSION_ENDED_LOST, false},
    {"an overlap", an_overlap, SESSION_ENDED_LOST, false},
    {"a first gap", a_first_gap, SESSION_ENDED_LOST, false},
    {"the other stream's offset", the_other_streams_offset, SESSION_ENDED_LOST, false},
    {"a third stream", a_third_stream, SESSION_ENDED_LOST, false},
    {"no stream", no_stream, SESSION_ENDED_LOST, false},
    {"empty output", empty_output, SESSION_ENDED_LOST, false},
    {"long output", long_output, SESSION_ENDED_LOST, false},
    {"too long a message", too_long_a_message, SESSION_ENDED_LOST, true},
    {"a total too small", a_total_too_small, SESSION_ENDED_LOST, false},
    {"a total too large", a_total_too_large, SESSION_ENDED_LOST, false},
    {"an exit with a signal", an_exit_with_a_signal, SESSION_ENDED_LOST, false},
    {"a signal without one", a_signal_without_one, SESSION_ENDED_LOST, false},
    {"an end of no kind", an_end_of_no_kind, SESSION_ENDED_LOST, false},
    {"an end from elsewhere", an_end_from_elsewhere, SESSION_ENDED_LOST, false},
    {"an exit code out of range", an_exit_code_out_of_range, SESSION_ENDED_LOST, false},
    {"a signal out of range", a_signal_out_of_range, SESSION_ENDED_LOST, false},
    {"an empty message", an_empty_message, SESSION_ENDED_LOST, false},
    {"garbage for a message", garbage_for_a_message, SESSION_ENDED_LOST, false},
    {"a message of another call", a_message_of_another_call, SESSION_ENDED_LOST, false},
    {"no word of the end", no_word_of_the_end, SESSION_ENDED_LOST, true},
    {"a reset", a_reset, SESSION_ENDED_LOST, true},
    {"a failure with a reason of ours", a_failure_with_a_reason_of_ours, SESSION_ENDED_LOST, true},
    {"a flood of status text", a_flood_of_status_text, SESSION_ENDED_LOST, true},
};

static void lies_about_commands_hurt_those_commands_alone(void **state) {
  (void)state;
  liar_tell_each(lies, sizeof lies / sizeof lies[0]);
}

static void an_offset_of_input_that_was_never_sent_is_a_lie(void **state) {
  (void)state;
  for (int how = 0; how < 2; how++) {
    struct stage stage;
    stage_set(&stage, NULL);
    stage_open(&stage);
    struct user_run run = {0};
    struct session_command command = {.command = "cat", .cwd = "/workspace", .stdin_open = true};
    user_run_start(&run, stage.session, &command);
    struct agent_call *call = stage_call(&stage, "Run", 1);
    agent_started(call, 0);
    /* So much that what was taken is forgotten. */
    for (int i = 0; i < 10; i++) {
      session_exec_stdin(run.exec, liar_zeros, 100000);
      run_for(&stage.loop, 3);
    }
    assert_int_equal(call->input.length, 1000000);
    agent_double_cut(&stage.agent);
    call = stage_next_call(&stage, "Run", call);
    agent_started(call, how ? 1000001 : 1000);
    run_until(&stage.loop, &run.ended);
    assert_int_equal(run.end.ended_by, SESSION_ENDED_LOST);
    user_run_free(&run);
    stage_clear(&stage);
  }
}

/* Endless output: it is cut at the limit to the byte, and meanwhile the window holds it. */
static void send_output(struct agent_call *call) {
  uint64_t *sent = call->user;
  while (call->call && wire_call_queued(call->call) < 200000) {
    agent_output(call, 1, *sent, liar_zeros, 100000);
    *sent += 100000;
  }
}

static void endless_output_is_cut(void **state) {
  (void)state;
  static const struct agent_script script = {.writable = send_output};
  struct stage stage;
  stage_set(&stage, &script);
  stage_open(&stage);
  struct user_run run = {0};
  struct session_command command = {.command = "yes", .cwd = "/workspace", .output_limit = 12345678};
  user_run_start(&run, stage.session, &command);
  struct agent_call *call = stage_call(&stage, "Run", 1);
  uint64_t sent = 0;
  call->user = &sent;
  agent_started(call, 0);
  send_output(call);
  size_t most = 0;
  while (!run.ended) {
    uv_run(&stage.loop, UV_RUN_ONCE);
    most = session_memory(stage.session) > most ? session_memory(stage.session) : most;
  }
  assert_int_equal(run.end.ended_by, SESSION_ENDED_OUTPUT_LIMIT);
  assert_int_equal(run.out[0].length, 12345678);
  assert_int_equal(run.end.stdout_bytes, 12345678);
  assert_in_range(most, 1, 512 * 1024);
  call->user = &sent;
  while (call->status < 0)
    run_for(&stage.loop, 1);
  assert_int_equal(call->status, WIRE_CANCELLED);
  user_run_free(&run);
  stage_clear(&stage);
}

static void a_window_without_end_does_not_make_us_keep_input_without_end(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage.agent.call_window = 512 * 1024 * 1024;
  stage_open(&stage);
  struct user_run run = {0};
  struct session_command command = {.command = "cat", .cwd = "/workspace", .stdin_open = true};
  user_run_start(&run, stage.session, &command);
  struct agent_call *call = stage_call(&stage, "Run", 1);
  call->hold = true;
  agent_started(call, 0);
  size_t most = 0;
  for (int i = 0; i < 1000 && !run.ended; i++) {
    session_exec_stdin(run.exec, liar_zeros, 65536);
    run_for(&stage.loop, 1);
    most = session_memory(stage.session) > most ? session_memory(stage.session) : most;
  }
  assert_true(run.ended);
  assert_int_equal(run.end.ended_by, SESSION_ENDED_LOST);
  assert_in_range(most, 1, 10 * 1024 * 1024);
  user_run_free(&run);
  stage_clear(&stage);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lies_about_commands_hurt_those_commands_alone),
      cmocka_unit_test(an_offset_of_input_that_was_never_sent_is_a_lie),
      cmocka_unit_test(endless_output_is_cut),
      cmocka_unit_test(a_window_without_end_does_not_make_us_keep_input_without_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
