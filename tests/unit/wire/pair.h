/*
 * Two wires back to back in memory, and a recorder of what happens to a call.
 */
#ifndef TESTS_UNIT_WIRE_PAIR_H
#define TESTS_UNIT_WIRE_PAIR_H

#include "backend/wire/wire.h"
#include "base/buffer.h"

/* What happened to one call. */
struct record {
  struct buffer bytes; /* messages, one behind the other */
  size_t messages, last_length;
  unsigned half_closed, writable, ended;
  int status;
  char text[2048];
  bool consume; /* consume each message at once */
  bool echo;    /* send each message back */
  bool finish;  /* server: finish with WIRE_OK when the client half-closed */
  bool cancel;  /* cancel at the first message */
  unsigned send_failures;
  struct wire_call *call; /* NULL after `ended` */
};

struct pair {
  struct wire *client, *server;
  size_t split;          /* bytes given to wire_receive at once, at most; 0: all */
  unsigned seed;         /* not 0: random splits up to `split` */
  size_t carried;        /* bytes in both directions */
  size_t pieces;         /* answers of wire_transmit */
  struct record *accept; /* what a new call at the server is recorded in; NULL: it is not accepted */
  char path[256];
  unsigned opened, pongs;
  int client_result, server_result; /* -1 once a wire failed */
};

extern const struct wire_call_events record_events;
void record_init(struct record *record);
void record_free(struct record *record);

/* options NULL: 1 MiB messages, 256 KiB windows, 16 calls. Returns 0, or -1 without memory. */
int pair_open(struct pair *pair, const struct wire_options *client, const struct wire_options *server);
void pair_close(struct pair *pair);
/* Carries bytes until nothing moves any more. */
void pair_pump(struct pair *pair);
/* One direction, one piece. Returns whether something moved. */
bool pair_step(struct pair *pair, bool from_client);

#endif
