/*
 * One reflector for each kind: list in pages, watch from there, and again from wherever that ends.
 */
#include "backend/kubernetes/cache.h"

#include "backend/kubernetes/feed.h"
#include "backend/kubernetes/retry.h"
#include "backend/kubernetes/curl.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/memory.h"
#include <string.h>

enum {
  PAGE_OBJECTS = 250,
  PATH_BYTES = 12288,
  LIST_SECONDS = 60,
  WATCH_SECONDS = 300, /* and up to as much again */
  REFUSED_SECONDS = 600,
  FORBIDDEN = 403,
  NOT_FOUND = 404,
  GONE = 410,
};

#define GRACE (5 * CLOCK_SECOND)

struct reflector {
  struct cache *cache;
  struct feed feed;
  struct api_call *call;
  uv_timer_t timer;
  struct retry retry;
  bool optional;
  bool refused;   /* optional, and we may not read it */
  bool listed;    /* once */
  int64_t behind; /* boot clock since when no watch stands; 0: one does */
  int64_t heard;  /* boot clock */
};

struct cache {
  uv_loop_t *loop;
  struct api *api;
  const char *namespace_;
  struct cache_events events;
  struct store store;
  struct reflector reflectors[OBJECT_KINDS];
  uint64_t restarts, lists;
  bool listed;
  unsigned handles;
};

static const struct {
  const char *path; /* %s: the namespace */
  const char *selector;
  bool optional;
} resources[OBJECT_KINDS] = {
    [OBJECT_CLAIM] = {"/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/%s/sandboxclaims",
                      "labelSelector=sandbox.geminixiang.dev%2Fmanaged%3Dtrue&", false},
    [OBJECT_SANDBOX] = {"/apis/agents.x-k8s.io/v1beta1/namespaces/%s/sandboxes", "", false},
    [OBJECT_POD] = {"/api/v1/namespaces/%s/pods", "labelSelector=agents.x-k8s.io%2Fsandbox-name-hash&", false},
    [OBJECT_POOL] = {"/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/%s/sandboxwarmpools", "", false},
    [OBJECT_NODE] = {"/api/v1/nodes", "", true},
};

static void reflector_list(struct reflector *reflector);
static void reflector_watch(struct reflector *reflector);

static uint32_t chance(void) {
  uint32_t number;
  random_bytes(&number, sizeof number);
  return number;
}

/* --- what is known --- */

static void cache_check_listed(struct cache *cache) {
  for (size_t kind = 0; kind < OBJECT_KINDS; kind++)
    if (!cache->reflectors[kind].listed && !cache->reflectors[kind].refused)
      return;
  if (cache->listed)
    return;
  cache->listed = true;
  cache->events.listed(cache->events.context);
}

static void reflector_behind(struct reflector *reflector) {
  if (reflector->behind == 0)
    reflector->behind = clock_boot();
}

static void reflector_in_step(struct reflector *reflector) {
  reflector->heard = clock_boot();
  if (reflector->behind != 0 && reflector->heard - reflector->behind > GRACE)
    log_write(LOG_INFO, "cache_in_step", LOG_TEXT("kind", object_kind_name(reflector->feed.kind)));
  reflector->behind = 0;
}

/* --- trying again --- */

static void on_timer(uv_timer_t *timer) {
  struct reflector *reflector = timer->data;
  if (reflector->feed.version[0] && !reflector->feed.listing)
    reflector_watch(reflector);
  else
    reflector_list(reflector);
}

/* After a failure. Takes over nothing. */
static void reflector_again(struct reflector *reflector, const struct error *err, int64_t retry_after) {
  reflector->cache->restarts++;
  reflector_behind(reflector);
  log_write(LOG_WARNING, "cache_behind", LOG_TEXT("kind", object_kind_name(reflector->feed.kind)), LOG_REASON(err),
            LOG_DETAIL(err));
  int64_t wait = retry_forever(&reflector->retry, retry_after, chance());
  uv_timer_start(&reflector->timer, on_timer, (uint64_t)(wait / CLOCK_MILLISECOND), 0);
}

static void reflector_again_memory(struct reflector *reflector) {
  CLEANUP_ERROR struct error *err = NULL;
  error_set_memory(&err);
  reflector_again(reflector, err, 0);
}

