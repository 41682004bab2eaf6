/*
 * Random bytes from the kernel. In //base:core, since the agent inside a sandbox needs them and has no OpenSSL.
 */
#include "base/digest.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

void random_bytes(void *out, size_t length) {
  uint8_t *at = out;
  while (length > 0) {
    ssize_t got = getrandom(at, length, 0);
    if (got < 0 && errno == EINTR)
      continue;
    /* Keys and nonces that can be guessed are worse than no process. */
    if (got <= 0)
      abort();
    at += got;
    length -= (size_t)got;
  }
}
