/*
 * One program run in a container: credentials, WebSocket and channels in one. Thread: the loop's; no callback comes
 * from within a function of this header. Within a callback everything is allowed, run_close included.
 */
#ifndef BACKEND_PODEXEC_RUN_H
#define BACKEND_PODEXEC_RUN_H

#include "backend/podexec/channels.h"
#include "backend/podexec/podexec.h"

struct run;

struct run_events {
  void (*opened)(void *context);
  void (*output)(void *context, int channel, const uint8_t *bytes, size_t length);
  /* Everything sent so far has left, after it had not. */
  void (*drained)(void *context);
  /* The last event. end NULL: it could not be run (REASON_LEASE_NOT_FOUND: there is no such Pod), or the connection
   * broke. err is freed by the run. */
  void (*ended)(void *context, const struct channels_end *end, struct error *err);
  void *context;
};

/* target: appends path and query for this prefix. Called once, within or after this. */
struct run_options {
  const struct podexec_access *access;
  int (*target)(void *context, struct buffer *out, const char *prefix);
  void *target_context;
  int64_t timeout; /* nanoseconds until it must be open */
};

/* NULL without memory. */
struct run *run_open(uv_loop_t *loop, const struct run_options *options, const struct run_events *events);
/* To standard input, in messages of at most RUN_MESSAGE_BYTES. Returns 0, or -1: not open (any more). */
#define RUN_MESSAGE_BYTES 65536
int run_send(struct run *run, const uint8_t *bytes, size_t length);
/* Ends standard input. */
int run_send_end(struct run *run);
size_t run_queued(const struct run *run);
void run_pause(struct run *run, bool paused);
/* Was run_close called? Within a callback only. */
bool run_closed(const struct run *run);
/* Frees, in the next turn of the loop; also after the last event. NULL is allowed. */
void run_close(struct run *run);

#endif
