/* Files through the real program, with openat2 and without. */
#include "base/digest.h"
#include "tests/unit/sandboxd/check.h"
#include "tests/unit/sandboxd/client.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define NO_LIMIT UINT64_MAX

static struct daemon agent;
static struct client client;
static int workspace;

static int begin_with(const char *const *arguments) {
  daemon_start(&agent, arguments);
  client_connect(&client, &agent);
  client_configure(&client, 60000, 0, 2000, NULL);
  workspace = open(agent.workspace, O_PATH);
  return 0;
}

static int begin(void **state) {
  (void)state;
  return begin_with(NULL);
}

static int begin_walk(void **state) {
  const char *const arguments[] = {"--without-openat2", NULL};
  (void)state;
  return begin_with(arguments);
}

static int end(void **state) {
  (void)state;
  close(workspace);
  client_close(&client);
  daemon_stop(&agent);
  return 0;
}

static uint8_t *pattern(size_t length, unsigned seed) {
  uint8_t *bytes = malloc(length + 1);
  assert_non_null(bytes);
  for (size_t i = 0; i < length; i++)
    bytes[i] = (uint8_t)((i * 2654435761u + seed) >> 13);
  return bytes;
}

static void put(const char *name, const void *bytes, size_t length) {
  int file = openat(workspace, name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
  assert_true(file >= 0);
  assert_int_equal(write(file, bytes, length), length);
  close(file);
}

static void expect_content(const char *name, const void *bytes, size_t length) {
  struct stat status;
  int file = openat(workspace, name, O_RDONLY);
  assert_true(file >= 0);
  assert_int_equal(fstat(file, &status), 0);
  assert_int_equal(status.st_size, length);
  uint8_t *found = malloc(length + 1);
  assert_int_equal(read(file, found, length), length);
  assert_memory_equal(found, bytes, length);
  free(found);
  close(file);
}

static int entries(void) {
  int count = 0;
  DIR *directory = opendir(agent.workspace);
  for (struct dirent *entry; (entry = readdir(directory));)
    count += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
  closedir(directory);
  return count;
}

static void digest_of(const void *bytes, size_t length, uint8_t out[32]) {
  struct digest digest;
  digest_start(&digest);
  digest_update(&digest, bytes, length);
  digest_finish(&digest, out);
}

/* --- reading --- */

static void expect_read(size_t length, bool digest) {
  struct file_read read;
  uint8_t expected[32];
  uint8_t *bytes = pattern(length, 3);
  put("file", bytes, length);
  digest_of(bytes, length, expected);
  file_read_start(&read, &client, "file", length, digest);
  client_until(&client, &read.talk.over);
  assert_int_equal(read.talk.status, WIRE_OK);
  assert_true(read.informed);
  assert_int_equal(read.size, length);
  assert_int_equal(read.digest, digest);
  if (digest)
    assert_memory_equal(read.sha256, expected, 32);
  assert_int_equal(read.data.length, length);
  if (length)
    assert_memory_equal(read.data.data, bytes, length);
  file_read_free(&read);
  free(bytes);
}

static void reads_files_of_every_size(void **state) {
  const size_t sizes[] = {0, 1, 127, 128, 131071, 131072, 131073, 524288, 524289, 1048576, 1048577, 9000001};
  (void)state;
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    expect_read(sizes[i], true);
    expect_read(sizes[i], false);
  }
}

static void expect_read_failure(const char *path, uint64_t max, const char *reason) {
  struct file_read read;
  file_read_start(&read, &client, path, max, true);
  client_until(&client, &read.talk.over);
  if (!talk_failed_for(&read.talk, reason))
    fail_msg("%s: %d %s", path, read.talk.status, read.talk.text);
  assert_false(read.informed);
  file_read_free(&read);
}

