/*
 * Who calls: Subject tokens ("v1.<claims>.<signature>", contract §2) and the scope labels made from them (contract §9).
 * Thread: a key ring is built once and then only read, from any thread.
 */
#ifndef BASE_IDENTITY_H
#define BASE_IDENTITY_H

#include "base/digest.h"
#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

/* One caller. NUL-terminated; 200 characters are at most 800 bytes. */
struct identity {
  char consumer[801];
  char subject[801];
  int64_t expires; /* the token's `exp`, seconds since 1970 */
};

/* The secrets of every Consumer. */
struct key_ring;

/* From the JSON of SANDBOX_CONSUMER_SECRETS: an object, Consumer id → secret or list of at most
 * LIMIT_SECRETS_PER_CONSUMER secrets. NULL and *err (REASON_INTERNAL, detail without any secret) if it is malformed,
 * empty, names a Consumer twice or holds an empty secret. Free with key_ring_free, which wipes. */
struct key_ring *key_ring_parse(const char *json, size_t length, struct error **err);
void key_ring_free(struct key_ring *ring);

/* Verifies a token (the part behind "Bearer ") at `now` (wall seconds). Returns 0, or -1 and REASON_UNAUTHORIZED,
 * always with the same message and in a time that does not tell which Consumers exist; without memory
 * REASON_INTERNAL. */
int token_verify(const struct key_ring *ring, const char *token, size_t length, int64_t now, struct identity *identity,
                 struct error **err);
/* "Bearer <token>" as an `authorization` value: exactly this case and one space. As token_verify. */
int token_verify_bearer(const struct key_ring *ring, const char *value, size_t length, int64_t now,
                        struct identity *identity, struct error **err);
/* Mints a token; the caller frees it with memory_free. NULL and *err on bad identities or without memory. */
char *token_mint(const char *consumer, const char *subject, const char *secret, int64_t expires, struct error **err);

/* 40 lower-case hexadecimal digits: the first of HMAC-SHA256(metadata secret, JSON array of strings). */
#define LABEL_SIZE 41
/* parts: e.g. {"scope", consumer, subject}. The JSON is what JavaScript's JSON.stringify and Go's encoding/json (1.22
 * or later, SetEscapeHTML(false)) both give; where they differ, for U+2028 and U+2029, it is Go's. Returns 0, or -1
 * without memory. */
int label_make(const struct digest_key *metadata_key, const char *const *parts, size_t count,
               char label[static LABEL_SIZE]);

#endif
