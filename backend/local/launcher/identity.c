/*
 * Giving up privilege: to a uid of the sandbox's own, or into a user namespace.
 */
#include "backend/local/launcher/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int launch_drop(const struct launch *launch, struct error **err) {
  uid_t uid = launch->uid;
  if (setgroups(0, NULL) != 0)
    return error_set_errno(err, errno, "cannot leave supplementary groups");
  if (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0)
    return error_set_errno(err, errno, "cannot become uid %u", uid);
  if (setuid(0) == 0)
    return error_set_detail(err, REASON_SANDBOX_START_FAILED, "root could be had again");
  /* A change of uid also made this process opaque to its own uid, which would hide /proc/self from it, and forgot the
   * server's death. */
  if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0)
    return error_set_errno(err, errno, "cannot see /proc/self");
  return launch_tie(launch, err);
}

static int write_map(const char *path, const char *text, struct error **err) {
  int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0)
    return error_set_errno(err, errno, "cannot open %s", path);
  ssize_t written = write(file, text, strlen(text));
  int number = errno;
  close(file);
  if (written != (ssize_t)strlen(text))
    return error_set_errno(err, number, "cannot write %s", path);
  return 0;
}

int launch_enter(int more, uid_t inside, struct error **err) {
  uid_t uid = geteuid();
  gid_t gid = getegid();
  if (unshare(CLONE_NEWUSER | more) != 0)
    return error_set_errno(err, errno, "cannot make a user namespace (kernel.unprivileged_userns_clone, "
                                       "user.max_user_namespaces or AppArmor may forbid it)");
  char map[64];
  if (write_map("/proc/self/setgroups", "deny", err) != 0)
    return -1;
  snprintf(map, sizeof map, "%u %u 1", inside, uid);
  if (write_map("/proc/self/uid_map", map, err) != 0)
    return -1;
  snprintf(map, sizeof map, "%u %u 1", inside, gid);
  return write_map("/proc/self/gid_map", map, err);
}
