/*
 * A Lease as a SandboxClaim: names, ids, labels, annotations, the body that makes one (contract §9). No I/O. Thread:
 * any.
 *
 * A Claim is named "lease-" and 20 hexadecimal digits of an HMAC over its idempotency label and a generation, so that
 * the API server's uniqueness of names is the lock between replicas. The Lease's id is that name and the first 12
 * digits of the Claim's uid: a name may come again, an id never. Claims that the reference platform made are named
 * by their Lease's id ("lease-" and 32 digits).
 */
#ifndef KUBERNETES_CLAIM_H
#define KUBERNETES_CLAIM_H

#include "base/digest.h"
#include "base/identity.h"
#include "base/limits.h"
#include <stdbool.h>
#include <stdint.h>

struct buffer;
struct object;

#define CLAIM_PREFIX "sandbox.geminixiang.dev/"
#define CLAIM_LABEL_MANAGED CLAIM_PREFIX "managed"
#define CLAIM_LABEL_SCOPE CLAIM_PREFIX "scope"
#define CLAIM_LABEL_CONSUMER CLAIM_PREFIX "consumer"
#define CLAIM_LABEL_IDEMPOTENCY CLAIM_PREFIX "idempotency"
#define CLAIM_LABEL_POOL CLAIM_PREFIX "pool"
#define CLAIM_POOL_NAME CLAIM_PREFIX "pool-name"
#define CLAIM_CREATED_AT CLAIM_PREFIX "created-at"
#define CLAIM_EXPIRES_AT CLAIM_PREFIX "expires-at"
#define CLAIM_ATTEMPT CLAIM_PREFIX "attempt"
/* The controller's own: which sandbox it has chosen, and when that was first ready. */
#define CLAIM_ASSIGNED "agents.x-k8s.io/sandbox-name"
#define CLAIM_FIRST_READY "agents.x-k8s.io/claim-first-ready-at"

enum {
  CLAIM_NAME_SIZE = 6 + 20 + 1,
  CLAIM_ATTEMPT_SIZE = 16 + 1,
  CLAIM_SHUTDOWN_SLACK_SECONDS = 5, /* the cluster ends what the platform did not end by then */
  CLAIM_BODY_BYTES = 4096,
};

/* The name of the Claim for this idempotency label, in its n-th generation. 0, or -1 without memory. */
int claim_name(const struct digest_key *metadata_key, const char *idempotency, unsigned generation,
               char name[static CLAIM_NAME_SIZE]);

/* The Lease id of a Claim. Returns false if its name is of neither kind. */
bool claim_lease_id(const char *name, const char *uid, char id[static LIMIT_LEASE_ID_BYTES + 1]);
/* The two names that the Claim of a Lease id can have: ours; the reference platform's is the id itself. False if it is
 * no id. */
bool claim_name_of_id(const char *id, char name[static CLAIM_NAME_SIZE]);

struct claim_order {
  const char *name;
  const char *pool;                                        /* the Consumer's word for it */
  const char *warm_pool;                                   /* the SandboxWarmPool */
  const char *scope, *consumer, *idempotency, *pool_label; /* labels */
  const char *attempt;            /* random hexadecimal digits: whose Claim it is when an answer got lost */
  int64_t created_at, expires_at; /* wall nanoseconds by the API server's clock */
};

/* Appends the JSON of the Claim. 0, or -1 when the buffer is full or there is no memory. */
int claim_encode(struct buffer *out, const struct claim_order *order);
/* Appends a merge patch that moves a Claim's end. */
int claim_encode_expiry(struct buffer *out, const char *uid, int64_t expires_at);
/* Appends the DeleteOptions that end a Claim: in the foreground, and only the one of this uid. */
int claim_encode_delete(struct buffer *out, const char *uid);

#endif
