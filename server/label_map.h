/*
 * A hash of structs by a short text key (Lease ids, labels). Entries are members of the structs they find, so that
 * nothing is allocated for an insertion and none can fail. Keys come from HMACs and random ids; the hash is seeded
 * all the same.
 *
 * Thread: one owner at a time.
 */
#ifndef SERVER_LABEL_MAP_H
#define SERVER_LABEL_MAP_H

#include <stddef.h>
#include <stdint.h>

struct label_entry {
  struct label_entry *next;
  const char *key; /* lives in the struct around the entry; NULL while it is in no map */
  uint64_t hash;
};

struct label_map {
  struct label_entry **buckets;
  size_t capacity; /* a power of two */
  size_t count;
  uint64_t seed;
};

/* Returns 0, or -1 without memory. */
int label_map_init(struct label_map *map);
/* The entries stay their owners'. */
void label_map_free(struct label_map *map);

/* The key must live as long as the entry is in the map. Equal keys may stand in it more than once. */
void label_map_insert(struct label_map *map, struct label_entry *entry, const char *key);
/* Nothing happens if the entry is in no map. */
void label_map_remove(struct label_map *map, struct label_entry *entry);
/* The entry that was inserted last with this key, or NULL. */
struct label_entry *label_map_find(const struct label_map *map, const char *key);
/* Walks all entries in no order: start with NULL; NULL at the end. The entry given may be removed before the next
 * step only if the next one was asked for first; none may be inserted meanwhile. */
struct label_entry *label_map_next(const struct label_map *map, const struct label_entry *entry);

/* The struct around an entry. */
#define LABEL_OWNER(entry, type, member) ((type *)(void *)((char *)(entry) - offsetof(type, member)))

#endif
