/* Files being written, with and without O_TMPFILE. */
#include "backend/sandboxd/target.h"

#include "tests/unit/sandboxd/check.h"
#include "tests/unit/sandboxd/tree.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct path_root root;
static char top[64];
static bool named;

static int begin(void **state) {
  (void)state;
  snprintf(top, sizeof top, "/tmp/sandboxd-target-XXXXXX");
  return !mkdtemp(top) || path_root_open(&root, top, false, NULL);
}

static int begin_unnamed(void **state) {
  named = false;
  return begin(state);
}

static int begin_named(void **state) {
  named = true;
  return begin(state);
}

static int end(void **state) {
  (void)state;
  path_root_close(&root);
  return tree_remove(top);
}

static void put(const char *name, const char *content, mode_t mode) {
  int file = openat(root.descriptor, name, O_CREAT | O_WRONLY | O_TRUNC, mode);
  assert_int_equal(write(file, content, strlen(content)), strlen(content));
  fchmod(file, mode);
  close(file);
}

static void expect_content(const char *name, const char *content, mode_t mode) {
  char text[64] = "";
  struct stat status;
  int file = openat(root.descriptor, name, O_RDONLY);
  assert_true(file >= 0);
  assert_true(read(file, text, sizeof text - 1) >= 0);
  assert_string_equal(text, content);
  assert_int_equal(fstat(file, &status), 0);
  assert_int_equal(status.st_mode & 07777, mode);
  close(file);
}

/* Entries of the top directory, hidden ones included. */
static int entries(void) {
  int count = 0;
  DIR *directory = opendir(top);
  for (struct dirent *entry; (entry = readdir(directory));)
    count += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
  closedir(directory);
  return count;
}

static void open_and_write(struct target *target, const char *path, bool make, const char *content) {
  assert_int_equal(target_open(target, &root, path, make, named, NULL), 0);
  assert_int_equal(target_write(target, (const uint8_t *)content, strlen(content), NULL), 0);
}

static void makes_a_new_file(void **state) {
  struct target target;
  (void)state;
  open_and_write(&target, "new", false, "content");
  assert_int_equal(entries(), named ? 1 : 0);
  assert_int_equal(target_commit(&target, NULL), 0);
  target_close(&target);
  assert_int_equal(entries(), 1);
  expect_content("new", "content", 0644);
}

static void replaces_a_file_and_keeps_its_mode(void **state) {
  struct target target;
  (void)state;
  put("old", "before", 0751);
  open_and_write(&target, "old", false, "after");
  expect_content("old", "before", 0751);
  assert_int_equal(target_commit(&target, NULL), 0);
  target_close(&target);
  expect_content("old", "after", 0751);
  assert_int_equal(entries(), 1);
}

static void makes_directories(void **state) {
  struct target target;
  CLEANUP_ERROR struct error *err = NULL;
  (void)state;
  assert_int_equal(target_open(&target, &root, "a/b/c", false, named, &err), -1);
  assert_int_equal(error_reason(err), REASON_INVALID_PATH);
  open_and_write(&target, "a/b/c", true, "deep");
  assert_int_equal(target_commit(&target, NULL), 0);
  target_close(&target);
  expect_content("a/b/c", "deep", 0644);
}

static void leaves_nothing_behind_without_commit(void **state) {
  struct target target;
  (void)state;
  put("old", "before", 0644);
  open_and_write(&target, "old", false, "after");
  target_close(&target);
  expect_content("old", "before", 0644);
  assert_int_equal(entries(), 1);
}

static void refuses_what_took_the_place_meanwhile(void **state) {
  struct target target;
  CLEANUP_ERROR struct error *err = NULL;
  (void)state;
  open_and_write(&target, "x", false, "content");
  assert_int_equal(symlinkat("/etc/passwd", root.descriptor, "x"), 0);
  assert_int_equal(target_commit(&target, &err), -1);
  assert_int_equal(error_reason(err), REASON_INVALID_PATH);
  target_close(&target);
  assert_int_equal(entries(), 1);
}

static void replaces_a_file_that_appeared_meanwhile(void **state) {
  struct target target;
  (void)state;
  open_and_write(&target, "x", false, "ours");
  put("x", "theirs", 0600);
  assert_int_equal(target_commit(&target, NULL), 0);
  target_close(&target);
  expect_content("x", "ours", 0600);
  assert_int_equal(entries(), 1);
}

static void fails_when_the_directory_is_gone(void **state) {
  struct target target;
  CLEANUP_ERROR struct error *err = NULL;
  (void)state;
  mkdirat(root.descriptor, "d", 0755);
  open_and_write(&target, "d/x", false, "content");
  assert_int_equal(unlinkat(root.descriptor, "d", AT_REMOVEDIR), 0);
  assert_int_equal(target_commit(&target, &err), -1);
  assert_int_equal(error_reason(err), REASON_FILE_TRANSFER_FAILED);
  target_close(&target);
  assert_int_equal(entries(), 0);
}

#define BOTH(name)                                                                                                     \
  {"unnamed: " #name, name, begin_unnamed, end, NULL}, { "named: " #name, name, begin_named, end, NULL }

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(makes_a_new_file),
      BOTH(replaces_a_file_and_keeps_its_mode),
      BOTH(makes_directories),
      BOTH(leaves_nothing_behind_without_commit),
      BOTH(refuses_what_took_the_place_meanwhile),
      BOTH(replaces_a_file_that_appeared_meanwhile),
      {"unnamed: fails_when_the_directory_is_gone", fails_when_the_directory_is_gone, begin_unnamed, end, NULL},
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
