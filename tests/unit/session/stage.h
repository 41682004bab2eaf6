/*
 * A loop, an agent that a test scripts, and a session with it.
 */
#ifndef TESTS_UNIT_SESSION_STAGE_H
#define TESTS_UNIT_SESSION_STAGE_H

#include "tests/unit/session/agent_double.h"
#include "tests/unit/session/user.h"

#define EXITED SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_EXITED

struct stage {
  uv_loop_t loop;
  struct agent_double agent;
  struct session *session; /* NULL once closed */
};

/* The agent can be changed before the session is opened. */
void stage_set(struct stage *stage, const struct agent_script *script);
void stage_open(struct stage *stage);
void stage_open_until(struct stage *stage, int64_t deadline);
/* Closes what is open and checks that nothing of it is left in the loop. */
void stage_clear(struct stage *stage);
/* The agent's latest call of this method, once it has got `count` messages; fails the test after 10 s. */
struct agent_call *stage_call(struct stage *stage, const char *method, size_t count);
/* The same of another call than `former`, which may be NULL, with its first message. */
struct agent_call *stage_next_call(struct stage *stage, const char *method, const struct agent_call *former);
/* Starts `sh -lc text`. */
void stage_run(struct stage *stage, struct user_run *run, const char *text);

#endif
