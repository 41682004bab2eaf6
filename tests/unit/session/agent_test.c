/*
 * The session with the real agent: everything once, and then connections that break at random moments while output and
 * standard input flow. No byte may be lost or come twice, and no command may run twice.
 */
#include "backend/transport_unix.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "tests/unit/sandboxd/client.h"
#include "tests/unit/session/check.h"
#include "tests/unit/session/transport_cut.h"
#include "tests/unit/session/user.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct scene {
  struct daemon daemon;
  uv_loop_t loop;
  struct transport_cut cut;
  struct session *session;
};

static int scene_open(void **state) {
  struct scene *scene = calloc(1, sizeof *scene);
  assert_non_null(scene);
  daemon_start(&scene->daemon, NULL);
  assert_int_equal(uv_loop_init(&scene->loop), 0);
  transport_cut_init(&scene->cut, transport_unix_new(&scene->loop, scene->daemon.socket));
  struct session_options options = {.loop = &scene->loop,
                                    .transport = &scene->cut.transport,
                                    .deadline = clock_boot() + 600 * CLOCK_SECOND,
                                    .lease = "lease-of-a-test"};
  scene->session = session_new(&options);
  assert_non_null(scene->session);
  *state = scene;
  return 0;
}

static int scene_close(void **state) {
  struct scene *scene = *state;
  if (scene->session)
    session_close(scene->session, SESSION_ENDED_LEASE);
  uv_run(&scene->loop, UV_RUN_DEFAULT);
  assert_int_equal(uv_loop_close(&scene->loop), 0);
  daemon_stop(&scene->daemon);
  free(scene);
  return 0;
}

static struct session_command command_of(const struct scene *scene, const char *text) {
  return (struct session_command){.command = text, .cwd = scene->daemon.workspace};
}

static uint8_t *random_pattern(size_t length) {
  uint8_t *bytes = malloc(length);
  assert_non_null(bytes);
  random_bytes(bytes, length);
  return bytes;
}

/* --- everything once --- */

static void commands_run(void **state) {
  struct scene *scene = *state;
  struct session_variable variables[] = {{"GREETING", "hello world"}};
  struct session_command command = command_of(scene, "echo \"$GREETING\"; pwd; echo oops >&2; exit 7");
  command.environment = variables;
  command.environment_count = 1;
  struct user_run run = {0};
  user_run_start(&run, scene->session, &command);
  run_until(&scene->loop, &run.ended);
  char expected[200];
  snprintf(expected, sizeof expected, "hello world\n%s\n", scene->daemon.workspace);
  assert_string_equal(buffer_text(&run.out[0]), expected);
  assert_string_equal(buffer_text(&run.out[1]), "oops\n");
  assert_int_equal(run.end.ended_by, SESSION_ENDED_EXITED);
  assert_int_equal(run.end.exit_code, 7);
  user_run_free(&run);
}

static void the_longest_command_runs(void **state) {
  struct scene *scene = *state;
  char *text = malloc(LIMIT_COMMAND_BYTES + 1);
  assert_non_null(text);
  memset(text, ' ', LIMIT_COMMAND_BYTES);
  memcpy(text + LIMIT_COMMAND_BYTES - 7, "echo ok", 8);
  struct session_command command = command_of(scene, text);
  struct user_run run = {0};
  user_run_start(&run, scene->session, &command);
  run_until(&scene->loop, &run.ended);
  assert_string_equal(buffer_text(&run.out[0]), "ok\n");
  free(text);
  user_run_free(&run);
}

static void ends_are_told(void **state) {
  struct scene *scene = *state;
  static const struct {
    const char *text;
    int64_t timeout;
    uint64_t limit;
    enum session_ended ended_by;
    int code;
  } cases[] = {
      {"kill -TERM $$", 0, 0, SESSION_ENDED_SIGNALLED, 143},
      {"sleep 20", 200 * CLOCK_MILLISECOND, 0, SESSION_ENDED_TIMED_OUT, 137},
      {"yes", 0, 100000, SESSION_ENDED_OUTPUT_LIMIT, 137},
      {"exit 255", 0, 0, SESSION_ENDED_EXITED, 255},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct session_command command = command_of(scene, cases[i].text);
    command.timeout = cases[i].timeout;
    command.output_limit = cases[i].limit;
    struct user_run run = {0};
    user_run_start(&run, scene->session, &command);
    run_until(&scene->loop, &run.ended);
    assert_int_equal(run.end.ended_by, cases[i].ended_by);
    assert_int_equal(run.end.exit_code, cases[i].code);
    assert_true(run.out[0].length <= 100000);
    user_run_free(&run);
  }
}

