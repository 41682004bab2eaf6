/*
 * The labels of callers, remembered in a direct-mapped table. The whole names are compared, never a hash alone.
 */
#include "server/scope_cache.h"

#include "base/memory.h"
#include <string.h>

void scope_cache_init(struct scope_cache *cache, const struct digest_key *key) {
  *cache = (struct scope_cache){.key = key};
}

void scope_cache_free(struct scope_cache *cache) {
  for (size_t i = 0; i < SCOPE_CACHE_PLACES; i++)
    memory_free(cache->places[i].names);
  *cache = (struct scope_cache){0};
}

static uint32_t names_hash(const char *names, size_t length) {
  uint32_t hash = UINT32_C(0x811c9dc5);
  for (size_t i = 0; i < length; i++) {
    hash ^= (uint8_t)names[i];
    hash *= UINT32_C(0x01000193);
  }
  return hash ^ (hash >> 16);
}

const struct scope_labels *scope_cache_labels(struct scope_cache *cache, const struct identity *identity) {
  char names[sizeof(identity->consumer) + sizeof(identity->subject)];
  size_t consumer = strnlen(identity->consumer, sizeof(identity->consumer) - 1);
  size_t subject = strnlen(identity->subject, sizeof(identity->subject) - 1);
  memcpy(names, identity->consumer, consumer);
  names[consumer] = 0;
  memcpy(names + consumer + 1, identity->subject, subject);
  size_t length = consumer + 1 + subject;

  struct scope_cache_place *place = &cache->places[names_hash(names, length) & (SCOPE_CACHE_PLACES - 1)];
  if (place->names && place->length == length && memcmp(place->names, names, length) == 0)
    return &place->labels;

  memory_free(place->names);
  place->names = NULL;
  const char *scope_parts[] = {"scope", identity->consumer, identity->subject};
  const char *consumer_parts[] = {"consumer", identity->consumer};
  if (label_make(cache->key, scope_parts, 3, place->labels.scope) < 0 ||
      label_make(cache->key, consumer_parts, 2, place->labels.consumer) < 0)
    return NULL;
  /* Without memory for the names the labels are right all the same; they are just not found again. */
  place->names = memory_string_of(names, length);
  place->length = length;
  return &place->labels;
}
