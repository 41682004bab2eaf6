/* Files with an agent that keeps to the protocol, up to the moment when it does not move any more. */
#include "base/clock.h"
#include "base/digest.h"
#include "base/memory.h"
#include "tests/unit/session/check.h"
#include "tests/unit/session/stage.h"
#include <stdlib.h>
#include <string.h>

static void a_file_is_read(void **state) {
  (void)state;
  uint8_t *bytes = user_pattern(300000), sha256[32];
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
  uint8_t *bytes = user_pattern(100000);
  agent_info(call, 5000000, NULL);
  for (int i = 0; i < 50; i++)
    agent_data(call, bytes, 100000);
  agent_finish(call, WIRE_OK, "");
  RUN_UNTIL(&stage.loop, read.held >= 400000);
  /* However long: it is his turn. */
  run_for(&stage.loop, 400);
  while (!read.ended) {
    size_t held = read.held;
    assert_in_range(held, 1, 524288);
    read.held = 0;
    session_read_consume(read.read, held);
    RUN_UNTIL(&stage.loop, read.held > 0 || read.ended);
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
  uint8_t *bytes = user_pattern(1000000);
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
  uint8_t *bytes = user_pattern(900000);
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
  uint8_t *bytes = user_pattern(1000000);
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

int main(void) {
  const struct CMUnitTest tests[] = {
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
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