static void refuses_to_read_what_is_no_file_there(void **state) {
  (void)state;
  put("file", "12345", 5);
  mkdirat(workspace, "d", 0755);
  assert_int_equal(symlinkat("file", workspace, "link"), 0);
  assert_int_equal(mkfifoat(workspace, "fifo", 0644), 0);
  expect_read_failure("missing", NO_LIMIT, "FILE_NOT_FOUND");
  expect_read_failure("d/missing", NO_LIMIT, "FILE_NOT_FOUND");
  expect_read_failure("link", NO_LIMIT, "INVALID_PATH");
  expect_read_failure("fifo", NO_LIMIT, "INVALID_PATH");
  expect_read_failure("d", NO_LIMIT, "INVALID_PATH");
  expect_read_failure("", NO_LIMIT, "INVALID_PATH");
  expect_read_failure("../socket", NO_LIMIT, "INVALID_PATH");
  expect_read_failure("file", 4, "TRANSFER_TOO_LARGE");
}

/* The rest of the file is changed after a part of it was sent. */
static void change_while_reading(struct file_read *read, size_t length, bool truncate) {
  uint8_t *bytes = pattern(length, 5);
  put("file", bytes, length);
  file_read_start(read, &client, "file", NO_LIMIT, true);
  read->talk.hold = true;
  client_until(&client, &read->informed);
  client_for(&client, 50);
  assert_true(read->data.length < length);
  int file = openat(workspace, "file", O_WRONLY);
  if (truncate)
    assert_int_equal(ftruncate(file, (off_t)length - 1), 0);
  else
    assert_int_equal(pwrite(file, "!", 1, (off_t)length - 1), 1);
  close(file);
  talk_consume(&read->talk);
  client_until(&client, &read->talk.over);
  free(bytes);
}

static void notices_that_a_file_becomes_shorter(void **state) {
  struct file_read read;
  (void)state;
  change_while_reading(&read, 6000000, true);
  assert_true(talk_failed_for(&read.talk, "FILE_TRANSFER_FAILED"));
  assert_true(read.data.length < 6000000);
  file_read_free(&read);
}

/* The server compares: see a_digest_is_checked_here among its lies about files. */
static void announces_what_was_there_first(void **state) {
  struct file_read read;
  uint8_t announced[32], *bytes = pattern(6000000, 5);
  (void)state;
  change_while_reading(&read, 6000000, false);
  digest_of(bytes, 6000000, announced);
  assert_memory_equal(read.sha256, announced, sizeof announced);
  assert_int_equal(read.data.length, 6000000);
  assert_int_equal(read.data.data[5999999], '!');
  file_read_free(&read);
  free(bytes);
}

static void a_small_file_is_a_snapshot(void **state) {
  struct file_read read;
  uint8_t *bytes = pattern(524288, 7);
  (void)state;
  put("file", bytes, 524288);
  client.stopped = true;
  file_read_start(&read, &client, "file", NO_LIMIT, true);
  client_for(&client, 100);
  put("file", "changed", 7);
  client.stopped = false;
  client_until(&client, &read.talk.over);
  assert_int_equal(read.talk.status, WIRE_OK);
  assert_int_equal(read.data.length, 524288);
  assert_memory_equal(read.data.data, bytes, 524288);
  file_read_free(&read);
  free(bytes);
}

static void a_reset_ends_a_read(void **state) {
  struct file_read read;
  uint8_t *bytes = pattern(6000000, 5);
  (void)state;
  put("file", bytes, 6000000);
  for (int i = 0; i < 3; i++) {
    file_read_start(&read, &client, "file", NO_LIMIT, i & 1);
    read.talk.hold = true;
    if (i)
      client_until(&client, &read.informed);
    talk_reset(&read.talk);
    file_read_free(&read);
  }
  expect_read(1000, true);
  free(bytes);
}

/* --- writing --- */

static void write_file(struct file_write *write, const char *path, const uint8_t *bytes, size_t length, bool digest,
                       bool parents) {
  uint8_t sha256[32];
  digest_of(bytes, length, sha256);
  file_write_start(write, &client, path, length, digest ? sha256 : NULL, parents);
  for (size_t at = 0; at < length; at += 131072)
    file_write_data(write, bytes + at, length - at < 131072 ? length - at : 131072);
  file_write_finish(write);
}

