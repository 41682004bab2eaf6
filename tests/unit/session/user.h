/*
 * The session's user in tests: operations that record what they are told, and a stage to run them on.
 */
#ifndef TESTS_UNIT_SESSION_USER_H
#define TESTS_UNIT_SESSION_USER_H

#include "backend/session/session.h"
#include "base/buffer.h"

struct user_run {
  struct session_exec *exec; /* NULL once ended */
  struct buffer out[2];
  bool started, ended;
  unsigned wanted;
  size_t held; /* output not consumed */
  bool hold;   /* output is not consumed */
  struct session_end end;
  enum reason reason; /* not REASON_NONE: it could not be started */
  char detail[256];
  /* Within the callbacks. */
  void (*on_output)(struct user_run *run);
  void (*on_end)(struct user_run *run);
  void *user;
};

struct transfer {
  struct session_read *read; /* NULL once ended */
  struct session_write *write;
  struct buffer content;
  uint64_t size;
  bool informed, ended, hold;
  unsigned wanted;
  size_t held;
  enum reason reason; /* REASON_NONE: success */
  char detail[256];
};

void user_run_start(struct user_run *run, struct session *session, const struct session_command *command);
void user_run_free(struct user_run *run);
void transfer_read(struct transfer *transfer, struct session *session, const char *path, uint64_t max, bool digest);
void transfer_write(struct transfer *transfer, struct session *session, const char *path, uint64_t size,
                    const uint8_t *sha256);
void transfer_free(struct transfer *transfer);

/* Bytes of which no two pages are the same, from malloc. */
uint8_t *user_pattern(size_t length);

/* Runs the loop until the flag is set; fails the test after `seconds`. */
void run_until_within(uv_loop_t *loop, const bool *flag, int seconds);
void run_until(uv_loop_t *loop, const bool *flag); /* 10 s */
/* Runs the loop until the condition holds; 10 s. */
#define RUN_UNTIL(loop, condition)                                                                                     \
  for (int run_left = 10000; !(condition);)                                                                            \
  run_a_little(loop, &run_left)
void run_a_little(uv_loop_t *loop, int *left);
/* Runs the loop for so long. */
void run_for(uv_loop_t *loop, int milliseconds);

#endif
