/*
 * Making the /etc of sandboxes: see etc.h.
 */
#include "backend/local/etc.h"

#include "backend/local/protocol.h"
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

enum { PATH_SIZE = 512 };

static const struct {
  const char *name, *content;
} files[] = {
  {"passwd", "root:x:0:0:root:/:/usr/sbin/nologin\n" SANDBOX_USER ":x:" TEXT(SANDBOX_UID) ":" TEXT(SANDBOX_UID) "::"
             SANDBOX_HOME ":/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"},
  {"group", "root:x:0:\n" SANDBOX_USER ":x:" TEXT(SANDBOX_UID) ":\nnogroup:x:65534:\n"},
  {"hostname", "sandbox\n"},
  {"hosts", "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost\n"},
  {"nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n"},
  {"resolv.conf", ""},
  /* A login shell reads it; the environment is the agent's business. */
  {"profile", "umask 022\n"},
  {"shells", "/bin/sh\n/bin/bash\n"},
};

/* Shown as the host has them, where it has them; none holds a secret. Patterns of glob(3). */
static const char *const live[] = {"alternatives", "ld.so.cache", "ssl/certs", "ssl/openssl.cnf", "services",
                                   "protocols",    "mime.types",  "fonts",     "java-*-openjdk"};

static bool same(const char *path, const char *content) {
  char text[1024];
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? -1 : read(file, text, sizeof text);
  if (file >= 0)
    close(file);
  return length == (ssize_t)strlen(content) && memcmp(text, content, (size_t)length) == 0;
}

static int write_new(const char *path, const char *content, struct error **err) {
  char temporary[PATH_SIZE + 8];
  snprintf(temporary, sizeof temporary, "%s.new", path);
  unlink(temporary);
  int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  ssize_t length = (ssize_t)strlen(content);
  bool good = file >= 0 && write(file, content, (size_t)length) == length && fchmod(file, 0644) == 0 &&
              rename(temporary, path) == 0;
  int number = errno;
  if (file >= 0)
    close(file);
  return good ? 0 : error_set_errno(err, number, "cannot write %s", path);
}

static int make_directory(const char *path, struct error **err) {
  if (mkdir(path, 0755) != 0 && errno != EEXIST)
    return error_set_errno(err, errno, "cannot make %s", path);
  return chmod(path, 0755) == 0 ? 0 : error_set_errno(err, errno, "cannot set the mode of %s", path);
}

/* An empty file or directory to mount on. It is never replaced: that would unmount what living sandboxes see there. */
static int make_place(const char *directory, const char *name, bool is_directory, struct error **err) {
  char path[PATH_SIZE];
  for (const char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
    snprintf(path, sizeof path, "%s/%.*s", directory, (int)(slash - name), name);
    if (make_directory(path, err) != 0)
      return -1;
  }
  snprintf(path, sizeof path, "%s/%s", directory, name);
  if (is_directory)
    return make_directory(path, err);
  int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0)
    return error_set_errno(err, errno, "cannot make %s", path);
  close(file);
  return 0;
}

/* One that exists on the host. */
static int add_live(const char *directory, const char *host, const char *path, struct local_etc *etc,
                    struct error **err) {
  const char *name = path + strlen(host) + 1;
  struct stat status;
  if (stat(path, &status) != 0 || strlen(name) >= LOCAL_ETC_NAME_SIZE || etc->live_count == LOCAL_ETC_LIVE_MAX)
    return 0;
  snprintf(etc->live[etc->live_count++], LOCAL_ETC_NAME_SIZE, "%s", name);
  return make_place(directory, name, S_ISDIR(status.st_mode), err);
}

static int add_pattern(const char *directory, const char *host, const char *pattern, struct local_etc *etc,
                       struct error **err) {
  char path[PATH_SIZE];
  glob_t found = {0};
  int failed = 0;
  snprintf(path, sizeof path, "%s/%s", host, pattern);
  if (glob(path, 0, NULL, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc && failed == 0; i++)
      failed = add_live(directory, host, found.gl_pathv[i], etc, err);
  globfree(&found);
  return failed;
}

int local_etc_make(const char *directory, const char *host, struct local_etc *etc, struct error **err) {
  char path[PATH_SIZE];
  *etc = (struct local_etc){.live_count = 0};
  if (make_directory(directory, err) != 0)
    return -1;
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    snprintf(path, sizeof path, "%s/%s", directory, files[i].name);
    if (!same(path, files[i].content) && write_new(path, files[i].content, err) != 0)
      return -1;
  }
  for (size_t i = 0; i < sizeof live / sizeof *live; i++)
    if (add_pattern(directory, host, live[i], etc, err) != 0)
      return -1;
  return 0;
}