static void writes_files_of_every_size(void **state) {
  const size_t sizes[] = {0, 1, 131072, 131073, 9000001};
  struct file_write write;
  (void)state;
  for (size_t i = 0; i < 2 * sizeof sizes / sizeof sizes[0]; i++) {
    size_t length = sizes[i / 2];
    uint8_t *bytes = pattern(length, 9);
    write_file(&write, "file", bytes, length, i & 1, false);
    assert_int_equal(write.talk.status, WIRE_OK);
    assert_true(write.answered);
    expect_content("file", bytes, length);
    free(bytes);
  }
  assert_int_equal(entries(), 1);
}

static void keeps_the_mode_and_makes_directories(void **state) {
  struct file_write write;
  struct stat status;
  (void)state;
  put("script", "old", 3);
  assert_int_equal(fchmodat(workspace, "script", 0750, 0), 0);
  write_file(&write, "script", (const uint8_t *)"new", 3, true, false);
  assert_int_equal(write.talk.status, WIRE_OK);
  assert_int_equal(fstatat(workspace, "script", &status, 0), 0);
  assert_int_equal(status.st_mode & 07777, 0750);
  write_file(&write, "a/b/c", (const uint8_t *)"new", 3, true, false);
  assert_true(talk_failed_for(&write.talk, "INVALID_PATH"));
  write_file(&write, "a/b/c", (const uint8_t *)"new", 3, true, true);
  assert_int_equal(write.talk.status, WIRE_OK);
  expect_content("a/b/c", "new", 3);
  assert_int_equal(fstatat(workspace, "a/b/c", &status, 0), 0);
  assert_int_equal(status.st_mode & 07777, 0644);
}

static void expect_write_failure(struct file_write *write, const char *reason) {
  file_write_finish(write);
  if (!talk_failed_for(&write->talk, reason))
    fail_msg("%d %s", write->talk.status, write->talk.text);
  expect_content("file", "old", 3);
  assert_int_equal(entries(), 1);
}

static void a_failed_write_leaves_the_old_file(void **state) {
  struct file_write write;
  uint8_t sha256[32];
  (void)state;
  put("file", "old", 3);
  digest_of("new!", 4, sha256);
  file_write_start(&write, &client, "file", 4, sha256, false);
  file_write_data(&write, "new", 3);
  expect_write_failure(&write, "CONTENT_LENGTH_MISMATCH");
  file_write_start(&write, &client, "file", 4, sha256, false);
  file_write_data(&write, "new!!", 5);
  expect_write_failure(&write, "CONTENT_LENGTH_MISMATCH");
  file_write_start(&write, &client, "file", 4, sha256, false);
  file_write_data(&write, "new?", 4);
  expect_write_failure(&write, "CONTENT_DIGEST_MISMATCH");
  file_write_start(&write, &client, "file", UINT64_MAX, NULL, false);
  file_write_data(&write, "new?", 4);
  expect_write_failure(&write, "CONTENT_LENGTH_MISMATCH");
  file_write_start(&write, &client, "file", 4, sha256, false);
  file_write_start(&write, &client, "file", 4, sha256, false);
  expect_write_failure(&write, "CONTENT_LENGTH_MISMATCH");
  talk_start(&write.talk, &client, "WriteFile");
  file_write_data(&write, "x", 1);
  expect_write_failure(&write, "INVALID_REQUEST");
  talk_start(&write.talk, &client, "WriteFile");
  expect_write_failure(&write, "INVALID_REQUEST");
  file_write_start(&write, &client, "../file", 4, NULL, true);
  expect_write_failure(&write, "INVALID_PATH");
  file_write_start(&write, &client, ".", 4, NULL, true);
  expect_write_failure(&write, "INVALID_PATH");
}