/* A kind we may do without and may not read. */
static void reflector_refuse(struct reflector *reflector, const struct error *err) {
  if (!reflector->refused)
    log_write(LOG_WARNING, "cache_refused", LOG_TEXT("kind", object_kind_name(reflector->feed.kind)), LOG_DETAIL(err));
  reflector->refused = true;
  feed_restart(&reflector->feed);
  reflector->feed.version[0] = 0;
  uv_timer_start(&reflector->timer, on_timer, REFUSED_SECONDS * 1000, 0);
  cache_check_listed(reflector->cache);
}

/* --- lists --- */

static int path_begin(const struct reflector *reflector, struct buffer *path) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
  if (buffer_append_format(path, resources[reflector->feed.kind].path, reflector->cache->namespace_) < 0)
    return -1;
#pragma GCC diagnostic pop
  return buffer_append_format(path, "?%s", resources[reflector->feed.kind].selector);
}

static int path_page(const struct reflector *reflector, struct buffer *path) {
  if (path_begin(reflector, path) < 0 || buffer_append_format(path, "limit=%d", PAGE_OBJECTS) < 0)
    return -1;
  if (!reflector->feed.next_page[0])
    return 0;
  char *token = curl.easy_escape(NULL, reflector->feed.next_page, 0);
  int result = token ? buffer_append_format(path, "&continue=%s", token) : -1;
  curl.free(token);
  return result;
}

static void on_page(void *context, const struct api_answer *answer, struct error *failure) {
  struct reflector *reflector = context;
  CLEANUP_ERROR struct error *err = NULL;
  reflector->call = NULL;
  if (failure) {
    feed_restart(&reflector->feed);
    if (answer->code == GONE) { /* the list took too long: its later pages are forgotten */
      reflector_list(reflector);
    } else if (reflector->optional && (answer->code == FORBIDDEN || answer->code == NOT_FOUND)) {
      reflector_refuse(reflector, failure);
    } else {
      reflector_again(reflector, failure, answer->retry_after);
    }
    return;
  }
  switch (feed_page(&reflector->feed, answer->body, answer->length, &err)) {
  case FEED_PAGE:
    reflector_list(reflector);
    break;
  case FEED_WATCH:
    reflector->listed = true;
    reflector->refused = false;
    reflector_in_step(reflector);
    reflector_watch(reflector);
    cache_check_listed(reflector->cache);
    break;
  case FEED_LIST:
    reflector->feed.version[0] = 0;
    reflector_again(reflector, err, 0);
    break;
  }
}

static void reflector_list(struct reflector *reflector) {
  CLEANUP_BUFFER struct buffer path;
  buffer_init(&path, PATH_BYTES);
  if (!reflector->feed.listing)
    reflector->cache->lists++;
  if (path_page(reflector, &path) == 0)
    reflector->call = api_send(reflector->cache->api,
                               &(struct api_request){.method = "GET",
                                                     .path = buffer_text(&path),
                                                     .deadline = clock_boot() + LIST_SECONDS * CLOCK_SECOND},
                               on_page, reflector);
  if (!reflector->call)
    reflector_again_memory(reflector);
}

/* --- watches --- */

static void on_opened(void *context) {
  struct reflector *reflector = context;
  reflector_in_step(reflector);
}

/* A new list, at once. */
static void reflector_begin_anew(struct reflector *reflector) {
  if (reflector->call)
    api_cancel(reflector->call);
  reflector->call = NULL;
  reflector_behind(reflector);
  feed_restart(&reflector->feed);
  reflector->feed.version[0] = 0;
  reflector_list(reflector);
}

static void on_line(void *context, const char *text, size_t length) {
  struct reflector *reflector = context;
  CLEANUP_ERROR struct error *err = NULL;
  reflector->heard = clock_boot();
  enum feed_next next = feed_line(&reflector->feed, text, length, &err);
  if (next == FEED_WATCH) {
    reflector->retry = (struct retry){0};
    return;
  }
  log_write(err ? LOG_WARNING : LOG_INFO, "cache_lists_anew", LOG_TEXT("kind", object_kind_name(reflector->feed.kind)),
            LOG_TEXT("detail", err ? error_detail(err) : ""));
  if (!err) {
    reflector_begin_anew(reflector);
    return;
  }
  api_cancel(reflector->call);
  reflector->call = NULL;
  reflector->feed.version[0] = 0;
  reflector_again(reflector, err, 0);
}

