/*
 * What the state of a cluster means for one Claim: wait, ready, give it back, or fail, and why. Pure. Thread: any.
 *
 * A name in a Claim's status is no readiness: a warm sandbox may be bound before it is ready, on a node that is about
 * to go. Ready is: the sandbox is owned by this Claim, which is what binds the two, and is Ready; its Pod is its own,
 * runs, is itself Ready and is not going away; its node is not cordoned and is Ready; runtime and container are the
 * Pool's. The sandbox's condition need not be of its latest generation: binding changes labels in its spec, and the
 * Pod's own condition, which is looked at too, is what it mirrors.
 */
#ifndef KUBERNETES_JUDGE_H
#define KUBERNETES_JUDGE_H

#include "backend/kubernetes/object.h"
#include "backend/kubernetes/settings.h"
#include "base/error.h"
#include <stdint.h>

enum judge_word {
  JUDGE_WAIT,      /* for the next change, or until `again` */
  JUDGE_READY,     /* it can be handed out */
  JUDGE_GIVE_BACK, /* this sandbox will not do; another may */
  JUDGE_FAIL,      /* no other will do either */
  JUDGE_GONE,      /* the Claim is being deleted or has expired */
};

struct judgement {
  enum judge_word word;
  enum reason reason; /* of giving back and failing; while waiting: what a timeout now would be called */
  char detail[320];   /* for the log */
  int64_t again;      /* boot clock: when to judge again though nothing changed; 0: never */
};

/* What is known; NULL: the cache has no such object. `claim` is not NULL. */
struct judge_facts {
  const struct object *claim, *sandbox, *pod, *node, *warm_pool;
  const struct pool_settings *pool;
  int64_t now;               /* boot clock */
  int64_t exhausted_timeout; /* of the settings */
};

/* stuck_since: kept by the caller from judgement to judgement of one Claim, 0 at first: since when (boot clock)
 * something that may pass has held it up. */
void judge_claim(const struct judge_facts *facts, int64_t *stuck_since, struct judgement *judgement);

/* Whether the sandbox of a Lease that was handed out has lost what was in it: `pod_uid` is that of its Pod then.
 * Returns NULL while it has not, else why (static). pod NULL: the cache has none. */
const char *judge_lost(const char *pod_uid, const struct object *sandbox, const struct object *pod);

#endif
