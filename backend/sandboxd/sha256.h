/*
 * SHA-256, by libcrypto's low-level functions: they use the processor's SHA instructions and bring nothing else of libcrypto
 * into a static program.
 */
#ifndef BACKEND_SANDBOXD_SHA256_H
#define BACKEND_SANDBOXD_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_SIZE 32

/* Holds no memory of its own. */
struct sha256 {
  uint64_t state[14];
};

void sha256_start(struct sha256 *sha256);
void sha256_update(struct sha256 *sha256, const void *bytes, size_t length);
void sha256_finish(struct sha256 *sha256, uint8_t out[static SHA256_SIZE]);

#endif
