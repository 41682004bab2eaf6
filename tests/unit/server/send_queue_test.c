/*
 * Bytes of two streams go through the queue in pieces of any size; what comes out is the same bytes, in order, in
 * batches that never mix streams or skip a byte.
 */
#include "server/send_queue.h"

#include "base/memory.h"
#include "tests/unit/server/check.h"
#include <stdlib.h>
#include <string.h>

enum { TOTAL = 3000000, PIECE_MAX = 150000 };

static uint8_t byte_at(int stream, uint64_t offset) {
  return (uint8_t)(offset * 31 + offset / 251 + (uint64_t)stream * 17);
}

static void batch_check(struct send_batch *batch, uint64_t taken[3]) {
  assert_true(batch->length > 0);
  assert_true(batch->count >= 2 && batch->count <= SEND_BATCH_SLICES);
  assert_int_equal(batch->offset, taken[batch->stream]);
  size_t length = 0;
  for (size_t i = 1; i < batch->count; i++) {
    const uint8_t *bytes = GRPC_SLICE_START_PTR(batch->slices[i]);
    for (size_t j = 0; j < GRPC_SLICE_LENGTH(batch->slices[i]); j++)
      if (bytes[j] != byte_at(batch->stream, batch->offset + length + j))
        fail_msg("stream %d differs at %zu", batch->stream, (size_t)batch->offset + length + j);
    length += GRPC_SLICE_LENGTH(batch->slices[i]);
    grpc_slice_unref(batch->slices[i]);
  }
  assert_int_equal(length, batch->length);
  taken[batch->stream] += length;
}

static void test_random_pieces(void **state) {
  (void)state;
  struct send_queue queue = {0};
  uint64_t random = 11, given[3] = {0}, taken[3] = {0};
  uint8_t *piece = malloc(PIECE_MAX);
  assert_non_null(piece);
  while (given[1] + given[2] < TOTAL) {
    int stream = 1 + (int)(check_random(&random) % 2);
    /* Mostly small ones. */
    size_t length = check_random(&random) % (check_random(&random) % 50 == 0 ? PIECE_MAX : 300);
    for (size_t i = 0; i < length; i++)
      piece[i] = byte_at(stream, given[stream] + i);
    assert_int_equal(send_queue_append(&queue, stream, given[stream], piece, length), 0);
    given[stream] += length;
    assert_int_equal(queue.length, given[1] + given[2] - taken[1] - taken[2]);
    struct send_batch batch;
    while (check_random(&random) % 20 == 0 && send_queue_take(&queue, &batch) == 0)
      batch_check(&batch, taken);
  }
  for (struct send_batch batch; send_queue_take(&queue, &batch) == 0;)
    batch_check(&batch, taken);
  assert_int_equal(taken[1], given[1]);
  assert_int_equal(taken[2], given[2]);
  assert_int_equal(queue.length, 0);
  free(piece);
}

/* A run of single bytes is gathered into few chunks, and one batch carries it. */
static void test_small_pieces_are_gathered(void **state) {
  (void)state;
  struct send_queue queue = {0};
  uint64_t taken[3] = {0};
  memory_fail_after(0, 0);
  for (uint64_t i = 0; i < 100000; i++) {
    uint8_t byte = byte_at(1, i);
    assert_int_equal(send_queue_append(&queue, 1, i, &byte, 1), 0);
  }
  assert_true(memory_fail_after(0, 0) < 20);
  struct send_batch batch;
  assert_int_equal(send_queue_take(&queue, &batch), 0);
  assert_int_equal(batch.length, 100000);
  batch_check(&batch, taken);
  assert_int_equal(send_queue_take(&queue, &batch), -1);
}

/* Without memory the queue is as it was. */
static void test_no_memory(void **state) {
  (void)state;
  struct send_queue queue = {0};
  uint8_t bytes[100];
  uint64_t taken[3] = {0};
  for (size_t i = 0; i < sizeof(bytes); i++)
    bytes[i] = byte_at(1, i);
  assert_int_equal(send_queue_append(&queue, 1, 0, bytes, 50), 0);
  memory_fail_after(1, 0);
  assert_int_equal(send_queue_append(&queue, 1, 50, bytes + 50, 50), -1);
  memory_fail_after(0, 0);
  assert_int_equal(queue.length, 50);
  assert_int_equal(send_queue_append(&queue, 1, 50, bytes + 50, 50), 0);
  struct send_batch batch;
  assert_int_equal(send_queue_take(&queue, &batch), 0);
  assert_int_equal(batch.length, 100);
  batch_check(&batch, taken);
  send_queue_clear(&queue);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_random_pieces),
    cmocka_unit_test(test_small_pieces_are_gathered),
    cmocka_unit_test(test_no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
