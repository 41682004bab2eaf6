/*
 * What a client may do to gRPC's memory by HTTP/2 frames alone, before any token is looked at. gRPC 1.51 gives a call
 * memory when its HEADERS frame comes and takes it back only when the call has gone through the server, so calls that
 * are opened and reset at once pile up (CVE-2023-44487); and a client that never acknowledges the server's SETTINGS is
 * held to no number of calls at all. A guard reads the frames of one connection as bytes, both ways, and says how far
 * what the client sent may go on now. No I/O. Thread: one at a time.
 */
#ifndef SERVER_GUARD_H
#define SERVER_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Calls that end by RST_STREAM, whoever sends it: so many a second, and so many at once after some quiet. More wait for
 * their turn; nothing is refused for them. A busy machine must be able to do as many as all connections may. */
#define GUARD_RESETS_PER_SECOND 500 /* of one connection */
#define GUARD_RESETS_AT_ONCE 1000
#define GUARD_ALL_RESETS_PER_SECOND 2000 /* of all connections together */
#define GUARD_ALL_RESETS_AT_ONCE 4000
/* Calls opened before the server's SETTINGS were acknowledged. Clients of gRPC open none. */
#define GUARD_EARLY_CALLS 100

/* What has been spent of so many resets a second. */
struct guard_budget {
  int64_t cost;  /* of one reset, in nanoseconds */
  int64_t ahead; /* how far it may be spent ahead, in nanoseconds */
  int64_t spent; /* boot-clock time up to which the resets so far have used it up */
};

void guard_budget_init(struct guard_budget *budget, unsigned per_second, unsigned at_once);

/* One direction. */
struct guard_side {
  uint8_t head[9]; /* of the frame that begins */
  uint8_t have;    /* bytes of it */
  uint32_t left;   /* bytes of the frame's payload still to come */
};

struct guard {
  struct guard_budget *own, *all;
  struct guard_side client, server;
  uint8_t preface; /* bytes of the client's preface seen */
  bool settings_sent, settings_known;
  unsigned early_calls;
};

enum guard_verdict {
  GUARD_PASS,   /* all of it may go on */
  GUARD_WAIT,   /* a reset is next for which there is no budget: not before guard_wait has passed */
  GUARD_REFUSE, /* no client of gRPC does this: close */
};

/* The budgets stay the caller's, and outlive the guard. */
void guard_init(struct guard *guard, struct guard_budget *own, struct guard_budget *all);
/* What the client sent. `now` is on the boot clock. *passed bytes may go on; the rest is to be given again, first. */
enum guard_verdict guard_client(struct guard *guard, const uint8_t *bytes, size_t length, int64_t now, size_t *passed);
/* What the server sent; all of it goes on. */
void guard_server(struct guard *guard, const uint8_t *bytes, size_t length, int64_t now);
/* Nanoseconds until a reset has budget; 0: now. */
int64_t guard_wait(const struct guard *guard, int64_t now);

#endif
