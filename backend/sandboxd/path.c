/*
 * The path walk: see path.h.
 */
#include "backend/sandboxd/path.h"

#include "base/limits.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_COMPONENT_SIZE 256 /* the longest name of any file system, and its NUL */

static int path_openat2(int directory, const char *path, int flags) {
  struct open_how how = {.flags = (uint64_t)(unsigned)flags,
                         .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
  return (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
}

int path_root_open(struct path_root *root, const char *workspace, bool walk, struct error **err) {
  root->walk = walk;
  root->descriptor = open(workspace, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root->descriptor < 0)
    return error_set_errno(err, errno, "the workspace cannot be opened");
  if (!walk) {
    int probe = path_openat2(root->descriptor, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    root->walk = probe < 0;
    if (probe >= 0)
      close(probe);
  }
  return 0;
}

void path_root_close(struct path_root *root) {
  if (root->descriptor >= 0)
    close(root->descriptor);
  root->descriptor = -1;
}

/* Copies the component at *path and moves *path behind it and its slash. Returns 0, or -1 with errno. */
static int path_next(const char **path, char component[static PATH_COMPONENT_SIZE]) {
  size_t length = strcspn(*path, "/");
  if (length >= PATH_COMPONENT_SIZE) {
    errno = ENAMETOOLONG;
    return -1;
  }
  memcpy(component, *path, length);
  component[length] = 0;
  *path += length;
  if (**path)
    ++*path;
  return 0;
}

static int path_check(const char *path, struct error **err) {
  if (!*path)
    return error_set_field(err, REASON_INVALID_PATH, "path", "Path must name a file in /workspace");
  if (strlen(path) > LIMIT_PATH_BYTES)
    return error_set_field(err, REASON_INVALID_PATH, "path", "Path is longer than 4096 bytes");
  for (const char *at = path;;) {
    size_t length = strcspn(at, "/");
    if (!length || (length == 1 && at[0] == '.') || (length == 2 && at[0] == '.' && at[1] == '.'))
      return error_set_field(err, REASON_INVALID_PATH, "path", "Path must have no empty, '.' or '..' component");
    if (!at[length])
      return 0;
    at += length + 1;
  }
}

/* One step down. Returns the directory, or -1 and errno. O_NOFOLLOW with O_DIRECTORY refuses symlinks with ENOTDIR. */
static int path_step(int directory, const char *component, bool make) {
  const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  int next = openat(directory, component, flags);
  if (next >= 0 || errno != ENOENT || !make)
    return next;
  if (mkdirat(directory, component, 0755) && errno != EEXIST)
    return -1;
  return openat(directory, component, flags);
}

/* Walks the components before `last`, which lies inside `path`. Returns their directory (a new descriptor), or -1 with
 * errno. */
static int path_walk(const struct path_root *root, const char *path, const char *last, bool make) {
  char component[PATH_COMPONENT_SIZE];
  int directory = fcntl(root->descriptor, F_DUPFD_CLOEXEC, 3);
  while (directory >= 0 && path < last) {
    int next = path_next(&path, component) ? -1 : path_step(directory, component, make);
    int number = errno;
    close(directory);
    errno = number;
    directory = next;
  }
  return directory;
}

static const char *path_last(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static int path_open_directory(const struct path_root *root, const char *path, const char *last, bool make) {
  if (make || root->walk || last == path)
    return path_walk(root, path, last, make);
  char directory[LIMIT_PATH_BYTES + 1];
  size_t length = (size_t)(last - path) - 1;
  memcpy(directory, path, length);
  directory[length] = 0;
  return path_openat2(root->descriptor, directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* What a failed open says about the path. `missing` is the reason for ENOENT. */
static int path_failed(struct error **err, int number, enum reason missing) {
  switch (number) {
  case ENOENT:
    return error_set_detail(err, missing, "no such file or directory");
  case ELOOP:
  case ENOTDIR:
  case EXDEV:
  case ENXIO:
  case EISDIR:
  case ENAMETOOLONG:
    return error_set_detail(err, REASON_INVALID_PATH, "%s", strerror(number));
  default:
    return error_set_detail(err, REASON_FILE_TRANSFER_FAILED, "open: %s", strerror(number));
  }
}

static int path_open_read(const struct path_root *root, const char *path) {
  const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  if (!root->walk)
    return path_openat2(root->descriptor, path, flags);
  const char *last = path_last(path);
  int directory = path_walk(root, path, last, false);
  if (directory < 0)
    return -1;
  int file = openat(directory, last, flags | O_NOFOLLOW);
  int number = errno;
  close(directory);
  errno = number;
  return file;
}

int path_open_file(const struct path_root *root, const char *path, struct stat *status, struct error **err) {
  if (path_check(path, err))
    return -1;
  int file = path_open_read(root, path);
  if (file < 0)
    return path_failed(err, errno, REASON_FILE_NOT_FOUND);
  if (fstat(file, status)) {
    error_set_detail(err, REASON_FILE_TRANSFER_FAILED, "fstat: %s", strerror(errno));
  } else if (!S_ISREG(status->st_mode)) {
    error_set_field(err, REASON_INVALID_PATH, "path", "Path must name a regular file");
  } else {
    return file;
  }
  close(file);
  return -1;
}

int path_open_parent(const struct path_root *root, const char *path, bool make, const char **name, struct error **err) {
  if (path_check(path, err))
    return -1;
  const char *last = path_last(path);
  if (strlen(last) >= PATH_COMPONENT_SIZE)
    return path_failed(err, ENAMETOOLONG, REASON_INVALID_PATH);
  int directory = path_open_directory(root, path, last, make);
  if (directory < 0)
    return path_failed(err, errno, REASON_INVALID_PATH);
  *name = last;
  return directory;
}

int path_look(int directory, const char *name, struct stat *status, struct error **err) {
  if (fstatat(directory, name, status, AT_SYMLINK_NOFOLLOW))
    return errno == ENOENT ? 0 : path_failed(err, errno, REASON_INVALID_PATH);
  if (!S_ISREG(status->st_mode))
    return error_set_field(err, REASON_INVALID_PATH, "path", "Path must name a regular file");
  return 1;
}
