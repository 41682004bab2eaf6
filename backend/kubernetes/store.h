/*
 * What is known of the cluster: one table of records for each kind, brought up to date by lists and watch events. It
 * does no I/O: feed.h reads texts into it. Thread: one owner at a time.
 */
#ifndef KUBERNETES_STORE_H
#define KUBERNETES_STORE_H

#include "backend/kubernetes/object.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Chains of records by a hash of one of their strings. */
struct store_index {
  struct object **buckets;
  size_t capacity, count; /* capacity: 0 or a power of two */
};

/* An object came (before NULL), changed, or is gone (after NULL). Another uid under the same name is two calls: gone,
 * then came. Both live until this returns; the store already has the new state. The attachment has moved to `after`.
 * The store must not be changed from within. */
typedef void store_changed(void *context, struct object *before, struct object *after);

struct store {
  struct store_index names[OBJECT_KINDS];
  struct store_index keys; /* Claims of this platform, by idempotency label */
  unsigned epochs[OBJECT_KINDS];
  uint64_t sequence; /* one more with every list and event */
  store_changed *changed;
  void *context;
};

void store_init(struct store *store, store_changed *changed, void *context);
/* Frees all records; tells nobody. */
void store_free(struct store *store);

/* A list begins: what it does not hold is gone at its end. */
void store_list_begin(struct store *store, enum object_kind kind);
/* Takes over the record. `listed`: it comes from a list. 0, or -1 without memory: the record is then freed, and the
 * store no longer true, so that a new list is needed. */
int store_put(struct store *store, struct object *object, bool listed);
void store_list_end(struct store *store, enum object_kind kind);
/* An object is gone. Nothing happens if it is not known, or known with another uid. */
void store_remove(struct store *store, enum object_kind kind, const char *name, const char *uid);

/* NULL if it is not known. */
struct object *store_find(const struct store *store, enum object_kind kind, const char *name);
/* Claims with an idempotency label, one after the other: start with NULL. */
struct object *store_next_of_key(const struct store *store, const char *idempotency, const struct object *previous);
/* All of a kind in no order: start with NULL. The store must not be changed meanwhile. */
struct object *store_next(const struct store *store, enum object_kind kind, const struct object *previous);
size_t store_count(const struct store *store, enum object_kind kind);
/* Bytes of all records and tables: for metrics and tests. */
size_t store_size(const struct store *store);

#endif
