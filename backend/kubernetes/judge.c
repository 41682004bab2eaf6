#include "backend/kubernetes/judge.h"

#include <stdio.h>
#include <string.h>

static void say(struct judgement *judgement, enum judge_word word, enum reason reason, const char *what,
                const char *why) {
  judgement->word = word;
  judgement->reason = reason;
  snprintf(judgement->detail, sizeof judgement->detail, "%s%s%s", what, why[0] ? ": " : "", why);
}

static bool is_one_of(const char *word, const char *const *words) {
  for (; *words; words++)
    if (strcmp(word, *words) == 0)
      return true;
  return false;
}

/* Something that may pass by itself: wait, but not longer than the patience. */
static void hold(const struct judge_facts *facts, int64_t *stuck_since, struct judgement *judgement, enum reason reason,
                 const char *what, const char *why) {
  if (*stuck_since == 0)
    *stuck_since = facts->now;
  int64_t end = *stuck_since + facts->exhausted_timeout;
  if (facts->now >= end) {
    say(judgement, JUDGE_FAIL, reason, what, why);
    return;
  }
  say(judgement, JUDGE_WAIT, reason, what, why);
  judgement->again = end;
}

/* --- before there is a Pod --- */

/* The controller's word on a Claim that has no sandbox yet. */
static void judge_unbound(const struct judge_facts *facts, int64_t *stuck_since, struct judgement *judgement) {
  static const char *const broken[] = {"TemplateNotFound",         "WarmPoolNotFound",          "InvalidMetadata",
                                       "EnvVarsInjectionRejected", "VolumeClaimTemplatesError", NULL};
  const struct claim_facts *claim = &facts->claim->claim;
  if (is_one_of(claim->reason, broken)) {
    hold(facts, stuck_since, judgement, REASON_SANDBOX_START_FAILED, claim->reason, claim->message);
  } else if (strcmp(claim->reason, "ReconcilerError") == 0) {
    hold(facts, stuck_since, judgement, REASON_SANDBOX_START_FAILED, "the controller cannot make a sandbox",
         claim->message);
  } else if (!claim->reason[0]) {
    say(judgement, JUDGE_WAIT, REASON_SANDBOX_READY_TIMEOUT, "the controller has not looked at the Claim", "");
  } else {
    say(judgement, JUDGE_WAIT, REASON_SANDBOX_READY_TIMEOUT, "the Claim has no sandbox", claim->reason);
  }
}

static void judge_without_pod(const struct judge_facts *facts, int64_t *stuck_since, struct judgement *judgement) {
  const struct sandbox_facts *sandbox = &facts->sandbox->sandbox;
  if (strcmp(sandbox->reason, "ReconcilerError") == 0)
    hold(facts, stuck_since, judgement, REASON_SANDBOX_START_FAILED, "the controller cannot make a Pod",
         sandbox->message);
  else if (sandbox->ready)
    hold(facts, stuck_since, judgement, REASON_SANDBOX_POD_NOT_FOUND, "the sandbox is Ready and has no Pod",
         facts->sandbox->name);
  else
    say(judgement, JUDGE_WAIT, REASON_SANDBOX_READY_TIMEOUT, "the sandbox has no Pod", sandbox->reason);
}

/* --- the Pod --- */

static bool judge_verified(const struct judge_facts *facts, struct judgement *judgement) {
  const struct pod_facts *pod = &facts->pod->pod;
  if (strcmp(pod->runtime, facts->pool->runtime) != 0) {
    say(judgement, JUDGE_FAIL, REASON_RUNTIME_CLASS_MISMATCH, "the Pod's RuntimeClass is",
        pod->runtime[0] ? pod->runtime : "none");
    return false;
  }
  if (!object_has_container(facts->pod, facts->pool->container)) {
    say(judgement, JUDGE_FAIL, REASON_SANDBOX_CONTAINER_NOT_FOUND, "the Pod has no container", facts->pool->container);
    return false;
  }
  return true;
}

/* A Pod that has not started. */
static void judge_pending(const struct judge_facts *facts, int64_t *stuck_since, struct judgement *judgement) {
  static const char *const broken[] = {"ImagePullBackOff",           "InvalidImageName",
                                       "ErrImageNeverPull",          "ImageInspectError",
                                       "CrashLoopBackOff",           "CreateContainerError",
                                       "RunContainerError",          "StartError",
                                       "CreateContainerConfigError", NULL};
  const struct pod_facts *pod = &facts->pod->pod;
  if (pod->unschedulable)
    hold(facts, stuck_since, judgement, REASON_POOL_EXHAUSTED, "no node takes the Pod", pod->message);
  else if (is_one_of(pod->waiting, broken))
    say(judgement, JUDGE_FAIL, REASON_SANDBOX_START_FAILED, pod->waiting, pod->message);
  else
    say(judgement, JUDGE_WAIT, REASON_SANDBOX_READY_TIMEOUT, "the Pod does not run", pod->waiting);
}

