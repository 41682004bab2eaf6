/*
 * A command from its start until nobody can ask for it any more: its process (through the crew), its streams, how it
 * ended, and the call that it is attached to, if there is one. Commands are known by an id of 16 bytes.
 *
 * When the connection of a call breaks, its command goes on, and its output is kept as far as the spools hold, until a
 * new call attaches or the time for that is over; then it is killed. A command that has ended and whose end was sent is
 * remembered for the same time, since nobody can know that it arrived; the latest few only.
 */
#ifndef BACKEND_SANDBOXD_COMMAND_H
#define BACKEND_SANDBOXD_COMMAND_H

#include "backend/sandboxd/crew.h"
#include "backend/sandboxd/memory_events.h"
#include "backend/wire/wire.h"
#include "sandbox/agent/v1/agent.pb-c.h"

#define COMMAND_ID_BYTES 16
#define COMMAND_RECORDS 512             /* commands at once, those included that ended and were not yet asked for */
#define COMMAND_REMEMBERED 64           /* commands whose end was sent */
#define COMMAND_REMEMBERED_BYTES 1048576 /* of their output */

struct command;

struct command_table {
  struct loop *loop;
  struct crew *crew;
  struct memory_events memory_events;
  int null;          /* /dev/null for reading */
  int64_t reattach;  /* nanoseconds */
  struct command *all, *last; /* oldest first */
  size_t count;      /* without the remembered ones */
  size_t remembered, remembered_bytes;
};

/* The call that a command is attached to. taken: another call took the command; this one has been given its status. */
struct command_call {
  struct wire_call *call;
  void (*taken)(void *context);
  void *context;
};

/* Start and attach answer RunStarted, and all that follows, by themselves. Both return NULL and *err: INVALID_REQUEST
 * (malformed; start: the id exists; attach: offsets that are not kept), NOT_FOUND (attach: no such id),
 * SANDBOX_NOT_READY (too many), INTERNAL. */
struct command *command_start(struct command_table *table, const Sandbox__Agent__V1__RunStart *start,
                              const struct command_call *call, struct error **err);
struct command *command_attach(struct command_table *table, const Sandbox__Agent__V1__RunAttach *attach,
                               const struct command_call *call, struct error **err);

/* From the attached call. */
int command_stdin(struct command *command, const Sandbox__Agent__V1__StdinChunk *chunk, size_t message_length,
                  struct error **err);
void command_stdin_end(struct command *command);
int command_signal(struct command *command, int number, struct error **err);
/* The call's queue has emptied: go on. */
void command_writable(struct command *command);

/* The call is over. Each may free the command. */
void command_lost(struct command *command);      /* its connection broke */
void command_cancel(struct command *command);    /* it was reset: kill */
void command_delivered(struct command *command); /* its status left */

/* Frees all, without killing: the crew does that. Every call must be over. */
void command_table_free(struct command_table *table);

#endif
