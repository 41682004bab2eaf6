/*
 * The launcher's order of steps; see launch.h. What goes wrong is one line on standard error, which is the sandbox's
 * log.
 */
#include "backend/local/launcher/launch.h"
#include "backend/local/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

/* The namespaces that bubblewrap makes by itself. */
#define GVISOR_NAMESPACES (CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)

/* Root: the mounts are made with the host's privilege, then it is given up for good. */
static int become_as_root(const struct launch *launch, struct error **err) {
  if (unshare(CLONE_NEWNS) != 0)
    return error_set_errno(err, errno, "cannot make a mount namespace");
  if (launch_scaffold(launch, err) != 0 || launch_drop(launch, err) != 0)
    return -1;
  if (launch->runtime == LAUNCH_GVISOR)
    return launch_enter(CLONE_NEWNS | GVISOR_NAMESPACES, 0, err);
  return 0;
}

/* A user: the same mounts, with the privilege of a user namespace. */
static int become_as_user(const struct launch *launch, struct error **err) {
  bool gvisor = launch->runtime == LAUNCH_GVISOR;
  if (launch_enter(CLONE_NEWNS | (gvisor ? GVISOR_NAMESPACES : 0), gvisor ? 0 : geteuid(), err) != 0)
    return -1;
  return launch_scaffold(launch, err);
}

static int run(int count, char **arguments, struct error **err) {
  struct launch launch;
  if (count > 1 && strcmp(arguments[1], "guest") == 0)
    return launch_guest(count - 1, arguments + 1, err);
  if (launch_parse(count, arguments, &launch, err) != 0 || launch_tie(&launch, err) != 0)
    return -1;
  /* Nothing of the server's leaks into a sandbox, whatever it forgot to close. */
  if (syscall(SYS_close_range, LAUNCH_FD_COUNT, ~0U, 0) != 0)
    return error_set_errno(err, errno, "cannot close what was inherited");
  launch.program_file = open(launch.program, O_PATH | O_CLOEXEC);
  if (launch.program_file < 0)
    return error_set_errno(err, errno, "cannot open %s", launch.program);
  if (launch.uid == 0 && geteuid() == 0)
    return error_set_detail(err, REASON_INVALID_REQUEST, "root must name a uid to drop to");
  if (launch_join(&launch, err) != 0 || launch_limit(&launch, err) != 0)
    return -1;
  if ((launch.uid != 0 ? become_as_root(&launch, err) : become_as_user(&launch, err)) != 0)
    return -1;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return error_set_errno(err, errno, "cannot forbid new privileges");
  /* Only now: the limit must count the processes of this sandbox, not those of the user who runs the server. */
  if (launch_limit_processes(&launch, err) != 0)
    return -1;
  return launch.runtime == LAUNCH_GVISOR ? launch_gvisor(&launch, err) : launch_bubblewrap(&launch, err);
}

int main(int count, char **arguments) {
  CLEANUP_ERROR struct error *err = NULL;
  if (run(count, arguments, &err) == 0)
    return 0;
  fprintf(stderr, "sandbox-launcher: %s\n", error_detail(err));
  return 1;
}