static void standard_input_signals_and_cancel(void **state) {
  struct scene *scene = *state;
  struct session_command command = command_of(scene, "cat; echo end");
  command.stdin_open = true;
  struct user_run run = {0};
  user_run_start(&run, scene->session, &command);
  assert_true(session_exec_stdin(run.exec, (const uint8_t *)"one ", 4));
  assert_true(session_exec_stdin(run.exec, (const uint8_t *)"two\n", 4));
  session_exec_stdin_end(run.exec);
  run_until(&scene->loop, &run.ended);
  assert_string_equal(buffer_text(&run.out[0]), "one two\nend\n");
  user_run_free(&run);

  struct user_run trapped = {0};
  command = command_of(scene, "trap 'echo caught; exit 3' USR1; echo ready; while :; do sleep 0.01; done");
  user_run_start(&trapped, scene->session, &command);
  bool ready = false;
  while (!ready) {
    run_for(&scene->loop, 1);
    ready = trapped.out[0].length > 0;
  }
  session_exec_signal(trapped.exec, 10);
  run_until(&scene->loop, &trapped.ended);
  assert_string_equal(buffer_text(&trapped.out[0]), "ready\ncaught\n");
  assert_int_equal(trapped.end.exit_code, 3);
  user_run_free(&trapped);

  struct user_run cancelled = {0};
  command = command_of(scene, "sleep 100 & wait");
  user_run_start(&cancelled, scene->session, &command);
  run_until(&scene->loop, &cancelled.started);
  session_exec_cancel(cancelled.exec);
  run_until(&scene->loop, &cancelled.ended);
  assert_int_equal(cancelled.end.ended_by, SESSION_ENDED_CANCELLED);
  user_run_free(&cancelled);
}

static void files_go_there_and_back(void **state) {
  struct scene *scene = *state;
  size_t size = 5000001;
  uint8_t *bytes = random_pattern(size), sha256[32];
  struct digest digest;
  digest_start(&digest);
  digest_update(&digest, bytes, size);
  digest_finish(&digest, sha256);
  struct transfer write = {0}, read = {0}, wrong = {0}, none = {0}, large = {0};
  transfer_write(&write, scene->session, "new/dir/file", size, sha256);
  for (size_t given = 0; given < size;) {
    size_t part = size - given < 70000 ? size - given : 70000;
    unsigned wanted = write.wanted;
    bool more = session_write_data(write.write, bytes + given, part);
    given += part;
    while (!more && write.wanted == wanted)
      run_for(&scene->loop, 1);
  }
  session_write_finish(write.write);
  run_until(&scene->loop, &write.ended);
  assert_int_equal(write.reason, REASON_NONE);
  transfer_read(&read, scene->session, "new/dir/file", size, true);
  run_until(&scene->loop, &read.ended);
  assert_int_equal(read.reason, REASON_NONE);
  assert_int_equal(read.content.length, size);
  assert_memory_equal(read.content.data, bytes, size);
  transfer_read(&large, scene->session, "new/dir/file", size - 1, false);
  run_until(&scene->loop, &large.ended);
  assert_int_equal(large.reason, REASON_TRANSFER_TOO_LARGE);
  transfer_read(&none, scene->session, "new/dir/none", 10, false);
  run_until(&scene->loop, &none.ended);
  assert_int_equal(none.reason, REASON_FILE_NOT_FOUND);
  sha256[0] ^= 1;
  transfer_write(&wrong, scene->session, "new/dir/file", 5, sha256);
  session_write_data(wrong.write, bytes, 5);
  session_write_finish(wrong.write);
  run_until(&scene->loop, &wrong.ended);
  assert_int_equal(wrong.reason, REASON_CONTENT_DIGEST_MISMATCH);
  free(bytes);
  transfer_free(&write);
  transfer_free(&read);
  transfer_free(&wrong);
  transfer_free(&none);
  transfer_free(&large);
}

/* --- connections that break --- */

/* A command that says that it was started, then writes both streams at once and reads its input to the end. */
#define BUSY                                                                                                           \
  "echo started >> ran; "                                                                                              \
  "seq 1 60000 & "                                                                                                     \
  "{ seq 100001 140000 >&2; } & "                                                                                      \
  "sha256sum > digest; wait; cat digest; exit 42"

static void expect_numbers(const char *text, int first, int last) {
  for (int number = first; number <= last; number++) {
    char line[16];
    int length = snprintf(line, sizeof line, "%d\n", number);
    assert_memory_equal(text, line, (size_t)length);
    text += length;
  }
}

static void give_input(struct scene *scene, struct user_run *run, const uint8_t *bytes, size_t size) {
  for (size_t given = 0; given < size && !run->ended;) {
    size_t part = size - given < 30000 ? size - given : 30000;
    unsigned wanted = run->wanted;
    bool more = session_exec_stdin(run->exec, bytes + given, part);
    given += part;
    while (!more && run->wanted == wanted && !run->ended)
      run_for(&scene->loop, 1);
    if (given % 7 == 0)
      run_for(&scene->loop, 1);
  }
  if (!run->ended)
    session_exec_stdin_end(run->exec);
}

