/* Commands through the real program. */
#include "tests/unit/sandboxd/check.h"
#include "tests/unit/sandboxd/client.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENDED(how) SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_##how

static struct daemon agent;
static struct client client;

static int begin(void **state) {
  (void)state;
  daemon_start(&agent, NULL);
  client_connect(&client, &agent);
  client_configure(&client, 60000, 0, 2000, NULL);
  return 0;
}

static int end(void **state) {
  (void)state;
  if (client.wire)
    client_close(&client);
  daemon_stop(&agent);
  return 0;
}

static void reconnect(void) {
  client_close(&client);
  client_connect(&client, &agent);
  client_configure(&client, 60000, 0, 2000, NULL);
}

/* Living processes that were given this mark in their environment's place: as an argument. */
static int processes_with(const char *mark) {
  int count = 0;
  DIR *proc = opendir("/proc");
  for (struct dirent *entry; (entry = readdir(proc));) {
    char name[300], text[1024];
    snprintf(name, sizeof name, "/proc/%s/cmdline", entry->d_name);
    int file = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' ? open(name, O_RDONLY) : -1;
    ssize_t length = file < 0 ? 0 : read(file, text, sizeof text);
    if (file >= 0)
      close(file);
    if (length > 0 && memmem(text, (size_t)length, mark, strlen(mark)))
      count++;
  }
  closedir(proc);
  return count;
}

static void expect_gone(const char *mark, int milliseconds) {
  int64_t limit = client_now() + milliseconds;
  while (processes_with(mark)) {
    if (client_now() > limit)
      fail_msg("%d processes live on", processes_with(mark));
    client_step(&client, 2);
  }
}

static void expect_end(const struct run *run, Sandbox__Agent__V1__RunEndedBy how, int code, int number) {
  assert_int_equal(run->talk.status, WIRE_OK);
  assert_true(run->ended);
  assert_int_equal(run->ended_by, how);
  assert_int_equal(run->exit_code, code);
  assert_int_equal(run->signal, number);
  for (int i = 0; i < 2; i++)
    assert_int_equal(run->totals[i], run->begin[i] + run->output[i].length);
}

static void expect(const char *command, const char *cwd, const char *out, const char *err, int code) {
  struct run run;
  run_start(&run, &client, command, &(struct run_options){.cwd = cwd});
  run_wait(&run);
  expect_end(&run, ENDED(EXITED), code, 0);
  assert_string_equal(buffer_text(&run.output[0]), out);
  assert_string_equal(buffer_text(&run.output[1]), err);
  run_free(&run);
}

static void runs_commands(void **state) {
  (void)state;
  expect("true", NULL, "", "", 0);
  expect("exit 255", NULL, "", "", 255);
  expect("echo out; echo err >&2; exit 3", NULL, "out\n", "err\n", 3);
}

static void works_in_its_directory(void **state) {
  char line[128];
  (void)state;
  snprintf(line, sizeof line, "%s\n", agent.workspace);
  expect("pwd", agent.workspace, line, "", 0);
  expect("echo never", "/no such place", "", "sh: 1: cd: can't cd to /no such place\n", 2);
  expect("cat; echo $HOME >/dev/null; test -n \"$PATH\" && test -n \"$LANG\" && echo all", NULL, "all\n", "", 0);
}

static void tells_signals(void **state) {
  struct run run;
  (void)state;
  run_start(&run, &client, "kill -TERM $$", NULL);
  run_wait(&run);
  expect_end(&run, ENDED(SIGNALLED), 128 + SIGTERM, SIGTERM);
  run_free(&run);
  run_start(&run, &client, "kill -KILL $$", NULL);
  run_wait(&run);
  expect_end(&run, ENDED(SIGNALLED), 128 + SIGKILL, SIGKILL);
  run_free(&run);
  run_start(&run, &client, "trap 'echo got; exit 9' USR1; echo ready; while :; do sleep 0.01; done", NULL);
  run_wait_for(&run, "ready");
  run_signal(&run, SIGUSR1);
  run_wait(&run);
  expect_end(&run, ENDED(EXITED), 9, 0);
  assert_string_equal(buffer_text(&run.output[0]), "ready\ngot\n");
  run_free(&run);
}

