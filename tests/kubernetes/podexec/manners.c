/*
 * What a session promises of commands and files, tried once each: time, cancelling, standard input, limits,
 * directories, environment; paths, sizes, digests. Whatever carries the session, these are the same.
 */
#include "base/buffer.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/memory.h"
#include "tests/kubernetes/podexec/probe.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct outcome {
  struct session_exec *exec;
  struct session_read *read;
  struct session_write *write;
  struct buffer bytes;
  bool ended, started;
  struct session_end end;
  enum reason reason; /* NONE: it went well */
  bool cancel_at_start;
};

static int checks;

static void check(bool good, const char *what, const struct outcome *outcome) {
  if (!good) {
    char text[256];
    snprintf(text, sizeof text, "%s (ended by %d, code %d, %zu bytes, %s)", what, (int)outcome->end.ended_by,
             outcome->end.exit_code, outcome->bytes.length, reason_name(outcome->reason));
    fail(text, NULL);
  }
  checks++;
}

static void wait_for(struct outcome *outcome) {
  while (!outcome->ended)
    uv_run(loop, UV_RUN_DEFAULT);
}

static void on_started(void *context) {
  struct outcome *outcome = context;
  outcome->started = true;
  if (outcome->cancel_at_start)
    session_exec_cancel(outcome->exec);
}

static void on_output(void *context, int stream, uint64_t offset, const uint8_t *bytes, size_t length) {
  struct outcome *outcome = context;
  (void)stream;
  (void)offset;
  if (buffer_append(&outcome->bytes, bytes, length) != 0)
    fail("too much output", NULL);
  session_exec_consume(outcome->exec, length);
}

static void on_wanted(void *context) {
  (void)context;
}

static void on_end(void *context, const struct session_end *end, struct error *err) {
  struct outcome *outcome = context;
  outcome->ended = true;
  if (end)
    outcome->end = *end;
  if (err)
    outcome->reason = error_reason(err);
  uv_stop(loop);
}

static const struct session_exec_events exec_events = {
    .started = on_started, .output = on_output, .stdin_wanted = on_wanted, .ended = on_end};

static void outcome_clear(struct outcome *outcome) {
  buffer_free(&outcome->bytes);
  *outcome = (struct outcome){0};
  buffer_init(&outcome->bytes, 1 << 24);
}

static void exec_start(struct outcome *outcome, const struct session_command *command) {
  outcome->exec = session_exec_start(session, command, &exec_events, outcome);
  if (!outcome->exec)
    fail("out of memory", NULL);
}

static void exec(struct outcome *outcome, const char *text) {
  const struct session_command command = {.command = text, .cwd = "/workspace"};
  outcome_clear(outcome);
  exec_start(outcome, &command);
  wait_for(outcome);
}

/* Nothing with these words in its command line runs, within two seconds at the latest. */
static void expect_dead(const char *words, const char *what) {
  char text[512];
  struct outcome outcome = {0};
  snprintf(text, sizeof text,
           "for i in 1 2 3 4 5 6 7 8 9 10; do n=0; for p in /proc/[0-9]*; do case $(tr '\\0' ' ' <$p/cmdline) in "
           "'%s'*) n=$((n+1)) ;; esac; done 2>/dev/null; [ $n = 0 ] && exit 0; sleep 0.2; done; exit 1",
           words);
  exec(&outcome, text);
  check(outcome.end.exit_code == 0, what, &outcome);
  buffer_free(&outcome.bytes);
}

static void check_ends(void) {
  struct outcome outcome = {0};
  outcome_clear(&outcome);
  exec_start(&outcome, &(struct session_command){
                           .command = "sleep 7001.5; true", .cwd = "/workspace", .timeout = CLOCK_SECOND});
  wait_for(&outcome);
  check(outcome.end.ended_by == SESSION_ENDED_TIMED_OUT, "a command that takes too long", &outcome);
  expect_dead("sleep 7001.5", "its process is dead");
  outcome_clear(&outcome);
  outcome.cancel_at_start = true;
  exec_start(&outcome, &(struct session_command){.command = "sleep 7002.5; true", .cwd = "/workspace"});
  wait_for(&outcome);
  check(outcome.end.ended_by == SESSION_ENDED_CANCELLED, "a cancelled command", &outcome);
  expect_dead("sleep 7002.5", "its process is dead, too");
  outcome_clear(&outcome);
  exec_start(&outcome, &(struct session_command){.command = "sleep 7003.5; true", .cwd = "/workspace"});
  session_exec_cancel(outcome.exec);
  wait_for(&outcome);
  expect_dead("sleep 7003.5", "a command that is cancelled at once is dead");
  outcome_clear(&outcome);
  exec_start(&outcome, &(struct session_command){.command = "yes", .cwd = "/workspace", .output_limit = 100001});
  wait_for(&outcome);
  check(outcome.end.ended_by == SESSION_ENDED_OUTPUT_LIMIT && outcome.bytes.length == 100001, "endless output",
        &outcome);
  expect_dead("yes ", "what wrote it is dead");
  buffer_free(&outcome.bytes);
}

