/*
 * Leases that have ended, remembered for a while, so that their holder is told "not active" rather than "not found".
 * Bounded in time and in number: the oldest go first.
 *
 * Thread: the loop's.
 */
#ifndef SERVER_LEASE_TOMBSTONES_H
#define SERVER_LEASE_TOMBSTONES_H

#include "backend/backend.h"
#include "server/label_map.h"

#define TOMBSTONE_LIFETIME (INT64_C(900) * 1000000000) /* nanoseconds */
#define TOMBSTONES_KEPT 10000

struct lease_tombstone {
  struct label_entry by_id;
  struct lease_tombstone *younger;
  int64_t ended; /* boot-clock nanoseconds */
  enum backend_end end;
  char id[LIMIT_LEASE_ID_BYTES + 1];
  char scope[LABEL_SIZE];
};

struct lease_tombstones {
  struct label_map ids;
  struct lease_tombstone *oldest, *youngest;
};

/* Returns 0, or -1 without memory. */
int lease_tombstones_init(struct lease_tombstones *tombstones);
void lease_tombstones_free(struct lease_tombstones *tombstones);
/* Without memory the Lease is simply not remembered. */
void lease_tombstones_add(struct lease_tombstones *tombstones, const struct backend_sandbox *facts,
                          enum backend_end end, int64_t now);
/* Drops what is too old at `now` (boot-clock nanoseconds). */
void lease_tombstones_prune(struct lease_tombstones *tombstones, int64_t now);
/* NULL if there is none. */
const struct lease_tombstone *lease_tombstones_find(const struct lease_tombstones *tombstones, const char *id);

#endif
