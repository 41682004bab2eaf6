#include "cgroup.h"

#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOUNT "/sys/fs/cgroup"

static int file_write(const char *folder, const char *sandbox, const char *file, const char *text)
{
  char path[CGROUP_PATH_SIZE];
  snprintf(path, sizeof path, "%s%s%s/%s", folder, sandbox[0] ? "/" : "", sandbox, file);
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    return -1;
  size_t length = strlen(text);
  ssize_t written = write(fd, text, length);
  int number = errno;
  close(fd);
  errno = number;
  return written == (ssize_t)length ? 0 : -1;
}

static int number_write(const char *folder, const char *sandbox, const char *file, uint64_t number)
{
  char text[32];
  snprintf(text, sizeof text, "%" PRIu64, number);
  return file_write(folder, sandbox, file, text);
}

static bool folder_make(const char *path)
{
  return mkdir(path, 0755) == 0 || errno == EEXIST;
}

/* --- finding --- */

static void controller_open(char folder[static 256], const char *controller, const char *name)
{
  snprintf(folder, 256, MOUNT "/%s/%s", controller, name);
  if (!folder_make(folder))
    folder[0] = '\0';
}

/* Version 2: below our own group, whose controllers must be handed on; only a group without processes may do that, so ours
 * is a sibling of the server's when the server sits in one that was delegated to it. */
static bool unified_open(struct cgroup_root *root, const char *name)
{
  FILE *file = fopen("/proc/self/cgroup", "re");
  char line[256] = "";
  if (!file)
    return false;
  bool found = fgets(line, sizeof line, file) && strncmp(line, "0::/", 4) == 0;
  fclose(file);
  if (!found)
    return false;
  line[strcspn(line, "\n")] = '\0';
  char *own = line + 3, *slash = strrchr(own, '/');
  *slash = '\0'; /* the parent of our own group; "" for the top */
  int length = snprintf(root->memory, sizeof root->memory, MOUNT "%s/%s", own, name);
  if (length < 0 || (size_t)length >= sizeof root->memory || !folder_make(root->memory))
    return false;
  return file_write(root->memory, "", "cgroup.subtree_control", "+memory +pids") == 0;
}

void cgroup_open(struct cgroup_root *root, const char *name)
{
  *root = (struct cgroup_root){0};
  if (access(MOUNT "/cgroup.controllers", F_OK) == 0) {
    root->version = unified_open(root, name) ? 2 : 0;
  } else {
    controller_open(root->memory, "memory", name);
    controller_open(root->pids, "pids", name);
    controller_open(root->cpu, "cpu", name);
    root->version = root->memory[0] && root->pids[0] ? 1 : 0;
  }
  if (root->version == 0)
    log_write(LOG_WARNING, "cgroups_unavailable", LOG_TEXT("detail", "no group may be made: sandboxes are bounded by rlimits alone"));
}

static const char *const *parents(const struct cgroup_root *root, const char *list[static 3])
{
  list[0] = root->memory;
  list[1] = root->version == 1 ? root->pids : "";
  list[2] = root->version == 1 ? root->cpu : "";
  return list;
}

void cgroup_close(const struct cgroup_root *root)
{
  const char *list[3];
  parents(root, list);
  for (size_t i = 0; root->version && i < 3; i++)
    if (list[i][0])
      rmdir(list[i]);
}

/* --- one sandbox --- */

/* The workspace is memory too; a full one must not take what commands may use. */
static uint64_t memory_limit(const struct pool_settings *limits)
{
  return limits->memory_bytes + limits->workspace_bytes;
}

static int group_make(const char *folder, const char *sandbox)
{
  char path[CGROUP_PATH_SIZE];
  snprintf(path, sizeof path, "%s/%s", folder, sandbox);
  return folder_make(path) ? 0 : -1;
}

static int make_split(const struct cgroup_root *root, const char *sandbox, const struct pool_settings *limits)
{
  if (group_make(root->memory, sandbox) < 0 ||
      number_write(root->memory, sandbox, "memory.limit_in_bytes", memory_limit(limits)) < 0)
    return -1;
  /* without swap accounting in the kernel the file is not there */
  if (number_write(root->memory, sandbox, "memory.memsw.limit_in_bytes", memory_limit(limits)) < 0 && errno != ENOENT &&
      errno != EACCES)
    return -1;
  if (group_make(root->pids, sandbox) < 0 || number_write(root->pids, sandbox, "pids.max", limits->processes) < 0)
    return -1;
  return root->cpu[0] ? group_make(root->cpu, sandbox) : 0;
}

static int make_unified(const struct cgroup_root *root, const char *sandbox, const struct pool_settings *limits)
{
  if (group_make(root->memory, sandbox) < 0 || number_write(root->memory, sandbox, "memory.max", memory_limit(limits)) < 0 ||
      number_write(root->memory, sandbox, "pids.max", limits->processes) < 0)
    return -1;
  return file_write(root->memory, sandbox, "memory.swap.max", "0") < 0 && errno != ENOENT ? -1 : 0;
}

int cgroup_make(const struct cgroup_root *root, const char *sandbox, const struct pool_settings *limits, struct error **err)
{
  int failed = root->version == 1   ? make_split(root, sandbox, limits)
               : root->version == 2 ? make_unified(root, sandbox, limits)
                                    : 0;
  return failed ? error_set_errno(err, errno, "cannot make the control group of a sandbox") : 0;
}

size_t cgroup_join_files(const struct cgroup_root *root, const char *sandbox, char paths[static CGROUP_FILES][CGROUP_PATH_SIZE])
{
  const char *list[3];
  size_t count = 0;
  parents(root, list);
  for (size_t i = 0; root->version && i < CGROUP_FILES; i++)
    if (list[i][0])
      snprintf(paths[count++], CGROUP_PATH_SIZE, "%s/%s/cgroup.procs", list[i], sandbox);
  return count;
}

bool cgroup_remove(const struct cgroup_root *root, const char *sandbox)
{
  const char *list[3];
  parents(root, list);
  bool gone = true;
  for (size_t i = 0; root->version && i < 3; i++) {
    if (!list[i][0])
      continue;
    char path[CGROUP_PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", list[i], sandbox);
    gone = (rmdir(path) == 0 || errno == ENOENT) && gone;
  }
  return gone;
}

bool cgroup_out_of_memory(const struct cgroup_root *root, const char *sandbox)
{
  char path[CGROUP_PATH_SIZE], text[512] = "";
  snprintf(path, sizeof path, "%s/%s/%s", root->memory, sandbox, root->version == 1 ? "memory.oom_control" : "memory.events");
  int fd = root->version ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0)
    return false;
  ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  const char *count = length > 0 ? strstr(text, "oom_kill ") : NULL;
  return count && strtoull(count + strlen("oom_kill "), NULL, 10) > 0;
}
