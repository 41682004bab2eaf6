/*
 * The first program inside gVisor. A listening socket cannot be handed into gVisor from outside, but one that is bound
 * in there to a path of a mounted directory is real on the host too (--host-uds=create). Only the root of the user
 * namespace can make it, so this program starts as root with two capabilities, makes the socket, becomes the sandbox's
 * user for good and executes the agent.
 *
 *   sandbox-launcher guest SOCKET UID AGENT [ARGUMENT…]
 *
 * One byte on standard output says that the agent can be reached.
 */
#include "backend/local/launcher/launch.h"
#include "backend/local/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 64

/* Whatever program is configured as runsc: only gVisor's kernel says so in its log, and only there may everybody
 * read it. */
static int check_kernel(struct error **err) {
  char log[4096];
  int length = klogctl(3 /* read all */, log, sizeof log - 1);
  log[length > 0 ? length : 0] = '\0';
  return strstr(log, "Starting gVisor") != NULL
           ? 0 : error_set_detail(err, REASON_SANDBOX_START_FAILED, "the runtime is not gVisor");
}

static int listen_at(const char *path, struct error **err) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  size_t length = strlen(path);
  if (length >= sizeof address.sun_path)
    return error_set_detail(err, REASON_INVALID_REQUEST, "the socket's path is too long");
  memcpy(address.sun_path, path, length);
  int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  if (listener < 0)
    return error_set_errno(err, errno, "cannot make a socket");
  if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, BACKLOG) != 0) {
    error_set_errno(err, errno, "cannot listen at %s", path);
    close(listener);
    return -1;
  }
  if (listener != LAUNCH_FD_LISTEN) {
    if (dup2(listener, LAUNCH_FD_LISTEN) < 0)
      error_set_errno(err, errno, "cannot place the socket");
    close(listener);
  }
  return err != NULL && *err != NULL ? -1 : 0;
}

static int become(uid_t uid, struct error **err) {
  if (setgroups(0, NULL) != 0 || setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0)
    return error_set_errno(err, errno, "cannot become the sandbox's user");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return error_set_errno(err, errno, "cannot forbid new privileges");
  return 0;
}

static int tell_ready(struct error **err) {
  if (write(STDOUT_FILENO, "1", 1) != 1)
    return error_set_errno(err, errno, "cannot say that the sandbox is ready");
  int null = open("/dev/null", O_WRONLY);
  if (null < 0 || dup2(null, STDOUT_FILENO) < 0)
    return error_set_errno(err, errno, "cannot open /dev/null");
  close(null);
  return 0;
}

int launch_guest(int count, char **arguments, struct error **err) {
  if (count < 4)
    return error_set_detail(err, REASON_INVALID_REQUEST, "guest: a socket, a uid and a program are wanted");
  char *end = NULL;
  unsigned long uid = strtoul(arguments[2], &end, 10);
  if (*end != '\0' || uid == 0 || uid >= UINT32_MAX)
    return error_set_detail(err, REASON_INVALID_REQUEST, "guest: bad uid");
  if (check_kernel(err) != 0 || listen_at(arguments[1], err) != 0 || become((uid_t)uid, err) != 0 ||
      tell_ready(err) != 0)
    return -1;
  execv(arguments[3], arguments + 3);
  return error_set_errno(err, errno, "cannot execute %s", arguments[3]);
}
