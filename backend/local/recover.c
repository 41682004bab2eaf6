/*
 * What a former process of this server left. Bound sandboxes that live are taken over; everything else is ended and
 * removed, also what was being made at the moment of its death and of which nothing but the mark in its mounts is
 * known.
 */
#include "backend/local/local.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct found {
  struct found *next;
  char name[LOCAL_NAME_SIZE];
  char mark[LOCAL_MARK_SIZE];
  struct local_record record;
  bool living; /* bound, and its first process is there */
  bool removed;
};

struct recovery {
  uv_work_t work;
  struct local_backend *backend;
  struct found *all;
  struct error *err;
};

static bool name_good(const char *name) {
  return strlen(name) == LOCAL_NAME_SIZE - 1 && strspn(name, "0123456789abcdef") == LOCAL_NAME_SIZE - 1;
}

/* --- work --- */

static bool lives(const struct local_backend *backend, const struct found *found) {
  if (!found->record.bound || strcmp(found->record.boot, backend->boot) != 0)
    return false;
  int handle = local_process_open(&found->record.first);
  if (handle >= 0)
    close(handle);
  return handle >= 0;
}

/* The cgroups of one whose making was cut short before they were on record: where they would be now. */
static void guess_cgroups(const struct local_backend *backend, struct found *found) {
  char path[LOCAL_CGROUP_PATH_SIZE];
  for (size_t i = 0; i < backend->cgroups.parents.count; i++) {
    int length = snprintf(path, sizeof path, "%s/%s", backend->cgroups.parents.paths[i], found->name);
    if (length > 0 && (size_t)length < sizeof path)
      local_cgroup_add(&found->record.cgroup, path);
  }
}

static void read_one(struct recovery *recovery, const char *name) {
  struct local_backend *backend = recovery->backend;
  CLEANUP_ERROR struct error *err = NULL;
  char path[LOCAL_PATH_SIZE];
  struct found *found = memory_zero(sizeof *found);
  if (found == NULL) {
    error_set_memory(&recovery->err);
    return;
  }
  memcpy(found->name, name, LOCAL_NAME_SIZE);
  local_mark(name, found->mark);
  local_path(backend, name, "record", path);
  if (local_record_read(path, &found->record, &err) != 0) {
    log_write(LOG_WARNING, "record_unusable", LOG_TEXT("sandbox", name), LOG_DETAIL(err));
    guess_cgroups(backend, found);
  }
  found->living = lives(backend, found);
  found->next = recovery->all;
  recovery->all = found;
}

static void read_all(struct recovery *recovery) {
  char path[LOCAL_PATH_SIZE];
  local_path(recovery->backend, "", "", path);
  DIR *directory = opendir(path);
  if (directory == NULL) {
    error_set_errno(&recovery->err, errno, "cannot read %s", path);
    return;
  }
  for (struct dirent *entry; recovery->err == NULL && (entry = readdir(directory)) != NULL;)
    if (name_good(entry->d_name))
      read_one(recovery, entry->d_name);
  closedir(directory);
}

static void end_processes(struct recovery *recovery) {
  size_t count = 0, dead = 0;
  for (struct found *found = recovery->all; found != NULL; found = found->next)
    count++;
  CLEANUP_MEMORY struct local_mark *marks = memory_array(count + 1, sizeof *marks);
  if (marks == NULL) {
    error_set_memory(&recovery->err);
    return;
  }
  for (struct found *found = recovery->all; found != NULL; found = found->next)
    if (!found->living)
      marks[dead++] = (struct local_mark){.mark = found->mark, .uid = found->record.uid};
  if (dead > 0 && local_process_end_marked(marks, dead) < 0)
    error_set_detail(&recovery->err, REASON_INTERNAL, "processes of a former sandbox would not end");
}

static void remove_one(struct local_backend *backend, struct found *found) {
  found->removed = local_cgroup_remove(&found->record.cgroup);
  if (found->removed)
    local_directory_remove(backend, found->name);
}

