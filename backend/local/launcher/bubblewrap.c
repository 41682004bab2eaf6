/*
 * The command line of bubblewrap: which namespaces, which mounts, which filter. Every flag is here for a reason, and
 * docs/local-backend.md says what each of them isolates.
 */
#include "backend/local/launcher/launch.h"
#include "backend/local/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

const char *const launch_environment[] = {
  "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  "HOME=" SANDBOX_HOME,
  "USER=" SANDBOX_USER,
  "LOGNAME=" SANDBOX_USER,
  "SHELL=/bin/sh",
  "LANG=C.UTF-8",
  NULL,
};

static const char *const base[] = {
  "bwrap",
  /* A user, mount, pid, network, ipc, uts and cgroup namespace; no further user namespace can be made inside. */
  "--unshare-all", "--unshare-user", "--disable-userns", "--uid", TEXT(SANDBOX_UID), "--gid", TEXT(SANDBOX_UID),
  "--hostname", "sandbox", "--cap-drop", "ALL",
  /* The agent is the first process: when it ends, the kernel ends everything else in the namespace. No controlling
   * terminal. No --die-with-parent: sandboxes outlive the server. */
  "--as-pid-1", "--new-session",
  /* --bind would undo the read-only flag of the mounts below. */
  "--ro-bind", LAUNCH_SCAFFOLD "/root", "/", "--proc", "/proc", "--dev", "/dev",
  "--bind", LAUNCH_SCAFFOLD "/shm", "/dev/shm", "--remount-ro", "/dev",
  "--bind", LAUNCH_SCAFFOLD "/tmp", "/tmp", "--bind", LAUNCH_SCAFFOLD "/home", SANDBOX_HOME,
  "--bind", LAUNCH_SCAFFOLD "/workspace", SANDBOX_WORKSPACE, "--chdir", SANDBOX_WORKSPACE,
  "--seccomp", TEXT(5), "--info-fd", TEXT(4), "--",
  "/run/sandboxd", "serve", "--listen-fd", TEXT(3),
};
_Static_assert(LAUNCH_FD_LISTEN == 3 && LAUNCH_FD_REPORT == 4 && LAUNCH_FD_SECCOMP == 5, "as written above");

/* The filter's descriptor is shared by all launchers, its offset too: take one of our own. */
static int own_filter(struct error **err) {
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", LAUNCH_FD_SECCOMP);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return error_set_errno(err, errno, "cannot open the filter");
  int copied = dup2(file, LAUNCH_FD_SECCOMP);
  int number = errno;
  close(file);
  return copied >= 0 ? 0 : error_set_errno(err, number, "cannot take the filter");
}

#define BASE_COUNT (sizeof base / sizeof *base)

int launch_bubblewrap(const struct launch *launch, struct error **err) {
  close(LAUNCH_FD_READY);
  if (own_filter(err) != 0)
    return -1;
  const char *arguments[BASE_COUNT + 3] = {NULL};
  memcpy(arguments, base, sizeof base);
  arguments[0] = launch->program;
  if (launch->events != NULL) {
    arguments[BASE_COUNT] = "--memory-events";
    arguments[BASE_COUNT + 1] = LAUNCH_EVENTS;
  }
  launch_untie();
  execveat(launch->program_file, "", (char *const *)arguments, (char *const *)launch_environment, AT_EMPTY_PATH);
  return error_set_errno(err, errno, "cannot execute %s", launch->program);
}
