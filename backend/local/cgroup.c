/*
 * Making, limiting and removing cgroups: see cgroup.h.
 */
#include "backend/local/cgroup.h"

#include "backend/local/protocol.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "sandbox-platform"

/* gVisor's own threads, which the limit of a Pool does not mean. Its kernel is a Go program, which keeps every thread it
 * ever needed: with ptrace 1,514 after 11,000 commands of 8 callers at once, and still rising a little. Where it gets no
 * more it panics, and the sandbox is lost. */
enum { GVISOR_THREADS = 4096 };

/* For killed processes to leave a group. */
enum { LEAVE_MILLISECONDS = 5000 };

static int write_file(const char *directory, const char *name, const char *text) {
  char path[LOCAL_CGROUP_PATH_SIZE + 64];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0)
    return -1;
  ssize_t written = write(file, text, strlen(text));
  int number = errno;
  close(file);
  errno = number;
  return written == (ssize_t)strlen(text) ? 0 : -1;
}

static int write_number(const char *directory, const char *name, uint64_t number) {
  char text[32];
  snprintf(text, sizeof text, "%" PRIu64, number);
  return write_file(directory, name, text);
}

static ssize_t read_file(const char *directory, const char *name, char *text, size_t size) {
  char path[LOCAL_CGROUP_PATH_SIZE + 64];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return -1;
  ssize_t length = read(file, text, size - 1);
  close(file);
  text[length > 0 ? length : 0] = '\0';
  return length;
}

static int add_path(struct local_cgroup *cgroup, const char *path) {
  if (cgroup->count == LOCAL_CGROUPS_MAX || strlen(path) >= LOCAL_CGROUP_PATH_SIZE)
    return -1;
  char *copy = memory_string(path);
  if (copy == NULL)
    return -1;
  cgroup->paths[cgroup->count++] = copy;
  return 0;
}

int local_cgroup_add(struct local_cgroup *cgroup, const char *path) {
  bool good = strncmp(path, LOCAL_CGROUP_MOUNT "/", sizeof LOCAL_CGROUP_MOUNT) == 0 && strstr(path, "/..") == NULL;
  return good ? add_path(cgroup, path) : -1;
}

void local_cgroup_free(struct local_cgroup *cgroup) {
  for (size_t i = 0; i < cgroup->count; i++)
    memory_free(cgroup->paths[i]);
  *cgroup = (struct local_cgroup){.count = 0};
}

/* --- parents --- */

static bool make_parent(struct local_cgroups *cgroups, const char *path) {
  if (mkdir(path, 0755) != 0 && errno != EEXIST)
    return false;
  return access(path, W_OK) == 0 && add_path(&cgroups->parents, path) == 0;
}

/* Memory and processes must be bounded; shares of the processor are divided where they can be. */
static bool open_split(struct local_cgroups *cgroups, const char *mount, const char *group) {
  static const char *const controllers[] = {"memory", "pids", "cpu"};
  for (size_t i = 0; i < LOCAL_CGROUPS_MAX; i++) {
    char path[LOCAL_CGROUP_PATH_SIZE];
    int length = snprintf(path, sizeof path, "%s/%s%s", mount, controllers[i], group);
    bool made = length > 0 && (size_t)length < sizeof path && make_parent(cgroups, path);
    if (!made && i < 2)
      return false;
  }
  return true;
}

/* The group beside our own: "0::/a/b" gives "/a/sandbox-platform". Returns 0, or -1 if /proc/self/cgroup has no
 * such line. */
static int name_beside(const char *self, char *group, size_t size) {
  const char *line = strncmp(self, "0::/", 4) == 0 ? self : strstr(self, "\n0::/");
  if (line == NULL)
    return -1;
  line = strchr(line, '/');
  size_t length = strcspn(line, "\n");
  while (length > 0 && line[length - 1] != '/')
    length--;
  int written = snprintf(group, size, "%.*s" NAME, (int)length, line);
  return written > 0 && (size_t)written < size ? 0 : -1;
}

