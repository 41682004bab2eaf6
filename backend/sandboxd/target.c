/*
 * Files being written: see target.h.
 */
#include "backend/sandboxd/target.h"

#include "base/digest.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TARGET_PREFIX ".sandboxd-"
#define TARGET_RANDOM_BYTES 8

static int target_failed(struct error **err, const char *what) {
  return error_set_detail(err, REASON_FILE_TRANSFER_FAILED, "%s: %s", what, strerror(errno));
}

static void target_name_temporary(struct target *target) {
  uint8_t bytes[TARGET_RANDOM_BYTES];
  random_bytes(bytes, sizeof bytes);
  memcpy(target->temporary, TARGET_PREFIX, sizeof TARGET_PREFIX);
  text_hex(bytes, sizeof bytes, target->temporary + sizeof TARGET_PREFIX - 1);
}

/* A file system without O_TMPFILE says EOPNOTSUPP; a kernel without it takes it for opening the directory: EISDIR. */
static int target_create(struct target *target, bool named, struct error **err) {
  if (!named) {
    target->file = openat(target->directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (target->file >= 0)
      return 0;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOSYS)
      return target_failed(err, "create");
  }
  target_name_temporary(target);
  target->file = openat(target->directory, target->temporary, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (target->file >= 0)
    return 0;
  target->temporary[0] = 0;
  return target_failed(err, "create");
}

int target_open(struct target *target, const struct path_root *root, const char *path, bool make, bool named,
                struct error **err) {
  struct stat status;
  const char *name;
  *target = (struct target){.directory = -1, .file = -1};
  target->directory = path_open_parent(root, path, make, &name, err);
  if (target->directory < 0)
    return -1;
  memcpy(target->name, name, strlen(name) + 1); /* path_open_parent has seen to its length */
  if (path_look(target->directory, target->name, &status, err) >= 0 && !target_create(target, named, err))
    return 0;
  target_close(target);
  return -1;
}

int target_write(struct target *target, const uint8_t *bytes, size_t length, struct error **err) {
  while (length) {
    ssize_t written = write(target->file, bytes, length);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return target_failed(err, "write");
    bytes += written;
    length -= (size_t)written;
  }
  return 0;
}

/* Gives the nameless file a name. */
static int target_link(const struct target *target, const char *name) {
  char link[32];
  snprintf(link, sizeof link, "/proc/self/fd/%d", target->file);
  return linkat(AT_FDCWD, link, target->directory, name, AT_SYMLINK_FOLLOW);
}

int target_commit(struct target *target, struct error **err) {
  struct stat status;
  int there = path_look(target->directory, target->name, &status, err);
  if (there < 0)
    return -1;
  if (fchmod(target->file, there ? status.st_mode & 0777 : 0644))
    return target_failed(err, "chmod");
  if (!target->temporary[0]) {
    if (!there && !target_link(target, target->name))
      return 0;
    if (!there && errno != EEXIST)
      return target_failed(err, "link");
    target_name_temporary(target);
    if (target_link(target, target->temporary)) {
      target->temporary[0] = 0;
      return target_failed(err, "link");
    }
  }
  if (renameat(target->directory, target->temporary, target->directory, target->name))
    return target_failed(err, "rename");
  target->temporary[0] = 0;
  return 0;
}

void target_close(struct target *target) {
  if (target->temporary[0])
    unlinkat(target->directory, target->temporary, 0);
  target->temporary[0] = 0;
  if (target->file >= 0)
    close(target->file);
  if (target->directory >= 0)
    close(target->directory);
  target->file = target->directory = -1;
}
