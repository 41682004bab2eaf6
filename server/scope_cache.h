/*
 * The labels of callers (contract §9), remembered, since each costs an HMAC and every call needs its scope's. A small
 * table in which one caller pushes out another; nothing depends on an entry staying.
 *
 * Thread: the loop's.
 */
#ifndef SERVER_SCOPE_CACHE_H
#define SERVER_SCOPE_CACHE_H

#include "base/digest.h"
#include "base/identity.h"

struct scope_labels {
  char scope[LABEL_SIZE];
  char consumer[LABEL_SIZE];
};

#define SCOPE_CACHE_PLACES 256 /* a power of two */

struct scope_cache {
  const struct digest_key *key; /* the metadata secret's; not owned */
  struct scope_cache_place {
    char *names; /* Consumer, NUL, Subject; owned */
    size_t length;
    struct scope_labels labels;
  } places[SCOPE_CACHE_PLACES];
};

void scope_cache_init(struct scope_cache *cache, const struct digest_key *key);
void scope_cache_free(struct scope_cache *cache);
/* Valid until the next call; NULL without memory. */
const struct scope_labels *scope_cache_labels(struct scope_cache *cache, const struct identity *identity);

#endif
