#include "tests/unit/session/stage.h"

#include "base/clock.h"
#include "base/log.h"
#include "tests/unit/session/check.h"
#include <string.h>

void stage_set(struct stage *stage, const struct agent_script *script) {
  log_set_level(LOG_ERROR);
  memset(stage, 0, sizeof *stage);
  assert_int_equal(uv_loop_init(&stage->loop), 0);
  agent_double_init(&stage->agent, &stage->loop, script);
}

void stage_open_until(struct stage *stage, int64_t deadline) {
  struct session_options options = {
      .loop = &stage->loop, .transport = &stage->agent.transport, .deadline = deadline, .lease = "lease-of-a-test"};
  stage->session = session_new(&options);
}

void stage_open(struct stage *stage) {
  stage_open_until(stage, clock_boot() + 3600 * CLOCK_SECOND);
}

void stage_clear(struct stage *stage) {
  if (stage->session)
    session_close(stage->session, SESSION_ENDED_LOST);
  stage->session = NULL;
  uv_run(&stage->loop, UV_RUN_DEFAULT);
  assert_int_equal(uv_loop_close(&stage->loop), 0);
  agent_double_free(&stage->agent);
}

static struct agent_call *wait_for_call(struct stage *stage, const char *method, size_t count,
                                        const struct agent_call *former) {
  int64_t end = clock_boot() + 10 * CLOCK_SECOND;
  struct agent_call *call;
  while (!(call = agent_double_call(&stage->agent, method)) || call == former || call->count < count) {
    assert_true(clock_boot() < end);
    run_for(&stage->loop, 1);
  }
  return call;
}

struct agent_call *stage_call(struct stage *stage, const char *method, size_t count) {
  return wait_for_call(stage, method, count, NULL);
}

struct agent_call *stage_next_call(struct stage *stage, const char *method, const struct agent_call *former) {
  return wait_for_call(stage, method, 1, former);
}

void stage_run(struct stage *stage, struct user_run *run, const char *text) {
  struct session_command command = {.command = text, .cwd = "/workspace"};
  user_run_start(run, stage->session, &command);
}