static bool has_word(const char *text, const char *word) {
  size_t length = strlen(word);
  for (const char *at = text; (at = strstr(at, word)) != NULL; at += length)
    if ((at == text || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\n' || at[length] == '\0'))
      return true;
  return false;
}

/* A group can hand on only controllers that its parent handed to it. The processor's are wanted, not needed. */
static bool open_unified(struct local_cgroups *cgroups, const char *mount, const char *group) {
  char path[LOCAL_CGROUP_PATH_SIZE], text[512];
  int length = snprintf(path, sizeof path, "%s%s", mount, group);
  if (length <= 0 || (size_t)length >= sizeof path)
    return false;
  char *slash = strrchr(path, '/');
  *slash = '\0';
  (void)write_file(path, "cgroup.subtree_control", "+memory +pids");
  (void)write_file(path, "cgroup.subtree_control", "+cpu");
  *slash = '/';
  if (!make_parent(cgroups, path) || write_file(path, "cgroup.subtree_control", "+memory +pids") != 0)
    return false;
  (void)write_file(path, "cgroup.subtree_control", "+cpu");
  return read_file(path, "cgroup.subtree_control", text, sizeof text) > 0 && has_word(text, "memory") &&
         has_word(text, "pids");
}

void local_cgroups_open(struct local_cgroups *cgroups, const char *mount, const char *self, const char *given) {
  char path[LOCAL_CGROUP_PATH_SIZE], beside[LOCAL_CGROUP_PATH_SIZE] = "/" NAME;
  *cgroups = (struct local_cgroups){.version = 0};
  snprintf(path, sizeof path, "%s/cgroup.controllers", mount);
  bool unified = access(path, F_OK) == 0;
  bool named = given != NULL || !unified || name_beside(self, beside, sizeof beside) == 0;
  const char *group = given != NULL ? given : beside;
  if (named && (unified ? open_unified(cgroups, mount, group) : open_split(cgroups, mount, group))) {
    cgroups->version = unified ? 2 : 1;
    return;
  }
  local_cgroups_close(cgroups);
  log_write(LOG_WARNING, "cgroups_unavailable", LOG_TEXT("group", group),
            LOG_TEXT("detail", "no group with memory and pids can be made there: memory of a sandbox is not bounded"));
}

void local_cgroups_open_own(struct local_cgroups *cgroups, const char *given) {
  char self[4096] = "";
  read_file("/proc/self", "cgroup", self, sizeof self);
  local_cgroups_open(cgroups, LOCAL_CGROUP_MOUNT, self, given);
}

void local_cgroups_close(struct local_cgroups *cgroups) {
  for (size_t i = 0; i < cgroups->parents.count; i++)
    rmdir(cgroups->parents.paths[i]);
  local_cgroup_free(&cgroups->parents);
  cgroups->version = 0;
}

/* --- one sandbox --- */

static uint64_t threads_of(const struct local_pool_settings *limits) {
  return limits->processes + (limits->runtime == LOCAL_GVISOR ? GVISOR_THREADS : 0);
}

/* Files are memory too; a full workspace must not take what commands may use. */
static uint64_t memory_of(const struct local_pool_settings *limits) {
  uint64_t files = limits->workspace_bytes;
  if (limits->runtime == LOCAL_GVISOR)
    files += 3 * (limits->workspace_bytes / LAUNCH_GVISOR_PART);
  return limits->memory_bytes + files;
}

static int limit_unified(const char *path, const struct local_pool_settings *limits) {
  if (write_number(path, "memory.max", memory_of(limits)) != 0 ||
      write_number(path, "pids.max", threads_of(limits)) != 0)
    return -1;
  /* Without swap in the kernel there is no such file. */
  return write_file(path, "memory.swap.max", "0") != 0 && errno != ENOENT ? -1 : 0;
}

static int limit_memory(const char *path, const struct local_pool_settings *limits) {
  if (write_number(path, "memory.limit_in_bytes", memory_of(limits)) != 0)
    return -1;
  return write_number(path, "memory.memsw.limit_in_bytes", memory_of(limits)) != 0 && errno != ENOENT && errno != EACCES
           ? -1 : 0;
}

/* which: the place among the parents. */
static int limit(const struct local_cgroups *cgroups, size_t which, const char *path,
                 const struct local_pool_settings *limits) {
  if (cgroups->version == 2)
    return limit_unified(path, limits);
  if (which == 0)
    return limit_memory(path, limits);
  return which == 1 ? write_number(path, "pids.max", threads_of(limits)) : 0;
}

static int make_one(const struct local_cgroups *cgroups, size_t which, const char *name,
                    const struct local_pool_settings *limits, struct local_cgroup *cgroup, struct error **err) {
  char path[LOCAL_CGROUP_PATH_SIZE];
  const char *parent = cgroups->parents.paths[which];
  int length = snprintf(path, sizeof path, "%s/%s", parent, name);
  if (length < 0 || (size_t)length >= sizeof path)
    return error_set_detail(err, REASON_INTERNAL, "the path of the cgroup is too long");
  /* Another server that ended may have taken the parent away. */
  if (mkdir(path, 0755) != 0 && (errno != ENOENT || mkdir(parent, 0755) != 0 || mkdir(path, 0755) != 0))
    return error_set_errno(err, errno, "cannot make %s", path);
  if (add_path(cgroup, path) != 0) {
    rmdir(path);
    return error_set_memory(err);
  }
  return limit(cgroups, which, path, limits) == 0 ? 0 : error_set_errno(err, errno, "cannot limit %s", path);
}

int local_cgroup_make(const struct local_cgroups *cgroups, const char *name, const struct local_pool_settings *limits,
                      struct local_cgroup *cgroup, struct error **err) {
  *cgroup = (struct local_cgroup){.count = 0};
  for (size_t i = 0; i < cgroups->parents.count; i++)
    if (make_one(cgroups, i, name, limits, cgroup, err) != 0) {
      local_cgroup_remove(cgroup);
      local_cgroup_free(cgroup);
      return -1;
    }
  return 0;
}

/* Whatever is left in a group: nothing, or processes that are on their way out. */
static void kill_inside(const char *path) {
  char text[4096], *at = text;
  if (write_file(path, "cgroup.kill", "1") == 0 || read_file(path, "cgroup.procs", text, sizeof text) <= 0)
    return;
  for (;;) {
    char *end = NULL;
    long pid = strtol(at, &end, 10);
    if (end == at)
      return;
    if (pid > 1)
      kill((pid_t)pid, SIGKILL);
    at = end;
  }
}

bool local_cgroup_remove(struct local_cgroup *cgroup) {
  bool gone = true;
  for (size_t i = 0; i < cgroup->count; i++) {
    if (rmdir(cgroup->paths[i]) == 0 || errno == ENOENT)
      continue;
    kill_inside(cgroup->paths[i]);
    gone = (rmdir(cgroup->paths[i]) == 0 || errno == ENOENT) && gone;
  }
  return gone;
}

/* Waits for the end of a process that is in the group still. Returns false if there is none, or at the deadline. */
static bool wait_inside(const char *path, int64_t deadline) {
  char text[4096];
  int64_t left = (deadline - clock_boot()) / CLOCK_MILLISECOND;
  if (left <= 0 || read_file(path, "cgroup.procs", text, sizeof text) <= 0)
    return false;
  long pid = strtol(text, NULL, 10);
  int handle = pid > 1 ? pidfd_open((pid_t)pid, 0) : -1;
  if (handle < 0)
    return pid > 1 && errno == ESRCH; /* it has ended meanwhile */
  struct pollfd ended = {.fd = handle, .events = POLLIN};
  int result = poll(&ended, 1, (int)left);
  int number = errno;
  close(handle);
  return result > 0 || (result < 0 && number == EINTR);
}

bool local_cgroup_end(struct local_cgroup *cgroup) {
  int64_t deadline = clock_boot() + LEAVE_MILLISECONDS * CLOCK_MILLISECOND;
  bool gone;
  while (!(gone = local_cgroup_remove(cgroup))) {
    bool waited = false;
    for (size_t i = 0; i < cgroup->count && !waited; i++)
      waited = wait_inside(cgroup->paths[i], deadline);
    if (!waited)
      return local_cgroup_remove(cgroup);
  }
  return gone;
}

int local_cgroup_events(const struct local_cgroup *cgroup, char path[static LOCAL_CGROUP_PATH_SIZE]) {
  static const char *const names[] = {"memory.events", "memory.oom_control"};
  for (size_t i = 0; cgroup->count > 0 && i < 2; i++) {
    int length = snprintf(path, LOCAL_CGROUP_PATH_SIZE, "%s/%s", cgroup->paths[0], names[i]);
    if (length > 0 && length < LOCAL_CGROUP_PATH_SIZE && access(path, R_OK) == 0)
      return 0;
  }
  return -1;
}

bool local_cgroup_out_of_memory(const struct local_cgroup *cgroup) {
  char path[LOCAL_CGROUP_PATH_SIZE], text[1024];
  if (local_cgroup_events(cgroup, path) != 0)
    return false;
  char *slash = strrchr(path, '/');
  *slash = '\0';
  if (read_file(path, slash + 1, text, sizeof text) <= 0)
    return false;
  const char *count = strstr(text, "oom_kill ");
  return count != NULL && strtoull(count + strlen("oom_kill "), NULL, 10) > 0;
}
