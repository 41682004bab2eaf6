/*
 * A session: one kept connection to the agent in one sandbox, and on it commands and files. Written once, for every
 * backend. It connects on first use, keeps the connection alive by pings, and when it breaks connects again and takes
 * up running commands where they were.
 *
 * The agent is hostile: every length, count, offset and encoding from it is checked here, and limits are enforced
 * here. An agent that breaks the protocol gets its connection closed and its operations end as SANDBOX_LOST or
 * REASON_SANDBOX_NOT_READY.
 *
 * Thread: the loop's. Callbacks come from the loop alone, never from within a function of the session, except that
 * session_close ends what is open before it returns. Within a callback everything is allowed, session_close included.
 * Strings and bytes passed in are copied; those passed to callbacks are valid for the call.
 */
#ifndef BACKEND_SESSION_SESSION_H
#define BACKEND_SESSION_SESSION_H

#include "backend/transport.h"
#include "base/error.h"
#include "base/limits.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct session;

struct session_options {
  uv_loop_t *loop;
  struct transport *transport; /* taken over */
  int64_t deadline;            /* boot-clock nanoseconds; the agent is told */
  const char *lease;           /* for the log; copied */
  int64_t connect_timeout;     /* nanoseconds for a connection and Configure; 0: 10 s */
};

/* Connects at once in the background. NULL without memory. */
struct session *session_new(const struct session_options *options);

enum session_ended {
  SESSION_ENDED_EXITED = 1,
  SESSION_ENDED_SIGNALLED,
  SESSION_ENDED_TIMED_OUT,
  SESSION_ENDED_CANCELLED,
  SESSION_ENDED_OUT_OF_MEMORY,
  SESSION_ENDED_LEASE,
  SESSION_ENDED_LOST,
  SESSION_ENDED_OUTPUT_LIMIT
};
/* Ends every operation (commands: `end` for the reason given: SESSION_ENDED_LEASE or SESSION_ENDED_LOST) and frees. At
 * the deadline a session ends its operations by itself, as SESSION_ENDED_LEASE, and disconnects; it is still to be
 * closed. */
void session_close(struct session *session, enum session_ended why);

/* Bytes this session holds: for metrics and tests. */
size_t session_memory(const struct session *session);

/* --- commands --- */

struct session_variable {
  const char *name, *value;
};

struct session_command {
  const char *command;
  const char *cwd; /* absolute, normalised, under /workspace */
  const struct session_variable *environment;
  size_t environment_count;
  int64_t timeout;       /* nanoseconds; 0: none. Enforced by the agent, and here a little later */
  uint64_t output_limit; /* bytes of each stream; 0: none */
  bool stdin_open;
};

struct session_end {
  enum session_ended ended_by;
  int exit_code;                       /* 128 + n for signal n */
  int signal;                          /* 0: none */
  uint64_t stdout_bytes, stderr_bytes; /* all of them were given to `output`, except with OUTPUT_LIMIT and LOST */
};

struct session_exec;

struct session_exec_events {
  void (*started)(void *context);
  /* stream 1 or 2. Counts against the window (256 KiB) until session_exec_consume. */
  void (*output)(void *context, int stream, uint64_t offset, const uint8_t *bytes, size_t length);
  /* More stdin is welcome, after session_exec_stdin said to wait. */
  void (*stdin_wanted)(void *context);
  /* The last callback, once. err is not NULL if the command could not be started (REASON_SANDBOX_NOT_READY,
   * REASON_INTERNAL); then end is NULL. Freed by the session. */
  void (*ended)(void *context, const struct session_end *end, struct error *err);
};

/* NULL without memory (no callback comes then). Waits for the connection, at most connect_timeout. */
struct session_exec *session_exec_start(struct session *session, const struct session_command *command,
                                        const struct session_exec_events *events, void *context);
void session_exec_consume(struct session_exec *exec, size_t length);
/* Returns true if more may follow at once, false to wait for stdin_wanted. Bytes after the command stopped reading are
 * dropped. */
bool session_exec_stdin(struct session_exec *exec, const uint8_t *bytes, size_t length);
void session_exec_stdin_end(struct session_exec *exec);
void session_exec_signal(struct session_exec *exec, int number);
/* Kills the command with all its descendants; `ended` comes with CANCELLED. */
void session_exec_cancel(struct session_exec *exec);

/* --- files --- */

/* path: relative to /workspace, normalised (session_path_normalise). */

struct session_read;
struct session_read_events {
  void (*info)(void *context, uint64_t size, const uint8_t *sha256); /* sha256 NULL unless a digest was asked for */
  void (*data)(void *context, const uint8_t *bytes, size_t length);  /* against a window of 512 KiB; see consume */
  /* The last callback, once: err NULL when exactly `size` bytes were given (and match the digest). Freed by the
   * session. Reasons: INVALID_PATH, FILE_NOT_FOUND, TRANSFER_TOO_LARGE, FILE_TRANSFER_FAILED, SANDBOX_NOT_READY,
   * ABORTED. */
  void (*ended)(void *context, struct error *err);
};
struct session_read *session_read_start(struct session *session, const char *path, uint64_t max_bytes, bool digest,
                                        const struct session_read_events *events, void *context);
void session_read_consume(struct session_read *read, size_t length);
void session_read_cancel(struct session_read *read); /* `ended` with ABORTED */

struct session_write;
struct session_write_events {
  void (*wanted)(void *context); /* more is welcome, after session_write_data said to wait */
  /* The last callback, once: err NULL when the file stands under its path. Freed by the session. Reasons: INVALID_PATH,
   * CONTENT_LENGTH_MISMATCH, CONTENT_DIGEST_MISMATCH, FILE_TRANSFER_FAILED, SANDBOX_NOT_READY, ABORTED. */
  void (*ended)(void *context, struct error *err);
};
/* sha256 NULL: only the size is checked. */
struct session_write *session_write_start(struct session *session, const char *path, uint64_t size,
                                          const uint8_t *sha256, bool make_parents,
                                          const struct session_write_events *events, void *context);
/* Returns false to wait for `wanted`. */
bool session_write_data(struct session_write *write, const uint8_t *bytes, size_t length);
void session_write_finish(struct session_write *write);
/* `ended` with ABORTED; the old file stays. */
void session_write_cancel(struct session_write *write);

/* Makes "a/./b", "/workspace/a/b" and the like into "a/b" ("" is the workspace itself). Returns 0, or -1 and
 * REASON_INVALID_PATH for an escape, a NUL, or more than LIMIT_PATH_BYTES. `out` has LIMIT_PATH_BYTES + 1 bytes. Text
 * only: symlinks are the agent's matter. */
int session_path_normalise(const char *path, char *out, struct error **err);

#endif
