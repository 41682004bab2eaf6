#include "tests/unit/session/liar.h"

#include "base/memory.h"
#include "tests/unit/session/check.h"
#include <string.h>

uint8_t liar_zeros[1024 * 1024];

void liar_frame(struct agent_double *agent, unsigned type, unsigned flags, uint32_t stream, const void *payload,
                size_t length) {
  uint8_t head[9] = {(uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length,
                     (uint8_t)type,           (uint8_t)flags,         (uint8_t)(stream >> 24),
                     (uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream};
  agent_double_flush(agent);
  agent_double_raw(agent, head, sizeof head);
  agent_double_raw(agent, payload, length);
}

void liar_expect_service(struct stage *stage) {
  struct user_run run = {0};
  struct agent_call *former = agent_double_call(&stage->agent, "Run");
  stage_run(stage, &run, "honest");
  struct agent_call *call = stage_next_call(stage, "Run", former);
  assert_non_null(call->start);
  agent_started(call, 0);
  agent_output(call, 1, 0, "ok", 2);
  agent_end(call, EXITED, 0, 0, 2, 0);
  agent_finish(call, WIRE_OK, "");
  run_until(&stage->loop, &run.ended);
  assert_int_equal(run.reason, REASON_NONE);
  assert_int_equal(run.end.ended_by, SESSION_ENDED_EXITED);
  assert_string_equal(buffer_text(&run.out[0]), "ok");
  user_run_free(&run);
}

static void tell(const struct lie *lie) {
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct user_run run = {0};
  stage_run(&stage, &run, "x");
  struct agent_call *call = stage_call(&stage, "Run", 1);
  lie->tell(call);
  run_until(&stage.loop, &run.ended);
  if (lie->ended_by == 0) {
    assert_int_equal(run.reason, REASON_SANDBOX_NOT_READY);
  } else {
    assert_int_equal(run.reason, REASON_NONE);
    assert_int_equal(run.end.ended_by, lie->ended_by);
  }
  assert_true(strlen(run.detail) < sizeof run.detail - 1);
  liar_expect_service(&stage);
  assert_int_equal(stage.agent.connects, lie->tolerated ? 1 : 2);
  assert_in_range(session_memory(stage.session), 1, 256 * 1024);
  user_run_free(&run);
  stage_clear(&stage);
}

void liar_tell_each(const struct lie *lies, size_t count) {
  for (size_t i = 0; i < count; i++) {
    print_message("           %s\n", lies[i].what);
    tell(&lies[i]);
  }
}
