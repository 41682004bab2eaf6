/*
 * The file system of a sandbox, built in a mount namespace of the launcher's own before the runtime starts: one tmpfs
 * of bounded size and number of files, in it the directories a sandbox may write, and a read-only root made of the
 * host's /usr and a synthetic /etc. Nothing else of the host is in it: what is not mounted cannot be reached.
 *
 * Both runtimes get this same tree. It vanishes with the namespace, so there is nothing to remove afterwards.
 */
#include "backend/local/launcher/launch.h"
#include "backend/local/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOT LAUNCH_SCAFFOLD "/root"
/* Files and bytes of the tmpfs that are the scaffold's own. */
#define OWN_FILES 64
#define OWN_BYTES 65536

/* What must be opened before LAUNCH_SCAFFOLD hides whatever lies below that name on the host. -1: not open. */
struct sources {
  int agent, etc, self;
};

static void sources_close(struct sources *sources) {
  const int files[] = {sources->agent, sources->etc, sources->self};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    if (files[i] >= 0)
      close(files[i]);
}

static int open_source(const char *path, int *file, struct error **err) {
  *file = open(path, O_PATH | O_CLOEXEC);
  return *file >= 0 ? 0 : error_set_errno(err, errno, "cannot open %s", path);
}

/* Our own program by its name: what /proc/self/exe leads to lies in the mount namespace that we have left. */
static int open_self(int *file, struct error **err) {
  char path[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length < 0)
    return error_set_errno(err, errno, "cannot find the launcher's own program");
  path[length] = '\0';
  return open_source(path, file, err);
}

static int make_directory(const char *path, mode_t mode, struct error **err) {
  if (mkdir(path, 0755) != 0 && errno != EEXIST)
    return error_set_errno(err, errno, "cannot make %s", path);
  if (mode != 0755 && chmod(path, mode) != 0)
    return error_set_errno(err, errno, "cannot set the mode of %s", path);
  return 0;
}

static int make_file(const char *path, struct error **err) {
  int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
  if (file < 0)
    return error_set_errno(err, errno, "cannot make %s", path);
  close(file);
  return 0;
}

static int bind(const char *source, const char *target, struct error **err) {
  if (mount(source, target, NULL, MS_BIND | MS_REC, NULL) != 0)
    return error_set_errno(err, errno, "cannot show %s as %s", source, target);
  return 0;
}

static int bind_open(int source, const char *target, struct error **err) {
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", source);
  return bind(path, target, err);
}

/* gVisor remounts its root and names no flag but read-only; the kernel takes that for an attempt to lift the
 * others, which only their owner may. It needs none of them: nothing on these mounts is executed on the host, nor
 * opened as a device. */
static bool plain(const struct launch *launch) { return launch->runtime == LAUNCH_GVISOR; }

/* Everything mounted at and below `path` becomes read-only, without devices and without setuid. */
static int seal(const struct launch *launch, const char *path, struct error **err) {
  struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY |
                                              (plain(launch) ? 0 : MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)};
  if (mount_setattr(AT_FDCWD, path, AT_RECURSIVE, &attributes, sizeof attributes) != 0)
    return error_set_errno(err, errno, "cannot make %s read-only", path);
  return 0;
}

static int make_disk(const struct launch *launch, struct error **err) {
  char options[128];
  snprintf(options, sizeof options, "mode=755,size=%llu,nr_inodes=%llu",
           (unsigned long long)(launch->bytes + OWN_BYTES), (unsigned long long)(launch->files + OWN_FILES));
  if (mount(launch->mark, LAUNCH_SCAFFOLD, "tmpfs", plain(launch) ? 0 : MS_NOSUID | MS_NODEV, options) != 0)
    return error_set_errno(err, errno, "cannot mount the workspace on %s", LAUNCH_SCAFFOLD);
  return 0;
}

/* The directories that belong to the sandbox's user. */
static int make_writable(const struct launch *launch, struct error **err) {
  static const struct {
    const char *path;
    mode_t mode;
  } directories[] = {{LAUNCH_SCAFFOLD "/workspace", 0755},
                     {LAUNCH_SCAFFOLD "/home", 0755},
                     {LAUNCH_SCAFFOLD "/tmp", 01777},
                     {LAUNCH_SCAFFOLD "/shm", 01777},
                     {LAUNCH_SCAFFOLD "/bundle", 0755},
                     {LAUNCH_SCAFFOLD "/runsc", 0700},
                     {LAUNCH_CHANNEL, 0755}};
  for (size_t i = 0; i < sizeof directories / sizeof *directories; i++) {
    if (make_directory(directories[i].path, directories[i].mode, err) != 0)
      return -1;
    if (launch->uid != 0 && chown(directories[i].path, launch->uid, launch->uid) != 0)
      return error_set_errno(err, errno, "cannot give %s away", directories[i].path);
  }
  return 0;
}

