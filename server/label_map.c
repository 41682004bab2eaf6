/*
 * A hash of structs by a short text key: chains in a table of a power of two, doubled when there are as many entries as
 * chains. If there is no memory to double it, the chains grow longer instead.
 */
#include "server/label_map.h"

#include "base/digest.h"
#include "base/memory.h"
#include <string.h>

enum { LABEL_MAP_FIRST_CAPACITY = 64 };

int label_map_init(struct label_map *map) {
  *map = (struct label_map){.capacity = LABEL_MAP_FIRST_CAPACITY};
  random_bytes(&map->seed, sizeof(map->seed));
  map->buckets = memory_array(map->capacity, sizeof(*map->buckets));
  return map->buckets ? 0 : -1;
}

void label_map_free(struct label_map *map) {
  memory_free(map->buckets);
  *map = (struct label_map){0};
}

/* FNV-1a, begun from the seed. */
static uint64_t label_hash(const struct label_map *map, const char *key) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ map->seed;
  for (const char *byte = key; *byte; byte++) {
    hash ^= (uint8_t)*byte;
    hash *= UINT64_C(0x100000001b3);
  }
  return hash ^ (hash >> 32);
}

static struct label_entry **label_bucket(const struct label_map *map, uint64_t hash) {
  return &map->buckets[hash & (map->capacity - 1)];
}

static void label_map_grow(struct label_map *map) {
  size_t capacity = map->capacity * 2;
  struct label_entry **buckets = memory_array(capacity, sizeof(*buckets));
  if (!buckets)
    return;
  struct label_map grown = {.buckets = buckets, .capacity = capacity, .count = map->count, .seed = map->seed};
  for (size_t i = 0; i < map->capacity; i++) {
    /* Appending keeps the order within a chain, on which "inserted last" rests. */
    for (struct label_entry *entry = map->buckets[i], *next; entry; entry = next) {
      next = entry->next;
      struct label_entry **place = label_bucket(&grown, entry->hash);
      while (*place)
        place = &(*place)->next;
      entry->next = NULL;
      *place = entry;
    }
  }
  memory_free(map->buckets);
  *map = grown;
}

void label_map_insert(struct label_map *map, struct label_entry *entry, const char *key) {
  if (map->count >= map->capacity)
    label_map_grow(map);
  entry->key = key;
  entry->hash = label_hash(map, key);
  struct label_entry **bucket = label_bucket(map, entry->hash);
  entry->next = *bucket;
  *bucket = entry;
  map->count++;
}

void label_map_remove(struct label_map *map, struct label_entry *entry) {
  if (!entry->key)
    return;
  struct label_entry **place = label_bucket(map, entry->hash);
  while (*place != entry)
    place = &(*place)->next;
  *place = entry->next;
  entry->next = NULL;
  entry->key = NULL;
  map->count--;
}

struct label_entry *label_map_find(const struct label_map *map, const char *key) {
  uint64_t hash = label_hash(map, key);
  for (struct label_entry *entry = *label_bucket(map, hash); entry; entry = entry->next)
    if (entry->hash == hash && strcmp(entry->key, key) == 0)
      return entry;
  return NULL;
}

struct label_entry *label_map_next(const struct label_map *map, const struct label_entry *entry) {
  size_t bucket = 0;
  if (entry) {
    if (entry->next)
      return entry->next;
    bucket = (entry->hash & (map->capacity - 1)) + 1;
  }
  for (; bucket < map->capacity; bucket++)
    if (map->buckets[bucket])
      return map->buckets[bucket];
  return NULL;
}
