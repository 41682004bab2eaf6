#include "backend/kubernetes/store.h"

#include "base/memory.h"
#include <string.h>

enum { CAPACITY_FIRST = 64, BY_NAME = 0, BY_KEY = 1 };

/* --- an index --- */

static size_t hash_of(const char *text) {
  uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
  for (; *text; text++)
    hash = (hash ^ (uint8_t)*text) * UINT64_C(1099511628211);
  return (size_t)(hash ^ (hash >> 32));
}

static const char *key_of(const struct object *object, int chain) {
  return chain == BY_NAME ? object->name : object->claim.idempotency;
}

static struct object **bucket_of(const struct store_index *index, const char *key) {
  return &index->buckets[hash_of(key) & (index->capacity - 1)];
}

/* Makes room for one more. */
static int index_grow(struct store_index *index, int chain) {
  if (index->count < index->capacity)
    return 0;
  struct store_index larger = {.capacity = index->capacity ? index->capacity * 2 : CAPACITY_FIRST,
                               .count = index->count};
  larger.buckets = memory_array(larger.capacity, sizeof(struct object *));
  if (!larger.buckets)
    return -1;
  for (size_t i = 0; i < index->capacity; i++)
    for (struct object *object = index->buckets[i], *next; object; object = next) {
      next = object->chain[chain];
      struct object **bucket = bucket_of(&larger, key_of(object, chain));
      object->chain[chain] = *bucket;
      *bucket = object;
    }
  memory_free(index->buckets);
  *index = larger;
  return 0;
}

/* After index_grow. */
static void index_insert(struct store_index *index, int chain, struct object *object) {
  struct object **bucket = bucket_of(index, key_of(object, chain));
  object->chain[chain] = *bucket;
  *bucket = object;
  index->count++;
}

static void index_remove(struct store_index *index, int chain, struct object *object) {
  struct object **at = bucket_of(index, key_of(object, chain));
  while (*at != object)
    at = &(*at)->chain[chain];
  *at = object->chain[chain];
  index->count--;
}

static struct object *index_find(const struct store_index *index, int chain, const char *key) {
  struct object *object = index->capacity ? *bucket_of(index, key) : NULL;
  while (object && strcmp(key_of(object, chain), key) != 0)
    object = object->chain[chain];
  return object;
}

static bool has_key(const struct object *object) {
  return object->kind == OBJECT_CLAIM && object->claim.managed;
}

/* --- changes --- */

void store_init(struct store *store, store_changed *changed, void *context) {
  *store = (struct store){.changed = changed, .context = context};
}

void store_free(struct store *store) {
  for (size_t kind = 0; kind < OBJECT_KINDS; kind++) {
    struct store_index *index = &store->names[kind];
    for (size_t i = 0; i < index->capacity; i++)
      for (struct object *object = index->buckets[i], *next; object; object = next) {
        next = object->chain[BY_NAME];
        memory_free(object);
      }
    memory_free(index->buckets);
  }
  memory_free(store->keys.buckets);
  *store = (struct store){.changed = store->changed, .context = store->context};
}

static void unlink_object(struct store *store, struct object *object) {
  index_remove(&store->names[object->kind], BY_NAME, object);
  if (has_key(object))
    index_remove(&store->keys, BY_KEY, object);
}

static void drop(struct store *store, struct object *object) {
  unlink_object(store, object);
  store->changed(store->context, object, NULL);
  memory_free(object);
}

int store_put(struct store *store, struct object *object, bool listed) {
  struct store_index *names = &store->names[object->kind];
  if (index_grow(names, BY_NAME) < 0 || (has_key(object) && index_grow(&store->keys, BY_KEY) < 0)) {
    memory_free(object);
    return -1;
  }
  if (!listed)
    store->sequence++;
  struct object *before = index_find(names, BY_NAME, object->name);
  if (before && strcmp(before->uid, object->uid) != 0) {
    drop(store, before);
    before = NULL;
  }
  object->epoch = store->epochs[object->kind];
  object->seen = before ? before->seen : store->sequence;
  if (before) {
    object->attachment = before->attachment;
    unlink_object(store, before);
  }
  index_insert(names, BY_NAME, object);
  if (has_key(object))
    index_insert(&store->keys, BY_KEY, object);
  store->changed(store->context, before, object);
  memory_free(before);
  return 0;
}

void store_list_begin(struct store *store, enum object_kind kind) {
  store->epochs[kind]++;
  store->sequence++;
}

void store_list_end(struct store *store, enum object_kind kind) {
  struct store_index *index = &store->names[kind];
  for (size_t i = 0; i < index->capacity; i++)
    for (struct object *object = index->buckets[i], *next; object; object = next) {
      next = object->chain[BY_NAME];
      if (object->epoch != store->epochs[kind])
        drop(store, object);
    }
}

void store_remove(struct store *store, enum object_kind kind, const char *name, const char *uid) {
  struct object *object = store_find(store, kind, name);
  if (object && strcmp(object->uid, uid) == 0)
    drop(store, object);
}

/* --- reading --- */

struct object *store_find(const struct store *store, enum object_kind kind, const char *name) {
  return index_find(&store->names[kind], BY_NAME, name);
}

struct object *store_next_of_key(const struct store *store, const char *idempotency, const struct object *previous) {
  if (!previous)
    return index_find(&store->keys, BY_KEY, idempotency);
  struct object *object = previous->chain[BY_KEY];
  while (object && strcmp(object->claim.idempotency, idempotency) != 0)
    object = object->chain[BY_KEY];
  return object;
}

struct object *store_next(const struct store *store, enum object_kind kind, const struct object *previous) {
  const struct store_index *index = &store->names[kind];
  if (previous && previous->chain[BY_NAME])
    return previous->chain[BY_NAME];
  size_t i = previous ? (hash_of(previous->name) & (index->capacity - 1)) + 1 : 0;
  for (; i < index->capacity; i++)
    if (index->buckets[i])
      return index->buckets[i];
  return NULL;
}

size_t store_count(const struct store *store, enum object_kind kind) {
  return store->names[kind].count;
}

size_t store_size(const struct store *store) {
  size_t size = store->keys.capacity * sizeof(struct object *);
  for (size_t kind = 0; kind < OBJECT_KINDS; kind++) {
    size += store->names[kind].capacity * sizeof(struct object *);
    const struct object *object = NULL;
    while ((object = store_next(store, (enum object_kind)kind, object)))
      size += object_size(object);
  }
  return size;
}
