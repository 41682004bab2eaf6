/*
 * The control plane's side for tests: starts the real program, connects, and makes calls on a wire of its own, waiting
 * in poll.
 */
#ifndef TESTS_UNIT_SANDBOXD_CLIENT_H
#define TESTS_UNIT_SANDBOXD_CLIENT_H

#include "backend/wire/wire.h"
#include "base/buffer.h"
#include "sandbox/agent/v1/agent.pb-c.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* --- the program --- */

struct daemon {
  pid_t pid;
  char top[64];       /* a directory of its own */
  char workspace[80]; /* in it */
  char socket[80];
};

/* Every test's program is `program`, with these further arguments (NULL-terminated) or NULL. Fails the test if it does
 * not start. */
extern const char *client_program;
/* Its directory and listening socket alone. */
int daemon_listen(struct daemon *daemon);
void daemon_start(struct daemon *daemon, const char *const *arguments);
/* Waits for it to end by itself, at most so long; returns its wait status, or -1. */
int daemon_wait(struct daemon *daemon, int milliseconds);
/* Kills it, if it lives, and removes its directory. */
void daemon_stop(struct daemon *daemon);

/* --- connections --- */

struct client {
  int input, output;
  struct wire *wire;
  bool broken;
  bool stopped; /* reads nothing */
};

void client_connect(struct client *client, const struct daemon *daemon);
/* Over these descriptors, taken over. */
void client_open(struct client *client, int input, int output);
/* Breaks it: every call ends as WIRE_UNAVAILABLE. */
void client_close(struct client *client);
/* Moves bytes until *done, or fails the test after ten seconds. */
void client_until(struct client *client, const bool *done);
/* Moves bytes for so long. */
void client_for(struct client *client, int milliseconds);
/* Moves bytes once, waiting at most so long. */
void client_step(struct client *client, int milliseconds);
int64_t client_now(void); /* milliseconds */

/* --- calls --- */

/* One call of any kind and what came back. */
struct talk {
  struct client *client;
  struct wire_call *call; /* NULL after the end */
  void (*message)(struct talk *talk, const uint8_t *bytes, size_t length);
  bool over;
  int status;
  char text[1100];
  bool hold;              /* consumes nothing */
  size_t held;            /* bytes not consumed */
};

void talk_start(struct talk *talk, struct client *client, const char *method);
void talk_send(struct talk *talk, const ProtobufCMessage *message);
void talk_consume(struct talk *talk);
void talk_reset(struct talk *talk);
/* The reason at the begin of the status text. */
bool talk_failed_for(const struct talk *talk, const char *reason);

/* Configure; milliseconds as in ConfigureRequest. Fails the test unless it succeeds; instance may be NULL. */
void client_configure(struct client *client, uint64_t deadline, uint64_t orphan, uint64_t reattach, uint8_t *instance);

struct run {
  struct talk talk; /* first */
  uint8_t id[16];
  bool started, ended;
  uint64_t stdin_offset;
  struct buffer output[2];
  uint64_t begin[2]; /* offset of the first byte in `output` */
  Sandbox__Agent__V1__RunEndedBy ended_by;
  int exit_code, signal;
  uint64_t totals[2];
};

/* Fields that are NULL or 0 are left as they are; cwd is "/" then. */
struct run_options {
  const char *cwd;
  uint64_t timeout, limit;
  bool input;
  const uint8_t *id;
};

void run_start(struct run *run, struct client *client, const char *command, const struct run_options *options);
/* On another connection, from what `run` has got. */
void run_attach(struct run *run, struct client *client);
void run_attach_at(struct run *run, struct client *client, uint64_t out, uint64_t err);
void run_stdin(struct run *run, uint64_t offset, const void *bytes, size_t length);
void run_stdin_end(struct run *run);
void run_signal(struct run *run, int number);
/* Until the call is over. */
void run_wait(struct run *run);
/* Until stdout holds this text. */
void run_wait_for(struct run *run, const char *text);
void run_free(struct run *run);

struct file_read {
  struct talk talk; /* first */
  bool informed;
  uint64_t size;
  uint8_t sha256[32];
  bool digest;
  struct buffer data;
};

void file_read_start(struct file_read *read, struct client *client, const char *path, uint64_t max, bool digest);
void file_read_free(struct file_read *read);

struct file_write {
  struct talk talk; /* first */
  bool answered;
};

/* sha256: 32 bytes or NULL. */
void file_write_start(struct file_write *write, struct client *client, const char *path, uint64_t size,
                      const uint8_t *sha256, bool make_parents);
void file_write_data(struct file_write *write, const void *bytes, size_t length);
void file_write_finish(struct file_write *write);

#endif