/* /bin, /lib and the like: links into /usr on a merged system, directories of their own on others. */
static int make_top_level(struct error **err) {
  static const char *const names[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char host[16], target[64], link[256];
    struct stat status;
    snprintf(host, sizeof host, "/%s", names[i]);
    snprintf(target, sizeof target, ROOT "/%s", names[i]);
    if (lstat(host, &status) != 0)
      continue;
    if (S_ISDIR(status.st_mode)) {
      if (make_directory(target, 0755, err) != 0 || bind(host, target, err) != 0)
        return -1;
      continue;
    }
    ssize_t length = S_ISLNK(status.st_mode) ? readlink(host, link, sizeof link - 1) : -1;
    if (length <= 0)
      continue;
    link[length] = '\0';
    if (symlink(link, target) != 0)
      return error_set_errno(err, errno, "cannot make %s", target);
  }
  return 0;
}

static int make_directories(struct error **err) {
  static const char *const names[] = {"", "/usr", "/etc", "/dev", "/proc", "/sys", "/tmp", "/run", "/run/channel",
                                      "/var", "/home", SANDBOX_HOME, SANDBOX_WORKSPACE};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[64];
    snprintf(path, sizeof path, ROOT "%s", names[i]);
    if (make_directory(path, 0755, err) != 0)
      return -1;
  }
  if (symlink("../tmp", ROOT "/var/tmp") != 0 || symlink("../run", ROOT "/var/run") != 0)
    return error_set_errno(err, errno, "cannot make links in /var");
  return 0;
}

/* What of /etc is the host's own; the server made a place for each. One that went away since is left empty. */
static int make_live(const struct launch *launch, struct error **err) {
  for (size_t i = 0; i < launch->live_count; i++) {
    char source[256], target[256];
    snprintf(source, sizeof source, "/etc/%s", launch->live[i]);
    snprintf(target, sizeof target, ROOT "/etc/%s", launch->live[i]);
    if (access(source, F_OK) == 0 && bind(source, target, err) != 0)
      return -1;
  }
  return 0;
}

static int make_programs(const struct launch *launch, const struct sources *sources, struct error **err) {
  if (make_file(ROOT "/run/sandboxd", err) != 0 || bind_open(sources->agent, ROOT "/run/sandboxd", err) != 0)
    return -1;
  if (launch->runtime == LAUNCH_GVISOR)
    return make_file(ROOT "/run/guest", err) != 0 ? -1 : bind_open(sources->self, ROOT "/run/guest", err);
  if (launch->events == NULL)
    return 0;
  return make_file(ROOT LAUNCH_EVENTS, err) != 0 ? -1 : bind(launch->events, ROOT LAUNCH_EVENTS, err);
}

static int make_root(const struct launch *launch, const struct sources *sources, struct error **err) {
  if (make_directory(ROOT, 0755, err) != 0 || bind(ROOT, ROOT, err) != 0)
    return -1;
  if (make_directories(err) != 0 || make_top_level(err) != 0 || bind("/usr", ROOT "/usr", err) != 0)
    return -1;
  if (bind_open(sources->etc, ROOT "/etc", err) != 0 || make_live(launch, err) != 0)
    return -1;
  if (make_programs(launch, sources, err) != 0)
    return -1;
  return seal(launch, ROOT, err);
}

int launch_scaffold(const struct launch *launch, struct error **err) {
  __attribute__((cleanup(sources_close))) struct sources sources = {-1, -1, -1};
  /* What the host unmounts goes away here too; nothing mounted here is seen on the host. */
  if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0)
    return error_set_errno(err, errno, "cannot make the mount namespace private");
  if (open_source(launch->agent, &sources.agent, err) != 0 || open_source(launch->etc, &sources.etc, err) != 0 ||
      open_self(&sources.self, err) != 0)
    return -1;
  umask(022);
  if (make_disk(launch, err) != 0 || make_writable(launch, err) != 0)
    return -1;
  return make_root(launch, &sources, err);
}
