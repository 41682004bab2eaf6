/* The path walk, by openat2 and component by component, against what a hostile tree may hold and a thread that swaps
 * it. */
#include "backend/sandboxd/path.h"

#include "tests/unit/sandboxd/check.h"
#include "tests/unit/sandboxd/tree.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct path_root root;
static char top[64], workspace[80];

static void make_file(const char *name, const char *content) {
  int file = openat(root.descriptor, name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
  assert_true(file >= 0);
  assert_int_equal(write(file, content, strlen(content)), strlen(content));
  close(file);
}

static void make_link(const char *name, const char *target) {
  assert_int_equal(symlinkat(target, root.descriptor, name), 0);
}

static void make_socket(const char *name) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", workspace, name);
  int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
  assert_int_equal(bind(descriptor, (struct sockaddr *)&address, sizeof address), 0);
  close(descriptor);
}

static int begin_with(bool walk) {
  snprintf(top, sizeof top, "/tmp/sandboxd-path-XXXXXX");
  if (!mkdtemp(top))
    return -1;
  snprintf(workspace, sizeof workspace, "%s/workspace", top);
  mkdir(workspace, 0755);
  if (path_root_open(&root, workspace, walk, NULL))
    return -1;
  int outside = open(top, O_PATH);
  int secret = openat(outside, "secret", O_CREAT | O_WRONLY, 0644);
  close(secret);
  close(outside);
  mkdirat(root.descriptor, "d", 0755);
  mkdirat(root.descriptor, "d/e", 0755);
  make_file("f", "top");
  make_file("d/e/f", "deep");
  make_link("link", "f");
  make_link("dirlink", "d");
  make_link("up", "..");
  make_link("slash", "/");
  make_link("magic", "/proc/self/cwd");
  make_link("dangling", "nowhere");
  mkfifoat(root.descriptor, "fifo", 0644);
  make_socket("socket");
  return 0;
}

static int begin_openat2(void **state) {
  (void)state;
  if (begin_with(false))
    return -1;
  return root.walk; /* the kernel that runs the tests has openat2 */
}

static int begin_walk(void **state) {
  (void)state;
  return begin_with(true);
}

static int end(void **state) {
  (void)state;
  path_root_close(&root);
  return tree_remove(top);
}

static void expect_open(const char *path, const char *content) {
  struct stat status;
  char text[16] = "";
  int file = path_open_file(&root, path, &status, NULL);
  assert_true(file >= 0);
  assert_int_equal(read(file, text, sizeof text - 1), status.st_size);
  assert_string_equal(text, content);
  assert_true(fcntl(file, F_GETFD) & FD_CLOEXEC);
  close(file);
}

static void expect_refusal(const char *path, enum reason reason) {
  CLEANUP_ERROR struct error *err = NULL;
  struct stat status;
  if (path_open_file(&root, path, &status, &err) != -1)
    fail_msg("%s was opened", path);
  if (error_reason(err) != reason)
    fail_msg("%s: %s", path, reason_name(error_reason(err)));
}

static void opens_regular_files_alone(void **state) {
  (void)state;
  expect_open("f", "top");
  expect_open("d/e/f", "deep");
  expect_refusal("nothing", REASON_FILE_NOT_FOUND);
  expect_refusal("nothing/f", REASON_FILE_NOT_FOUND);
  expect_refusal("d/nothing", REASON_FILE_NOT_FOUND);
  const char *invalid[] = {
      "d", "link", "dirlink/e/f", "up/secret", "slash/etc/passwd", "magic/f", "dangling", "fifo", "socket", "f/x",
      "", ".", "..", "/etc/passwd", "d/../f", "d/./e/f", "d//e/f", "d/e/f/", "../secret", "d/..", "link/x",
      "dangling/x"};
  for (size_t i = 0; i < sizeof invalid / sizeof invalid[0]; i++)
    expect_refusal(invalid[i], REASON_INVALID_PATH);
}

static void refuses_what_is_too_long(void **state) {
  char path[5000];
  (void)state;
  memset(path, 'a', sizeof path);
  path[300] = 0;
  expect_refusal(path, REASON_INVALID_PATH);
  path[100] = '/';
  expect_refusal(path, REASON_FILE_NOT_FOUND);
  path[100] = 'a';
  path[300] = 'a';
  path[4999] = 0;
  for (size_t i = 1; i < 4999; i += 2)
    path[i] = '/';
  expect_refusal(path, REASON_INVALID_PATH);
}