static void broken_connections_lose_nothing(void **state) {
  struct scene *scene = *state;
  size_t size = 1500000;
  for (unsigned seed = 1; seed <= 25; seed++) {
    uint8_t *bytes = random_pattern(size), sha256[32];
    char expected[80];
    struct digest digest;
    digest_start(&digest);
    digest_update(&digest, bytes, size);
    digest_finish(&digest, sha256);
    for (int i = 0; i < 32; i++)
      snprintf(expected + 2 * i, 3, "%02x", sha256[i]);
    transport_cut_every(&scene->cut, 1, seed % 5 ? 300000 : 140000, seed);
    unsigned cuts = scene->cut.cuts;
    struct session_command command = command_of(scene, BUSY);
    command.stdin_open = true;
    struct user_run run = {0};
    user_run_start(&run, scene->session, &command);
    give_input(scene, &run, bytes, size);
    run_until_within(&scene->loop, &run.ended, 60);
    assert_int_equal(run.reason, REASON_NONE);
    assert_int_equal(run.end.ended_by, SESSION_ENDED_EXITED);
    assert_int_equal(run.end.exit_code, 42);
    assert_true(scene->cut.cuts > cuts);
    size_t numbers = 9 * 2 + 90 * 3 + 900 * 4 + 9000 * 5 + 50001 * 6;
    assert_int_equal(run.out[0].length, numbers + 64 + 4);
    expect_numbers(buffer_text(&run.out[0]), 1, 60000);
    assert_memory_equal(run.out[0].data + numbers, expected, 64);
    assert_int_equal(run.out[1].length, 40000 * 7);
    expect_numbers(buffer_text(&run.out[1]), 100001, 140000);
    free(bytes);
    user_run_free(&run);
  }
  transport_cut_every(&scene->cut, 0, 0, 0);
  struct user_run count = {0};
  struct session_command command = command_of(scene, "wc -l < ran");
  user_run_start(&count, scene->session, &command);
  run_until(&scene->loop, &count.ended);
  assert_string_equal(buffer_text(&count.out[0]), "25\n");
  user_run_free(&count);
}

/* Short commands while every connection breaks within a few hundred bytes: each runs exactly once. */
static void short_commands_run_exactly_once(void **state) {
  struct scene *scene = *state;
  enum { COMMANDS = 100 };
  transport_cut_every(&scene->cut, 60, 900, 7);
  for (int i = 0; i < COMMANDS; i++) {
    struct session_command command = command_of(scene, "echo x >> ran; echo done");
    struct user_run run = {0};
    user_run_start(&run, scene->session, &command);
    run_until_within(&scene->loop, &run.ended, 30);
    assert_int_equal(run.reason, REASON_NONE);
    assert_int_equal(run.end.ended_by, SESSION_ENDED_EXITED);
    assert_string_equal(buffer_text(&run.out[0]), "done\n");
    user_run_free(&run);
  }
  assert_true(scene->cut.cuts > COMMANDS / 4);
  transport_cut_every(&scene->cut, 0, 0, 0);
  struct session_command command = command_of(scene, "wc -l < ran");
  struct user_run count = {0};
  user_run_start(&count, scene->session, &command);
  run_until(&scene->loop, &count.ended);
  assert_string_equal(buffer_text(&count.out[0]), "100\n");
  user_run_free(&count);
}

/* The connection breaks at each byte of a short command in turn, and the next one after as many bytes again: within
 * Configure, RunStart, RunAttach, frame headers and all. */
static void a_cut_at_any_byte_loses_nothing(void **state) {
  struct scene *scene = *state;
  unsigned commands = 0, cuts;
  do {
    cuts = scene->cut.cuts;
    transport_cut_times(&scene->cut, 2, ++commands);
    struct session_command command = command_of(scene, "echo x >> ran; cat; echo oops >&2; exit 3");
    command.stdin_open = true;
    struct user_run run = {0};
    user_run_start(&run, scene->session, &command);
    session_exec_stdin(run.exec, (const uint8_t *)"input", 5);
    session_exec_stdin_end(run.exec);
    run_until(&scene->loop, &run.ended);
    assert_int_equal(run.reason, REASON_NONE);
    assert_int_equal(run.end.exit_code, 3);
    assert_string_equal(buffer_text(&run.out[0]), "input");
    assert_string_equal(buffer_text(&run.out[1]), "oops\n");
    user_run_free(&run);
  } while (scene->cut.cuts > cuts);
  assert_in_range(commands, 200, 2000);
  transport_cut_every(&scene->cut, 0, 0, 0);
  struct user_run count = {0};
  struct session_command command = command_of(scene, "wc -l < ran");
  user_run_start(&count, scene->session, &command);
  run_until(&scene->loop, &count.ended);
  assert_int_equal(atol(buffer_text(&count.out[0])), commands);
  user_run_free(&count);
}

