/* Cgroups: on this machine's own where groups may be made, and on folders that only look like a mount. */
#include "backend/local/cgroup.h"
#include "base/memory.h"
#include "tests/unit/local/check.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static const struct local_pool_settings limits = {.name = "a", .runtime = LOCAL_BUBBLEWRAP, .memory_bytes = 64 * MIB,
                                                  .processes = 40, .workspace_bytes = 32 * MIB, .workspace_files = 100};

static void only_paths_below_the_mount_are_groups(void **state) {
  (void)state;
  static const char *const bad[] = {"", "/", "/etc", "/sys/fs/cgroup", "/sys/fs/cgroups/a", "/sys/fs/cgroup/a/../..",
                                    "a"};
  struct local_cgroup cgroup = {.count = 0};
  for (size_t i = 0; i < COUNT_OF(bad); i++)
    assert_int_equal(local_cgroup_add(&cgroup, bad[i]), -1);
  for (size_t i = 0; i < LOCAL_CGROUPS_MAX; i++)
    assert_int_equal(local_cgroup_add(&cgroup, "/sys/fs/cgroup/a"), 0);
  assert_int_equal(local_cgroup_add(&cgroup, "/sys/fs/cgroup/a"), -1);
  local_cgroup_free(&cgroup);
  assert_int_equal(cgroup.count, 0);
}

/* Where no group can be had there are none, and everything else says so. */
static void without_groups_nothing_is_limited(void **state) {
  (void)state;
  static const char *const selves[] = {"", "0::/\n", "0::/a/b\n", "1:name=x:/\n0::/a\n", "0::", "junk"};
  char folder[] = "/tmp/cgroup_test.XXXXXX", file[64];
  assert_non_null(mkdtemp(folder));
  snprintf(file, sizeof file, "%s/cgroup.controllers", folder);
  for (int unified = 0; unified < 2; unified++) {
    if (unified != 0)
      close(open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    for (size_t i = 0; i < COUNT_OF(selves); i++) {
      CLEANUP_ERROR struct error *err = NULL;
      struct local_cgroups cgroups;
      struct local_cgroup cgroup;
      char path[LOCAL_CGROUP_PATH_SIZE];
      local_cgroups_open(&cgroups, folder, selves[i], NULL);
      assert_int_equal(cgroups.version, 0);
      assert_int_equal(local_cgroup_make(&cgroups, "0123456789abcdef", &limits, &cgroup, &err), 0);
      assert_int_equal(cgroup.count, 0);
      assert_int_equal(local_cgroup_events(&cgroup, path), -1);
      assert_false(local_cgroup_out_of_memory(&cgroup));
      assert_true(local_cgroup_remove(&cgroup));
      local_cgroups_close(&cgroups);
    }
  }
  unlink(file);
  assert_int_equal(rmdir(folder), 0);
}

static uint64_t read_number(const char *folder, const char *name) {
  char path[LOCAL_CGROUP_PATH_SIZE + 64], text[64] = "";
  snprintf(path, sizeof path, "%s/%s", folder, name);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return 0;
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  return length > 0 ? strtoull(text, NULL, 10) : 0;
}

/* A child in all groups that sleeps. */
static pid_t start_inside(const struct local_cgroup *cgroup) {
  int ready[2];
  char byte;
  assert_int_equal(pipe(ready), 0);
  pid_t child = fork();
  if (child == 0) {
    for (size_t i = 0; i < cgroup->count; i++) {
      char path[LOCAL_CGROUP_PATH_SIZE + 64];
      snprintf(path, sizeof path, "%s/cgroup.procs", cgroup->paths[i]);
      int file = open(path, O_WRONLY | O_CLOEXEC);
      if (file < 0 || write(file, "0", 1) != 1)
        _exit(1);
      close(file);
    }
    if (write(ready[1], "1", 1) != 1)
      _exit(1);
    for (;;)
      pause();
  }
  close(ready[1]);
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  return child;
}

static void a_group_bounds_and_goes(void **state) {
  (void)state;
  CLEANUP_ERROR struct error *err = NULL;
  struct local_cgroups cgroups;
  struct local_cgroup cgroup;
  char given[64], path[LOCAL_CGROUP_PATH_SIZE];
  snprintf(given, sizeof given, "/cgroup-test-%d", (int)getpid());
  local_cgroups_open_own(&cgroups, given);
  if (cgroups.version == 0)
    skip(); /* not ours to make here */
  assert_int_equal(local_cgroup_make(&cgroups, "0123456789abcdef", &limits, &cgroup, &err), 0);
  const char *memory = cgroup.paths[0], *processes = cgroup.paths[cgroups.version == 1 ? 1 : 0];
  /* Files in memory count beside the memory of commands. */
  assert_int_equal(read_number(memory, cgroups.version == 1 ? "memory.limit_in_bytes" : "memory.max"), 96 * MIB);
  assert_int_equal(read_number(processes, "pids.max"), 40);
  assert_int_equal(local_cgroup_events(&cgroup, path), 0);
  assert_false(local_cgroup_out_of_memory(&cgroup));
  pid_t child = start_inside(&cgroup);
  /* It is killed, and gone once it has ended. */
  bool gone = local_cgroup_remove(&cgroup);
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  assert_true(gone || local_cgroup_remove(&cgroup));
  for (size_t i = 0; i < cgroup.count; i++)
    assert_int_not_equal(access(cgroup.paths[i], F_OK), 0);
  assert_true(local_cgroup_remove(&cgroup)); /* again: nothing to do */
  local_cgroup_free(&cgroup);
  local_cgroups_close(&cgroups);
  snprintf(path, sizeof path, LOCAL_CGROUP_MOUNT "/memory%s", given);
  assert_int_not_equal(access(path, F_OK), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(only_paths_below_the_mount_are_groups),
    cmocka_unit_test(without_groups_nothing_is_limited),
    cmocka_unit_test(a_group_bounds_and_goes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
