/*
 * Which Claims are Leases. A Claim becomes one when its sandbox was handed out, by this process or another; it stops
 * being one when the Claim goes, or its sandbox has lost what was in it.
 */
#include "backend/kubernetes/kubernetes.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include <stdio.h>
#include <string.h>

static int64_t deadline_of(const struct kubernetes_backend *kubernetes, int64_t expires_at) {
  return clock_boot() + (expires_at - kubernetes_wall(kubernetes));
}

bool lease_usable(const struct kubernetes_backend *kubernetes, const struct object *claim) {
  const struct lease *lease = claim->attachment;
  return claim->claim.managed && !claim->deleting && strcmp(claim->claim.reason, "ClaimExpired") != 0 &&
         claim->claim.expires_at > kubernetes_wall(kubernetes) && !(lease && lease->lost) &&
         !ending_knows(kubernetes, claim->uid);
}

void lease_facts(const struct kubernetes_backend *kubernetes, const struct object *claim, struct judge_facts *facts) {
  const struct store *store = kubernetes->store;
  *facts = (struct judge_facts){.claim = claim,
                                .pool = settings_pool(&kubernetes->settings, claim->claim.pool),
                                .now = clock_boot(),
                                .exhausted_timeout = kubernetes->settings.exhausted_timeout};
  if (claim->claim.sandbox[0])
    facts->sandbox = store_find(store, OBJECT_SANDBOX, claim->claim.sandbox);
  if (facts->sandbox)
    facts->pod = store_find(store, OBJECT_POD, facts->sandbox->sandbox.pod);
  if (facts->pod && facts->pod->pod.node[0])
    facts->node = store_find(store, OBJECT_NODE, facts->pod->pod.node);
  facts->warm_pool = store_find(store, OBJECT_POOL, claim->claim.warm_pool);
}

bool lease_fill(const struct kubernetes_backend *kubernetes, const struct object *claim,
                struct backend_sandbox *sandbox) {
  const struct claim_facts *facts = &claim->claim;
  const struct lease *lease = claim->attachment;
  *sandbox = (struct backend_sandbox){.created_at = facts->created_at,
                                      .expires_at = lease ? lease->expires_at : facts->expires_at,
                                      .last_used_at = facts->created_at};
  sandbox->deadline = lease ? lease->deadline : deadline_of(kubernetes, facts->expires_at);
  snprintf(sandbox->pool, sizeof sandbox->pool, "%s", facts->pool);
  snprintf(sandbox->scope, sizeof sandbox->scope, "%s", facts->scope);
  snprintf(sandbox->consumer, sizeof sandbox->consumer, "%s", facts->consumer);
  snprintf(sandbox->idempotency, sizeof sandbox->idempotency, "%s", facts->idempotency);
  return claim_lease_id(claim->name, claim->uid, sandbox->id);
}

struct object *lease_find(const struct kubernetes_backend *kubernetes, const char *id) {
  char name[CLAIM_NAME_SIZE], own[LIMIT_LEASE_ID_BYTES + 1];
  struct object *claim = claim_name_of_id(id, name) ? store_find(kubernetes->store, OBJECT_CLAIM, name) : NULL;
  if (!claim || !claim_lease_id(claim->name, claim->uid, own) || strcmp(own, id) != 0)
    claim = store_find(kubernetes->store, OBJECT_CLAIM, id);
  return claim && claim->claim.managed ? claim : NULL;
}

/* --- telling --- */

bool lease_tell(struct kubernetes_backend *kubernetes, struct object *claim, int64_t expires_at,
                struct backend_sandbox *sandbox) {
  struct lease *lease = claim->attachment;
  if (!lease && !(lease = memory_zero(sizeof *lease)))
    return false;
  struct judge_facts facts;
  lease_facts(kubernetes, claim, &facts);
  lease->expires_at = expires_at ? expires_at : claim->claim.expires_at;
  lease->deadline = deadline_of(kubernetes, lease->expires_at);
  if (!lease->pod_uid[0] && facts.pod)
    snprintf(lease->pod_uid, sizeof lease->pod_uid, "%s", facts.pod->uid);
  claim->attachment = lease;
  lease_fill(kubernetes, claim, sandbox);
  kubernetes->events.bound(kubernetes->events.context, sandbox);
  return true;
}

/* Another process handed it out, or a former one of ours. */
static void lease_consider(struct kubernetes_backend *kubernetes, struct object *claim) {
  struct backend_sandbox sandbox;
  struct judge_facts facts;
  struct judgement judgement;
  int64_t stuck_since = 0;
  if (claim->attachment || !lease_usable(kubernetes, claim) || acquire_holds(kubernetes, claim) ||
      !lease_fill(kubernetes, claim, &sandbox))
    return;
  lease_facts(kubernetes, claim, &facts);
  if (!facts.pool)
    return;
  judge_claim(&facts, &stuck_since, &judgement);
  /* Found at the start, it may be troubled for the moment; later, whoever made it waits until it is ready. */
  bool good = judgement.word == JUDGE_READY;
  if (!kubernetes->serving)
    good |= judgement.word == JUDGE_WAIT || judgement.word == JUDGE_GIVE_BACK;
  if (good && claim->claim.was_ready && !lease_tell(kubernetes, claim, 0, &sandbox))
    log_write(LOG_ERROR, "lease_not_told", LOG_TEXT("lease", sandbox.id), LOG_TEXT("detail", "out of memory"));
}

