/*
 * List cursors: sealed with AES-256-GCM, so that a Consumer can neither read nor make one (contract §5). Thread: any.
 */
#ifndef BASE_CURSOR_H
#define BASE_CURSOR_H

#include "base/error.h"
#include "base/identity.h"
#include "base/limits.h"
#include <stddef.h>
#include <stdint.h>

/* What a cursor binds. */
struct cursor {
  char scope[LABEL_SIZE];
  char pool[LIMIT_POOL_NAME_BYTES + 1]; /* "" is every Pool */
  uint32_t limit;
  int64_t first_page;                /* wall nanoseconds */
  int64_t created;                   /* position: the last Lease that was given, by time … */
  char id[LIMIT_LEASE_ID_BYTES + 1]; /* … and id */
};

/* The sealing key, made from the metadata secret. */
struct cursor_key {
  uint8_t bytes[32];
};
void cursor_key_set(struct cursor_key *key, const void *metadata_secret, size_t length);

/* Base64url text; the caller frees with memory_free. NULL and *err without memory. */
char *cursor_seal(const struct cursor_key *key, const struct cursor *cursor, struct error **err);
/* Returns 0, or -1 and REASON_INVALID_CURSOR for anything that cursor_seal did not make with this key. The caller
 * compares scope, pool and limit. */
int cursor_open(const struct cursor_key *key, const char *text, size_t length, struct cursor *cursor,
                struct error **err);

#endif
