/*
 * Deleting Claims. An order stays on the books until the cache has seen the Claim end, so that nothing takes it for a
 * usable one meanwhile, and until the API server has accepted it: what failed is tried again by every sweep. Should
 * this process die before, the Claim's own shutdownTime ends it.
 */
#include "backend/kubernetes/kubernetes.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include <string.h>

struct ending_waiter {
  struct ending_waiter *next;
  backend_done *done;
  void *context;
};

struct ending {
  struct ending *next;
  struct kubernetes_backend *kubernetes;
  struct ending_waiter *waiters;
  struct api_call *call;
  int64_t accepted; /* boot clock; 0: not yet */
  bool seen;        /* by the cache */
  char name[LIMIT_LEASE_ID_BYTES + 1];
  char uid[UID_SIZE]; /* "" while it is not known which one the attempt made */
  char attempt[CLAIM_ATTEMPT_SIZE];
};

/* The cache hears of a deletion within moments; an accepted order whose Claim it never knew is forgotten after this. */
#define MEMORY_AFTER (60 * CLOCK_SECOND)

static void ending_send(struct ending *ending);

static void waiters_tell(struct ending *ending, const struct error *failure) {
  while (ending->waiters) {
    struct ending_waiter *waiter = ending->waiters;
    struct error *err = NULL;
    ending->waiters = waiter->next;
    if (failure)
      error_set_detail(&err, error_reason(failure), "%s", error_detail(failure));
    waiter->done(waiter->context, err);
    error_free(&err);
    memory_free(waiter);
  }
}

/* Nobody waits for it. */
static void ending_free(struct ending *ending) {
  struct ending **at = &ending->kubernetes->endings;
  while (*at != ending)
    at = &(*at)->next;
  *at = ending->next;
  if (ending->call)
    api_cancel(ending->call);
  memory_free(ending);
}

/* There is nothing to end any more. */
static void ending_over(struct ending *ending) {
  struct kubernetes_backend *kubernetes = ending->kubernetes;
  ending->accepted = clock_boot();
  waiters_tell(ending, NULL);
  if (!ending->uid[0] || ending->seen)
    ending_free(ending);
  kubernetes_settle(kubernetes);
}

static void ending_failed(struct ending *ending, const struct error *err) {
  log_write(LOG_WARNING, "claim_not_deleted", LOG_TEXT("claim", ending->name), LOG_REASON(err), LOG_DETAIL(err));
  waiters_tell(ending, err);
  kubernetes_settle(ending->kubernetes);
}

static void on_deleted(void *context, const struct api_answer *answer, struct error *err) {
  struct ending *ending = context;
  ending->call = NULL;
  /* 404: it is gone. 409: the name has passed to another Claim. */
  if (!err || answer->code == 404 || answer->code == 409)
    ending_over(ending);
  else
    ending_failed(ending, err);
}

/* Is it the Claim of the attempt? Its uid is then known. */
static void on_found(void *context, const struct api_answer *answer, struct error *err) {
  struct ending *ending = context;
  ending->call = NULL;
  if (err && answer->code != 404) {
    ending_failed(ending, err);
    return;
  }
  CLEANUP_JSON struct json *json = err ? NULL : json_parse(answer->body, answer->length, NULL);
  CLEANUP_MEMORY struct object *claim = json ? object_decode(OBJECT_CLAIM, json, NULL) : NULL;
  if (claim && strcmp(claim->claim.attempt, ending->attempt) == 0 && strlen(claim->uid) < UID_SIZE) {
    memcpy(ending->uid, claim->uid, strlen(claim->uid) + 1);
    ending_send(ending);
  } else {
    ending_over(ending);
  }
}

