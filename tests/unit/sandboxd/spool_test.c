/* The ring behind an output stream. */
#include "backend/sandboxd/spool.h"

#include "base/limits.h"
#include "tests/unit/sandboxd/check.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int pipe_ends[2];

static int open_pipe(void **state) {
  (void)state;
  if (pipe2(pipe_ends, O_NONBLOCK | O_CLOEXEC))
    return -1;
  return fcntl(pipe_ends[0], F_SETPIPE_SZ, 1 << 20) < 0;
}

static int close_pipe(void **state) {
  (void)state;
  close(pipe_ends[0]);
  return close(pipe_ends[1]);
}

/* The byte at each offset of the stream that the tests write. */
static uint8_t expected(uint64_t offset) { return (uint8_t)(offset * 31 + offset / 251); }

static void write_stream(uint64_t offset, size_t length) {
  uint8_t *bytes = malloc(length);
  assert_non_null(bytes);
  for (size_t i = 0; i < length; i++)
    bytes[i] = expected(offset + i);
  assert_int_equal(write(pipe_ends[1], bytes, length), length);
  free(bytes);
}

static void fill(struct spool *spool, size_t length) {
  write_stream(spool->end, length);
  assert_int_equal(spool_fill(spool, pipe_ends[0], length, length), length);
}

static void take(struct spool *spool, size_t length) {
  uint8_t *bytes = malloc(length);
  uint64_t offset = spool->sent;
  assert_non_null(bytes);
  spool_take(spool, bytes, length);
  for (size_t i = 0; i < length; i++)
    assert_int_equal(bytes[i], expected(offset + i));
  assert_int_equal(spool->sent, offset + length);
  free(bytes);
}

static void gives_back_what_came_across_the_end_of_the_ring(void **state) {
  struct spool spool = {0};
  (void)state;
  for (int i = 0; i < 100; i++) {
    fill(&spool, 3001);
    take(&spool, 1500);
    take(&spool, 1501);
    spool_forget(&spool, 100);
  }
  assert_int_equal(spool.end, 300100);
  assert_int_equal(spool.start, 300000);
  spool_free(&spool);
}

static void grows_around_its_end_without_mixing_bytes(void **state) {
  struct spool spool = {0};
  (void)state;
  fill(&spool, 4000);
  take(&spool, 3900);
  spool_forget(&spool, 0);
  fill(&spool, 3900); /* around the end of 4096 bytes */
  fill(&spool, 100000);
  take(&spool, 104000);
  spool_free(&spool);
}

static void stops_at_its_limit(void **state) {
  struct spool spool = {0};
  (void)state;
  for (int i = 0; i < 16; i++)
    fill(&spool, LIMIT_SPOOL_BYTES / 16);
  assert_int_equal(spool_room(&spool), 0);
  take(&spool, 1000);
  assert_int_equal(spool_room(&spool), 0);
  spool_forget(&spool, 400);
  assert_int_equal(spool_room(&spool), 600);
  write_stream(spool.end, 1000);
  assert_int_equal(spool_fill(&spool, pipe_ends[0], 1000, 1000), 600);
  take(&spool, LIMIT_SPOOL_BYTES - 400);
  spool_free(&spool);
}

static void sends_again_from_where_the_other_side_was(void **state) {
  struct spool spool = {0};
  (void)state;
  fill(&spool, 50000);
  take(&spool, 40000);
  spool_forget(&spool, 10000);
  assert_int_equal(spool_rewind(&spool, 29999), -1);
  assert_int_equal(spool_rewind(&spool, 50001), -1);
  assert_int_equal(spool_rewind(&spool, 30000), 0);
  assert_int_equal(spool_unsent(&spool), 20000);
  take(&spool, 20000);
  spool_free(&spool);
}

static void drops_unsent_bytes_from_the_end_only(void **state) {
  struct spool spool = {0};
  (void)state;
  fill(&spool, 1000);
  take(&spool, 600);
  spool_cut(&spool, 2000);
  assert_int_equal(spool.end, 1000);
  spool_cut(&spool, 700);
  assert_int_equal(spool.end, 700);
  spool_cut(&spool, 100);
  assert_int_equal(spool.end, 600);
  spool_free(&spool);
}

static void holds_no_memory_when_a_large_stream_was_sent(void **state) {
  struct spool spool = {0};
  (void)state;
  fill(&spool, 200000);
  take(&spool, 200000);
  spool_forget(&spool, 0);
  assert_null(spool.bytes);
  fill(&spool, 10);
  take(&spool, 10);
  spool_free(&spool);
}

static void keeps_every_byte_when_it_is_trimmed(void **state) {
  static const size_t kept[] = {0, 1, 63, 64, 65, 4095, 4097, 100000};
  (void)state;
  for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
    struct spool spool = {0};
    fill(&spool, 250001); /* so that the ring's end lies within what is kept */
    take(&spool, 250001);
    spool_forget(&spool, kept[i]);
    fill(&spool, 11);
    take(&spool, 11);
    spool_trim(&spool);
    assert_in_range(spool.capacity, kept[i] + 11, 2 * (kept[i] + 11) + 64);
    assert_int_equal(spool_rewind(&spool, 250001 - kept[i]), 0);
    take(&spool, kept[i] + 11);
    spool_forget(&spool, 0);
    spool_trim(&spool);
    assert_null(spool.bytes);
    assert_int_equal(spool.end, 250012);
  }
}

static void tells_the_end_and_an_empty_pipe_apart(void **state) {
  struct spool spool = {0};
  (void)state;
  assert_int_equal(spool_fill(&spool, pipe_ends[0], 0, 100), -1);
  assert_int_equal(errno, EAGAIN);
  close(pipe_ends[1]);
  assert_int_equal(spool_fill(&spool, pipe_ends[0], 0, 100), 0);
  pipe_ends[1] = dup(0);
  spool_free(&spool);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pipe, close_pipe)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(gives_back_what_came_across_the_end_of_the_ring), TEST(grows_around_its_end_without_mixing_bytes),
      TEST(stops_at_its_limit),                              TEST(sends_again_from_where_the_other_side_was),
      TEST(drops_unsent_bytes_from_the_end_only),            TEST(holds_no_memory_when_a_large_stream_was_sent),
      TEST(keeps_every_byte_when_it_is_trimmed),             TEST(tells_the_end_and_an_empty_pipe_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
