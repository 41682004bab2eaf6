/*
 * The inside of a session. session.c holds its life, its operations and its timer; connection.c keeps the connection;
 * exec.c, read.c and write.c are the operations. Thread: the loop's.
 *
 * One rule keeps it simple: what a user of the session calls never runs the wire and never calls back. It queues, and
 * what was queued leaves in the next turn of the loop. The wire runs only in connection.c, on events of the loop, and
 * there alone operations are told something and users are called back. So an operation may be started, fed or
 * cancelled, and the session closed, from within any callback.
 */
#ifndef BACKEND_SESSION_INTERNAL_H
#define BACKEND_SESSION_INTERNAL_H

#include "backend/session/patience.h"
#include "backend/session/session.h"
#include "backend/wire/wire.h"
#include <protobuf-c/protobuf-c.h>

#define INSTANCE_BYTES 16
#define DETAIL_SIZE 160

/* --- operations --- */

struct operation;

struct operation_kind {
  const char *method; /* path of its call */
  /* The connection stands and the operation has no call: start it (operation_call), or leave it for the next time. */
  void (*open)(struct operation *operation);
  void (*message)(struct operation *operation, const uint8_t *bytes, size_t length);
  void (*writable)(struct operation *operation); /* may be NULL */
  /* The agent ended the call, which is NULL now. */
  void (*closed)(struct operation *operation, int status, const char *text);
  /* The connection broke under the call, which is NULL now. violated: because the agent broke the protocol. */
  void (*lost)(struct operation *operation, bool violated);
  /* operation->due has come and was set to 0. */
  void (*overdue)(struct operation *operation, int64_t now);
  /* There is no sandbox to wait for any more. */
  void (*fail)(struct operation *operation, const struct error *why);
  /* The session is closed, or its Lease has ended. */
  void (*abandon)(struct operation *operation, enum session_ended why);
  /* Frees what it owns, not itself. */
  void (*release)(struct operation *operation);
  size_t (*memory)(const struct operation *operation); /* what it owns */
};

/* First member of every operation; one memory_zero block, freed when it is finished and has neither call nor errand. */
struct operation {
  const struct operation_kind *kind;
  struct session *session;
  struct operation *next, **link;
  struct wire_call *call; /* NULL: none */
  int64_t due;            /* boot clock: when `overdue` is wanted; 0: never. See operation_due */
  bool finished;          /* its user's last callback was called, or is about to be */
  bool telling;           /* it is being called */
  bool errand;            /* finished, but the agent is still to be told when a connection stands */
};

void operation_add(struct session *session, struct operation *operation, const struct operation_kind *kind);
/* Starts the call. Returns 0, or -1 when there can be none. */
int operation_call(struct operation *operation);
/* Packs and queues one message. Returns 0, or -1 without memory or when the call is over. */
int operation_send(struct operation *operation, const ProtobufCMessage *message);
/* The other side needs no more than `length` bytes of its messages to be held back. */
void operation_consume(struct operation *operation, size_t length);
/* Resets the call, if there is one. */
void operation_reset(struct operation *operation);
/* `overdue` at this time; 0: never; any past time: in the next turn of the loop. */
void operation_due(struct operation *operation, int64_t when);
/* Marks it finished, before its user is told; a call that is still open gets a moment to end by itself. */
void operation_finish(struct operation *operation);
/* After its user was told: it may be gone when this returns. */
void operation_told(struct operation *operation);
/* Frees it if nothing is left to do. */
void operation_done(struct operation *operation);

/* --- the session --- */

enum session_state {
  SESSION_IDLE,       /* not connected; connects when an operation comes */
  SESSION_CONNECTING, /* transport, then Configure */
  SESSION_WAITING,    /* before another attempt */
  SESSION_OPEN,
  SESSION_EXPIRED, /* its Lease has ended */
  SESSION_CLOSED,
};

struct session {
  uv_loop_t *loop;
  struct transport *transport;
  struct wire *wire; /* NULL: not connected */
  enum session_state state;
  int64_t deadline, connect_timeout;
  char lease[LIMIT_LEASE_ID_BYTES + 1];

  uv_timer_t timer;
  uv_idle_t flush; /* active while something was queued */
  int handles;     /* of libuv, still open */
  int64_t armed;   /* when the timer fires; 0: never */

  struct operation *operations;
  struct operation *cursor; /* the next one of a walk over all */

  /* connection.c */
  int64_t due;       /* of the state */
  int64_t opened_at; /* when it was last configured */
  int64_t heard_at;  /* when the last bytes came */
  int64_t pinged_at; /* 0: no ping is out */
  int64_t noise_since;
  size_t noise; /* bytes since then that were no use */
  unsigned failures;
  bool connected; /* the transport is */
  bool running;   /* the wire is at work: it may be neither freed nor run again */
  bool tearing;   /* the wire is being freed */
  bool broken;    /* to be torn down once it is not running */
  bool violated;  /* because the agent broke the protocol */
  bool full;      /* the transport has too much queued */
  bool has_instance;
  uint8_t instance[INSTANCE_BYTES];
  uint64_t generation;      /* changes when the agent is not the one that it was */
  char detail[DETAIL_SIZE]; /* what went wrong last */
};

/* session.c */
bool session_over(const struct session *session); /* closed or expired */
/* Something was queued: it leaves in the next turn of the loop. */
void session_schedule(struct session *session);
/* Something is due at this time. */
void session_due(struct session *session, int64_t when);
/* Walks over all operations; the callbacks may end any of them. */
void session_open_operations(struct session *session);
void session_fail_operations(struct session *session, const struct error *why);
void session_abandon_operations(struct session *session, enum session_ended why);
/* Is there an operation without a call that wants one? */
bool session_waited_for(const struct session *session);

/* connection.c */
void connection_start(struct session *session);
/* Sends and opens what there is; connects if somebody waits. */
void connection_run(struct session *session);
void connection_overdue(struct session *session, int64_t now);
void connection_end(struct session *session); /* for good */
/* The agent broke the protocol: everything on this connection ends. From within a callback of the wire. */
void connection_violated(struct session *session, const char *what);

#endif
