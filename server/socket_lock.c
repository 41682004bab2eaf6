/*
 * The lock is flock on a file that is removed by whoever holds it, so taking it means to check afterwards that the file
 * locked is still the one at the path.
 */
#include "server/socket_lock.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { ATTEMPTS = 100 };

struct socket_lock {
  int fd;
  char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
  char lock_path[sizeof(((struct sockaddr_un *)0)->sun_path) + sizeof ".lock"];
};

/* The file we locked may have been removed by the process that had it before us: then it locks nothing. */
static bool lock_is_current(int fd, const char *path) {
  struct stat held, found;
  return fstat(fd, &held) == 0 && stat(path, &found) == 0 && held.st_dev == found.st_dev && held.st_ino == found.st_ino;
}

/* Returns the descriptor, or -1 and *err. */
static int lock_open(const char *path, struct error **err) {
  for (int i = 0; i < ATTEMPTS; i++) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
      return error_set_errno(err, errno, "cannot open %s", path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
      int number = errno;
      close(fd);
      if (number == EWOULDBLOCK)
        return error_set_detail(err, REASON_INTERNAL, "another server holds %s", path);
      return error_set_errno(err, number, "cannot lock %s", path);
    }
    if (lock_is_current(fd, path))
      return fd;
    close(fd);
  }
  return error_set_detail(err, REASON_INTERNAL, "cannot lock %s: it keeps being replaced", path);
}

/* A socket nobody listens on is left over from a process that was killed, and may go. */
static int path_check(const char *path, struct error **err) {
  struct stat found;
  if (lstat(path, &found) < 0)
    return errno == ENOENT ? 0 : error_set_errno(err, errno, "cannot look at %s", path);
  if (!S_ISSOCK(found.st_mode))
    return error_set_detail(err, REASON_INTERNAL, "%s exists and is not a socket", path);
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  memcpy(address.sun_path, path, strlen(path) + 1);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return error_set_errno(err, errno, "cannot make a socket");
  int result = connect(fd, (struct sockaddr *)&address, sizeof address);
  int number = errno;
  close(fd);
  if (result == 0 || number != ECONNREFUSED)
    return error_set_detail(err, REASON_INTERNAL, "another program listens on %s", path);
  return 0;
}

struct socket_lock *socket_lock_take(const char *path, struct error **err) {
  struct socket_lock *lock = memory_zero(sizeof *lock);
  if (!lock) {
    error_set_memory(err);
    return NULL;
  }
  size_t length = strlen(path);
  if (length == 0 || length >= sizeof lock->path) {
    memory_free(lock);
    error_set_detail(err, REASON_INTERNAL, "a socket's path must have 1 to %zu bytes", sizeof lock->path - 1);
    return NULL;
  }
  memcpy(lock->path, path, length + 1);
  snprintf(lock->lock_path, sizeof lock->lock_path, "%s.lock", path);
  lock->fd = lock_open(lock->lock_path, err);
  if (lock->fd >= 0 && path_check(path, err) == 0)
    return lock;
  if (lock->fd >= 0) {
    unlink(lock->lock_path);
    close(lock->fd);
  }
  memory_free(lock);
  return NULL;
}

void socket_lock_release(struct socket_lock *lock) {
  if (!lock)
    return;
  unlink(lock->path);
  unlink(lock->lock_path); /* while it is held: whoever opened it meanwhile finds out that it is gone */
  close(lock->fd);
  memory_free(lock);
}
