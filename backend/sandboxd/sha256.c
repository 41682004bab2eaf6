/*
 * SHA-256: see sha256.h.
 */
#define OPENSSL_API_COMPAT 0x10101000L /* the low-level functions are deprecated, and wanted for their size */

#include "backend/sandboxd/sha256.h"

#include <openssl/sha.h>

_Static_assert(sizeof(SHA256_CTX) <= sizeof(struct sha256), "state is too small");

static SHA256_CTX *sha256_context(struct sha256 *sha256) { return (SHA256_CTX *)(void *)sha256->state; }

void sha256_start(struct sha256 *sha256) { SHA256_Init(sha256_context(sha256)); }

void sha256_update(struct sha256 *sha256, const void *bytes, size_t length) {
  SHA256_Update(sha256_context(sha256), bytes, length);
}

void sha256_finish(struct sha256 *sha256, uint8_t out[static SHA256_SIZE]) { SHA256_Final(out, sha256_context(sha256)); }