static void lease_end(struct kubernetes_backend *kubernetes, struct object *claim, enum backend_end end) {
  struct backend_sandbox sandbox;
  struct lease *lease = claim->attachment;
  bool named = lease_fill(kubernetes, claim, &sandbox);
  claim->attachment = NULL;
  memory_free(lease);
  if (named)
    kubernetes->events.ended(kubernetes->events.context, sandbox.id, end);
}

static void lease_check_lost(struct kubernetes_backend *kubernetes, struct object *claim) {
  struct lease *lease = claim->attachment;
  struct judge_facts facts;
  if (!lease || lease->lost)
    return;
  lease_facts(kubernetes, claim, &facts);
  if (!lease->pod_uid[0]) {
    if (facts.pod)
      snprintf(lease->pod_uid, sizeof lease->pod_uid, "%s", facts.pod->uid);
    return;
  }
  const char *why = judge_lost(lease->pod_uid, facts.sandbox, facts.pod);
  if (!why)
    return;
  struct backend_sandbox sandbox;
  if (lease_fill(kubernetes, claim, &sandbox)) {
    log_write(LOG_WARNING, "sandbox_lost", LOG_TEXT("lease", sandbox.id), LOG_TEXT("detail", why));
    lease->lost = true;
    kubernetes->events.ended(kubernetes->events.context, sandbox.id, BACKEND_END_LOST);
  }
  ending_begin(kubernetes, claim->name, claim->uid, NULL, NULL, NULL);
}

/* --- changes --- */

static void claim_gone(struct kubernetes_backend *kubernetes, struct object *claim, const char *uid) {
  struct lease *lease = claim->attachment;
  ending_seen(kubernetes, uid);
  if (!lease)
    return;
  if (lease->lost) {
    claim->attachment = NULL;
    memory_free(lease);
    return;
  }
  lease_end(kubernetes, claim, clock_boot() >= lease->deadline ? BACKEND_END_EXPIRED : BACKEND_END_RELEASED);
}

static void claim_changed(struct kubernetes_backend *kubernetes, struct object *before, struct object *after) {
  struct object *claim = after ? after : before;
  struct lease *lease = claim->attachment;
  struct backend_sandbox sandbox;
  if (!after || after->deleting || strcmp(after->claim.reason, "ClaimExpired") == 0)
    claim_gone(kubernetes, claim, claim->uid);
  else if (kubernetes->serving && lease && !lease->lost && before &&
           before->claim.expires_at != after->claim.expires_at && after->claim.expires_at != lease->expires_at)
    lease_tell(kubernetes, after, 0, &sandbox);
  acquire_wake(kubernetes, claim->name);
  if (after && kubernetes->serving)
    lease_consider(kubernetes, after);
}

/* The sandbox, the Pod or the node of a Claim changed. */
static void claim_touched(struct kubernetes_backend *kubernetes, const char *name) {
  struct object *claim = name[0] ? store_find(kubernetes->store, OBJECT_CLAIM, name) : NULL;
  if (!claim)
    return;
  lease_check_lost(kubernetes, claim);
  acquire_wake(kubernetes, claim->name);
  lease_consider(kubernetes, claim);
}

void lease_changed(void *context, struct object *before, struct object *after) {
  struct kubernetes_backend *kubernetes = context;
  const struct object *object = after ? after : before, *sandbox = NULL;
  if (object->kind == OBJECT_CLAIM) {
    claim_changed(kubernetes, before, after);
    return;
  }
  if (!kubernetes->serving)
    return;
  switch (object->kind) {
  case OBJECT_SANDBOX:
    claim_touched(kubernetes, object->sandbox.claim);
    break;
  case OBJECT_POD:
    sandbox = store_find(kubernetes->store, OBJECT_SANDBOX, object->pod.sandbox);
    if (sandbox)
      claim_touched(kubernetes, sandbox->sandbox.claim);
    break;
  case OBJECT_NODE:
    acquire_wake(kubernetes, NULL);
    break;
  case OBJECT_CLAIM:
  case OBJECT_POOL:
  case OBJECT_KINDS:
    break;
  }
}

/* --- all of them --- */

void lease_found_all(struct kubernetes_backend *kubernetes) {
  for (struct object *claim = NULL; (claim = store_next(kubernetes->store, OBJECT_CLAIM, claim));)
    lease_consider(kubernetes, claim);
}

void lease_sweep(struct kubernetes_backend *kubernetes) {
  int64_t now = kubernetes_wall(kubernetes);
  for (struct object *claim = NULL; (claim = store_next(kubernetes->store, OBJECT_CLAIM, claim));) {
    const struct lease *lease = claim->attachment;
    bool expired = claim->claim.managed && claim->claim.expires_at + CLAIM_SHUTDOWN_SLACK_SECONDS * CLOCK_SECOND <= now;
    bool over = expired && !(lease && lease->expires_at > claim->claim.expires_at);
    if (!claim->deleting && (over || (lease && lease->lost)) && !ending_knows(kubernetes, claim->uid))
      ending_begin(kubernetes, claim->name, claim->uid, NULL, NULL, NULL);
  }
}

void lease_forget_all(struct kubernetes_backend *kubernetes) {
  for (struct object *claim = NULL; (claim = store_next(kubernetes->store, OBJECT_CLAIM, claim));) {
    memory_free(claim->attachment);
    claim->attachment = NULL;
  }
}
