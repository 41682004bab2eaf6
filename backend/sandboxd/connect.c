/*
 * Finding the sandboxd of this container: see connect.h.
 */
#include "backend/sandboxd/connect.h"

#include "backend/sandboxd/agent.h"
#include "backend/sandboxd/handover.h"
#include "base/digest.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { READ_BYTES = 65536, BACKLOG = 16, ATTEMPTS = 3 };

int connect_verify(const char *digest, struct error **err) {
  static uint8_t bytes[READ_BYTES];
  uint8_t wanted[DIGEST_SIZE], found[DIGEST_SIZE];
  struct digest sum;
  ssize_t length = -1;
  if (text_unhex(digest, strlen(digest), wanted, sizeof wanted) != 0)
    return error_set_detail(err, REASON_INTERNAL, "--digest must be 64 hexadecimal digits");
  int program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  digest_start(&sum);
  while (program >= 0 && (length = read(program, bytes, sizeof bytes)) > 0)
    digest_update(&sum, bytes, (size_t)length);
  if (program >= 0)
    close(program);
  if (length < 0)
    return error_set_errno(err, errno, "/proc/self/exe");
  digest_finish(&sum, found);
  return digest_equal(wanted, found, sizeof found)
             ? 0
             : error_set_detail(err, REASON_INTERNAL, "this program is not the one that is wanted");
}

/* "@sandboxd/PROTOCOL/USER/CONTAINER" and perhaps "/NAME": containers of one Pod may share their network namespace, where these names
 * live, but not their processes. Returns the address's length. */
static socklen_t make_address(const char *name, struct sockaddr_un *address) {
  char space[64] = "";
  ssize_t length = readlink("/proc/self/ns/pid", space, sizeof space - 1);
  space[length > 0 ? length : 0] = '\0';
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  int written = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "sandboxd/%d/%u/%.32s%s%.*s",
                         AGENT_PROTOCOL, (unsigned)geteuid(), space, name ? "/" : "", CONNECT_NAME_BYTES,
                         name ? name : "");
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)written);
}

static int new_socket(void) {
  return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

/* A listening socket there; -1 and errno, EADDRINUSE if there is one already. */
static int try_listen(const struct sockaddr_un *address, socklen_t length) {
  int listener = new_socket();
  if (listener >= 0 && bind(listener, (const struct sockaddr *)address, length) == 0 && listen(listener, BACKLOG) == 0)
    return listener;
  int error = errno;
  if (listener >= 0)
    close(listener);
  errno = error;
  return -1;
}

/* Whoever listens there runs as somebody else: another container's program took the name. */
static bool foreign(int socket) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid();
}

static int try_connect(const struct sockaddr_un *address, socklen_t length) {
  int socket = new_socket();
  if (socket >= 0 && connect(socket, (const struct sockaddr *)address, length) == 0) {
    if (!foreign(socket))
      return socket;
    errno = EPERM;
  }
  int error = errno;
  if (socket >= 0)
    close(socket);
  errno = error;
  return -1;
}

int connect_reach(const char *name, int *listener, struct error **err) {
  struct sockaddr_un address;
  socklen_t length = make_address(name, &address);
  *listener = -1;
  for (int i = 0; i < ATTEMPTS; i++) { /* it may end, and another one be started, between two steps */
    int socket = try_connect(&address, length);
    if (socket >= 0)
      return socket;
    if (errno != ECONNREFUSED)
      break;
    *listener = try_listen(&address, length);
    if (*listener < 0 && errno != EADDRINUSE)
      break;
    socket = *listener >= 0 ? try_connect(&address, length) : -1;
    if (socket >= 0)
      return socket;
  }
  int error = errno;
  if (*listener >= 0)
    close(*listener);
  return error_set_errno(err, error, "the socket of sandboxd");
}

int connect_stay(int socket) {
  static const char greeting[] = CONNECT_GREETING;
  char byte;
  if (write(STDOUT_FILENO, greeting, sizeof greeting - 1) != (ssize_t)(sizeof greeting - 1) ||
      handover_send(socket, STDIN_FILENO, STDOUT_FILENO) != 0)
    return 1;
  while (read(socket, &byte, 1) < 0 && errno == EINTR)
    continue;
  return 0;
}
