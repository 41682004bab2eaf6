/*
 * What binds a sandbox from its first moment: the life of the server while it is being made, cgroups, and resource
 * limits that hold where there are no cgroups too.
 */
#include "backend/local/launcher/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

/* Descriptors that one process in the sandbox may have open. */
#define OPEN_FILES 8192
/* The kernel's last resort takes a sandbox before it takes the server. */
#define OOM_SCORE "500"

int launch_tie(const struct launch *launch, struct error **err) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
    return error_set_errno(err, errno, "cannot tie the launcher to the server");
  if (getppid() != launch->parent)
    return error_set_detail(err, REASON_SANDBOX_START_FAILED, "the server is gone");
  return 0;
}

void launch_untie(void) { prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0); }

static int write_file(const char *path, const char *text) {
  int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0)
    return -1;
  ssize_t written = write(file, text, strlen(text));
  int number = errno;
  close(file);
  errno = number;
  return written == (ssize_t)strlen(text) ? 0 : -1;
}

int launch_join(const struct launch *launch, struct error **err) {
  for (size_t i = 0; i < launch->join_count; i++)
    if (write_file(launch->joins[i], "0") != 0)
      return error_set_errno(err, errno, "cannot join %s", launch->joins[i]);
  return 0;
}

/* Never above what we were given: raising a hard limit is a privilege. */
static int set_limit(int resource, const char *name, rlim_t value, struct error **err) {
  struct rlimit limit;
  if (getrlimit((__rlimit_resource_t)resource, &limit) != 0)
    return error_set_errno(err, errno, "cannot read the limit of %s", name);
  if (limit.rlim_max < value)
    value = limit.rlim_max;
  limit = (struct rlimit){.rlim_cur = value, .rlim_max = value};
  if (setrlimit((__rlimit_resource_t)resource, &limit) != 0)
    return error_set_errno(err, errno, "cannot limit %s", name);
  return 0;
}

int launch_limit(const struct launch *launch, struct error **err) {
  /* Only raises the score, which needs no privilege; a kernel that refuses changes nothing that matters. */
  (void)write_file("/proc/self/oom_score_adj", OOM_SCORE);
  if (set_limit(RLIMIT_CORE, "core files", 0, err) != 0)
    return -1;
  /* gVisor's own processes hold the descriptors of everything inside. */
  if (launch->runtime == LAUNCH_GVISOR)
    return 0;
  if (set_limit(RLIMIT_NOFILE, "open files", OPEN_FILES, err) != 0)
    return -1;
  /* A cgroup bounds all memory of a sandbox together. Without one, at least no process takes it all. */
  if (launch->memory != 0 && set_limit(RLIMIT_DATA, "data", launch->memory, err) != 0)
    return -1;
  return 0;
}

int launch_limit_processes(const struct launch *launch, struct error **err) {
  return launch->processes == 0 ? 0 : set_limit(RLIMIT_NPROC, "processes", launch->processes, err);
}
