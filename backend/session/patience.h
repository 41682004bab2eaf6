/*
 * How long a session waits for what, in one place. Nanoseconds.
 */
#ifndef BACKEND_SESSION_PATIENCE_H
#define BACKEND_SESSION_PATIENCE_H

#include <stdint.h>

struct session_patience {
  int64_t connect;       /* for a connection and Configure, unless the user of the session says otherwise */
  int64_t silence;       /* nothing heard: then a ping */
  int64_t pong;          /* for its answer */
  int64_t backoff_first; /* before the second attempt to connect; then doubled each time */
  int64_t backoff_most;
  int64_t steady;   /* a connection that stood so long was a good one: the next attempt comes at once */
  int64_t start;    /* from RunStart to RunStarted */
  int64_t reattach; /* for a command to be taken up again; the agent is told to keep it so long */
  int64_t restart;  /* so long after the connection broke a command that the agent never saw is started anew */
  int64_t grace;    /* that the agent's own timer for a command has before ours */
  int64_t stalled;  /* for a file: the agent neither sends nor takes anything */
  int64_t closing;  /* for the agent to end a call when everything was said */
};

extern const struct session_patience session_patience;

#endif
