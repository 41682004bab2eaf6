/*
 * What a former process of this server left: bound sandboxes that live go on, everything else is ended and removed.
 */
#define _GNU_SOURCE
#include "local.h"

#include "base/clock.h"
#include "base/log.h"
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

static bool name_good(const char *name)
{
  return strlen(name) == NAME_SIZE - 1 && strspn(name, "0123456789abcdef") == NAME_SIZE - 1;
}

/* The first child of bubblewrap: process 1 of a sandbox whose making was cut short before its pid was on record. */
static pid_t first_child(pid_t pid)
{
  char path[64], text[32] = "";
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
  FILE *file = fopen(path, "re");
  if (!file)
    return 0;
  bool got = fgets(text, sizeof text, file) != NULL;
  fclose(file);
  return got ? (pid_t)strtol(text, NULL, 10) : 0;
}

static void process_kill(pid_t pid, uint64_t start)
{
  int fd = pid > 0 ? pidfd_open(pid, 0) : -1;
  if (fd < 0)
    return;
  if (start == 0 || process_start(pid) == start)
    pidfd_send_signal(fd, SIGKILL, NULL, 0);
  close(fd);
}

/* A group that is still emptying cannot go yet: its folder stays with it, so that it is found again. */
static void leftover_remove(struct local_backend *backend, const char *name)
{
  if (!cgroup_remove(&backend->cgroups, name)) {
    backend->leftovers = true;
    return;
  }
  sandbox_folder_remove(backend, name);
  log_write(LOG_INFO, "sandbox_leftover_ended", LOG_TEXT("sandbox", name));
}

static void leftover_end(struct local_backend *backend, const char *name, const struct record *record)
{
  if (record && strcmp(record->boot, backend->boot) == 0 && record->monitor > 0 &&
      process_start(record->monitor) == record->monitor_start) {
    process_kill(record->init ? record->init : first_child(record->monitor), record->init_start);
    /* The launcher leads a group of its own. In one whose making was cut short bubblewrap may make process 1 just now;
     * without its parent it would wait for ever. */
    kill(-record->monitor, SIGKILL);
    process_kill(record->monitor, record->monitor_start);
  }
  leftover_remove(backend, name);
}

static void one_recover(struct local_backend *backend, const char *name)
{
  char path[PATH_SIZE * 2];
  struct record record;
  CLEANUP_ERROR struct error *err = NULL;
  sandbox_path(backend, name, "record", path);
  if (record_read(path, &record, &err) < 0) {
    log_write(LOG_WARNING, "record_unusable", LOG_TEXT("sandbox", name), LOG_DETAIL(err));
    leftover_end(backend, name, NULL);
    return;
  }
  struct local_pool *pool = NULL;
  for (size_t i = 0; i < backend->pool_count; i++)
    if (strcmp(backend->pools[i].settings.name, record.pool) == 0)
      pool = &backend->pools[i];
  struct stat status;
  record.sandbox.last_used_at = record.sandbox.created_at;
  if (stat(path, &status) == 0) {
    int64_t used = (int64_t)status.st_mtim.tv_sec * CLOCK_SECOND + status.st_mtim.tv_nsec;
    if (used > record.sandbox.created_at)
      record.sandbox.last_used_at = used;
  }
  if (!record.bound || !pool || strcmp(record.boot, backend->boot) != 0 ||
      sandbox_adopt(backend, pool, name, &record, &err) < 0)
    leftover_end(backend, name, &record);
}

static bool name_known(const struct local_backend *backend, const char *name)
{
  for (size_t i = 0; i < backend->pool_count; i++)
    for (const struct local_sandbox *sandbox = backend->pools[i].sandboxes; sandbox; sandbox = sandbox->next)
      if (strcmp(sandbox->name, name) == 0)
        return true;
  return false;
}

void local_recover_rest(struct local_backend *backend)
{
  char path[PATH_SIZE * 2];
  sandbox_path(backend, "", "", path);
  DIR *folder = backend->leftovers ? opendir(path) : NULL;
  if (!folder)
    return;
  backend->leftovers = false;
  for (struct dirent *entry; (entry = readdir(folder));)
    if (name_good(entry->d_name) && !name_known(backend, entry->d_name))
      leftover_remove(backend, entry->d_name);
  closedir(folder);
}

int local_recover(struct local_backend *backend, struct error **err)
{
  char path[PATH_SIZE * 2];
  sandbox_path(backend, "", "", path);
  DIR *folder = opendir(path);
  if (!folder)
    return error_set_errno(err, errno, "cannot read %s", path);
  for (struct dirent *entry; (entry = readdir(folder));)
    if (name_good(entry->d_name))
      one_recover(backend, entry->d_name);
  closedir(folder);
  return 0;
}
