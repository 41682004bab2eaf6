/*
 * Binding a sandbox. An acquire is a Claim that is made, or found, and then waited for by the watch:
 *
 *   find or make a Claim ──▶ wait for its sandbox ──▶ ready: handed out
 *     ▲                          │         └──────────▶ failed: Claim deleted
 *     └── next generation ◀──────┘ given back, or gone behind our back
 *
 * The API server's uniqueness of names lets one process make a Claim of a key and generation. A second Claim of the
 * same key can still come about, when an old generation vanishes at the right moment; the order in which the watch
 * shows Claims is the same for all, so the later one gives way to the earlier.
 */
#include "backend/kubernetes/acquire.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include <stdio.h>
#include <string.h>

enum { GIVE_BACK_MAX = 3, RESTARTS_MAX = 8 };

/* An acquire that took longer gets its time anew: what was waited for is not the caller's loss. */
#define LATE (2 * CLOCK_SECOND)

/* --- the end --- */

static void timer_closed(uv_handle_t *handle) {
  memory_free(handle->data);
}

void acquire_free(struct backend_pending *pending) {
  struct kubernetes_backend *kubernetes = pending->kubernetes;
  if (pending->previous)
    pending->previous->next = pending->next;
  else
    kubernetes->pendings = pending->next;
  if (pending->next)
    pending->next->previous = pending->previous;
  uv_close((uv_handle_t *)&pending->timer, timer_closed);
  kubernetes_settle(kubernetes);
}

/* The Claim, if this acquire answers for it, is deleted. */
void acquire_drop_claim(struct backend_pending *pending) {
  struct kubernetes_backend *kubernetes = pending->kubernetes;
  if (pending->uid[0] && pending->own)
    ending_begin(kubernetes, pending->name, pending->uid, NULL, NULL, NULL);
  pending->uid[0] = 0;
  pending->own = pending->seen = false;
}

/* Takes over err. */
void acquire_fail(struct backend_pending *pending, struct error *err) {
  backend_acquired *acquired = pending->acquired;
  void *context = pending->context;
  acquire_drop_claim(pending);
  acquire_free(pending);
  acquired(context, NULL, false, err);
  error_free(&err);
}

void acquire_fail_detail(struct backend_pending *pending, enum reason reason, const char *detail) {
  struct error *err = NULL;
  error_set_detail(&err, reason, "%s", detail);
  acquire_fail(pending, err);
}

void acquire_fail_memory(struct backend_pending *pending) {
  struct error *err = NULL;
  error_set_memory(&err);
  acquire_fail(pending, err);
}

/* --- handing out --- */

static void pending_hand_out(struct backend_pending *pending, struct object *claim) {
  struct kubernetes_backend *kubernetes = pending->kubernetes;
  struct backend_sandbox sandbox;
  backend_acquired *acquired = pending->acquired;
  void *context = pending->context;
  bool replayed = !pending->own;
  if (claim->attachment)
    lease_fill(kubernetes, claim, &sandbox);
  else if (!lease_tell(kubernetes, claim, pending->expires_at, &sandbox)) {
    acquire_fail_memory(pending);
    return;
  }
  acquire_free(pending);
  acquired(context, &sandbox, replayed, NULL);
}

static void on_extended(void *context, const struct api_answer *answer, struct error *err) {
  struct backend_pending *pending = context;
  (void)answer;
  pending->call = NULL;
  if (err) {
    log_write(LOG_WARNING, "lease_not_extended", LOG_TEXT("claim", pending->name), LOG_REASON(err), LOG_DETAIL(err));
    pending->expires_at = 0;
  }
  acquire_evaluate(pending);
}

/* Moves the Claim's end to a whole TTL from now. False: it is not worth it, or not possible. */
static bool pending_extend(struct backend_pending *pending) {
  struct kubernetes_backend *kubernetes = pending->kubernetes;
  char path[CLAIM_PATH_BYTES];
  if (pending->extended || !pending->own || clock_boot() - pending->started < LATE)
    return false;
  CLEANUP_BUFFER struct buffer body;
  buffer_init(&body, CLAIM_BODY_BYTES);
  pending->extended = true;
  pending->expires_at = kubernetes_wall(kubernetes) + pending->ttl;
  if (claim_encode_expiry(&body, pending->uid, pending->expires_at) == 0 &&
      kubernetes_claim_path(kubernetes, pending->name, path) == 0)
    pending->call = api_send(kubernetes->api,
                             &(struct api_request){.method = "PATCH",
                                                   .path = path,
                                                   .body = buffer_text(&body),
                                                   .content_type = "application/merge-patch+json",
                                                   .deadline = clock_boot() + 5 * CLOCK_SECOND},
                             on_extended, pending);
  if (!pending->call)
    pending->expires_at = 0;
  return pending->call != NULL;
}