static void times_out_with_everything_below(void **state) {
  struct run run;
  int64_t begun = client_now();
  (void)state;
  run_start(&run, &client, "echo before; (setsid sleep 7001.1 &); setsid sh -c 'sleep 7001.1; true' & sleep 7001.1",
            &(struct run_options){.timeout = 800});
  run_wait(&run);
  expect_end(&run, ENDED(TIMED_OUT), 128 + SIGKILL, SIGKILL);
  assert_in_range(client_now() - begun, 800, 1600);
  assert_int_equal(processes_with("7001.1"), 0);
  assert_string_equal(buffer_text(&run.output[0]), "before\n");
  run_free(&run);
}

static void a_reset_kills_within_milliseconds(void **state) {
  struct run run;
  (void)state;
  run_start(&run, &client, "(setsid sleep 7001.2 &); sleep 7001.2 & sleep 0.1; echo ready; sleep 7001.2", NULL);
  run_wait_for(&run, "ready");
  assert_true(processes_with("7001.2") >= 3);
  talk_reset(&run.talk);
  expect_gone("7001.2", 200);
  run_free(&run);
}

static void a_command_ends_with_its_main_process(void **state) {
  struct run run;
  int64_t begun = client_now();
  (void)state;
  run_start(&run, &client, "sh -c 'while echo x; do sleep 0.01; done' 7001.3 & sleep 0.05; echo end; exit 4", NULL);
  run_wait(&run);
  expect_end(&run, ENDED(EXITED), 4, 0);
  assert_true(client_now() - begun < 2000);
  assert_non_null(strstr(buffer_text(&run.output[0]), "end\n"));
  client_for(&client, 100);
  assert_in_range(processes_with("7001.3"), 1, 2); /* it writes on; a child may be about to become `sleep` */
  run_free(&run);
}

static void stops_at_the_output_limit(void **state) {
  struct run run;
  (void)state;
  run_start(&run, &client, "echo err >&2; sleep 7001.4 & yes", &(struct run_options){.limit = 1000001});
  run_wait(&run);
  expect_end(&run, ENDED(OUTPUT_LIMIT), 128 + SIGKILL, SIGKILL);
  assert_int_equal(run.totals[0], 1000001);
  assert_int_equal(processes_with("7001.4"), 0);
  run_free(&run);
  run_start(&run, &client, "head -c 1000001 /dev/zero", &(struct run_options){.limit = 1000001});
  run_wait(&run);
  expect_end(&run, ENDED(EXITED), 0, 0);
  assert_int_equal(run.totals[0], 1000001);
  run_free(&run);
  for (int i = 0; i < 50; i++) { /* whether it is noticed before or after the end */
    run_start(&run, &client, i & 1 ? "head -c 1000002 /dev/zero >&2" : "echo 12345678 >&2",
              &(struct run_options){.limit = i & 1 ? 1000001 : 8});
    run_wait(&run);
    assert_int_equal(run.ended_by, ENDED(OUTPUT_LIMIT));
    assert_int_equal(run.totals[1], i & 1 ? 1000001 : 8);
    run_free(&run);
  }
}

/* The command is over before its last output is read: that changes nothing. */
static void stops_at_the_output_limit_after_its_end(void **state) {
  (void)state;
  for (int i = 0; i < 20; i++) {
    struct run run;
    run_start(&run, &client, "head -c 1000002 /dev/zero", &(struct run_options){.limit = 1000001});
    run_wait(&run);
    assert_int_equal(run.ended_by, ENDED(OUTPUT_LIMIT));
    assert_int_equal(run.totals[0], 1000001);
    run_free(&run);
  }
}