static void ending_send(struct ending *ending) {
  struct kubernetes_backend *kubernetes = ending->kubernetes;
  char path[CLAIM_PATH_BYTES];
  CLEANUP_BUFFER struct buffer body;
  buffer_init(&body, CLAIM_BODY_BYTES);
  struct api_request request = {.path = path, .deadline = clock_boot() + WRITE_TIMEOUT};
  if (kubernetes_claim_path(kubernetes, ending->name, path) == 0) {
    if (!ending->uid[0]) {
      request.method = "GET";
      ending->call = api_send(kubernetes->api, &request, on_found, ending);
    } else if (claim_encode_delete(&body, ending->uid) == 0) {
      request.method = "DELETE";
      request.body = buffer_text(&body);
      ending->call = api_send(kubernetes->api, &request, on_deleted, ending);
    }
  }
  if (ending->call)
    return;
  CLEANUP_ERROR struct error *err = NULL;
  error_set_memory(&err);
  ending_failed(ending, err);
}

static struct ending *ending_find(const struct kubernetes_backend *kubernetes, const char *name, const char *uid) {
  struct ending *ending = kubernetes->endings;
  while (ending && !(uid && strcmp(ending->uid, uid) == 0 && strcmp(ending->name, name) == 0))
    ending = ending->next;
  return ending;
}

static struct ending *ending_new(struct kubernetes_backend *kubernetes, const char *name, const char *uid,
                                 const char *attempt) {
  struct ending *ending = NULL;
  if (strlen(name) < sizeof ending->name && (!uid || strlen(uid) < sizeof ending->uid))
    ending = memory_zero(sizeof *ending);
  if (!ending)
    return NULL;
  ending->kubernetes = kubernetes;
  memcpy(ending->name, name, strlen(name));
  if (uid)
    memcpy(ending->uid, uid, strlen(uid));
  if (attempt)
    memcpy(ending->attempt, attempt, strlen(attempt));
  ending->next = kubernetes->endings;
  kubernetes->endings = ending;
  return ending;
}

void ending_begin(struct kubernetes_backend *kubernetes, const char *name, const char *uid, const char *attempt,
                  backend_done *done, void *context) {
  struct ending *ending = ending_find(kubernetes, name, uid);
  bool send = !ending || (!ending->call && !ending->accepted);
  if (ending && ending->accepted) {
    if (done)
      done(context, NULL);
    return;
  }
  if (!ending)
    ending = ending_new(kubernetes, name, uid, attempt);
  struct ending_waiter *waiter = ending && done ? memory_zero(sizeof *waiter) : NULL;
  if (!ending || (done && !waiter)) {
    struct error *err = NULL;
    error_set_memory(&err);
    if (done)
      done(context, err);
    error_free(&err);
    if (!ending)
      return;
  }
  if (waiter) {
    *waiter = (struct ending_waiter){.next = ending->waiters, .done = done, .context = context};
    ending->waiters = waiter;
  }
  if (send)
    ending_send(ending);
}

bool ending_knows(const struct kubernetes_backend *kubernetes, const char *uid) {
  for (const struct ending *ending = kubernetes->endings; ending; ending = ending->next)
    if (strcmp(ending->uid, uid) == 0)
      return true;
  return false;
}

void ending_seen(struct kubernetes_backend *kubernetes, const char *uid) {
  for (struct ending *ending = kubernetes->endings; ending; ending = ending->next)
    if (strcmp(ending->uid, uid) == 0) {
      ending->seen = true;
      if (ending->accepted)
        ending_free(ending);
      return;
    }
}

void ending_sweep(struct kubernetes_backend *kubernetes) {
  int64_t now = clock_boot();
  for (struct ending *ending = kubernetes->endings, *next; ending; ending = next) {
    next = ending->next;
    if (ending->accepted && now - ending->accepted > MEMORY_AFTER)
      ending_free(ending);
    else if (!ending->accepted && !ending->call)
      ending_send(ending);
  }
}

bool ending_busy(const struct kubernetes_backend *kubernetes) {
  for (const struct ending *ending = kubernetes->endings; ending; ending = ending->next)
    if (ending->call)
      return true;
  return false;
}

void ending_free_all(struct kubernetes_backend *kubernetes) {
  struct error *err = NULL;
  error_set(&err, REASON_ABORTED, NULL);
  while (kubernetes->endings) {
    waiters_tell(kubernetes->endings, err);
    ending_free(kubernetes->endings);
  }
  error_free(&err);
}
