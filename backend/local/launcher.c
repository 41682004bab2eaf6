/*
 * sandbox-launcher: turns itself into one sandbox of the local backend. It prepares what bubblewrap cannot (a bounded
 * workspace, limits, a uid of its own), then executes bubblewrap, which executes sandboxd as process 1.
 *
 * The backend starts it with these descriptors: 0 a pipe on which one byte says go (end-of-file: the backend is gone), 2 report (bubblewrap writes {"child-pid": N} there; any other text is
 * why it failed), 3 the seccomp program, 4 the agent's listening socket. It is single-threaded and allocates nothing.
 *
 * As root it mounts before it drops to the sandbox's uid; as an ordinary user it makes a user namespace first and
 * mounts in there.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { REPORT = 2, ARGUMENTS_MAX = 128 };

/* A folder every Debian has and the sandbox never sees; covered by a mount that only this process sees. */
#define STAGE "/mnt"
#define SANDBOX_ID "1000"

struct limits {
  uint64_t uid; /* 0: stay who we are */
  uint64_t memory, processes, workspace_bytes, workspace_files, files, temporary_bytes;
  bool limit_data; /* no cgroup bounds memory: bound each process */
};

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *format, ...)
{
  int number = errno;
  va_list arguments;
  va_start(arguments, format);
  vdprintf(REPORT, format, arguments);
  va_end(arguments);
  dprintf(REPORT, ": %s\n", strerror(number));
  _exit(1);
}

static void file_write(const char *path, const char *text)
{
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  size_t length = strlen(text);
  if (fd < 0 || write(fd, text, length) != (ssize_t)length)
    fail("cannot write %s", path);
  close(fd);
}

/* --- limits --- */

static void limit_set(int resource, uint64_t value)
{
  struct rlimit limit;
  if (getrlimit((__rlimit_resource_t)resource, &limit) < 0)
    fail("getrlimit %d", resource);
  if (limit.rlim_max != RLIM_INFINITY && value > limit.rlim_max)
    value = limit.rlim_max;
  limit.rlim_cur = limit.rlim_max = value;
  if (setrlimit((__rlimit_resource_t)resource, &limit) < 0)
    fail("setrlimit %d", resource);
}

static void limits_set(const struct limits *limits)
{
  limit_set(RLIMIT_CORE, 0);
  limit_set(RLIMIT_NOFILE, limits->files);
  limit_set(RLIMIT_MEMLOCK, 8 << 20);
  limit_set(RLIMIT_MSGQUEUE, 819200);
  limit_set(RLIMIT_SIGPENDING, 4096);
  limit_set(RLIMIT_NPROC, limits->processes);
  if (limits->limit_data)
    limit_set(RLIMIT_DATA, limits->memory);
}

/* --- mounts --- */

