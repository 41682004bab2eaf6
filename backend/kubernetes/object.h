/*
 * What the cache remembers of an object of the API server: a compact record, one block of memory, made from the
 * object's JSON. Only what a decision needs is kept. No I/O. Thread: any; an object belongs to one store.
 */
#ifndef KUBERNETES_OBJECT_H
#define KUBERNETES_OBJECT_H

#include "base/error.h"
#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum object_kind { OBJECT_CLAIM, OBJECT_SANDBOX, OBJECT_POD, OBJECT_POOL, OBJECT_NODE, OBJECT_KINDS };

/* "SandboxClaim", … Static. */
const char *object_kind_name(enum object_kind kind);

/* Names are at most 253 bytes (a DNS subdomain); of messages for the log the first 200 are kept. */
enum { OBJECT_NAME_BYTES = 253, OBJECT_MESSAGE_BYTES = 200 };

/* Strings are never NULL: "" is what the object does not say. */
struct claim_facts {
  const char *scope, *consumer, *idempotency; /* labels; "" on a Claim that is not of this platform */
  const char *pool;                           /* annotation pool-name */
  const char *attempt;                        /* annotation attempt: which acquire made it */
  const char *warm_pool;                      /* spec.warmPoolRef.name */
  const char *sandbox;                        /* status.sandbox.name, else the annotation that assigns one */
  const char *reason, *message;               /* of the Ready condition, unless it is True */
  int64_t created_at, expires_at;             /* annotations: wall nanoseconds by the API server's clock; 0: not said */
  bool managed;                               /* has the label, and every label and annotation it must have */
  bool ready;                                 /* the Ready condition is True */
  bool was_ready;                             /* the controller noted that it once was */
};

struct sandbox_facts {
  const char *claim, *claim_uid; /* the controlling owner, if it is a SandboxClaim */
  const char *warm_pool;         /* the controlling owner, if it is a SandboxWarmPool */
  const char *pod;               /* the annotation, else the sandbox's own name */
  const char *reason, *message;  /* of the Ready condition, unless it is True */
  bool ready;                    /* the Ready condition is True, and it shall run */
};

enum pod_phase { POD_UNKNOWN, POD_PENDING, POD_RUNNING, POD_SUCCEEDED, POD_FAILED };

struct pod_facts {
  const char *sandbox, *sandbox_uid; /* the controlling owner, if it is a Sandbox */
  const char *node;
  const char *address;    /* status.podIP */
  const char *runtime;    /* spec.runtimeClassName */
  const char *containers; /* names of spec.containers, each behind a "/": "/shell/proxy" */
  const char *waiting;    /* why the first waiting container waits: "ImagePullBackOff" */
  const char *reason;     /* status.reason ("Evicted"), or how its last container ended */
  const char *message;    /* of what holds it up, for the log */
  enum pod_phase phase;
  bool ready;         /* the Ready condition is True */
  bool unschedulable; /* the scheduler found no node */
};

struct pool_facts {
  int64_t desired, ready; /* spec.replicas, status.readyReplicas */
};

struct node_facts {
  bool cordoned; /* spec.unschedulable */
  bool ready;    /* the Ready condition is True */
};

struct object {
  enum object_kind kind;
  bool deleting;           /* has a deletionTimestamp */
  unsigned epoch;          /* the store's: the list in which it was last seen */
  uint64_t seen;           /* the store's: when this uid first appeared; equal for those of one list */
  struct object *chain[2]; /* the store's: by name; a Claim by idempotency label too */
  void *attachment;        /* of a Claim: its owner's; moves to the successor */
  const char *name, *uid;
  union {
    struct claim_facts claim;
    struct sandbox_facts sandbox;
    struct pod_facts pod;
    struct pool_facts pool;
    struct node_facts node;
  };
};

/* Makes the record of one object, free with memory_free. NULL and *err: no memory, or the object is not one
 * (REASON_INTERNAL; the detail names the field). */
struct object *object_decode(enum object_kind kind, const struct json *json, struct error **err);
/* Bytes it takes. */
size_t object_size(const struct object *object);
/* Does the Pod have a container of that name? "" asks for any. */
bool object_has_container(const struct object *pod, const char *name);

#endif
