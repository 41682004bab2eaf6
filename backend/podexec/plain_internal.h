/*
 * The inside of plain.h. Thread: the loop's.
 */
#ifndef BACKEND_PODEXEC_PLAIN_INTERNAL_H
#define BACKEND_PODEXEC_PLAIN_INTERNAL_H

#include "backend/podexec/plain.h"
#include "backend/podexec/run.h"
#include "backend/wire/wire.h"
#include "sandbox/agent/v1/agent.pb-c.h"

#define PLAIN_HIGH (512 * 1024) /* waiting for the session, or for a program's standard input: no more is taken */
#define PLAIN_WORDS 280
#define PLAIN_LINE 128

/* What a script says first on standard error, for us: "sandboxd: …", then a line's end. */
struct plain_line {
  char text[PLAIN_LINE];
  size_t length;
  bool complete;
};
/* Takes bytes up to the line's end; *used: how many. Returns 0, or -1: it is none of ours. */
int plain_line_read(struct plain_line *line, const uint8_t *bytes, size_t length, size_t *used);

/* A program and its arguments, which are copied. */
struct plain_words {
  const struct podexec_options *where;
  char *words[PLAIN_WORDS + 1];
  size_t count;
};
/* Returns 0, or -1: no memory, or too many. */
int plain_words_add(struct plain_words *words, const char *text);
int plain_words_add_number(struct plain_words *words, uint64_t number);
void plain_words_free(struct plain_words *words);

/* What has no call and goes on: it is abandoned when the plain ends. */
struct plain_work {
  struct plain_work *next, **link; /* NULL: not listed */
  void (*abandon)(struct plain_work *work);
};
void plain_work_add(struct plain *plain, struct plain_work *work);
void plain_work_remove(struct plain_work *work);

/* What was queued on the wire leaves in the next turn of the loop. */
void plain_schedule(struct plain *plain);
/* Runs words, which must live as long as the run. NULL without memory. */
struct run *plain_run(struct plain *plain, struct plain_words *words, const struct run_events *events);
const char *plain_workspace(const struct plain *plain);
uv_loop_t *plain_loop(const struct plain *plain);
/* Runs `kill` for a process and its group, and forgets about it. */
void plain_kill(struct plain *plain, int pid, int number);

/* Answers. */
int plain_send(struct wire_call *call, const ProtobufCMessage *message);
void plain_fail(struct wire_call *call, enum reason reason, const char *text);

/* Calls that were opened. */
void plain_command_opened(struct plain *plain, struct wire_call *call);
void plain_read_opened(struct plain *plain, struct wire_call *call);
void plain_write_opened(struct plain *plain, struct wire_call *call);

#endif