static void is_lost_with_its_supervisor(void **state) {
  struct run run;
  (void)state;
  run_start(&run, &client, "(setsid sleep 7001.5 &); echo out; kill -9 $PPID; sleep 7001.5", NULL);
  run_wait(&run);
  expect_end(&run, ENDED(LOST), 0, 0);
  assert_string_equal(buffer_text(&run.output[0]), "out\n");
  expect_gone("7001.5", 500);
  run_free(&run);
}

/* The last byte is still in the pipe when the main process ends, since nobody reads. */
static void notices_too_much_output_after_the_end(void **state) {
  struct run run;
  (void)state;
  run_start(&run, &client, "head -c 1200001 /dev/zero; echo $? >&2; exec sleep 0",
            &(struct run_options){.limit = 1200000});
  run.talk.hold = true;
  client_for(&client, 500);
  assert_false(run.ended);
  talk_consume(&run.talk);
  run_wait(&run);
  assert_int_equal(run.ended_by, ENDED(OUTPUT_LIMIT));
  assert_int_equal(run.totals[0], 1200000);
  run_free(&run);
}

/* Output whose every byte is known: decimal numbers. */
static const char numbers[] = "i=0; while [ $i -lt 200000 ]; do echo $i; i=$((i+1)); done";

static void expect_numbers(const struct run *run, int count) {
  const char *at = buffer_text(&run->output[0]);
  char *next;
  for (int i = 0; i < count; i++) {
    assert_int_equal(strtol(at, &next, 10), i);
    assert_int_equal(*next, '\n');
    at = next + 1;
  }
  assert_int_equal(*at, 0);
}

static void delivers_every_byte_of_a_large_output(void **state) {
  struct run run;
  (void)state;
  run_start(&run, &client, "seq 0 2999999", NULL);
  run_wait(&run);
  expect_end(&run, ENDED(EXITED), 0, 0);
  expect_numbers(&run, 3000000);
  run_free(&run);
}

static void a_reader_that_stops_stops_the_command(void **state) {
  struct run run;
  (void)state;
  run_start(&run, &client, "seq 0 1999999; echo done >&2", NULL);
  run.talk.hold = true;
  client_for(&client, 400);
  size_t before = run.output[0].length;
  client_for(&client, 200);
  assert_int_equal(run.output[0].length, before);
  assert_true(before < 600000);
  assert_false(run.talk.over);
  talk_consume(&run.talk);
  run_wait(&run);
  expect_end(&run, ENDED(EXITED), 0, 0);
  expect_numbers(&run, 2000000);
  run_free(&run);
}

static void loses_and_doubles_no_byte_over_broken_connections(void **state) {
  struct run run;
  int breaks = 0;
  (void)state;
  srandom(7);
  run_start(&run, &client, numbers, NULL);
  while (!run.ended) {
    int64_t until = client_now() + random() % 40;
    run.talk.hold = random() % 2;
    while (!run.talk.over && client_now() < until)
      client_step(&client, 1);
    if (run.talk.over)
      break;
    reconnect();
    assert_true(run.talk.over);
    run.talk.held = 0;
    run_attach(&run, &client);
    breaks++;
  }
  run_wait(&run);
  expect_end(&run, ENDED(EXITED), 0, 0);
  expect_numbers(&run, 200000);
  assert_true(breaks > 3);
  run_free(&run);
}

static void a_full_spool_stops_the_command_until_somebody_attaches(void **state) {
  struct run run;
  (void)state;
  run_start(&run, &client, "seq 0 1999999; echo done >&2; sleep 0.2", NULL);
  client_until(&client, &run.started);
  reconnect();
  client_for(&client, 300);
  assert_int_equal(processes_with("seq 0 1999999"), 1);
  run_attach(&run, &client);
  run_wait(&run);
  expect_end(&run, ENDED(EXITED), 0, 0);
  expect_numbers(&run, 2000000);
  run_free(&run);
}

