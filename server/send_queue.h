/*
 * Bytes of one or more streams on their way to a client, in order. What comes while a message is under way is
 * gathered, so that the next message carries all of it; each byte is copied once, on its way in. How much may wait is
 * the business of whoever fills the queue (the session's windows).
 *
 * Thread: the loop's.
 */
#ifndef SERVER_SEND_QUEUE_H
#define SERVER_SEND_QUEUE_H

#include <grpc/slice.h>
#include <stddef.h>
#include <stdint.h>

struct send_chunk;

struct send_queue {
  struct send_chunk *first, *last;
  size_t length; /* bytes waiting */
};

/* One message's worth: neighbouring bytes of one stream. slices[0] is left for the message's head. */
#define SEND_BATCH_SLICES 16
#define SEND_BATCH_BYTES 524288
struct send_batch {
  int stream;
  uint64_t offset; /* of the first byte in its stream */
  size_t length;
  size_t count; /* of slices, the head's included */
  grpc_slice slices[SEND_BATCH_SLICES];
};

/* A queue of zeros is empty. Frees what waits. */
void send_queue_clear(struct send_queue *queue);
/* Copies the bytes. Returns 0, or -1 without memory. */
int send_queue_append(struct send_queue *queue, int stream, uint64_t offset, const uint8_t *bytes, size_t length);
/* Takes the next batch out; the caller unrefs its slices from 1 on. Returns 0, or -1 if nothing waits. */
int send_queue_take(struct send_queue *queue, struct send_batch *batch);

#endif
