/* An agent that lies about files. */
#include "base/clock.h"
#include "base/memory.h"
#include "tests/unit/session/check.h"
#include "tests/unit/session/liar.h"
#include <stdlib.h>
#include <string.h>

static void data_before_info(struct agent_call *call) {
  agent_data(call, "x", 1);
}

static void info_twice(struct agent_call *call) {
  agent_info(call, 3, NULL);
  agent_info(call, 3, NULL);
}

static void larger_than_asked_for(struct agent_call *call) {
  agent_info(call, 1001, NULL);
}

static void more_than_announced(struct agent_call *call) {
  agent_info(call, 3, NULL);
  agent_data(call, "abcd", 4);
}

static void more_than_nothing(struct agent_call *call) {
  agent_info(call, 0, NULL);
  agent_data(call, "a", 1);
}

static void less_than_announced(struct agent_call *call) {
  agent_info(call, 3, NULL);
  agent_data(call, "ab", 2);
  agent_finish(call, WIRE_OK, "");
}

static void nothing_at_all(struct agent_call *call) {
  agent_finish(call, WIRE_OK, "");
}

static void empty_data(struct agent_call *call) {
  agent_info(call, 3, NULL);
  agent_data(call, "", 0);
}

static void an_end_for_a_file(struct agent_call *call) {
  agent_end(call, EXITED, 0, 0, 0, 0);
}

static const struct {
  const char *what;
  void (*tell)(struct agent_call *call);
  enum reason reason;
} read_lies[] = {
    {"data before info", data_before_info, REASON_SANDBOX_NOT_READY},
    {"info twice", info_twice, REASON_SANDBOX_NOT_READY},
    {"larger than asked for", larger_than_asked_for, REASON_SANDBOX_NOT_READY},
    {"more than announced", more_than_announced, REASON_SANDBOX_NOT_READY},
    {"more than nothing", more_than_nothing, REASON_SANDBOX_NOT_READY},
    {"less than announced", less_than_announced, REASON_FILE_TRANSFER_FAILED},
    {"nothing at all", nothing_at_all, REASON_FILE_TRANSFER_FAILED},
    {"empty data", empty_data, REASON_SANDBOX_NOT_READY},
    {"an end for a file", an_end_for_a_file, REASON_SANDBOX_NOT_READY},
};

static void lies_about_files_are_no_files(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof read_lies / sizeof read_lies[0]; i++) {
    print_message("           %s\n", read_lies[i].what);
    struct stage stage;
    stage_set(&stage, NULL);
    stage_open(&stage);
    struct transfer read = {0};
    transfer_read(&read, stage.session, "a", 1000, false);
    read_lies[i].tell(stage_call(&stage, "ReadFile", 1));
    run_until(&stage.loop, &read.ended);
    assert_int_equal(read.reason, read_lies[i].reason);
    liar_expect_service(&stage);
    transfer_free(&read);
    stage_clear(&stage);
  }
}

static void a_digest_is_checked_here(void **state) {
  (void)state;
  for (int how = 0; how < 3; how++) {
    struct stage stage;
    stage_set(&stage, NULL);
    stage_open(&stage);
    struct transfer read = {0};
    uint8_t sha256[32] = {0};
    transfer_read(&read, stage.session, "a", 1000, true);
    struct agent_call *call = stage_call(&stage, "ReadFile", 1);
    agent_info(call, 3, how == 0 ? NULL : sha256);
    agent_data(call, "abc", 3);
    agent_finish(call, WIRE_OK, "");
    run_until(&stage.loop, &read.ended);
    assert_int_equal(read.reason, how == 0 ? REASON_SANDBOX_NOT_READY : REASON_FILE_TRANSFER_FAILED);
    assert_int_equal(read.content.length, 0);
    transfer_free(&read);
    stage_clear(&stage);
  }
}

/* A file that was written to while it was read. Who was told its size must not be left with so many bytes of it. */
static void last_bytes_of_another_file_are_not_given(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct transfer read = {0};
  uint8_t sha256[32] = {0};
  transfer_read(&read, stage.session, "a", 1000, true);
  struct agent_call *call = stage_call(&stage, "ReadFile", 1);
  agent_info(call, 9, sha256);
  agent_data(call, "abc", 3);
  agent_data(call, "def", 3);
  agent_data(call, "ghi", 3); /* and no end: the answer does not wait for it */
  run_until(&stage.loop, &read.ended);
  assert_int_equal(read.reason, REASON_FILE_TRANSFER_FAILED);
  assert_int_equal(read.content.length, 6);
  liar_expect_service(&stage);
  transfer_free(&read);
  stage_clear(&stage);
}

static void lies_about_written_files_are_no_success(void **state) {
  (void)state;
  for (int how = 0; how < 6; how++) {
    struct stage stage;
    stage_set(&stage, NULL);
    stage_open(&stage);
    struct transfer write = {0};
    Sandbox__Agent__V1__WriteFileResponse response = SANDBOX__AGENT__V1__WRITE_FILE_RESPONSE__INIT;
    transfer_write(&write, stage.session, "a", 10, NULL);
    session_write_data(write.write, (const uint8_t *)"0123456789", how == 0 ? 5 : 10);
    if (how > 1)
      session_write_finish(write.write);
    struct agent_call *call = stage_call(&stage, "WriteFile", 2);
    if (how == 3) {
      agent_send(call, &response.base);
      agent_send(call, &response.base);
    } else if (how == 4) {
      wire_call_send(call->call, (const uint8_t *)"\xFF\xFF", 2);
    } else if (how == 5) {
      wire_call_send(call->call, liar_zeros, 100000);
    } else if (how != 2) { /* 0, 1: before all was there; 2: no answer */
      agent_send(call, &response.base);
    }
    agent_finish(call, WIRE_OK, "");
    run_until(&stage.loop, &write.ended);
    assert_int_equal(write.reason, how < 3 ? REASON_FILE_TRANSFER_FAILED : REASON_SANDBOX_NOT_READY);
    liar_expect_service(&stage);
    transfer_free(&write);
    stage_clear(&stage);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lies_about_files_are_no_files),
      cmocka_unit_test(a_digest_is_checked_here),
      cmocka_unit_test(last_bytes_of_another_file_are_not_given),
      cmocka_unit_test(lies_about_written_files_are_no_success),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
