/*
 * The Claim of an acquire: one of the same key that is known, or a new one. The API server's uniqueness of names lets
 * one process make a Claim of a key and generation.
 */
#include "backend/kubernetes/acquire.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include <stdio.h>
#include <string.h>

enum { CREATED = 201, CONFLICT = 409, MISSING = 404, FORBIDDEN = 403 };

static void pending_wait_for(struct backend_pending *pending, const struct object *claim) {
  snprintf(pending->name, sizeof pending->name, "%s", claim->name);
  snprintf(pending->uid, sizeof pending->uid, "%s", claim->uid);
  pending->own = pending->attempt[0] && strcmp(claim->claim.attempt, pending->attempt) == 0;
  if (strcmp(claim->claim.pool, pending->pool->name) != 0) {
    acquire_fail_detail(pending, REASON_IDEMPOTENCY_CONFLICT, "the key has a Lease in another Pool");
    return;
  }
  acquire_evaluate(pending);
}

/* A Claim by the name we wanted. */
static void on_existing(void *context, const struct api_answer *answer, struct error *failure) {
  struct backend_pending *pending = context;
  struct kubernetes_backend *kubernetes = pending->kubernetes;
  struct error *err = NULL;
  pending->call = NULL;
  if (failure && answer->code != MISSING) {
    error_set_detail(&err, error_reason(failure), "%s", error_detail(failure));
    acquire_fail(pending, err);
    return;
  }
  CLEANUP_JSON struct json *json = failure ? NULL : json_parse(answer->body, answer->length, &err);
  CLEANUP_MEMORY struct object *claim = json ? object_decode(OBJECT_CLAIM, json, &err) : NULL;
  if (err) {
    acquire_fail(pending, err);
  } else if (claim && lease_usable(kubernetes, claim) && strcmp(claim->claim.scope, pending->scope) == 0 &&
             strcmp(claim->claim.idempotency, pending->idempotency) == 0) {
    pending_wait_for(pending, claim);
  } else {
    pending->generation += claim != NULL;
    if (++pending->restarts > ACQUIRE_GENERATIONS_MAX)
      acquire_fail_detail(pending, REASON_SERVER_UNAVAILABLE, "no name is free for the Claim");
    else
      acquire_claim(pending);
  }
}

static void pending_look(struct backend_pending *pending) {
  char path[CLAIM_PATH_BYTES];
  if (kubernetes_claim_path(pending->kubernetes, pending->name, path) == 0)
    pending->call = api_send(
        pending->kubernetes->api,
        &(struct api_request){.method = "GET", .path = path, .deadline = clock_boot() + WRITE_TIMEOUT}, on_existing,
        pending);
  if (!pending->call)
    acquire_fail_memory(pending);
}

/* The uid of the Claim in an answer. */
static int uid_read(const struct api_answer *answer, char uid[static UID_SIZE], struct error **err) {
  CLEANUP_JSON struct json *json = json_parse(answer->body, answer->length, err);
  CLEANUP_MEMORY struct object *claim = json ? object_decode(OBJECT_CLAIM, json, err) : NULL;
  if (!claim)
    return -1;
  if (strlen(claim->uid) >= UID_SIZE)
    return error_set_detail(err, REASON_INTERNAL, "the uid of a Claim is too long");
  memcpy(uid, claim->uid, strlen(claim->uid) + 1);
  return 0;
}

static void pending_refused(struct backend_pending *pending, const struct api_answer *answer,
                            const struct error *failure) {
  enum reason reason = error_reason(failure);
  struct error *err = NULL;
  if (answer->code == FORBIDDEN && strstr(error_detail(failure), "exceeded quota"))
    reason = REASON_POOL_EXHAUSTED;
  error_set_detail(&err, reason, "%s", error_detail(failure));
  error_set_retry_after(err, error_retry_after(failure));
  acquire_fail(pending, err);
}