static void an_ended_command_can_be_attached_and_again(void **state) {
  struct run run;
  (void)state;
  run_start(&run, &client, "echo one; echo two; exit 5", NULL);
  client_until(&client, &run.started);
  reconnect();
  client_for(&client, 100);
  for (int i = 0; i < 3; i++) { /* the last time its end has been delivered before */
    buffer_clear(&run.output[0]);
    run.begin[0] = (uint64_t)i;
    run_attach(&run, &client);
    run_wait(&run);
    expect_end(&run, ENDED(EXITED), 5, 0);
    assert_string_equal(buffer_text(&run.output[0]), &"one\ntwo\n"[i]);
  }
  run_free(&run);
}

static void an_unattached_command_is_killed_in_time(void **state) {
  struct run run;
  (void)state;
  client_configure(&client, 60000, 0, 300, NULL);
  run_start(&run, &client, "(setsid sleep 7001.6 &) ; echo ready; sleep 7001.6", NULL);
  run_wait_for(&run, "ready");
  client_close(&client);
  client_connect(&client, &agent);
  client_configure(&client, 60000, 0, 300, NULL);
  client_for(&client, 150);
  assert_int_equal(processes_with("7001.6"), 3);
  expect_gone("7001.6", 600);
  run_attach(&run, &client);
  run_wait(&run);
  assert_true(talk_failed_for(&run.talk, "NOT_FOUND"));
  run_free(&run);
}

static void a_second_attach_takes_the_command(void **state) {
  struct run first, second;
  struct client other;
  (void)state;
  run_start(&first, &client, "echo ready; read line; echo $line", &(struct run_options){.input = true});
  run_wait_for(&first, "ready");
  client_connect(&other, &agent);
  client_configure(&other, 60000, 0, 2000, NULL);
  second = first;
  memset(&second.output, 0, sizeof second.output);
  buffer_init(&second.output[0], 1000);
  buffer_init(&second.output[1], 1000);
  run_attach(&second, &other);
  client_until(&other, &second.started);
  run_wait(&first);
  assert_int_equal(first.talk.status, WIRE_CANCELLED);
  run_stdin(&second, 0, "hello\n", 6);
  run_wait(&second);
  expect_end(&second, ENDED(EXITED), 0, 0);
  assert_string_equal(buffer_text(&second.output[0]), "ready\nhello\n");
  client_close(&other);
  run_free(&first);
  run_free(&second);
}

static void refuses_what_cannot_be(void **state) {
  struct run run, twin;
  (void)state;
  run_start(&run, &client, "sleep 7001.7", NULL);
  client_until(&client, &run.started);
  run_start(&twin, &client, "true", &(struct run_options){.id = run.id});
  run_wait(&twin);
  assert_true(talk_failed_for(&twin.talk, "INVALID_REQUEST"));
  run_attach_at(&twin, &client, 1, 0);
  run_wait(&twin);
  assert_true(talk_failed_for(&twin.talk, "INVALID_REQUEST"));
  assert_false(run.talk.over);
  twin.id[0] ^= 1;
  run_attach(&twin, &client);
  run_wait(&twin);
  assert_true(talk_failed_for(&twin.talk, "NOT_FOUND"));
  run_signal(&run, 65); /* a breach of protocol ends the command */
  run_wait(&run);
  assert_true(talk_failed_for(&run.talk, "INVALID_REQUEST"));
  expect_gone("7001.7", 500);
  run_free(&run);
  run_free(&twin);
}

static void standard_input_arrives_whole(void **state) {
  struct run run;
  enum { CHUNK = 65536, CHUNKS = 100 };
  static uint8_t bytes[CHUNK];
  (void)state;
  run_start(&run, &client, "sleep 0.2; cat | sha256sum; cat", &(struct run_options){.input = true});
  for (size_t i = 0; i < CHUNKS; i++) {
    memset(bytes, (int)('a' + i % 26), CHUNK);
    run_stdin(&run, i * CHUNK, bytes, CHUNK);
    run_stdin(&run, i * CHUNK, bytes, 10); /* known already */
  }
  run_stdin_end(&run);
  run_wait(&run);
  expect_end(&run, ENDED(EXITED), 0, 0);
  struct run check;
  run_start(&check, &client,
            "i=0; while [ $i -lt 100 ]; do head -c 65536 /dev/zero | tr '\\0' "
            "$(printf \\\\$(printf %o $((97 + i % 26)))); i=$((i+1)); done | sha256sum",
            NULL);
  run_wait(&check);
  assert_string_equal(buffer_text(&run.output[0]), buffer_text(&check.output[0]));
  run_free(&run);
  run_free(&check);
}

