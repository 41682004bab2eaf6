/*
 * The Leases this process knows, and how they are found: by id; by idempotency label; by scope in list order
 * (created_at, id); by deadline. It also counts what each scope and each Consumer holds, for quotas. It knows no
 * time, no backend and no calls.
 *
 * Thread: the loop's.
 */
#ifndef SERVER_LEASE_TABLE_H
#define SERVER_LEASE_TABLE_H

#include "backend/backend.h"
#include "backend/session/session.h"
#include "server/label_map.h"
#include <stdbool.h>
#include <stddef.h>

struct lease_service;
struct lease_operation;
struct lease_end_waiter;

enum lease_state {
  LEASE_ACTIVE, /* may be used until its deadline */
  LEASE_ENDING, /* no longer its holder's; its sandbox is being destroyed */
};

/* The Leases of one scope or of one Consumer. */
struct lease_group {
  struct label_entry entry;
  char label[LABEL_SIZE];
  size_t held; /* active Leases and pending acquires */
  size_t references;
  /* Scopes only: the active ones in list order. */
  struct lease **leases;
  size_t count, capacity;
};

struct lease {
  struct backend_sandbox facts; /* changed only by the table, except last_used_at */
  enum lease_state state;

  /* The service's. */
  struct lease_service *service;
  enum backend_end end;              /* of an ending Lease: why */
  bool release_running;              /* the backend was asked to end it and has not answered */
  bool gone;                         /* the backend said that it has ended */
  bool known;                        /* its holder has got its id for certain */
  unsigned unconfirmed;              /* answers of AcquireLease with it that may not have arrived */
  struct lease_end_waiter *waiters;  /* calls that wait for its end */
  struct session *session;           /* NULL until it is wanted */
  struct lease_operation *operations; /* calls that use it */
  unsigned transfers;                /* how many of these are transfers */
  size_t holding;                    /* bytes that they hold for unary answers, as far as they count */

  /* The table's. */
  struct label_entry by_id, by_idempotency;
  struct lease_group *scope, *consumer;
  size_t deadline_place;
};

struct lease_table {
  struct label_map ids, idempotency, scopes, consumers;
  struct lease **deadlines; /* a heap: the nearest first */
  size_t deadline_count, deadline_capacity;
};

/* Returns 0, or -1 without memory. */
int lease_table_init(struct lease_table *table);
/* Frees every Lease as well; sessions and operations must be gone. */
void lease_table_free(struct lease_table *table);

/* A new active Lease; the id must not be there yet. NULL without memory. */
struct lease *lease_table_add(struct lease_table *table, const struct backend_sandbox *facts);
/* Times that the backend has changed. Labels and pool of a Lease never change. */
void lease_table_update(struct lease_table *table, struct lease *lease, const struct backend_sandbox *facts);
/* Makes it LEASE_ENDING: found by id alone, counted and listed no more. */
void lease_table_end(struct lease_table *table, struct lease *lease);
/* Forgets and frees it, in whatever state. */
void lease_table_remove(struct lease_table *table, struct lease *lease);

/* In whatever state; NULL if there is none. */
struct lease *lease_table_find(const struct lease_table *table, const char *id);
/* The active one, or NULL. */
struct lease *lease_table_find_idempotent(const struct lease_table *table, const char *idempotency);
/* The active one whose deadline is nearest, or NULL. */
struct lease *lease_table_nearest(const struct lease_table *table);
/* Walks all Leases in no order: start with NULL. The one given may be removed if the next one was asked for first. */
struct lease *lease_table_next(const struct lease_table *table, const struct lease *lease);
size_t lease_table_count(const struct lease_table *table);

/* A place in the quotas for an acquire that is pending. */
struct lease_reservation {
  struct lease_group *scope, *consumer; /* NULL: holds no place */
};
enum lease_reserved { LEASE_RESERVED, LEASE_OVER_QUOTA, LEASE_RESERVE_NO_MEMORY };
/* A quota of 0 is none. */
enum lease_reserved lease_table_reserve(struct lease_table *table, const char *scope, const char *consumer,
                                        size_t scope_quota, size_t consumer_quota,
                                        struct lease_reservation *reservation);
void lease_table_unreserve(struct lease_table *table, struct lease_reservation *reservation);

/* Puts the active Leases of a scope that stand behind (created, id) into `found`, in list order: at most `limit`. id
 * NULL: from the first. pool NULL: every Pool. Returns their number; *more tells if others follow. */
size_t lease_table_list(const struct lease_table *table, const char *scope, const char *pool, int64_t created,
                        const char *id, size_t limit, struct lease **found, bool *more);

#endif
