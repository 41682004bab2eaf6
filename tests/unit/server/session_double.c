/*
 * A test double of backend/session/session.h, but for session_path_normalise, which is the real one.
 */
#include "tests/unit/server/session_double.h"

#include "tests/unit/server/check.h"
#include "tests/unit/server/torture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct session_double_state session_double;

struct session {
  struct transport *transport;
};

/* --- sessions --- */

struct session *session_new(const struct session_options *options) {
  struct session *session = calloc(1, sizeof(*session));
  assert_non_null(session);
  assert_true(options->deadline > 0);
  session->transport = options->transport;
  session_double.sessions++;
  session_double.opened++;
  return session;
}

static void work_free(struct session_work *work) {
  struct session_work **place = &session_double.works;
  while (*place != work)
    place = &(*place)->next;
  *place = work->next;
  buffer_free(&work->input);
  free(work);
}

static void work_abort(struct session_work *work, enum session_ended why) {
  bool lost = why == SESSION_ENDED_LOST;
  switch (work->kind) {
  case WORK_EXEC:
    session_double_exec_end((struct session_exec *)work, work->cancelled ? SESSION_ENDED_CANCELLED : why, 0);
    break;
  case WORK_READ:
    session_double_read_end((struct session_read *)work, lost ? REASON_SANDBOX_NOT_READY : REASON_ABORTED);
    break;
  case WORK_WRITE:
    session_double_write_end((struct session_write *)work, lost ? REASON_SANDBOX_NOT_READY : REASON_ABORTED);
  }
}

void session_close(struct session *session, enum session_ended why) {
  struct session_work *work = session_double.works;
  while (work) {
    struct session_work *next = work->next;
    if (work->session == session)
      work_abort(work, why);
    work = next;
  }
  session_double.sessions--;
  session_double.closed_why = why;
  free(session->transport);
  free(session);
}

size_t session_memory(const struct session *session) {
  (void)session;
  return 0;
}

static void work_begin(struct session_work *work, enum session_work_kind kind, struct session *session, void *context) {
  work->kind = kind;
  work->session = session;
  work->context = context;
  buffer_init(&work->input, 100000000);
  work->next = session_double.works;
  session_double.works = work;
}

static void work_consume(struct session_work *work, size_t length) {
  work->consumed += length;
  assert_true(work->consumed <= work->given);
}

static bool work_input(struct session_work *work, const uint8_t *bytes, size_t length) {
  assert_false(work->waiting);
  assert_false(work->finished);
  torture_pause();
  assert_int_equal(buffer_append(&work->input, bytes, length), 0);
  torture_resume();
  work->waiting = work->full;
  return !work->full;
}

static struct session_work *work_last(enum session_work_kind kind) {
  struct session_work *work = session_double.works;
  while (work && work->kind != kind)
    work = work->next;
  assert_non_null(work);
  return work;
}

static struct error *error_of(enum reason reason) {
  struct error *err = NULL;
  if (reason != REASON_NONE)
    error_set(&err, reason, NULL);
  return err;
}

/* --- commands --- */

struct session_exec *session_exec_start(struct session *session, const struct session_command *command,
                                        const struct session_exec_events *events, void *context) {
  struct session_exec *exec = calloc(1, sizeof(*exec));
  assert_non_null(exec);
  exec->events = events;
  work_begin(&exec->work, WORK_EXEC, session, context);
  snprintf(exec->work.command, sizeof(exec->work.command), "%s", command->command);
  snprintf(exec->work.cwd, sizeof(exec->work.cwd), "%s", command->cwd);
  exec->work.environment_count = command->environment_count;
  exec->work.timeout = command->timeout;
  exec->work.output_limit = command->output_limit;
  exec->work.stdin_open = command->stdin_open;
  return exec;
}

void session_exec_consume(struct session_exec *exec, size_t length) { work_consume(&exec->work, length); }

bool session_exec_stdin(struct session_exec *exec, const uint8_t *bytes, size_t length) {
  assert_true(exec->work.stdin_open);
  return work_input(&exec->work, bytes, length);
}

void session_exec_stdin_end(struct session_exec *exec) {
  assert_false(exec->work.finished);
  exec->work.finished = true;
}

void session_exec_signal(struct session_exec *exec, int number) { exec->work.signal = number; }

