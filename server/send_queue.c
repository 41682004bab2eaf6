/*
 * Bytes on their way to a client: a list of chunks. A chunk that was taken lives on as a slice of its message.
 */
#include "server/send_queue.h"

#include "base/memory.h"
#include <stdbool.h>
#include <string.h>

/* Chunks that gather small pieces grow up to so many bytes. */
enum { CHUNK_MIN = 64, CHUNK_GATHER_MAX = 32768 };

struct send_chunk {
  struct send_chunk *next;
  uint64_t offset;
  size_t length, capacity;
  int stream;
  uint8_t bytes[];
};

void send_queue_clear(struct send_queue *queue) {
  for (struct send_chunk *chunk = queue->first, *next; chunk; chunk = next) {
    next = chunk->next;
    memory_free(chunk);
  }
  *queue = (struct send_queue){0};
}

/* Are these bytes the neighbours of the last ones? */
static bool chunk_continues(const struct send_chunk *chunk, int stream, uint64_t offset) {
  return chunk && chunk->stream == stream && chunk->offset + chunk->length == offset;
}

static struct send_chunk *chunk_new(const struct send_queue *queue, int stream, uint64_t offset, size_t length) {
  size_t capacity = length > CHUNK_MIN ? length : CHUNK_MIN;
  /* The further a run of small pieces goes on, the larger the chunks that gather it. */
  if (chunk_continues(queue->last, stream, offset)) {
    size_t gathering = queue->last->capacity < CHUNK_GATHER_MAX / 2 ? queue->last->capacity * 2 : CHUNK_GATHER_MAX;
    if (capacity < gathering)
      capacity = gathering;
  }
  struct send_chunk *chunk = memory_new(sizeof(*chunk) + capacity);
  if (chunk)
    *chunk = (struct send_chunk){.offset = offset, .capacity = capacity, .stream = stream};
  return chunk;
}

static void chunk_fill(struct send_chunk *chunk, const uint8_t *bytes, size_t length) {
  memcpy(chunk->bytes + chunk->length, bytes, length);
  chunk->length += length;
}

int send_queue_append(struct send_queue *queue, int stream, uint64_t offset, const uint8_t *bytes, size_t length) {
  if (length == 0)
    return 0;
  if (length > SIZE_MAX / 2)
    return -1;
  size_t room = chunk_continues(queue->last, stream, offset) ? queue->last->capacity - queue->last->length : 0;
  size_t fitting = room < length ? room : length;
  size_t rest = length - fitting;
  struct send_chunk *added = NULL;
  if (rest > 0) {
    added = chunk_new(queue, stream, offset + fitting, rest);
    if (!added)
      return -1;
    chunk_fill(added, bytes + fitting, rest);
  }
  if (fitting > 0)
    chunk_fill(queue->last, bytes, fitting);
  if (added) {
    if (queue->last)
      queue->last->next = added;
    else
      queue->first = added;
    queue->last = added;
  }
  queue->length += length;
  return 0;
}

int send_queue_take(struct send_queue *queue, struct send_batch *batch) {
  if (!queue->first)
    return -1;
  *batch = (struct send_batch){.stream = queue->first->stream, .offset = queue->first->offset, .count = 1};
  while (queue->first && batch->count < SEND_BATCH_SLICES) {
    struct send_chunk *chunk = queue->first;
    if (chunk->stream != batch->stream || chunk->offset != batch->offset + batch->length)
      break;
    if (batch->length > 0 && chunk->length > SEND_BATCH_BYTES - batch->length)
      break;
    queue->first = chunk->next;
    queue->length -= chunk->length;
    batch->length += chunk->length;
    batch->slices[batch->count++] = grpc_slice_new_with_user_data(chunk->bytes, chunk->length, memory_free, chunk);
  }
  if (!queue->first)
    queue->last = NULL;
  return 0;
}