static void standard_input_goes_on_after_a_broken_connection(void **state) {
  struct run run;
  static uint8_t bytes[60000];
  uint64_t sent = 0;
  (void)state;
  memset(bytes, 'x', sizeof bytes);
  run_start(&run, &client, "sleep 0.3; wc -c", &(struct run_options){.input = true});
  for (int i = 0; i < 3; i++, sent += sizeof bytes)
    run_stdin(&run, sent, bytes, sizeof bytes);
  client_until(&client, &run.started);
  client_for(&client, 50);
  reconnect();
  run_attach(&run, &client);
  client_until(&client, &run.started);
  assert_int_equal(run.stdin_offset, sent);
  run_stdin(&run, sent - 1000, bytes, 2000);
  run_stdin_end(&run);
  run_wait(&run);
  expect_end(&run, ENDED(EXITED), 0, 0);
  assert_string_equal(buffer_text(&run.output[0]), "181000\n");
  run_free(&run);
}

static void a_command_need_not_read_its_input(void **state) {
  struct run run;
  static uint8_t bytes[65536];
  (void)state;
  run_start(&run, &client, "exec 0<&-; echo closed; sleep 0.3; exit 6", &(struct run_options){.input = true});
  run_wait_for(&run, "closed");
  for (size_t i = 0; i < 60; i++)
    run_stdin(&run, i * sizeof bytes, bytes, sizeof bytes);
  run_stdin_end(&run);
  run_wait(&run);
  expect_end(&run, ENDED(EXITED), 6, 0);
  run_free(&run);
}

static void many_at_once(void **state) {
  enum { COUNT = 100 };
  static struct run runs[COUNT];
  (void)state;
  for (int i = 0; i < COUNT; i++) {
    char command[64];
    snprintf(command, sizeof command, "echo %d; sleep 0.1; exit %d", i, i);
    run_start(&runs[i], &client, command, NULL);
  }
  for (int i = 0; i < COUNT; i++) {
    char line[16];
    snprintf(line, sizeof line, "%d\n", i);
    run_wait(&runs[i]);
    expect_end(&runs[i], ENDED(EXITED), i, 0);
    assert_string_equal(buffer_text(&runs[i].output[0]), line);
    run_free(&runs[i]);
  }
}

/* The kernel's counter is a file that the command writes. */
static void tells_that_memory_ran_out(void **state) {
  struct run run;
  char name[64];
  const char *arguments[] = {"--memory-events", name, NULL};
  (void)state;
  client_close(&client);
  daemon_stop(&agent);
  snprintf(name, sizeof name, "/tmp/sandboxd-events-XXXXXX");
  int file = mkstemp(name);
  assert_int_equal(write(file, "low 0\noom 3\noom_kill 7\n", 24), 24);
  daemon_start(&agent, arguments);
  client_connect(&client, &agent);
  client_configure(&client, 60000, 0, 2000, NULL);
  run_start(&run, &client, "kill -KILL $$", NULL);
  run_wait(&run);
  expect_end(&run, ENDED(SIGNALLED), 128 + SIGKILL, SIGKILL);
  run_free(&run);
  for (int i = 0; i < 2; i++) {
    char command[128];
    snprintf(command, sizeof command, "echo oom_kill 8 > %s; kill -KILL $$", name);
    run_start(&run, &client, command, NULL);
    run_wait(&run);
    if (i)
      expect_end(&run, ENDED(SIGNALLED), 128 + SIGKILL, SIGKILL); /* that was before it began */
    else
      expect_end(&run, ENDED(OUT_OF_MEMORY), 128 + SIGKILL, SIGKILL);
    run_free(&run);
  }
  close(file);
  unlink(name);
}