static void on_watch_end(void *context, const struct api_answer *answer, struct error *err) {
  struct reflector *reflector = context;
  reflector->call = NULL;
  if (answer->code == GONE) {
    reflector_begin_anew(reflector);
  } else if (err) {
    reflector_again(reflector, err, answer->retry_after);
  } else {
    reflector_behind(reflector);
    reflector_watch(reflector);
  }
}

static void reflector_watch(struct reflector *reflector) {
  CLEANUP_BUFFER struct buffer path;
  buffer_init(&path, PATH_BYTES);
  if (path_begin(reflector, &path) == 0 &&
      buffer_append_format(&path, "watch=true&allowWatchBookmarks=true&timeoutSeconds=%u&resourceVersion=%s",
                           WATCH_SECONDS + chance() % WATCH_SECONDS, reflector->feed.version) == 0)
    reflector->call = api_watch(reflector->cache->api, buffer_text(&path), on_opened, on_line, on_watch_end, reflector);
  if (!reflector->call)
    reflector_again_memory(reflector);
}

/* --- the cache --- */

struct cache *cache_new(uv_loop_t *loop, struct api *api, const char *namespace_, const struct cache_events *events) {
  struct cache *cache = memory_zero(sizeof *cache);
  if (!cache)
    return NULL;
  cache->loop = loop;
  cache->api = api;
  cache->namespace_ = namespace_;
  cache->events = *events;
  store_init(&cache->store, events->changed, events->context);
  for (size_t kind = 0; kind < OBJECT_KINDS; kind++) {
    struct reflector *reflector = &cache->reflectors[kind];
    reflector->cache = cache;
    reflector->optional = resources[kind].optional;
    reflector->behind = clock_boot();
    feed_init(&reflector->feed, &cache->store, (enum object_kind)kind);
    uv_timer_init(loop, &reflector->timer);
    reflector->timer.data = reflector;
    cache->handles++;
    uv_timer_start(&reflector->timer, on_timer, 0, 0);
  }
  return cache;
}

static void timer_closed(uv_handle_t *handle) {
  struct cache *cache = ((struct reflector *)handle->data)->cache;
  if (--cache->handles == 0)
    memory_free(cache);
}

void cache_free(struct cache *cache) {
  if (!cache)
    return;
  for (size_t kind = 0; kind < OBJECT_KINDS; kind++) {
    struct reflector *reflector = &cache->reflectors[kind];
    if (reflector->call)
      api_cancel(reflector->call);
    reflector->call = NULL;
    uv_close((uv_handle_t *)&reflector->timer, timer_closed);
  }
  store_free(&cache->store);
}

const struct store *cache_store(const struct cache *cache) {
  return &cache->store;
}

bool cache_in_step(const struct cache *cache, struct error **why) {
  int64_t now = clock_boot();
  for (size_t kind = 0; kind < OBJECT_KINDS; kind++) {
    const struct reflector *reflector = &cache->reflectors[kind];
    if (reflector->optional)
      continue;
    if (!reflector->listed || (reflector->behind != 0 && now - reflector->behind > GRACE)) {
      error_set_detail(why, REASON_SERVER_UNAVAILABLE, "the cache of %s is behind",
                       object_kind_name((enum object_kind)kind));
      return false;
    }
  }
  return true;
}

int64_t cache_age(const struct cache *cache) {
  int64_t now = clock_boot(), age = 0;
  for (size_t kind = 0; kind < OBJECT_KINDS; kind++) {
    const struct reflector *reflector = &cache->reflectors[kind];
    if (reflector->optional)
      continue;
    if (!reflector->listed)
      return INT64_MAX;
    if (now - reflector->heard > age)
      age = now - reflector->heard;
  }
  return age;
}

void cache_count(const struct cache *cache, uint64_t *restarts, uint64_t *lists) {
  *restarts = cache->restarts;
  *lists = cache->lists;
}