/* Whether this sandbox is one that is about to go. A node that is not known is not judged. */
static bool judge_leaving(const struct judge_facts *facts, struct judgement *judgement) {
  const struct object *pod = facts->pod, *node = facts->node;
  const char *what = facts->sandbox->deleting      ? "the sandbox is being deleted"
                     : pod && pod->deleting        ? "the Pod is being deleted"
                     : node && node->deleting      ? "the node is being deleted"
                     : node && node->node.cordoned ? "the node is cordoned"
                     : node && !node->node.ready   ? "the node is not Ready"
                                                   : NULL;
  if (!what)
    return false;
  say(judgement, JUDGE_GIVE_BACK, REASON_POOL_EXHAUSTED, what, node ? node->name : "");
  return true;
}

static void judge_pod(const struct judge_facts *facts, int64_t *stuck_since, struct judgement *judgement) {
  const struct pod_facts *pod = &facts->pod->pod;
  if (strcmp(pod->sandbox_uid, facts->sandbox->uid) != 0) {
    say(judgement, JUDGE_WAIT, REASON_SANDBOX_POD_NOT_FOUND, "the Pod is not the sandbox's own", facts->pod->name);
  } else if (pod->phase == POD_FAILED || pod->phase == POD_SUCCEEDED) {
    say(judgement, JUDGE_GIVE_BACK, REASON_SANDBOX_START_FAILED, "the Pod has ended", pod->reason);
  } else if (!judge_verified(facts, judgement)) {
    return;
  } else if (pod->phase != POD_RUNNING || !pod->ready) {
    judge_pending(facts, stuck_since, judgement);
  } else if (!facts->sandbox->sandbox.ready) {
    say(judgement, JUDGE_WAIT, REASON_SANDBOX_NOT_READY, "the Pod runs, the sandbox is not Ready",
        facts->sandbox->sandbox.reason);
  } else {
    say(judgement, JUDGE_READY, REASON_NONE, "", "");
  }
}

void judge_claim(const struct judge_facts *facts, int64_t *stuck_since, struct judgement *judgement) {
  const struct claim_facts *claim = &facts->claim->claim;
  const struct object *sandbox = facts->sandbox;
  *judgement = (struct judgement){.word = JUDGE_WAIT};
  int64_t stuck_before = *stuck_since;
  if (facts->claim->deleting || strcmp(claim->reason, "ClaimExpired") == 0)
    say(judgement, JUDGE_GONE, REASON_SANDBOX_START_FAILED, "the Claim was deleted", "");
  else if (!claim->sandbox[0])
    judge_unbound(facts, stuck_since, judgement);
  else if (!sandbox || strcmp(sandbox->sandbox.claim_uid, facts->claim->uid) != 0)
    say(judgement, JUDGE_WAIT, REASON_SANDBOX_READY_TIMEOUT, "the sandbox has not passed to the Claim", claim->sandbox);
  else if (strcmp(sandbox->sandbox.reason, "MultiplePods") == 0)
    say(judgement, JUDGE_GIVE_BACK, REASON_SANDBOX_START_FAILED, "the sandbox has several Pods", "");
  else if (judge_leaving(facts, judgement))
    return;
  else if (!facts->pod)
    judge_without_pod(facts, stuck_since, judgement);
  else
    judge_pod(facts, stuck_since, judgement);
  if (judgement->word == JUDGE_WAIT && judgement->again == 0 && *stuck_since == stuck_before)
    *stuck_since = 0; /* what held it up has passed */
}

const char *judge_lost(const char *pod_uid, const struct object *sandbox, const struct object *pod) {
  if (!sandbox)
    return "the sandbox is gone";
  if (!pod)
    return "the Pod is gone";
  if (strcmp(pod->uid, pod_uid) != 0)
    return "the Pod was replaced";
  if (pod->pod.phase == POD_FAILED)
    return strcmp(pod->pod.reason, "Evicted") == 0 ? "the Pod was evicted" : "the Pod failed";
  if (pod->pod.phase == POD_SUCCEEDED)
    return "the Pod ended";
  return NULL;
}
