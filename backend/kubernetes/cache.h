/*
 * The cluster as far as the backend needs it, kept up to date: Claims of the platform, Sandboxes, their Pods and
 * WarmPools of the namespace by lists and watches; nodes too, where the platform may read them. A cache that is behind
 * says so. Thread: the loop's.
 */
#ifndef KUBERNETES_CACHE_H
#define KUBERNETES_CACHE_H

#include "backend/kubernetes/api.h"
#include "backend/kubernetes/store.h"
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

struct cache;

struct cache_events {
  store_changed *changed;
  void (*listed)(void *context); /* everything was listed for the first time */
  void *context;
};

/* Begins at once. namespace_ and api must outlive it. NULL without memory. */
struct cache *cache_new(uv_loop_t *loop, struct api *api, const char *namespace_, const struct cache_events *events);
/* Tells nothing any more. */
void cache_free(struct cache *cache);

const struct store *cache_store(const struct cache *cache);
/* Everything was listed and every watch stands, or was lost only moments ago. False and *why. */
bool cache_in_step(const struct cache *cache, struct error **why);
/* Nanoseconds since the server was last heard of by the watch that is furthest behind; INT64_MAX before everything was
 * listed. Healthy watches are heard of every minute or so. */
int64_t cache_age(const struct cache *cache);
/* How often watches had to begin anew after a failure, or a list, since the beginning. */
void cache_count(const struct cache *cache, uint64_t *restarts, uint64_t *lists);

#endif
