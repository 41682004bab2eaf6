/*
 * A Lease that the owner does not know is asked of the API server, whether the cache has it or not: another process may
 * have handed it out moments ago. A bucket bounds how often, since ids come from callers.
 */
#include "backend/kubernetes/kubernetes.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include <stdio.h>
#include <string.h>

/* 50 a second, and 100 at once. */
#define LOOKUP_COST (CLOCK_SECOND / 50)
#define LOOKUP_CREDIT (100 * LOOKUP_COST)
#define LOOKUP_TIMEOUT (10 * CLOCK_SECOND)

struct lookup {
  struct lookup *next, *previous;
  struct kubernetes_backend *kubernetes;
  struct api_call *call;
  backend_found *found;
  void *context;
  bool whole; /* asked by the reference platform's name, which is the whole id */
  char id[LIMIT_LEASE_ID_BYTES + 1];
};

static void lookup_free(struct lookup *lookup) {
  if (lookup->previous)
    lookup->previous->next = lookup->next;
  else
    lookup->kubernetes->lookups = lookup->next;
  if (lookup->next)
    lookup->next->previous = lookup->previous;
  if (lookup->call)
    api_cancel(lookup->call);
  memory_free(lookup);
}

/* Takes over err. */
static void lookup_finish(struct lookup *lookup, const struct backend_sandbox *sandbox, struct error *err) {
  backend_found *found = lookup->found;
  void *context = lookup->context;
  lookup_free(lookup);
  found(context, sandbox, err);
  error_free(&err);
}

static void lookup_send(struct lookup *lookup);

/* Is this Claim a Lease of that id? Whoever has an id has it from us: it was handed out. */
static bool lookup_judge(const struct lookup *lookup, const struct object *claim, struct backend_sandbox *sandbox) {
  return lease_usable(lookup->kubernetes, claim) &&
         settings_pool(&lookup->kubernetes->settings, claim->claim.pool) != NULL &&
         lease_fill(lookup->kubernetes, claim, sandbox) && strcmp(sandbox->id, lookup->id) == 0;
}

static void on_answer(void *context, const struct api_answer *answer, struct error *failure) {
  struct lookup *lookup = context;
  struct error *err = NULL;
  struct backend_sandbox sandbox;
  lookup->call = NULL;
  if (failure && answer->code != 404) {
    error_set_detail(&err, REASON_SERVER_UNAVAILABLE, "%s", error_detail(failure));
    lookup_finish(lookup, NULL, err);
    return;
  }
  if (!failure) {
    CLEANUP_JSON struct json *json = json_parse(answer->body, answer->length, &err);
    CLEANUP_MEMORY struct object *claim = json ? object_decode(OBJECT_CLAIM, json, &err) : NULL;
    if (!claim || lookup_judge(lookup, claim, &sandbox)) {
      lookup_finish(lookup, claim ? &sandbox : NULL, err);
      return;
    }
  }
  if (lookup->whole) {
    lookup_finish(lookup, NULL, NULL);
    return;
  }
  lookup->whole = true;
  lookup_send(lookup);
}

static void lookup_send(struct lookup *lookup) {
  struct kubernetes_backend *kubernetes = lookup->kubernetes;
  char name[CLAIM_NAME_SIZE], path[CLAIM_PATH_BYTES];
  claim_name_of_id(lookup->id, name);
  if (kubernetes_claim_path(kubernetes, lookup->whole ? lookup->id : name, path) == 0)
    lookup->call = api_send(
        kubernetes->api,
        &(struct api_request){.method = "GET", .path = path, .deadline = clock_boot() + LOOKUP_TIMEOUT}, on_answer,
        lookup);
  if (lookup->call)
    return;
  struct error *err = NULL;
  error_set_memory(&err);
  lookup_finish(lookup, NULL, err);
}

static bool lookup_allowed(struct kubernetes_backend *kubernetes) {
  int64_t now = clock_boot();
  kubernetes->lookup_credit += now - kubernetes->lookup_time;
  kubernetes->lookup_time = now;
  if (kubernetes->lookup_credit > LOOKUP_CREDIT)
    kubernetes->lookup_credit = LOOKUP_CREDIT;
  if (kubernetes->lookup_credit < LOOKUP_COST)
    return false;
  kubernetes->lookup_credit -= LOOKUP_COST;
  return true;
}

/* Too many questions at once: the cache's word counts, as long as it is in step. */
static void lookup_cached(struct kubernetes_backend *kubernetes, const char *id, backend_found *found, void *context) {
  struct error *err = NULL;
  struct backend_sandbox sandbox;
  const struct object *claim = lease_find(kubernetes, id);
  if (claim && claim->attachment && lease_usable(kubernetes, claim) && lease_fill(kubernetes, claim, &sandbox))
    found(context, &sandbox, NULL);
  else if (cache_in_step(kubernetes->cache, &err))
    found(context, NULL, NULL);
  else
    found(context, NULL, err);
  error_free(&err);
}

void lookup_begin(struct kubernetes_backend *kubernetes, const char *id, backend_found *found, void *context) {
  char name[CLAIM_NAME_SIZE];
  struct lookup *lookup = NULL;
  if (!claim_name_of_id(id, name)) {
    found(context, NULL, NULL);
    return;
  }
  if (!lookup_allowed(kubernetes) || !(lookup = memory_zero(sizeof *lookup))) {
    lookup_cached(kubernetes, id, found, context);
    return;
  }
  lookup->kubernetes = kubernetes;
  lookup->found = found;
  lookup->context = context;
  memcpy(lookup->id, id, sizeof lookup->id);
  lookup->next = kubernetes->lookups;
  if (lookup->next)
    lookup->next->previous = lookup;
  kubernetes->lookups = lookup;
  lookup_send(lookup);
}

void lookup_free_all(struct kubernetes_backend *kubernetes) {
  while (kubernetes->lookups)
    lookup_free(kubernetes->lookups);
}
