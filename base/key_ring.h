/*
 * Of base/identity alone: how a token's signature is checked against the secrets of a Consumer that may not exist.
 */
#ifndef BASE_KEY_RING_H
#define BASE_KEY_RING_H

#include "base/identity.h"
#include <stdbool.h>

/* True if `signature` is the HMAC-SHA256 of `message` under one of the Consumer's secrets. Does the same work for every
 * Consumer, known or not. */
bool key_ring_verify(const struct key_ring *ring, const char *consumer, size_t consumer_length, const char *message,
                     size_t message_length, const uint8_t signature[static DIGEST_SIZE]);

/* The rule for both identities: 1 to LIMIT_IDENTITY_CHARACTERS characters, not all blank, no U+0000. `text` is valid
 * UTF-8. */
bool identity_valid(const char *text, size_t length);

#endif