/* A private place to mount: of the system's for root, of a user namespace for others. */
static void namespace_enter(void)
{
  uid_t uid = geteuid();
  gid_t gid = getegid();
  if (unshare(uid == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) < 0)
    fail("cannot make a mount namespace");
  if (uid != 0) {
    char map[64];
    snprintf(map, sizeof map, "%u %u 1", uid, uid);
    file_write("/proc/self/uid_map", map);
    file_write("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "%u %u 1", gid, gid);
    file_write("/proc/self/gid_map", map);
  }
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
    fail("cannot make mounts private");
}

static void folder_make(const char *path)
{
  if (mkdir(path, 0755) < 0)
    fail("cannot make %s", path);
}

static void stage_prepare(const char *agent, const struct limits *limits, uid_t owner, gid_t group)
{
  char options[160];
  if (mount("stage", STAGE, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,nr_inodes=64,mode=755") < 0)
    fail("cannot mount the stage");
  folder_make(STAGE "/etc");
  folder_make(STAGE "/workspace");
  file_write(STAGE "/etc/passwd", "root:x:0:0:root:/:/usr/sbin/nologin\nsandbox:x:" SANDBOX_ID ":" SANDBOX_ID
                                  "::/workspace:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n");
  file_write(STAGE "/etc/group", "root:x:0:\nsandbox:x:" SANDBOX_ID ":\nnogroup:x:65534:\n");
  file_write(STAGE "/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n");
  file_write(STAGE "/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n");
  file_write(STAGE "/agent", "");
  if (mount(agent, STAGE "/agent", NULL, MS_BIND, NULL) < 0)
    fail("cannot bind %s", agent);
  snprintf(options, sizeof options, "size=%" PRIu64 ",nr_inodes=%" PRIu64 ",mode=755,uid=%u,gid=%u", limits->workspace_bytes,
           limits->workspace_files, owner, group);
  if (mount("workspace", STAGE "/workspace", "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
    fail("cannot mount the workspace");
}

static void identity_drop(uint64_t uid)
{
  if (uid == 0)
    return;
  gid_t group = (gid_t)uid;
  if (setgroups(0, NULL) < 0 || setresgid(group, group, group) < 0 || setresuid((uid_t)uid, (uid_t)uid, (uid_t)uid) < 0)
    fail("cannot become uid %" PRIu64, uid);
}

/* --- bubblewrap --- */

struct arguments {
  const char *list[ARGUMENTS_MAX];
  size_t count;
};

static void add(struct arguments *arguments, const char *first, ...) __attribute__((sentinel));
static void add(struct arguments *arguments, const char *first, ...)
{
  va_list more;
  va_start(more, first);
  for (const char *word = first; word; word = va_arg(more, const char *)) {
    if (arguments->count + 1 == ARGUMENTS_MAX)
      fail("too many arguments");
    arguments->list[arguments->count++] = word;
  }
  va_end(more);
}

/* Links such as /bin → usr/bin as this system has them; a real folder is bound. */
static void add_top(struct arguments *arguments, const char *path, const char *link)
{
  struct stat status;
  if (lstat(path, &status) < 0)
    return;
  if (S_ISLNK(status.st_mode))
    add(arguments, "--symlink", link, path, NULL);
  else
    add(arguments, "--ro-bind", path, path, NULL);
}

static void add_root(struct arguments *arguments, const char *temporary)
{
  add(arguments, "--ro-bind", "/usr", "/usr", NULL);
  add_top(arguments, "/bin", "usr/bin");
  add_top(arguments, "/sbin", "usr/sbin");
  add_top(arguments, "/lib", "usr/lib");
  add_top(arguments, "/lib32", "usr/lib32");
  add_top(arguments, "/lib64", "usr/lib64");
  add(arguments, "--ro-bind-try", "/etc/alternatives", "/etc/alternatives", NULL);
  add(arguments, "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache", NULL);
  add(arguments, "--ro-bind-try", "/etc/ssl/certs", "/etc/ssl/certs", NULL);
  add(arguments, "--ro-bind", STAGE "/etc/passwd", "/etc/passwd", "--ro-bind", STAGE "/etc/group", "/etc/group", NULL);
  add(arguments, "--ro-bind", STAGE "/etc/hosts", "/etc/hosts", NULL);
  add(arguments, "--ro-bind", STAGE "/etc/nsswitch.conf", "/etc/nsswitch.conf", NULL);
  add(arguments, "--ro-bind", STAGE "/agent", "/.sandboxd", "--proc", "/proc", "--dev", "/dev", NULL);
  add(arguments, "--perms", "1777", "--size", temporary, "--tmpfs", "/dev/shm", NULL);
  add(arguments, "--perms", "1777", "--size", temporary, "--tmpfs", "/tmp", NULL);
  add(arguments, "--bind", STAGE "/workspace", "/workspace", "--remount-ro", "/dev", "--remount-ro", "/", NULL);
}

static void become_sandbox(const char *bubblewrap, const struct limits *limits)
{
  struct arguments arguments = {.count = 0};
  char temporary[32];
  snprintf(temporary, sizeof temporary, "%" PRIu64, limits->temporary_bytes);
  add(&arguments, bubblewrap, "--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--as-pid-1", NULL);
  add(&arguments, "--new-session", "--uid", SANDBOX_ID, "--gid", SANDBOX_ID, "--hostname", "sandbox", "--clearenv", NULL);
  add(&arguments, "--setenv", "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL);
  add(&arguments, "--setenv", "HOME", "/workspace", "--setenv", "USER", "sandbox", "--setenv", "LANG", "C.UTF-8", NULL);
  add_root(&arguments, temporary);
  add(&arguments, "--chdir", "/workspace", "--seccomp", "3", "--info-fd", "2", "--", NULL);
  add(&arguments, "/.sandboxd", "serve", "--listen-fd", "4", "--workspace", "/workspace", NULL);
  arguments.list[arguments.count] = NULL;
  execv(bubblewrap, (char *const *)arguments.list);
  fail("cannot execute %s", bubblewrap);
}

/* Into its control groups, before anything else is made. */
static void groups_join(char *const *files)
{
  for (; *files; files++)
    file_write(*files, "0");
}

/* Until the backend has recorded this process and made its control groups. */
static void go_wait(void)
{
  char byte;
  ssize_t got;
  do
    got = read(STDIN_FILENO, &byte, 1);
  while (got < 0 && errno == EINTR);
  if (got != 1)
    _exit(1);
  int null = open("/dev/null", O_RDWR);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0)
    fail("cannot open /dev/null");
  if (null > STDOUT_FILENO)
    close(null);
}

static uint64_t number(const char *text)
{
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (errno || end == text || *end) {
    errno = EINVAL;
    fail("not a number: %s", text);
  }
  return value;
}

int main(int argc, char **argv)
{
  if (argc < 11) {
    errno = EINVAL;
    fail("usage: sandbox-launcher BUBBLEWRAP AGENT UID MEMORY PROCESSES WORKSPACE_BYTES WORKSPACE_FILES FILES TEMPORARY_BYTES LIMIT_DATA [GROUP_FILE...]");
  }
  struct limits limits = {.uid = number(argv[3]),       .memory = number(argv[4]),
                          .processes = number(argv[5]), .workspace_bytes = number(argv[6]),
                          .workspace_files = number(argv[7]), .files = number(argv[8]),
                          .temporary_bytes = number(argv[9]), .limit_data = number(argv[10]) != 0};
  setsid();
  go_wait();
  groups_join(argv + 11);
  umask(022);
  namespace_enter();
  stage_prepare(argv[2], &limits, limits.uid ? (uid_t)limits.uid : geteuid(), limits.uid ? (gid_t)limits.uid : getegid());
  limits_set(&limits);
  identity_drop(limits.uid);
  become_sandbox(argv[1], &limits);
}
