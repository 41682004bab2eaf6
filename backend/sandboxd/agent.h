/*
 * sandboxd as a whole: what its connections share, and how long it lives. It ends at the deadline it was given, whether
 * anybody is connected or not; without a deadline, some time after its last connection closed. With it ends everything
 * in the sandbox.
 */
#ifndef BACKEND_SANDBOXD_AGENT_H
#define BACKEND_SANDBOXD_AGENT_H

#include "backend/sandboxd/command.h"
#include "backend/sandboxd/crew.h"
#include "backend/sandboxd/loop.h"
#include "backend/sandboxd/path.h"
#include "base/error.h"
#include "sandbox/agent/v1/agent.pb-c.h"
#include <stdbool.h>
#include <stdint.h>

#define AGENT_PROTOCOL 1
#define AGENT_INSTANCE_BYTES 16
#define AGENT_CONNECTIONS 8 /* a further one takes the place of the oldest */
#define AGENT_TRANSFERS 64  /* files read and written at once */

struct connection;
struct guest;

struct agent {
  struct loop loop;
  struct crew crew;
  struct path_root root;
  struct command_table commands;
  uint8_t instance[AGENT_INSTANCE_BYTES];
  struct loop_watch listener; /* descriptor -1: none */
  struct connection *connections; /* newest first */
  size_t connection_count;
  bool handover; /* whoever comes hands descriptors over: see handover.h */
  struct guest *guests; /* newest first */
  size_t guest_count;
  size_t transfers;
  bool bound;              /* a deadline was given */
  struct loop_timer life;  /* the deadline, or while unbound and alone the end of patience */
  int64_t orphan;          /* nanoseconds */
  size_t moved;            /* bytes on all connections since memory was last given back */
  struct loop_timer tidy;
};

struct agent_options {
  const char *workspace;
  const char *memory_events;  /* see memory_events_open; NULL */
  const struct crew_options *crew;
  int listener;               /* listening socket, taken over; -1: none */
  bool handover;              /* whoever comes there is a `sandboxd connect` */
  int input, output;          /* or one connection on these, taken over; -1 */
  bool walk;                  /* see path_root_open */
};

/* Returns 0, or -1 and *err: nothing can be served then, and the process is to exit. */
int agent_init(struct agent *agent, const struct agent_options *options, struct error **err);
/* Serves until the end. Returns 0, or -1 and *err; in both cases everything that it started is dead, unless the process
 * is pid 1 and its exit sees to that. */
int agent_run(struct agent *agent, struct error **err);

/* Serves a connection on these descriptors, taken over. holder: a socket to whoever brought it, taken over too, or -1.
 * Returns 0, or -1 and *err. */
int agent_connect(struct agent *agent, int input, int output, int holder, struct error **err);

/* From a connection. */
int agent_configure(struct agent *agent, const Sandbox__Agent__V1__ConfigureRequest *request, struct error **err);
void agent_connection_closed(struct agent *agent);
/* So many bytes came or went. */
void agent_count(struct agent *agent, size_t bytes);

#endif