void session_exec_cancel(struct session_exec *exec) { exec->work.cancelled = true; }

struct session_exec *session_double_exec(void) { return (struct session_exec *)work_last(WORK_EXEC); }

void session_double_output(struct session_exec *exec, int stream, uint64_t offset, const void *bytes, size_t length) {
  exec->work.given += length;
  exec->events->output(exec->work.context, stream, offset, bytes, length);
}

void session_double_exec_end(struct session_exec *exec, enum session_ended ended_by, int exit_code) {
  struct session_end end = {.ended_by = ended_by, .exit_code = exit_code, .stdout_bytes = exec->work.given};
  exec->events->ended(exec->work.context, &end, NULL);
  work_free(&exec->work);
}

void session_double_exec_fail(struct session_exec *exec, enum reason reason) {
  struct error *err = error_of(reason);
  exec->events->ended(exec->work.context, NULL, err);
  error_free(&err);
  work_free(&exec->work);
}

/* --- files --- */

struct session_read *session_read_start(struct session *session, const char *path, uint64_t max_bytes, bool digest,
                                        const struct session_read_events *events, void *context) {
  struct session_read *read = calloc(1, sizeof(*read));
  assert_non_null(read);
  read->events = events;
  work_begin(&read->work, WORK_READ, session, context);
  snprintf(read->work.path, sizeof(read->work.path), "%s", path);
  read->work.size = max_bytes;
  read->work.wants_digest = digest;
  if (session_double.fail_at_once != REASON_NONE) {
    session_double_read_end(read, session_double.fail_at_once);
    return NULL;
  }
  if (session_double.give_at_once) {
    events->info(context, 5, digest ? (const uint8_t *)"0123456789abcdef0123456789abcdef" : NULL);
    session_double_data(read, "hello", 5);
    session_double_read_end(read, REASON_NONE);
    return NULL;
  }
  return read;
}

void session_read_consume(struct session_read *read, size_t length) { work_consume(&read->work, length); }

void session_read_cancel(struct session_read *read) { read->work.cancelled = true; }

struct session_read *session_double_read(void) { return (struct session_read *)work_last(WORK_READ); }

void session_double_data(struct session_read *read, const void *bytes, size_t length) {
  read->work.given += length;
  read->events->data(read->work.context, bytes, length);
}

void session_double_read_end(struct session_read *read, enum reason reason) {
  struct error *err = error_of(reason);
  read->events->ended(read->work.context, err);
  error_free(&err);
  work_free(&read->work);
}

struct session_write *session_write_start(struct session *session, const char *path, uint64_t size, const uint8_t *sha256,
                                          bool make_parents, const struct session_write_events *events, void *context) {
  struct session_write *write = calloc(1, sizeof(*write));
  assert_non_null(write);
  write->events = events;
  work_begin(&write->work, WORK_WRITE, session, context);
  snprintf(write->work.path, sizeof(write->work.path), "%s", path);
  write->work.size = size;
  write->work.make_parents = make_parents;
  write->work.has_digest = sha256 != NULL;
  if (sha256)
    memcpy(write->work.digest, sha256, sizeof(write->work.digest));
  if (session_double.fail_at_once != REASON_NONE) {
    session_double_write_end(write, session_double.fail_at_once);
    return NULL;
  }
  return write;
}

bool session_write_data(struct session_write *write, const uint8_t *bytes, size_t length) {
  return work_input(&write->work, bytes, length);
}

void session_write_finish(struct session_write *write) {
  assert_false(write->work.finished);
  write->work.finished = true;
}

void session_write_cancel(struct session_write *write) { write->work.cancelled = true; }

struct session_write *session_double_write(void) { return (struct session_write *)work_last(WORK_WRITE); }

void session_double_write_end(struct session_write *write, enum reason reason) {
  struct error *err = error_of(reason);
  write->events->ended(write->work.context, err);
  error_free(&err);
  work_free(&write->work);
}

void session_double_wanted(struct session_work *work) {
  assert_true(work->waiting);
  work->waiting = false;
  work->full = false;
  if (work->kind == WORK_EXEC)
    ((struct session_exec *)work)->events->stdin_wanted(work->context);
  else
    ((struct session_write *)work)->events->wanted(work->context);
}