/* --- waiting --- */

static void on_timer(uv_timer_t *timer) {
  acquire_evaluate(timer->data);
}

static void pending_arm(struct backend_pending *pending, int64_t again) {
  int64_t when = again && again < pending->deadline ? again : pending->deadline;
  int64_t wait = when - clock_boot();
  uv_timer_start(&pending->timer, on_timer,
                 wait > 0 ? (uint64_t)((wait + CLOCK_MILLISECOND - 1) / CLOCK_MILLISECOND) : 0, 0);
}

/* Another sandbox: the same acquire with a new Claim. */
static void pending_restart(struct backend_pending *pending, const struct judgement *judgement) {
  acquire_drop_claim(pending);
  pending->stuck_since = 0;
  if (++pending->restarts > RESTARTS_MAX || pending->given_back > GIVE_BACK_MAX)
    acquire_fail_detail(pending, judgement->reason, judgement->detail);
  else
    acquire_claim(pending);
}

/* An earlier Claim of the same key, or NULL. */
static const struct object *earlier_claim(const struct backend_pending *pending, const struct object *claim) {
  const struct kubernetes_backend *kubernetes = pending->kubernetes;
  const struct object *other = NULL;
  while ((other = store_next_of_key(kubernetes->store, pending->idempotency, other)))
    if (other != claim && other->seen <= claim->seen && lease_usable(kubernetes, other) &&
        strcmp(other->claim.scope, pending->scope) == 0)
      return other;
  return NULL;
}

/* A Claim that somebody else made and that was never handed out is of no use to anybody: this acquire answers for it.
 */
static void pending_condemn(struct backend_pending *pending, const struct object *claim) {
  if (!claim->attachment && !claim->claim.was_ready)
    pending->own = true;
}

/* Time is up: what it hung on. */
static void pending_time_out(struct backend_pending *pending, const struct judgement *judgement) {
  struct error *err = NULL;
  if (!cache_in_step(pending->kubernetes->cache, &err))
    acquire_fail(pending, err);
  else
    acquire_fail_detail(pending, judgement->reason, judgement->detail);
}

static void pending_judge(struct backend_pending *pending, struct object *claim) {
  struct judge_facts facts;
  struct judgement judgement;
  lease_facts(pending->kubernetes, claim, &facts);
  facts.pool = pending->pool;
  judge_claim(&facts, &pending->stuck_since, &judgement);
  bool late = facts.now >= pending->deadline;
  switch (judgement.word) {
  case JUDGE_READY:
    if (!pending_extend(pending))
      pending_hand_out(pending, claim);
    break;
  case JUDGE_FAIL:
    pending_condemn(pending, claim);
    acquire_fail_detail(pending, judgement.reason, judgement.detail);
    break;
  case JUDGE_GIVE_BACK:
    if (!pending->own && claim->claim.was_ready) {
      pending_hand_out(pending, claim);
      break;
    }
    log_write(LOG_WARNING, "sandbox_given_back", LOG_TEXT("pool", pending->pool->name), LOG_TEXT("claim", claim->name),
              LOG_TEXT("detail", judgement.detail));
    pending_condemn(pending, claim);
    pending->given_back++;
    pending_restart(pending, &judgement);
    break;
  case JUDGE_GONE:
    pending_restart(pending, &judgement);
    break;
  case JUDGE_WAIT:
    if (late)
      pending_condemn(pending, claim);
    if (late)
      pending_time_out(pending, &judgement);
    else
      pending_arm(pending, judgement.again);
    break;
  }
}

/* The Claim's uid is known. */
void acquire_evaluate(struct backend_pending *pending) {
  struct kubernetes_backend *kubernetes = pending->kubernetes;
  if (pending->call)
    return;
  struct object *claim = store_find(kubernetes->store, OBJECT_CLAIM, pending->name);
  if (!claim || strcmp(claim->uid, pending->uid) != 0) {
    static const struct judgement gone = {.reason = REASON_SANDBOX_START_FAILED, .detail = "the Claim was deleted"};
    static const struct judgement unseen = {.reason = REASON_SERVER_UNAVAILABLE,
                                            .detail = "the cache has not seen the Claim"};
    if (pending->seen)
      pending_restart(pending, &gone);
    else if (clock_boot() >= pending->deadline)
      pending_time_out(pending, &unseen);
    else
      pending_arm(pending, 0);
    return;
  }
  pending->seen = true;
  /* Somebody else's that was handed out: whatever became of it since, it is the Lease of this key. */
  if (!pending->own && lease_usable(kubernetes, claim) && claim->attachment) {
    pending_hand_out(pending, claim);
    return;
  }
  const struct object *earlier = pending->own ? earlier_claim(pending, claim) : NULL;
  if (earlier) {
    acquire_drop_claim(pending);
    acquire_claim(pending);
    return;
  }
  pending_judge(pending, claim);
}

