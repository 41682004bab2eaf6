/*
 * Making the local backend from its configuration, before anything runs.
 */
#include "backend/local/filter.h"
#include "backend/local/local.h"

#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int make_directory(const char *path, struct error **err) {
  struct stat status;
  if (mkdir(path, 0700) != 0 && errno != EEXIST)
    return error_set_errno(err, errno, "SANDBOX_LOCAL_STATE_DIR: cannot make %s", path);
  if (lstat(path, &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid())
    return error_set_detail(err, REASON_INTERNAL,
                            "SANDBOX_LOCAL_STATE_DIR: %s must be a directory that belongs to the user of this server",
                            path);
  /* Sockets to the agents and records lie in it. */
  if ((status.st_mode & 0077) != 0 && chmod(path, 0700) != 0)
    return error_set_errno(err, errno, "SANDBOX_LOCAL_STATE_DIR: cannot keep others out of %s", path);
  return 0;
}

/* Two servers on one directory would end each other's sandboxes. */
static int take_lock(struct local_backend *local, struct error **err) {
  char path[LOCAL_PATH_SIZE];
  snprintf(path, sizeof path, "%s/lock", local->settings.state);
  local->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (local->lock < 0)
    return error_set_errno(err, errno, "SANDBOX_LOCAL_STATE_DIR: cannot open %s", path);
  if (flock(local->lock, LOCK_EX | LOCK_NB) != 0)
    return error_set_detail(err, REASON_INTERNAL, "SANDBOX_LOCAL_STATE_DIR: another server uses %s",
                            local->settings.state);
  return 0;
}

static int open_state(struct local_backend *local, struct error **err) {
  char path[LOCAL_PATH_SIZE];
  if (make_directory(local->settings.state, err) != 0 || take_lock(local, err) != 0)
    return -1;
  local_path(local, "", "", path);
  if (make_directory(path, err) != 0)
    return -1;
  snprintf(path, sizeof path, "%s/etc", local->settings.state);
  return local_etc_make(path, "/etc", &local->etc, err);
}

static int open_backend(struct local_backend *local, struct config *config, struct error **err) {
  if (local_settings_read(config, &local->settings, err) != 0 || local_boot_id(local->boot, err) != 0)
    return -1;
  local->pools = memory_array(local->settings.pool_count, sizeof *local->pools);
  local->uids = memory_zero(local->settings.uid_count + 1);
  if (local->pools == NULL || local->uids == NULL)
    return error_set_memory(err);
  if (open_state(local, err) != 0)
    return -1;
  local->filter = local_filter_open(err);
  return local->filter >= 0 ? 0 : -1;
}

struct backend *backend_local_new(uv_loop_t *loop, struct config *config, struct error **err) {
  struct local_backend *local = memory_zero(sizeof *local);
  if (local == NULL) {
    error_set_memory(err);
    return NULL;
  }
  local->backend = (struct backend){.operations = &local_operations, .loop = loop};
  local->filter = local->lock = -1;
  if (open_backend(local, config, err) == 0)
    return &local->backend;
  local_operations.free(&local->backend);
  return NULL;
}
