/*
 * A test double of backend/session/session.h: the test plays the sandbox. It checks the rules of session.h: what is consumed
 * was given, no more stdin than was welcome, nothing after the end.
 */
#ifndef TESTS_UNIT_SERVER_SESSION_DOUBLE_H
#define TESTS_UNIT_SERVER_SESSION_DOUBLE_H

#include "backend/session/session.h"
#include "base/buffer.h"

enum session_work_kind { WORK_EXEC, WORK_READ, WORK_WRITE };

/* A command or file operation under way. */
struct session_work {
  enum session_work_kind kind;
  struct session *session;
  struct session_work *next;
  void *context;
  size_t given, consumed; /* bytes to the handler */
  bool cancelled;
  bool full;     /* stdin or data: the next byte is told to wait */
  bool waiting;  /* and was */
  bool finished; /* stdin or data came to its end */
  struct buffer input;
  int signal;

  char command[256], cwd[256], path[256];
  size_t environment_count;
  int64_t timeout;
  uint64_t output_limit;
  bool stdin_open;
  uint64_t size;
  bool has_digest, make_parents, wants_digest;
  uint8_t digest[32];
};

struct session_exec {
  struct session_work work;
  const struct session_exec_events *events;
};
struct session_read {
  struct session_work work;
  const struct session_read_events *events;
};
struct session_write {
  struct session_work work;
  const struct session_write_events *events;
};

struct session_double_state {
  unsigned sessions, opened;     /* alive, ever made */
  struct session_work *works;    /* the last begun first */
  enum reason fail_at_once;      /* reads and writes end before they have begun */
  bool give_at_once;             /* reads give a file of 5 bytes, "hello", and end, before they have begun */
  enum session_ended closed_why; /* of the last session closed */
};
extern struct session_double_state session_double;

/* The work begun last, of this kind. */
struct session_exec *session_double_exec(void);
struct session_read *session_double_read(void);
struct session_write *session_double_write(void);

void session_double_output(struct session_exec *exec, int stream, uint64_t offset, const void *bytes, size_t length);
void session_double_exec_end(struct session_exec *exec, enum session_ended ended_by, int exit_code);
void session_double_exec_fail(struct session_exec *exec, enum reason reason);
void session_double_data(struct session_read *read, const void *bytes, size_t length);
/* REASON_NONE: success. */
void session_double_read_end(struct session_read *read, enum reason reason);
void session_double_write_end(struct session_write *write, enum reason reason);
/* Room again. */
void session_double_wanted(struct session_work *work);

#endif
