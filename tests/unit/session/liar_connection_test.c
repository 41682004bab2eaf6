/* What is no agent at all, an agent that floods, and one that lets nothing begin. */
#include "base/clock.h"
#include "base/memory.h"
#include "tests/unit/session/check.h"
#include "tests/unit/session/liar.h"
#include <stdlib.h>
#include <string.h>

static int configure_lie;

static void answer_configure(struct agent_call *call, size_t index) {
  Sandbox__Agent__V1__ConfigureResponse response = SANDBOX__AGENT__V1__CONFIGURE_RESPONSE__INIT;
  uint8_t instance[17] = {0};
  if (strcmp(call->method, "Configure") != 0 || index > 0)
    return;
  response.protocol = configure_lie == 0 ? 2 : 1;
  response.instance = (ProtobufCBinaryData){.data = instance,
                                            .len = configure_lie == 1   ? 15
                                                   : configure_lie == 2 ? 17
                                                                        : 16};
  if (configure_lie == 3)
    agent_finish(call, WIRE_UNIMPLEMENTED, "");
  if (configure_lie == 4)
    agent_finish(call, WIRE_OK, "");
  if (configure_lie == 5)
    wire_call_send(call->call, liar_zeros, 100000);
  if (configure_lie == 6)
    wire_call_cancel(call->call);
  agent_send(call, &response.base);
  if (configure_lie == 7)
    agent_send(call, &response.base);
  agent_finish(call, WIRE_OK, "");
}

static void an_agent_that_cannot_be_configured_serves_nothing(void **state) {
  (void)state;
  static const struct agent_script script = {.message = answer_configure};
  for (configure_lie = 0; configure_lie <= 7; configure_lie++) {
    struct stage stage;
    stage_set(&stage, &script);
    stage.agent.no_configure = true;
    stage_open(&stage);
    struct user_run run = {0};
    stage_run(&stage, &run, "x");
    run_until(&stage.loop, &run.ended);
    assert_int_equal(run.reason, REASON_SANDBOX_NOT_READY);
    /* Not in a hurry. */
    assert_in_range(stage.agent.connects, 2, 100);
    user_run_free(&run);
    stage_clear(&stage);
  }
}

static void what_is_no_agent_at_all_serves_nothing(void **state) {
  (void)state;
  static const char *const greetings[] = {"SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", "\r\n", "",
                                          "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"};
  for (size_t i = 0; i < sizeof greetings / sizeof greetings[0]; i++) {
    struct stage stage;
    stage_set(&stage, NULL);
    stage.agent.raw = true;
    stage_open(&stage);
    struct user_run run = {0};
    stage_run(&stage, &run, "x");
    for (int round = 0; round < 100 && !run.ended; round++) {
      if (stage.agent.open)
        agent_double_raw(&stage.agent, greetings[i], strlen(greetings[i]));
      run_for(&stage.loop, 10);
    }
    assert_true(run.ended);
    assert_int_equal(run.reason, REASON_SANDBOX_NOT_READY);
    user_run_free(&run);
    stage_clear(&stage);
  }
}

static void random_bytes_do_no_harm(void **state) {
  (void)state;
  unsigned seed = 1;
  for (int round = 0; round < 300; round++) {
    struct stage stage;
    stage_set(&stage, NULL);
    stage_open(&stage);
    struct user_run run = {0};
    struct transfer read = {0};
    stage_run(&stage, &run, "x");
    transfer_read(&read, stage.session, "a", 1000, true);
    run_for(&stage.loop, 3);
    uint8_t bytes[400];
    size_t length = 1 + (size_t)rand_r(&seed) % sizeof bytes;
    for (size_t i = 0; i < length; i++)
      bytes[i] = (uint8_t)rand_r(&seed);
    if (round % 2) /* one frame with a good head */
      liar_frame(&stage.agent, bytes[0] % 10, bytes[1], bytes[2] % 8, bytes, length);
    else
      agent_double_raw(&stage.agent, bytes, length);
    run_for(&stage.loop, 3);
    stage_clear(&stage);
    assert_true(run.ended && read.ended);
    user_run_free(&run);
    transfer_free(&read);
  }
}

/* --- floods --- */

static void flood(unsigned type, unsigned flags, uint32_t stream, size_t length, size_t count, bool reads) {
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct user_run run = {0};
  stage_run(&stage, &run, "x");
  agent_started(stage_call(&stage, "Run", 1), 0);
  run_until(&stage.loop, &run.started);
  stage.agent.stuck = !reads;
  size_t most = 0;
  for (size_t i = 0; i < count && !run.ended; i++) {
    for (int j = 0; j < 1000; j++)
      liar_frame(&stage.agent, type, flags, stream, liar_zeros, length);
    run_for(&stage.loop, 1);
    most = session_memory(stage.session) > most ? session_memory(stage.session) : most;
  }
  assert_in_range(most, 1, 512 * 1024);
  if (!reads)
    assert_in_range(stage.agent.most_queued, 0, 2 * 1024 * 1024);
  stage_clear(&stage);
  user_run_free(&run);
}