/* --- from outside --- */

static struct error *acquire_check(struct kubernetes_backend *kubernetes, const struct pool_settings *pool) {
  struct error *err = NULL;
  if (!pool)
    error_set(&err, REASON_UNKNOWN_POOL, NULL);
  else if (kubernetes->stopping || !kubernetes->serving)
    error_set(&err, kubernetes->stopping ? REASON_ABORTED : REASON_SERVER_UNAVAILABLE, NULL);
  else if (cache_in_step(kubernetes->cache, NULL) && !store_find(kubernetes->store, OBJECT_POOL, pool->warm_pool))
    error_set_detail(&err, REASON_SANDBOX_START_FAILED, "there is no SandboxWarmPool %s", pool->warm_pool);
  return err;
}

struct backend_pending *acquire_begin(struct kubernetes_backend *kubernetes, const struct backend_acquire *acquire,
                                      backend_acquired *acquired, void *context) {
  const struct pool_settings *pool = settings_pool(&kubernetes->settings, acquire->pool);
  struct error *err = acquire_check(kubernetes, pool);
  struct backend_pending *pending = err ? NULL : memory_zero(sizeof *pending);
  if (!pending) {
    if (!err)
      error_set_memory(&err);
    acquired(context, NULL, false, err);
    error_free(&err);
    return NULL;
  }
  pending->kubernetes = kubernetes;
  pending->pool = pool;
  snprintf(pending->scope, sizeof pending->scope, "%s", acquire->scope);
  snprintf(pending->consumer, sizeof pending->consumer, "%s", acquire->consumer);
  snprintf(pending->idempotency, sizeof pending->idempotency, "%s", acquire->idempotency);
  pending->ttl = acquire->ttl;
  pending->started = clock_boot();
  pending->deadline = pending->started + kubernetes->settings.ready_timeout;
  pending->acquired = acquired;
  pending->context = context;
  uv_timer_init(kubernetes->backend.loop, &pending->timer);
  pending->timer.data = pending;
  pending->next = kubernetes->pendings;
  if (pending->next)
    pending->next->previous = pending;
  kubernetes->pendings = pending;
  acquire_claim(pending);
  return pending;
}

void acquire_cancel(struct backend_pending *pending) {
  struct error *err = NULL;
  error_set(&err, REASON_ABORTED, NULL);
  bool creating = pending->call && !pending->uid[0] && pending->attempt[0];
  if (pending->call && !creating) {
    api_cancel(pending->call);
    pending->call = NULL;
  }
  if (!creating) {
    acquire_fail(pending, err);
    return;
  }
  /* The Claim may be on its way into being: it can be deleted only once that is known. */
  backend_acquired *acquired = pending->acquired;
  pending->acquired = NULL;
  acquired(pending->context, NULL, false, err);
  error_free(&err);
}

/* What an acquire does may end others: the walk begins anew after each. */
void acquire_wake(struct kubernetes_backend *kubernetes, const char *claim) {
  static unsigned stamp;
  unsigned own_stamp = ++stamp;
  struct backend_pending *pending = kubernetes->pendings;
  while (pending) {
    bool due = pending->acquired && pending->uid[0] && pending->woken != own_stamp &&
               (!claim || strcmp(pending->name, claim) == 0);
    pending->woken = due ? own_stamp : pending->woken;
    struct backend_pending *next = pending->next;
    if (due)
      acquire_evaluate(pending);
    pending = due ? kubernetes->pendings : next;
  }
}

bool acquire_holds(const struct kubernetes_backend *kubernetes, const struct object *claim) {
  for (const struct backend_pending *pending = kubernetes->pendings; pending; pending = pending->next)
    if (strcmp(pending->name, claim->name) == 0)
      return true;
  return false;
}

void acquire_abort_all(struct kubernetes_backend *kubernetes) {
  struct backend_pending *pending = kubernetes->pendings;
  while (pending) {
    bool open = pending->acquired != NULL;
    struct backend_pending *next = pending->next;
    if (open)
      acquire_cancel(pending);
    pending = open ? kubernetes->pendings : next;
  }
}

void acquire_forget_all(struct kubernetes_backend *kubernetes) {
  while (kubernetes->pendings) {
    struct backend_pending *pending = kubernetes->pendings;
    if (pending->call)
      api_cancel(pending->call);
    acquire_free(pending);
  }
}