static void expect_parent(const char *path, bool make, enum reason reason) {
  CLEANUP_ERROR struct error *err = NULL;
  const char *name = NULL;
  int directory = path_open_parent(&root, path, make, &name, &err);
  if ((directory < 0) != (reason != REASON_NONE))
    fail_msg("%s: %s", path, directory < 0 ? error_detail(err) : "opened");
  if (directory < 0) {
    assert_int_equal(error_reason(err), reason);
    return;
  }
  assert_string_equal(name, strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
  close(directory);
}

static void finds_the_directory_to_write_in(void **state) {
  struct stat status;
  (void)state;
  expect_parent("new", false, REASON_NONE);
  expect_parent("d/new", false, REASON_NONE);
  expect_parent("d/e/new", false, REASON_NONE);
  expect_parent("no/new", false, REASON_INVALID_PATH);
  expect_parent("dirlink/new", false, REASON_INVALID_PATH);
  expect_parent("up/new", true, REASON_INVALID_PATH);
  expect_parent("f/new", true, REASON_INVALID_PATH);
  expect_parent("dangling/new", true, REASON_INVALID_PATH);
  expect_parent("../new", true, REASON_INVALID_PATH);
  expect_parent("x/y/z/new", true, REASON_NONE);
  assert_int_equal(fstatat(root.descriptor, "x/y/z", &status, 0), 0);
  assert_int_equal(status.st_mode & 07777, 0755);
  assert_int_equal(fstatat(root.descriptor, "nowhere", &status, 0), -1);
}

static void looks_without_following(void **state) {
  CLEANUP_ERROR struct error *err = NULL;
  struct stat status;
  (void)state;
  assert_int_equal(path_look(root.descriptor, "f", &status, NULL), 1);
  assert_int_equal(path_look(root.descriptor, "nothing", &status, NULL), 0);
  assert_int_equal(path_look(root.descriptor, "d", &status, NULL), -1);
  assert_int_equal(path_look(root.descriptor, "fifo", &status, NULL), -1);
  assert_int_equal(path_look(root.descriptor, "link", &status, &err), -1);
  assert_int_equal(error_reason(err), REASON_INVALID_PATH);
}

static atomic_bool racing;

/* Swaps the directory "d" and a symlink that leads out, as fast as it can. */
static void *swap(void *context) {
  int directory = root.descriptor;
  (void)context;
  make_link("evil", "..");
  while (racing)
    renameat2(directory, "d", directory, "evil", RENAME_EXCHANGE);
  return NULL;
}

static void never_leaves_while_the_tree_is_swapped(void **state) {
  pthread_t thread;
  struct stat outside, status;
  const char *name;
  char secret[96];
  size_t opened = 0, refused = 0;
  (void)state;
  snprintf(secret, sizeof secret, "%s/secret", top);
  make_file("d/secret", "inside");
  assert_int_equal(stat(top, &outside), 0);
  racing = true;
  assert_int_equal(pthread_create(&thread, NULL, swap, NULL), 0);
  for (int i = 0; i < 20000 || !opened || !refused; i++) {
    int file = path_open_file(&root, "d/secret", &status, NULL);
    if (file >= 0) {
      assert_int_equal(status.st_size, 6); /* the one outside is empty */
      close(file);
    }
    int directory = path_open_parent(&root, "d/secret", i & 1, &name, NULL);
    if (directory >= 0) {
      assert_int_equal(fstat(directory, &status), 0);
      assert_int_not_equal(status.st_ino, outside.st_ino);
      close(directory);
    }
    file >= 0 ? opened++ : refused++;
  }
  racing = false;
  pthread_join(thread, NULL);
}

#define BOTH(name)                                                                                                     \
  {"openat2: " #name, name, begin_openat2, end, NULL}, { "walk: " #name, name, begin_walk, end, NULL }

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(opens_regular_files_alone), BOTH(refuses_what_is_too_long),
      BOTH(finds_the_directory_to_write_in), BOTH(looks_without_following),
      BOTH(never_leaves_while_the_tree_is_swapped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
