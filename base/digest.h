/*
 * SHA-256, HMAC-SHA256 and comparison that takes the same time whatever differs (OpenSSL). Thread: any.
 */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIGEST_SIZE 32

/* A SHA-256 in progress. Holds no memory of its own: it may be copied and dropped. */
struct digest {
  uint64_t state[16];
};
void digest_start(struct digest *digest);
void digest_update(struct digest *digest, const void *bytes, size_t length);
void digest_finish(struct digest *digest, uint8_t out[static DIGEST_SIZE]);

/* A key prepared once for many messages. Wipe with memory_wipe. */
struct digest_key {
  struct digest inner, outer;
};
void digest_key_set(struct digest_key *key, const void *secret, size_t length);
void digest_hmac(const struct digest_key *key, const void *message, size_t length, uint8_t out[static DIGEST_SIZE]);

bool digest_equal(const void *a, const void *b, size_t length);

/* From the kernel; aborts the process if there is none to be had. Part of //base:core: needs libc alone. */
void random_bytes(void *out, size_t length);

#endif
