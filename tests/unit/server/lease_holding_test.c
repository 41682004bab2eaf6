/*
 * What unary answers hold in memory, all together: it is bounded, the Lease that takes most loses first, and small
 * answers always have room.
 */
#include "tests/unit/server/check.h"
#include "tests/unit/server/fixture.h"
#include <stdlib.h>
#include <string.h>

#define ID_SIZE (LIMIT_LEASE_ID_BYTES + 1)

static uint8_t block[LIMIT_OUTPUT_BYTES]; /* four of them are a little more than the server holds in these tests */

static int setup(void **state) {
  setenv("SANDBOX_ANSWER_MAX_BYTES", "41943040", 1);
  int result = fixture_setup(state);
  unsetenv("SANDBOX_ANSWER_MAX_BYTES");
  return result;
}

struct run {
  struct call *call;
  struct session_exec *command;
};

static struct run run(struct fixture *fixture, const char *id) {
  Sandbox__Lease__V1__Command command = SANDBOX__LEASE__V1__COMMAND__INIT;
  command.command = "true";
  Sandbox__Lease__V1__ExecRequest request = SANDBOX__LEASE__V1__EXEC_REQUEST__INIT;
  request.lease_id = (char *)id;
  request.command = &command;
  struct call *call = call_double_start(fixture->service, "app", "ann", "Exec", &request.base);
  return (struct run){call, session_double_exec()};
}

/* A block on each of so many streams. */
static struct run run_large(struct fixture *fixture, const char *id, int streams) {
  struct run large = run(fixture, id);
  for (int stream = 1; stream <= streams; stream++)
    session_double_output(large.command, stream, 0, block, sizeof(block));
  return large;
}

static void expect_whole(struct run *run, size_t bytes) {
  expect_waiting(run->call);
  session_double_exec_end(run->command, SESSION_ENDED_EXITED, 0);
  assert_true(grpc_byte_buffer_length(run->call->reply) >= bytes);
  expect_reply(run->call);
}

static void expect_given_up(struct run *run) {
  assert_true(run->command->work.cancelled);
  expect_failure(run->call, REASON_OUTPUT_TOO_LARGE, "The server holds too much output; stream it instead");
  session_double_exec_end(run->command, SESSION_ENDED_CANCELLED, 0);
}

static void test_largest_of_the_lease_with_most_is_given_up(void **state) {
  struct fixture *fixture = *state;
  char greedy[ID_SIZE], modest[ID_SIZE];
  acquire_id(fixture, "greedy", greedy);
  acquire_id(fixture, "modest", modest);
  for (int round = 0; round < 3; round++) { /* nothing is forgotten, and nothing stays */
    struct run small = run_large(fixture, greedy, 1), large = run_large(fixture, greedy, 2);
    expect_waiting(large.call);
    struct run other = run_large(fixture, modest, 1);
    expect_given_up(&large);
    expect_whole(&small, sizeof(block));
    expect_whole(&other, sizeof(block));
  }
}

static void test_one_that_takes_all_is_given_up_itself(void **state) {
  struct fixture *fixture = *state;
  char greedy[ID_SIZE], modest[ID_SIZE];
  acquire_id(fixture, "greedy", greedy);
  acquire_id(fixture, "modest", modest);
  struct run other = run_large(fixture, modest, 1), first = run_large(fixture, greedy, 1);
  struct run second = run_large(fixture, greedy, 2);
  expect_given_up(&second);
  expect_whole(&first, sizeof(block));
  expect_whole(&other, sizeof(block));
}

static void test_small_answers_always_have_room(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  struct run large = run_large(fixture, id, 2), another = run_large(fixture, id, 1);
  for (int i = 0; i < 1000; i++) {
    struct run small = run(fixture, id);
    session_double_output(small.command, 1, 0, block, 20000);
    session_double_output(small.command, 2, 0, block, 20000);
    expect_whole(&small, 40000);
  }
  expect_whole(&large, 2 * sizeof(block));
  expect_whole(&another, sizeof(block));
}

static void test_answers_count_until_they_have_left(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  for (int delivered = 0; delivered < 2; delivered++) {
    struct run first = run_large(fixture, id, 2);
    session_double_exec_end(first.command, SESSION_ENDED_EXITED, 0);
    struct run second = run_large(fixture, id, 2);
    expect_given_up(&second);
    call_double_close(first.call, delivered);
    expect_reply(first.call);
    second = run_large(fixture, id, 2);
    expect_whole(&second, 2 * sizeof(block));
  }
}

static void test_files_read_whole_count(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  struct run first = run_large(fixture, id, 2), second = run_large(fixture, id, 1);
  Sandbox__Lease__V1__ReadFileRequest request = SANDBOX__LEASE__V1__READ_FILE_REQUEST__INIT;
  request.lease_id = id;
  request.path = "file";
  struct call *call = call_double_start(fixture->service, "app", "ann", "ReadFile", &request.base);
  struct session_read *read = session_double_read();
  read->events->info(read->work.context, sizeof(block), NULL);
  expect_given_up(&first);
  session_double_data(read, block, sizeof(block));
  session_double_read_end(read, REASON_NONE);
  expect_reply(call);
  expect_whole(&second, sizeof(block));
}

static void test_ends_of_all_kinds_give_back(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  for (int round = 0; round < 3; round++) {
    struct run cancelled = run_large(fixture, id, 1), failed = run_large(fixture, id, 1);
    struct run lost = run_large(fixture, id, 1);
    call_double_cancel(cancelled.call);
    expect_failure(cancelled.call, REASON_ABORTED, NULL);
    session_double_exec_end(cancelled.command, SESSION_ENDED_CANCELLED, 0);
    session_double_exec_fail(failed.command, REASON_SANDBOX_NOT_READY);
    expect_failure(failed.call, REASON_SANDBOX_NOT_READY, NULL);
    session_double_exec_end(lost.command, SESSION_ENDED_LOST, 0);
    expect_failure(lost.call, REASON_SANDBOX_NOT_READY, NULL);
  }
  struct run large = run_large(fixture, id, 2), other = run_large(fixture, id, 1);
  expect_whole(&large, 2 * sizeof(block));
  /* The Lease goes, and with it what was collected. */
  struct call *released = release(fixture, id);
  expect_failure(other.call, REASON_ABORTED, NULL);
  expect_reply(released);
  acquire_id(fixture, "another", id);
  large = run_large(fixture, id, 2);
  other = run_large(fixture, id, 1);
  expect_whole(&large, 2 * sizeof(block));
  expect_whole(&other, sizeof(block));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_largest_of_the_lease_with_most_is_given_up, setup, fixture_teardown),
    cmocka_unit_test_setup_teardown(test_one_that_takes_all_is_given_up_itself, setup, fixture_teardown),
    cmocka_unit_test_setup_teardown(test_small_answers_always_have_room, setup, fixture_teardown),
    cmocka_unit_test_setup_teardown(test_answers_count_until_they_have_left, setup, fixture_teardown),
    cmocka_unit_test_setup_teardown(test_files_read_whole_count, setup, fixture_teardown),
    cmocka_unit_test_setup_teardown(test_ends_of_all_kinds_give_back, setup, fixture_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
