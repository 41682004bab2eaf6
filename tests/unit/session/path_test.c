/* session_path_normalise: what a Consumer writes, and where it is under the workspace. */
#include "backend/session/session.h"
#include "tests/unit/session/check.h"
#include <string.h>

static void expect(const char *path, const char *expected) {
  char out[LIMIT_PATH_BYTES + 1];
  struct error *err CLEANUP_ERROR = NULL;
  memset(out, 'x', sizeof out);
  int result = session_path_normalise(path, out, &err);
  if (expected) {
    assert_int_equal(result, 0);
    assert_null(err);
    assert_string_equal(out, expected);
  } else {
    assert_int_equal(result, -1);
    assert_int_equal(error_reason(err), REASON_INVALID_PATH);
    assert_string_equal(error_field(err), "path");
  }
}

static void paths_in_the_workspace_become_relative(void **state) {
  (void)state;
  expect("a", "a");
  expect("a/b", "a/b");
  expect("a//b", "a/b");
  expect("a/./b", "a/b");
  expect("./a", "a");
  expect("a/", "a");
  expect("a/b/", "a/b");
  expect("a/../b", "b");
  expect("a/b/../../c", "c");
  expect("a/..", "");
  expect(".", "");
  expect("", "");
  expect("./", "");
  expect("/workspace", "");
  expect("/workspace/", "");
  expect("/workspace/.", "");
  expect("//workspace//a", "a");
  expect("/workspace/a/b", "a/b");
  expect("/./workspace/a", "a");
  expect("/workspace/a/../b", "b");
  expect("workspace/a", "workspace/a");
  expect("/workspace/workspace", "workspace");
  expect("...", "...");
  expect("..a", "..a");
  expect("a..", "a..");
  expect("a/...", "a/...");
  expect("-dash", "-dash");
  expect("with space/new\nline", "with space/new\nline");
  expect("\xC3\xA4/\xF0\x9F\x98\x80", "\xC3\xA4/\xF0\x9F\x98\x80");
  /* Out and in again names a file in the workspace, by text. */
  expect("/etc/../workspace/a", "a");
  expect("../workspace/a", "a");
  expect("/../workspace/a", "a");
}

static void paths_outside_are_refused(void **state) {
  (void)state;
  expect("..", NULL);
  expect("../a", NULL);
  expect("a/../..", NULL);
  expect("a/../../b", NULL);
  expect("/", NULL);
  expect("//", NULL);
  expect("/.", NULL);
  expect("/..", NULL);
  expect("/etc", NULL);
  expect("/etc/passwd", NULL);
  expect("/workspacex", NULL);
  expect("/workspac", NULL);
  expect("/Workspace", NULL);
  expect("/workspace/..", NULL);
  expect("/workspace/../etc", NULL);
  expect("/workspace/a/../../etc", NULL);
  expect("/etc/workspace", NULL);
  expect("/etc/workspace/a", NULL);
  expect("../workspacex", NULL);
}

static void bad_text_is_refused(void **state) {
  (void)state;
  expect("a\xFF", NULL);
  expect("\xC3", NULL);
  expect("a/\xED\xA0\x80", NULL);
}

static void length_is_bounded(void **state) {
  (void)state;
  static char path[LIMIT_PATH_BYTES + 2];
  memset(path, 'a', LIMIT_PATH_BYTES);
  expect(path, path);
  path[LIMIT_PATH_BYTES] = 'a';
  expect(path, NULL);
  for (size_t i = 0; i < LIMIT_PATH_BYTES; i += 2)
    memcpy(path + i, "a/", 2);
  path[LIMIT_PATH_BYTES] = '\0';
  char expected[LIMIT_PATH_BYTES + 1];
  memcpy(expected, path, sizeof expected);
  expected[LIMIT_PATH_BYTES - 1] = '\0';
  expect(path, expected);
  for (size_t i = 0; i < LIMIT_PATH_BYTES; i++)
    path[i] = '/';
  expect(path, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(paths_in_the_workspace_become_relative),
      cmocka_unit_test(paths_outside_are_refused),
      cmocka_unit_test(bad_text_is_refused),
      cmocka_unit_test(length_is_bounded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
