/*
 * What is kept of one output stream of a command: a ring of bytes with offsets in the whole stream. From the front:
 * bytes that were sent but may not have arrived (they are sent again if the connection breaks), then bytes not yet
 * sent. At most LIMIT_SPOOL_BYTES. It grows as it is needed and shrinks to nothing when it is empty.
 */
#ifndef BACKEND_SANDBOXD_SPOOL_H
#define BACKEND_SANDBOXD_SPOOL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct spool {
  uint8_t *bytes;
  size_t capacity; /* 0 or a power of two */
  uint64_t start;  /* offset of the oldest byte kept */
  uint64_t sent;   /* of the next byte to be sent */
  uint64_t end;    /* of the next byte to come */
};

/* A spool begins zeroed. Afterwards it is empty, with offsets kept. */
void spool_free(struct spool *spool);

/* Bytes that may still come in. */
size_t spool_room(const struct spool *spool);
size_t spool_unsent(const struct spool *spool);
/* Reads once from a non-blocking descriptor, at most `most` bytes and what there is room for (there must be some);
 * `available` is how many are there, as far as known. Returns their number, 0 at the end of the stream, or -1 with
 * errno (EAGAIN; ENOMEM). */
ssize_t spool_fill(struct spool *spool, int descriptor, size_t available, size_t most);
/* Copies the next `length` unsent bytes (there must be so many) and counts them as sent. */
void spool_take(struct spool *spool, uint8_t *out, size_t length);
/* Drops unsent bytes from the end. */
void spool_cut(struct spool *spool, uint64_t end);
/* Drops sent bytes until at most `keep` are left. */
void spool_forget(struct spool *spool, size_t keep);
/* Gives back the memory that what is kept does not need: nothing more is going to come. */
void spool_trim(struct spool *spool);
/* Makes `offset` the next byte to be sent. Returns 0, or -1 if it is no longer, or not yet, here. */
int spool_rewind(struct spool *spool, uint64_t offset);

#endif