static void on_created(void *context, const struct api_answer *answer, struct error *failure) {
  struct backend_pending *pending = context;
  struct kubernetes_backend *kubernetes = pending->kubernetes;
  CLEANUP_ERROR struct error *err = NULL;
  bool taken = answer->code == CONFLICT && strcmp(answer->reason, "AlreadyExists") == 0;
  bool made = !failure && uid_read(answer, pending->uid, &err) == 0;
  pending->call = NULL;
  pending->own = made;
  /* Was it made, and we do not know? Or made by an attempt whose answer got lost? */
  if (!made && (!failure || answer->code == 0 || answer->code >= 500 || (taken && !pending->acquired)))
    ending_begin(kubernetes, pending->name, NULL, pending->attempt, NULL, NULL);
  if (!pending->acquired) {
    acquire_drop_claim(pending);
    acquire_free(pending);
  } else if (made) {
    acquire_evaluate(pending);
  } else if (taken) {
    pending_look(pending);
  } else {
    pending_refused(pending, answer, failure ? failure : err);
  }
}

static int pending_encode(struct backend_pending *pending, struct buffer *body) {
  int64_t now = kubernetes_wall(pending->kubernetes);
  uint8_t random[(CLAIM_ATTEMPT_SIZE - 1) / 2];
  random_bytes(random, sizeof random);
  text_hex(random, sizeof random, pending->attempt);
  return claim_encode(body, &(struct claim_order){.name = pending->name,
                                                  .pool = pending->pool->name,
                                                  .warm_pool = pending->pool->warm_pool,
                                                  .scope = pending->scope,
                                                  .consumer = pending->consumer,
                                                  .idempotency = pending->idempotency,
                                                  .pool_label = pending->pool->label,
                                                  .attempt = pending->attempt,
                                                  .created_at = now,
                                                  .expires_at = now + pending->ttl});
}

static void pending_create(struct backend_pending *pending) {
  struct kubernetes_backend *kubernetes = pending->kubernetes;
  char path[CLAIM_PATH_BYTES];
  CLEANUP_BUFFER struct buffer body;
  buffer_init(&body, CLAIM_BODY_BYTES);
  if (pending_encode(pending, &body) == 0 && kubernetes_claim_path(kubernetes, NULL, path) == 0)
    pending->call = api_send(
        kubernetes->api,
        &(struct api_request){
            .method = "POST", .path = path, .body = buffer_text(&body), .deadline = pending->deadline},
        on_created, pending);
  if (!pending->call)
    acquire_fail_memory(pending);
}

/* The first generation whose name the cache knows to be free. */
static int pending_name(struct backend_pending *pending) {
  const struct kubernetes_backend *kubernetes = pending->kubernetes;
  for (; pending->generation < ACQUIRE_GENERATIONS_MAX; pending->generation++) {
    if (claim_name(&kubernetes->settings.metadata_key, pending->idempotency, pending->generation, pending->name) < 0)
      return -1;
    if (!store_find(kubernetes->store, OBJECT_CLAIM, pending->name))
      return 0;
  }
  return -1;
}

void acquire_claim(struct backend_pending *pending) {
  struct kubernetes_backend *kubernetes = pending->kubernetes;
  const struct object *claim = NULL;
  pending->uid[0] = pending->attempt[0] = 0;
  pending->own = pending->seen = false;
  if (clock_boot() >= pending->deadline) {
    acquire_fail_detail(pending, REASON_SANDBOX_READY_TIMEOUT, "no time is left for another sandbox");
    return;
  }
  while ((claim = store_next_of_key(kubernetes->store, pending->idempotency, claim)))
    if (lease_usable(kubernetes, claim) && strcmp(claim->claim.scope, pending->scope) == 0) {
      pending_wait_for(pending, claim);
      return;
    }
  if (pending_name(pending) < 0)
    acquire_fail_memory(pending);
  else
    pending_create(pending);
}
