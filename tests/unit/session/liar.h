/*
 * An agent that lies in every way we could think of. Whatever it says, operations end, and end as what can be relied
 * on; memory stays bounded; and the session serves again once the agent is honest.
 */
#ifndef TESTS_UNIT_SESSION_LIAR_H
#define TESTS_UNIT_SESSION_LIAR_H

#include "tests/unit/session/stage.h"

/* HTTP/2's frames and flags. */
enum {
  DATA = 0,
  HEADERS = 1,
  PRIORITY = 2,
  RST_STREAM = 3,
  SETTINGS = 4,
  PUSH_PROMISE = 5,
  PING = 6,
  GOAWAY = 7,
  WINDOW_UPDATE = 8,
  CONTINUATION = 9
};
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4 };

/* Configure is stream 1; the only other call of most tests is this. */
#define CALL 3

extern uint8_t liar_zeros[1024 * 1024];

/* One frame behind the wire's back. Not from within a callback of the wire. */
void liar_frame(struct agent_double *agent, unsigned type, unsigned flags, uint32_t stream, const void *payload,
                size_t length);

/* Told about the command of a session's first call, Run. */
struct lie {
  const char *what;
  void (*tell)(struct agent_call *call);
  enum session_ended ended_by; /* 0: it could not be started, REASON_SANDBOX_NOT_READY */
  bool tolerated;              /* the connection stays */
};
void liar_tell_each(const struct lie *lies, size_t count);

/* Honest again: a command runs to its end, on a new connection if there is to be one. */
void liar_expect_service(struct stage *stage);

#endif
