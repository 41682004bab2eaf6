/*
 * The ring behind one output stream: see spool.h.
 */
#include "backend/sandboxd/spool.h"

#include "base/limits.h"
#include "base/memory.h"
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

_Static_assert((LIMIT_SPOOL_BYTES & (LIMIT_SPOOL_BYTES - 1)) == 0, "the ring wants a power of two");

#define SPOOL_FIRST 4096         /* first capacity */
#define SPOOL_LEAST 64           /* of one that was trimmed */
#define SPOOL_WORTH_KEEPING 8192 /* an empty ring up to this size is not freed */

static size_t spool_length(const struct spool *spool) { return (size_t)(spool->end - spool->start); }

static size_t spool_index(const struct spool *spool, uint64_t offset) {
  return (size_t)(offset & (spool->capacity - 1));
}

void spool_free(struct spool *spool) {
  memory_free(spool->bytes);
  spool->bytes = NULL;
  spool->capacity = 0;
  spool->start = spool->sent = spool->end;
}

size_t spool_room(const struct spool *spool) { return LIMIT_SPOOL_BYTES - spool_length(spool); }

size_t spool_unsent(const struct spool *spool) { return (size_t)(spool->end - spool->sent); }

/* Copies bytes that are in the ring, which may lie around its end. */
static void spool_copy(const struct spool *spool, uint64_t offset, uint8_t *out, size_t length) {
  if (!length)
    return;
  size_t index = spool_index(spool, offset);
  size_t first = spool->capacity - index < length ? spool->capacity - index : length;
  memcpy(out, spool->bytes + index, first);
  memcpy(out + first, spool->bytes, length - first);
}

/* To a power of two that holds what is there. Returns 0, or -1 without memory: then all is as before. */
static int spool_resize(struct spool *spool, size_t capacity) {
  struct spool resized = *spool;
  resized.capacity = capacity;
  resized.bytes = memory_new(capacity);
  if (!resized.bytes)
    return -1;
  for (uint64_t offset = spool->start; offset < spool->end;) {
    size_t index = spool_index(&resized, offset), rest = (size_t)(spool->end - offset);
    size_t length = capacity - index < rest ? capacity - index : rest;
    spool_copy(spool, offset, resized.bytes + index, length);
    offset += length;
  }
  memory_free(spool->bytes);
  *spool = resized;
  return 0;
}

static size_t spool_capacity_for(size_t length, size_t least) {
  size_t capacity = least;
  while (capacity < length)
    capacity *= 2;
  return capacity;
}

/* Makes the capacity at least `wanted`, which is at most LIMIT_SPOOL_BYTES, a power of two itself. */
static int spool_grow(struct spool *spool, size_t wanted) {
  if (wanted <= spool->capacity)
    return 0;
  return spool_resize(spool, spool_capacity_for(wanted, spool->capacity ? spool->capacity : SPOOL_FIRST));
}

void spool_trim(struct spool *spool) {
  size_t capacity = spool_capacity_for(spool_length(spool), SPOOL_LEAST);
  if (spool->start == spool->end)
    spool_free(spool);
  else if (capacity < spool->capacity)
    spool_resize(spool, capacity); /* without memory it stays as it is */
}

ssize_t spool_fill(struct spool *spool, int descriptor, size_t available, size_t most) {
  size_t room = spool_room(spool);
  size_t length = available ? available : 1;
  length = length < most ? length : most;
  length = length < room ? length : room;
  if (spool_grow(spool, spool_length(spool) + length)) {
    errno = ENOMEM;
    return -1;
  }
  size_t index = spool_index(spool, spool->end);
  size_t first = spool->capacity - index < length ? spool->capacity - index : length;
  struct iovec parts[2] = {{spool->bytes + index, first}, {spool->bytes, length - first}};
  ssize_t got;
  do
    got = readv(descriptor, parts, length > first ? 2 : 1);
  while (got < 0 && errno == EINTR);
  if (got > 0)
    spool->end += (uint64_t)got;
  return got;
}

void spool_take(struct spool *spool, uint8_t *out, size_t length) {
  spool_copy(spool, spool->sent, out, length);
  spool->sent += length;
}

void spool_cut(struct spool *spool, uint64_t end) {
  if (end < spool->end)
    spool->end = end > spool->sent ? end : spool->sent;
}

void spool_forget(struct spool *spool, size_t keep) {
  if (spool->sent - spool->start > keep)
    spool->start = spool->sent - keep;
  if (spool->start == spool->end && spool->capacity > SPOOL_WORTH_KEEPING)
    spool_free(spool);
}

int spool_rewind(struct spool *spool, uint64_t offset) {
  if (offset < spool->start || offset > spool->end)
    return -1;
  spool->sent = offset;
  return 0;
}