/* Everything is open when the connection breaks: each operation ends, none as a success that it is not. */
static void a_cut_under_everything_ends_everything(void **state) {
  struct scene *scene = *state;
  enum { SIZE = 200000 };
  uint8_t *bytes = random_pattern(SIZE);
  struct transfer first = {0};
  transfer_write(&first, scene->session, "file", SIZE, NULL);
  session_write_data(first.write, bytes, SIZE);
  session_write_finish(first.write);
  run_until(&scene->loop, &first.ended);
  assert_int_equal(first.reason, REASON_NONE);
  transfer_free(&first);
  for (size_t at = 1; at < 500000; at += 1 + at / 20) {
    transport_cut_times(&scene->cut, 1, at);
    struct session_command command = command_of(scene, "seq 1 20000; cat >/dev/null");
    struct user_run run = {0}, cancelled = {0};
    struct transfer read = {0}, write = {0};
    command.stdin_open = true;
    user_run_start(&run, scene->session, &command);
    user_run_start(&cancelled, scene->session, &command);
    transfer_read(&read, scene->session, "file", SIZE, true);
    transfer_write(&write, scene->session, "file", SIZE, NULL);
    session_write_data(write.write, bytes, SIZE);
    session_write_finish(write.write);
    session_exec_stdin(run.exec, bytes, SIZE);
    session_exec_stdin_end(run.exec);
    RUN_UNTIL(&scene->loop, cancelled.out[0].length > 0);
    session_exec_cancel(cancelled.exec);
    run_until(&scene->loop, &run.ended);
    run_until(&scene->loop, &cancelled.ended);
    run_until(&scene->loop, &read.ended);
    run_until(&scene->loop, &write.ended);
    assert_int_equal(run.end.ended_by, SESSION_ENDED_EXITED);
    assert_int_equal(run.out[0].length, 9 * 2 + 90 * 3 + 900 * 4 + 9000 * 5 + 10001 * 6);
    assert_int_equal(cancelled.end.ended_by, SESSION_ENDED_CANCELLED);
    assert_true(read.reason == REASON_NONE || read.reason == REASON_FILE_TRANSFER_FAILED);
    assert_true(write.reason == REASON_NONE || write.reason == REASON_FILE_TRANSFER_FAILED);
    if (read.reason == REASON_NONE) {
      assert_int_equal(read.content.length, SIZE);
      assert_memory_equal(read.content.data, bytes, SIZE);
    }
    user_run_free(&run);
    user_run_free(&cancelled);
    transfer_free(&read);
    transfer_free(&write);
  }
  free(bytes);
}

static void an_agent_that_dies_ends_commands_as_lost(void **state) {
  struct scene *scene = *state;
  struct session_command command = command_of(scene, "sleep 100");
  struct user_run run = {0};
  user_run_start(&run, scene->session, &command);
  run_until(&scene->loop, &run.started);
  daemon_stop(&scene->daemon);
  run_until(&scene->loop, &run.ended);
  assert_int_equal(run.end.ended_by, SESSION_ENDED_LOST);
  struct user_run next = {0};
  user_run_start(&next, scene->session, &command);
  run_until(&scene->loop, &next.ended);
  assert_int_equal(next.reason, REASON_SANDBOX_NOT_READY);
  user_run_free(&run);
  user_run_free(&next);
}

int main(int count, char **arguments) {
  if (count < 2)
    return 2;
  client_program = arguments[1];
  log_set_level(LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(commands_run, scene_open, scene_close),
      cmocka_unit_test_setup_teardown(the_longest_command_runs, scene_open, scene_close),
      cmocka_unit_test_setup_teardown(ends_are_told, scene_open, scene_close),
      cmocka_unit_test_setup_teardown(standard_input_signals_and_cancel, scene_open, scene_close),
      cmocka_unit_test_setup_teardown(files_go_there_and_back, scene_open, scene_close),
      cmocka_unit_test_setup_teardown(broken_connections_lose_nothing, scene_open, scene_close),
      cmocka_unit_test_setup_teardown(short_commands_run_exactly_once, scene_open, scene_close),
      cmocka_unit_test_setup_teardown(a_cut_at_any_byte_loses_nothing, scene_open, scene_close),
      cmocka_unit_test_setup_teardown(a_cut_under_everything_ends_everything, scene_open, scene_close),
      cmocka_unit_test_setup_teardown(an_agent_that_dies_ends_commands_as_lost, scene_open, scene_close),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