static void floods_are_bounded(void **state) {
  (void)state;
  for (int reads = 0; reads < 2; reads++) {
    flood(PING, 0, 0, 8, 200, reads);
    flood(PING, ACK, 0, 8, 200, reads);
    flood(SETTINGS, 0, 0, 0, 200, reads);
    flood(PRIORITY, 0, 5, 5, 200, reads);
    flood(DATA, 0, CALL, 0, 200, reads);
    flood(DATA, 0, 1, 100, 200, reads); /* a call that is over */
    flood(RST_STREAM, 0, 1, 4, 200, reads);
    flood(77, 0, CALL, 100, 200, reads); /* a frame nobody knows */
  }
}

/* Bytes that are no use, as fast as they go: the agent is cut off before it costs much. */
static void useless_bytes_are_cut(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct user_run run = {0};
  stage_run(&stage, &run, "x");
  agent_started(stage_call(&stage, "Run", 1), 0);
  run_until(&stage.loop, &run.started);
  size_t sent = 0;
  while (!run.ended && sent < 100u * 1024 * 1024) {
    for (int i = 0; i < 10; i++)
      liar_frame(&stage.agent, 77, 0, 0, liar_zeros, 100000);
    sent += 1000000;
    uv_run(&stage.loop, UV_RUN_NOWAIT);
  }
  assert_true(run.ended);
  assert_in_range(sent, 16 * 1000 * 1000, 20 * 1000 * 1000);
  assert_int_equal(run.end.ended_by, SESSION_ENDED_LOST);
  user_run_free(&run);
  stage_clear(&stage);
}

/* An agent that breaks the protocol on every connection is not connected to as fast as it goes. */
static void spit(struct agent_double *agent) {
  if (agent->configures == agent->connects)
    liar_frame(agent, PUSH_PROMISE, END_HEADERS, 1, liar_zeros, 5);
}

static void a_spitting_agent_is_left_alone(void **state) {
  (void)state;
  static const struct agent_script script = {.flushed = spit};
  struct stage stage;
  stage_set(&stage, &script);
  stage_open(&stage);
  run_for(&stage.loop, 300);
  assert_in_range(stage.agent.connects, 1, 2);
  /* Each command costs one more connection, or a few. */
  struct user_run run = {0};
  stage_run(&stage, &run, "x");
  run_until(&stage.loop, &run.ended);
  assert_int_equal(run.reason, REASON_SANDBOX_NOT_READY);
  assert_in_range(stage.agent.connects, 2, 60);
  user_run_free(&run);
  stage_clear(&stage);
}

/* An agent that lets nothing begin. */
static void an_agent_that_opens_no_call_is_not_waited_for(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  run_for(&stage.loop, 10);
  liar_frame(&stage.agent, SETTINGS, 0, 0, "\x00\x03\x00\x00\x00\x00", 6); /* no concurrent streams */
  run_for(&stage.loop, 10);
  struct user_run run = {0};
  struct transfer read = {0}, write = {0};
  stage_run(&stage, &run, "x");
  transfer_read(&read, stage.session, "a", 10, false);
  transfer_write(&write, stage.session, "a", 5, NULL);
  session_write_data(write.write, (const uint8_t *)"12345", 5);
  session_write_finish(write.write);
  run_until(&stage.loop, &run.ended);
  run_until(&stage.loop, &read.ended);
  run_until(&stage.loop, &write.ended);
  assert_int_equal(run.reason, REASON_SANDBOX_NOT_READY);
  assert_int_equal(read.reason, REASON_FILE_TRANSFER_FAILED);
  assert_int_equal(write.reason, REASON_FILE_TRANSFER_FAILED);
  user_run_free(&run);
  transfer_free(&read);
  transfer_free(&write);
  stage_clear(&stage);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_agent_that_cannot_be_configured_serves_nothing),
      cmocka_unit_test(what_is_no_agent_at_all_serves_nothing),
      cmocka_unit_test(random_bytes_do_no_harm),
      cmocka_unit_test(floods_are_bounded),
      cmocka_unit_test(useless_bytes_are_cut),
      cmocka_unit_test(a_spitting_agent_is_left_alone),
      cmocka_unit_test(an_agent_that_opens_no_call_is_not_waited_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