static void check_input(void) {
  static uint8_t bytes[1 << 20];
  struct outcome outcome = {0};
  outcome_clear(&outcome);
  exec_start(&outcome, &(struct session_command){.command = "wc -c", .cwd = "/workspace", .stdin_open = true});
  session_exec_stdin(outcome.exec, bytes, sizeof bytes);
  session_exec_stdin_end(outcome.exec);
  wait_for(&outcome);
  check(strtoul(buffer_text(&outcome.bytes), NULL, 10) == sizeof bytes, "standard input", &outcome);
  exec(&outcome, "cat; echo end");
  check(!strcmp(buffer_text(&outcome.bytes), "end\n"), "no standard input", &outcome);
  outcome_clear(&outcome);
  const struct session_variable variables[] = {{"A", "it's \"$HOME\" \n two"}, {"B", ""}};
  exec_start(&outcome, &(struct session_command){.command = "printf %s \"$A|$B|$PWD\"",
                                                 .cwd = "/",
                                                 .environment = variables,
                                                 .environment_count = 2});
  wait_for(&outcome);
  check(!strcmp(buffer_text(&outcome.bytes), "it's \"$HOME\" \n two||/"), "environment and directory", &outcome);
  outcome_clear(&outcome);
  exec_start(&outcome, &(struct session_command){.command = "true", .cwd = "/workspace/none"});
  wait_for(&outcome);
  check(outcome.end.exit_code != 0, "a directory that is not there", &outcome);
  buffer_free(&outcome.bytes);
}

/* --- files --- */

static void on_info(void *context, uint64_t size, const uint8_t *sha256) {
  (void)context;
  (void)size;
  (void)sha256;
}

static void on_data(void *context, const uint8_t *bytes, size_t length) {
  struct outcome *outcome = context;
  buffer_append(&outcome->bytes, bytes, length);
  session_read_consume(outcome->read, length);
}

static void on_file_end(void *context, struct error *err) {
  on_end(context, NULL, err);
}

static void read_file(struct outcome *outcome, const char *path, uint64_t most) {
  static const struct session_read_events events = {.info = on_info, .data = on_data, .ended = on_file_end};
  outcome_clear(outcome);
  outcome->read = session_read_start(session, path, most, true, &events, outcome);
  wait_for(outcome);
}

static void write_file(struct outcome *outcome, const char *path, const char *text, bool parents, bool wrong) {
  static const struct session_write_events events = {.wanted = on_wanted, .ended = on_file_end};
  uint8_t sum[DIGEST_SIZE];
  struct digest digest;
  outcome_clear(outcome);
  digest_start(&digest);
  digest_update(&digest, text, strlen(text));
  digest_finish(&digest, sum);
  sum[0] = (uint8_t)(sum[0] ^ wrong);
  outcome->write = session_write_start(session, path, strlen(text), sum, parents, &events, outcome);
  session_write_data(outcome->write, (const uint8_t *)text, strlen(text));
  session_write_finish(outcome->write);
  wait_for(outcome);
}

static void expect_file(const char *path, const char *text, const char *what) {
  struct outcome outcome = {0};
  read_file(&outcome, path, 1 << 20);
  check(outcome.reason == REASON_NONE && !strcmp(buffer_text(&outcome.bytes), text), what, &outcome);
  buffer_free(&outcome.bytes);
}

static void expect_read(const char *path, enum reason reason, const char *what) {
  struct outcome outcome = {0};
  read_file(&outcome, path, 10);
  check(outcome.reason == reason, what, &outcome);
  buffer_free(&outcome.bytes);
}

static void check_files(void) {
  struct outcome outcome = {0};
  exec(&outcome, "rm -rf m; mkdir m; ln -s /etc/passwd m/link; ln -s / m/root; mkdir m/folder; "
                 "echo 123456789012 >m/long");
  check(outcome.end.exit_code == 0, "setting up", &outcome);
  expect_read("m/none", REASON_FILE_NOT_FOUND, "a file that is not there");
  expect_read("m/none/none", REASON_FILE_NOT_FOUND, "a folder that is not there");
  expect_read("m/link", REASON_INVALID_PATH, "a symlink");
  expect_read("m/root/etc/passwd", REASON_INVALID_PATH, "behind a symlink");
  expect_read("m/folder", REASON_INVALID_PATH, "a folder");
  expect_read("m/long", REASON_TRANSFER_TOO_LARGE, "a file that is too large");
  write_file(&outcome, "m/a b'c", "hello\n", false, false);
  check(outcome.reason == REASON_NONE, "writing", &outcome);
  expect_file("m/a b'c", "hello\n", "what was written");
  write_file(&outcome, "m/a b'c", "other\n", false, true);
  check(outcome.reason == REASON_CONTENT_DIGEST_MISMATCH, "a wrong digest", &outcome);
  expect_file("m/a b'c", "hello\n", "the old file");
  write_file(&outcome, "m/a b'c", "", false, false);
  check(outcome.reason == REASON_NONE, "writing nothing", &outcome);
  expect_file("m/a b'c", "", "an empty file");
  write_file(&outcome, "m/x/y/z", "deep", true, false);
  check(outcome.reason == REASON_NONE, "with parents", &outcome);
  expect_file("m/x/y/z", "deep", "in new folders");
  write_file(&outcome, "m/link", "x", false, false);
  check(outcome.reason == REASON_INVALID_PATH, "onto a symlink", &outcome);
  write_file(&outcome, "m/root/tmp/x", "x", false, false);
  check(outcome.reason == REASON_INVALID_PATH, "through a symlink", &outcome);
  write_file(&outcome, "m/folder", "x", false, false);
  check(outcome.reason == REASON_INVALID_PATH, "onto a folder", &outcome);
  exec(&outcome, "ls -A m m/x/y | grep sandboxd; rm -rf m");
  check(outcome.bytes.length == 0, "nothing is left behind", &outcome);
  buffer_free(&outcome.bytes);
}

int manners_check(void) {
  check_ends();
  check_input();
  check_files();
  return checks;
}
