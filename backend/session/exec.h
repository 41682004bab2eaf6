/*
 * What exec.c and exec_input.c share: one command on the agent.
 */
#ifndef BACKEND_SESSION_EXEC_H
#define BACKEND_SESSION_EXEC_H

#include "backend/session/internal.h"
#include "base/buffer.h"

#define EXEC_ID_BYTES 16

enum exec_stage {
  EXEC_NEW,       /* not sent to this agent */
  EXEC_STARTING,  /* RunStart sent */
  EXEC_AWAY,      /* was sent on a connection that broke */
  EXEC_ATTACHING, /* RunAttach sent */
  EXEC_RUNNING,   /* the agent said that it runs, on the present call */
};

/* Standard input that the agent may not have: kept, in order, from `start` on. */
struct exec_input {
  struct buffer kept;
  uint64_t start; /* offset of the first kept byte in standard input */
  uint64_t sent;  /* of the next byte to be sent on the present call */
  uint64_t most;  /* of the next byte that was never sent */
  bool none;      /* the command has no standard input */
  bool end;       /* no more will come */
  bool end_sent;  /* and the agent was told, on the present call */
  bool waiting;   /* the user was told to wait */
};

struct session_exec {
  struct operation operation;
  const struct session_exec_events *events;
  void *context;
  enum exec_stage stage;
  uint8_t id[EXEC_ID_BYTES];
  uint8_t *request; /* packed, with RunStart; NULL once the agent has it for certain */
  size_t request_length;
  int64_t timeout;
  uint64_t output_limit;
  uint64_t generation; /* of the agent that it was sent to */
  uint64_t signals;    /* bit n - 1: signal n is to be sent */
  int64_t timeout_at;  /* when it is killed from here; 0: never */
  int64_t wait_until;  /* for a connection, or for the agent to say that it runs; 0: not waiting */
  int64_t away_since;  /* the connection broke, and the agent has not said since that it runs; 0: it has not broken */
  uint64_t got[2];           /* bytes of each stream */
  size_t held;               /* of them, with the user, and counting against the present call's window */
  size_t stale;              /* with the user, from former calls */
  bool told;                 /* the user knows that it started */
  enum session_ended forced; /* how it ends whatever the agent says; 0: not decided */
  struct exec_input input;
};

/* Sends what there is and the call takes, and forgets what the agent has for certain. */
void exec_input_run(struct session_exec *exec);
/* The agent has standard input up to here, and the present call goes on from there. Returns 0, or -1 if that cannot
 * be. */
int exec_input_resume(struct session_exec *exec, uint64_t offset);
/* Tells the user if he waits and there is room. */
void exec_input_tell(struct session_exec *exec);

/* Ends it for the user, as decided here. */
void exec_force(struct session_exec *exec, enum session_ended ended_by);

#endif