static void commands_are_likelier_victims(void **state) {
  char name[64], line[32], text[16] = "";
  (void)state;
  snprintf(name, sizeof name, "/proc/%d/oom_score_adj", (int)agent.pid);
  int file = open(name, O_RDONLY);
  assert_true(read(file, text, sizeof text - 1) > 0);
  close(file);
  long own = strtol(text, NULL, 10);
  snprintf(line, sizeof line, "%ld\n", own + 300 < 1000 ? own + 300 : 1000);
  expect("cat /proc/self/oom_score_adj", NULL, line, "", 0);
}

static int entries(const char *format) {
  char name[64];
  int count = 0;
  snprintf(name, sizeof name, format, (int)agent.pid, (int)agent.pid);
  DIR *directory = opendir(name);
  assert_non_null(directory);
  while (readdir(directory))
    count++;
  closedir(directory);
  return count;
}

static void leaks_neither_descriptors_nor_zombies(void **state) {
  char name[64], text[4096];
  (void)state;
  for (int i = 0; i < 20; i++)
    expect("sleep 0.01 & true", NULL, "", "", 0);
  client_for(&client, 100);
  int before = entries("/proc/%d/fd");
  for (int i = 0; i < 60; i++)
    expect("sleep 0.01 & (setsid true &); true", NULL, "", "", 0);
  client_for(&client, 200);
  assert_true(entries("/proc/%d/fd") <= before + 8); /* as many supervisors may be free */
  snprintf(name, sizeof name, "/proc/%d/task/%d/children", (int)agent.pid, (int)agent.pid);
  int file = open(name, O_RDONLY);
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  assert_true(length >= 0);
  text[length] = 0;
  char *at = text;
  for (long pid; (pid = strtol(at, &at, 10)) > 0;) { /* supervisors, alive, without children */
    char more[64], list[256];
    snprintf(more, sizeof more, "/proc/%ld/task/%ld/children", pid, pid);
    int children = open(more, O_RDONLY);
    assert_true(children >= 0);
    assert_int_equal(read(children, list, sizeof list), 0);
    close(children);
  }
}

static void inherits_nothing(void **state) {
  char name[64], target[256];
  (void)state;
  snprintf(name, sizeof name, "/proc/%d/fd/33", (int)agent.pid);
  assert_int_equal(readlink(name, target, sizeof target), -1);
  expect("ls /proc/self/fd | tr '\\n' ' '", NULL, "0 1 2 3 ", "", 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(int count, char **arguments) {
  const struct CMUnitTest tests[] = {
      TEST(runs_commands),
      TEST(works_in_its_directory),
      TEST(tells_signals),
      TEST(times_out_with_everything_below),
      TEST(a_reset_kills_within_milliseconds),
      TEST(a_command_ends_with_its_main_process),
      TEST(stops_at_the_output_limit),
      TEST(stops_at_the_output_limit_after_its_end),
      TEST(notices_too_much_output_after_the_end),
      TEST(is_lost_with_its_supervisor),
      TEST(delivers_every_byte_of_a_large_output),
      TEST(a_reader_that_stops_stops_the_command),
      TEST(loses_and_doubles_no_byte_over_broken_connections),
      TEST(a_full_spool_stops_the_command_until_somebody_attaches),
      TEST(an_ended_command_can_be_attached_and_again),
      TEST(an_unattached_command_is_killed_in_time),
      TEST(a_second_attach_takes_the_command),
      TEST(refuses_what_cannot_be),
      TEST(standard_input_arrives_whole),
      TEST(standard_input_goes_on_after_a_broken_connection),
      TEST(a_command_need_not_read_its_input),
      TEST(many_at_once),
      TEST(tells_that_memory_ran_out),
      TEST(commands_are_likelier_victims),
      TEST(leaks_neither_descriptors_nor_zombies),
      TEST(inherits_nothing),
  };
  client_program = count > 1 ? arguments[1] : "";
  signal(SIGPIPE, SIG_IGN);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
