/* Processes by number and start time, and by the mark in their mounts. */
#include "backend/local/process.h"
#include "tests/unit/local/check.h"
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void a_process_is_known_by_its_start(void **state) {
  (void)state;
  struct local_process self;
  pid_t parent = 0;
  assert_int_equal(local_process_read(getpid(), &self, &parent), 0);
  assert_int_equal(self.pid, getpid());
  assert_int_equal(parent, getppid());
  int handle = local_process_open(&self);
  assert_true(handle >= 0);
  close(handle);
  self.start++; /* the number was given out again */
  assert_int_equal(local_process_open(&self), -1);
  assert_int_equal(local_process_open(&(struct local_process){0, 0}), -1);
  assert_int_equal(local_process_read(0, &self, NULL), -1);
}

/* The fields are counted behind the name. */
static void a_name_may_hold_anything(void **state) {
  (void)state;
  struct local_process plain, named;
  assert_int_equal(local_process_read(getpid(), &plain, NULL), 0);
  assert_int_equal(prctl(PR_SET_NAME, ") R 1 1 (1 2", 0, 0, 0), 0);
  pid_t parent = 0;
  assert_int_equal(local_process_read(getpid(), &named, &parent), 0);
  assert_int_equal(named.start, plain.start);
  assert_int_equal(parent, getppid());
}

/* A child with a mount of this name that would sleep for ever; 0: it may not mount. */
static pid_t start_marked(const char *mark) {
  int ready[2];
  char byte = 0;
  assert_int_equal(pipe(ready), 0);
  pid_t child = fork();
  if (child == 0) {
    int flags = geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS;
    bool made = unshare(flags) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                mount(mark, "/mnt", "tmpfs", 0, NULL) == 0;
    if (write(ready[1], made ? "1" : "0", 1) != 1 || !made)
      _exit(1);
    if (fork() < 0)
      _exit(1);
    for (;;)
      pause();
  }
  close(ready[1]);
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  if (byte == '1')
    return child;
  waitpid(child, NULL, 0);
  return 0;
}

static void marked_processes_end_and_no_others(void **state) {
  (void)state;
  /* The grandchild that is killed has nobody else to wait for it. */
  assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
  pid_t mine = start_marked("sandbox-0123456789abcdef"), other = start_marked("sandbox-0123456789abcdee");
  if (mine == 0 || other == 0)
    skip();
  const struct local_mark mark = {.mark = "sandbox-0123456789abcdef", .uid = 0};
  assert_true(local_process_marked(mine, &mark));
  assert_false(local_process_marked(other, &mark));
  assert_false(local_process_marked(getpid(), &mark));
  assert_false(local_process_marked(mine, &(struct local_mark){.mark = mark.mark, .uid = geteuid() + 12345}));
  assert_false(local_process_marked(mine, &(struct local_mark){.mark = "sandbox-0123456789abcde", .uid = 0}));
  assert_true(local_process_end_marked(&mark, 1) >= 1);
  int status = 0;
  assert_int_equal(waitpid(mine, &status, 0), mine);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(waitpid(other, &status, WNOHANG), 0);
  assert_int_equal(local_process_end_marked(&mark, 1), 0);
  assert_true(local_process_end_marked(&(struct local_mark){.mark = "sandbox-0123456789abcdee", .uid = 0}, 1) >= 1);
  while (wait(NULL) > 0)
    ;
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_process_is_known_by_its_start),
    cmocka_unit_test(a_name_may_hold_anything),
    cmocka_unit_test(marked_processes_end_and_no_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