static void refuses_to_replace_what_is_no_file(void **state) {
  struct file_write write;
  (void)state;
  mkdirat(workspace, "d", 0755);
  assert_int_equal(symlinkat("/etc/passwd", workspace, "link"), 0);
  assert_int_equal(symlinkat("d", workspace, "dirlink"), 0);
  const char *paths[] = {"d", "link", "dirlink/x", "link/x"};
  for (size_t i = 0; i < 4; i++) {
    write_file(&write, paths[i], (const uint8_t *)"new", 3, true, true);
    assert_true(talk_failed_for(&write.talk, "INVALID_PATH"));
  }
  assert_int_equal(entries(), 3);
}

static void nothing_is_visible_before_the_end(void **state) {
  struct file_write write;
  (void)state;
  put("file", "old", 3);
  file_write_start(&write, &client, "file", 4, NULL, false);
  file_write_data(&write, "new!", 4);
  client_for(&client, 50);
  expect_content("file", "old", 3);
  assert_int_equal(entries(), 1);
  talk_reset(&write.talk);
  client_for(&client, 50);
  expect_content("file", "old", 3);
  assert_int_equal(entries(), 1);
  file_write_start(&write, &client, "file", 4, NULL, false);
  file_write_data(&write, "new!", 4);
  client_for(&client, 50);
  client_close(&client);
  client_connect(&client, &agent);
  client_configure(&client, 60000, 0, 2000, NULL);
  expect_content("file", "old", 3);
  assert_int_equal(entries(), 1);
}

/* The size limit of a process stands for a full disk: writing fails in the middle. */
static void a_write_that_fails_leaves_the_old_file(void **state) {
  struct file_write write;
  struct rlimit limit = {1000000, 1000000};
  uint8_t *bytes = pattern(2000000, 1);
  (void)state;
  put("file", "old", 3);
  assert_int_equal(prlimit(agent.pid, RLIMIT_FSIZE, &limit, NULL), 0);
  write_file(&write, "file", bytes, 2000000, true, false);
  assert_true(talk_failed_for(&write.talk, "FILE_TRANSFER_FAILED"));
  expect_content("file", "old", 3);
  assert_int_equal(entries(), 1);
  free(bytes);
}

static void many_transfers_are_refused_not_queued(void **state) {
  static struct file_write writes[70];
  int refused = 0;
  (void)state;
  for (int i = 0; i < 70; i++)
    file_write_start(&writes[i], &client, "file", 4, NULL, false);
  client_for(&client, 100);
  for (int i = 0; i < 70; i++)
    refused += talk_failed_for(&writes[i].talk, "FILE_TRANSFER_FAILED");
  assert_int_equal(refused, 6);
  for (int i = 0; i < 70; i++)
    if (writes[i].talk.call)
      talk_reset(&writes[i].talk);
  expect_read(10, true);
}

#define BOTH(name)                                                                                                     \
  {"openat2: " #name, name, begin, end, NULL}, { "walk: " #name, name, begin_walk, end, NULL }
#define ONE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(int count, char **arguments) {
  const struct CMUnitTest tests[] = {
      ONE(reads_files_of_every_size),
      BOTH(refuses_to_read_what_is_no_file_there),
      ONE(notices_that_a_file_becomes_shorter),
      ONE(announces_what_was_there_first),
      ONE(a_small_file_is_a_snapshot),
      ONE(a_reset_ends_a_read),
      ONE(writes_files_of_every_size),
      BOTH(keeps_the_mode_and_makes_directories),
      ONE(a_failed_write_leaves_the_old_file),
      BOTH(refuses_to_replace_what_is_no_file),
      ONE(nothing_is_visible_before_the_end),
      ONE(a_write_that_fails_leaves_the_old_file),
      ONE(many_transfers_are_refused_not_queued),
  };
  client_program = count > 1 ? arguments[1] : "";
  signal(SIGPIPE, SIG_IGN);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
