/*
 * SHA-256 and HMAC-SHA256 by OpenSSL's low-level SHA256 functions. They are deprecated in OpenSSL 3 in favour of EVP
 * and used all the same: a token is verified on every request, and an HMAC of such a short message costs EVP seven
 * times as much with a context of its own, and twice as much with a kept one, which no two threads may share
 * (tests/bench/base shows all three). A state is plain memory here, so that an HMAC key is hashed once and its two
 * states are copied for each message.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/digest.h"
#include "base/memory.h"
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <string.h>

enum { BLOCK_BYTES = 64 }; /* of SHA-256, for HMAC's padding */

_Static_assert(sizeof(SHA256_CTX) <= sizeof(struct digest), "a digest holds OpenSSL's state");
_Static_assert(_Alignof(SHA256_CTX) <= _Alignof(struct digest), "a digest is aligned for OpenSSL's state");

/* The state is only ever touched by OpenSSL, as what it is. */
static SHA256_CTX *digest_state(struct digest *digest) {
  return (SHA256_CTX *)(void *)digest->state;
}

void digest_start(struct digest *digest) {
  memset(digest, 0, sizeof *digest);
  SHA256_Init(digest_state(digest));
}

void digest_update(struct digest *digest, const void *bytes, size_t length) {
  if (length > 0)
    SHA256_Update(digest_state(digest), bytes, length);
}

void digest_finish(struct digest *digest, uint8_t out[static DIGEST_SIZE]) {
  SHA256_Final(out, digest_state(digest));
}

static void start_with_pad(struct digest *digest, const uint8_t block[static BLOCK_BYTES], uint8_t pad) {
  uint8_t padded[BLOCK_BYTES];
  for (size_t i = 0; i < sizeof padded; i++)
    padded[i] = block[i] ^ pad;
  digest_start(digest);
  digest_update(digest, padded, sizeof padded);
  memory_wipe(padded, sizeof padded);
}

void digest_key_set(struct digest_key *key, const void *secret, size_t length) {
  uint8_t block[BLOCK_BYTES] = {0};
  if (length > sizeof block) {
    struct digest digest;
    digest_start(&digest);
    digest_update(&digest, secret, length);
    digest_finish(&digest, block);
    memory_wipe(&digest, sizeof digest);
  } else if (length > 0) {
    memcpy(block, secret, length);
  }
  start_with_pad(&key->inner, block, 0x36);
  start_with_pad(&key->outer, block, 0x5C);
  memory_wipe(block, sizeof block);
}

void digest_hmac(const struct digest_key *key, const void *message, size_t length, uint8_t out[static DIGEST_SIZE]) {
  struct digest digest = key->inner;
  digest_update(&digest, message, length);
  digest_finish(&digest, out);
  digest = key->outer;
  digest_update(&digest, out, DIGEST_SIZE);
  digest_finish(&digest, out);
  memory_wipe(&digest, sizeof digest);
}

bool digest_equal(const void *a, const void *b, size_t length) {
  return CRYPTO_memcmp(a, b, length) == 0;
}