static void recover_work(uv_work_t *work) {
  struct recovery *recovery = work->data;
  read_all(recovery);
  if (recovery->err == NULL)
    end_processes(recovery);
  for (struct found *found = recovery->all; recovery->err == NULL && found != NULL; found = found->next)
    if (!found->living)
      remove_one(recovery->backend, found);
}

/* --- on the loop --- */

static struct local_pool *pool_of(struct local_backend *backend, const char *name) {
  for (size_t i = 0; i < backend->settings.pool_count; i++)
    if (strcmp(backend->pools[i].settings->name, name) == 0)
      return &backend->pools[i];
  return NULL;
}

/* A Pool that is configured no more still has its sandboxes, under the first one's roof: a Lease outlives that too. */
static void take_over(struct local_backend *backend, struct found *found) {
  CLEANUP_ERROR struct error *err = NULL;
  struct local_pool *pool = pool_of(backend, found->record.pool);
  if (pool == NULL)
    pool = &backend->pools[0];
  if (local_sandbox_adopt(pool, found->name, &found->record, &err) == 0)
    return;
  log_write(LOG_WARNING, "sandbox_not_taken_over", LOG_TEXT("lease", found->record.sandbox.id), LOG_DETAIL(err));
  struct local_mark mark = {.mark = found->mark, .uid = found->record.uid};
  local_process_end_marked(&mark, 1);
  remove_one(backend, found);
}

static void finish_one(struct local_backend *backend, struct found *found, unsigned *taken, unsigned *ended) {
  bool living = found->living;
  if (living && !backend->stopping)
    take_over(backend, found);
  *taken += living;
  *ended += !living;
  if (!living && !found->removed)
    local_leftover_add(backend, found->name, &found->record.cgroup);
}

static void recovered(uv_work_t *work, int status) {
  struct recovery *recovery = work->data;
  struct local_backend *backend = recovery->backend;
  unsigned taken = 0, ended = 0;
  (void)status; /* never cancelled */
  while (recovery->all != NULL) {
    struct found *found = recovery->all;
    recovery->all = found->next;
    if (recovery->err == NULL)
      finish_one(backend, found, &taken, &ended);
    local_record_free(&found->record);
    memory_free(found);
  }
  if (taken > 0 || ended > 0)
    log_write(LOG_INFO, "sandboxes_recovered", LOG_NUMBER("living", taken), LOG_NUMBER("ended", ended));
  local_started(backend, recovery->err);
  error_free(&recovery->err);
  memory_free(recovery);
  local_let_go(backend);
}

void local_recover(struct local_backend *backend) {
  struct recovery *recovery = memory_zero(sizeof *recovery);
  if (recovery == NULL) {
    CLEANUP_ERROR struct error *err = NULL;
    error_set_memory(&err);
    local_started(backend, err);
    return;
  }
  recovery->backend = backend;
  recovery->work.data = recovery;
  backend->open++;
  uv_queue_work(backend->backend.loop, &recovery->work, recover_work, recovered);
}

/* --- what would not go --- */

int local_leftover_add(struct local_backend *backend, const char *name, struct local_cgroup *cgroup) {
  struct local_leftover *leftover = memory_zero(sizeof *leftover);
  log_write(LOG_WARNING, "cgroup_left", LOG_TEXT("sandbox", name));
  if (leftover == NULL)
    return -1; /* the next start finds it */
  memcpy(leftover->name, name, LOCAL_NAME_SIZE);
  leftover->cgroup = *cgroup;
  *cgroup = (struct local_cgroup){.count = 0};
  leftover->next = backend->leftovers;
  backend->leftovers = leftover;
  return 0;
}

/* Where the kernel has let it go this costs two system calls for each. */
void local_leftovers_remove(struct local_backend *backend) {
  for (struct local_leftover **at = &backend->leftovers; *at != NULL;) {
    struct local_leftover *leftover = *at;
    if (!local_cgroup_remove(&leftover->cgroup)) {
      at = &leftover->next;
      continue;
    }
    local_directory_remove(backend, leftover->name);
    local_cgroup_free(&leftover->cgroup);
    *at = leftover->next;
    memory_free(leftover);
  }
}
