/*
 * Making the local backend from its configuration, before anything runs.
 */
#define _GNU_SOURCE
#include "filter.h"
#include "local.h"

#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define DEFAULT_POOLS "{\"coding\":{}}"

enum { UID_FIRST = 524288, UID_COUNT = 65536, STATE_BYTES = 107 - 11 - 16 - 7 /* "/sandboxes/NAME/agent" behind it */ };

extern const struct backend_operations local_operations;

static int folder_make(const char *path, struct error **err)
{
  if (mkdir(path, 0700) < 0 && errno != EEXIST)
    return error_set_errno(err, errno, "SANDBOX_LOCAL_STATE_DIR: cannot make %s", path);
  return 0;
}

static int state_open(struct local_backend *local, struct config *config, struct error **err)
{
  const char *given;
  char path[PATH_SIZE * 2];
  if (config_text(config, "SANDBOX_LOCAL_STATE_DIR", NULL, &given, err) < 0)
    return -1;
  if (given[0] != '/' || strlen(given) > STATE_BYTES)
    return error_set_detail(err, REASON_INTERNAL, "SANDBOX_LOCAL_STATE_DIR must be an absolute path of at most %d bytes",
                            STATE_BYTES);
  snprintf(local->state, sizeof local->state, "%s", given);
  sandbox_path(local, "", "", path);
  if (folder_make(given, err) < 0 || folder_make(path, err) < 0)
    return -1;
  snprintf(path, sizeof path, "%s/lock", given);
  local->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (local->lock < 0)
    return error_set_errno(err, errno, "cannot open %s", path);
  if (flock(local->lock, LOCK_EX | LOCK_NB) < 0)
    return error_set_detail(err, REASON_INTERNAL, "SANDBOX_LOCAL_STATE_DIR: another server uses %s", given);
  return 0;
}

/* A program: given, or `usual`: an absolute path, or one from the folder of this executable. */
static int program_find(struct config *config, const char *name, const char *usual, char found[static PATH_SIZE], struct error **err)
{
  const char *given;
  if (config_optional(config, name, &given, err) < 0)
    return -1;
  char own[PATH_MAX];
  ssize_t length = given ? -1 : readlink("/proc/self/exe", own, sizeof own - 1);
  if (length > 0) {
    own[length] = '\0';
    *strrchr(own, '/') = '\0';
  }
  int written = given            ? snprintf(found, PATH_SIZE, "%s", given)
                : usual[0] == '/' ? snprintf(found, PATH_SIZE, "%s", usual)
                                   : snprintf(found, PATH_SIZE, "%s/%s", own, usual);
  if (written < 0 || written >= PATH_SIZE || access(found, X_OK) < 0)
    return error_set_detail(err, REASON_INTERNAL, "%s must be the path of a program: %s cannot be executed", name, found);
  return 0;
}

/* "FIRST-LAST". Only root can give a sandbox another uid than its own. */
static int uids_parse(struct local_backend *local, struct config *config, struct error **err)
{
  const char *range;
  if (config_optional(config, "SANDBOX_LOCAL_UID_RANGE", &range, err) < 0)
    return -1;
  if (geteuid() != 0)
    return 0;
  unsigned long first = UID_FIRST, last = UID_FIRST + UID_COUNT - 1;
  char *end = NULL;
  if (range) {
    first = strtoul(range, &end, 10);
    last = *end == '-' ? strtoul(end + 1, &end, 10) : 0;
  }
  if ((range && *end) || first < 1000 || last < first || last > 4294967293u)
    return error_set_detail(err, REASON_INTERNAL, "SANDBOX_LOCAL_UID_RANGE must be FIRST-LAST, from 1000 to 4294967293");
  local->uid_first = (uint32_t)first;
  local->uid_count = (uint32_t)(last - first + 1);
  return 0;
}

static int pools_open(struct local_backend *local, struct config *config, struct error **err)
{
  const char *text;
  struct pool_settings *settings = NULL;
  size_t count;
  if (config_text(config, "SANDBOX_LOCAL_POOLS", DEFAULT_POOLS, &text, err) < 0 || pool_parse(text, &settings, &count, err) < 0)
    return -1;
  local->pools = memory_array(count, sizeof *local->pools);
  local->pool_count = local->pools ? count : 0;
  for (size_t i = 0; i < local->pool_count; i++) {
    local->pools[i].settings = settings[i];
    local->pools[i].pending_end = &local->pools[i].pending;
  }
  memory_free(settings);
  return local->pools ? 0 : error_set_memory(err);
}

struct backend *backend_local_new(uv_loop_t *loop, struct config *config, struct error **err)
{
  struct local_backend *local = memory_zero(sizeof *local);
  if (!local) {
    error_set_memory(err);
    return NULL;
  }
  local->backend = (struct backend){.operations = &local_operations, .loop = loop};
  local->filter = local->lock = -1;
  if (pools_open(local, config, err) < 0 || uids_parse(local, config, err) < 0 ||
      program_find(config, "SANDBOX_LOCAL_LAUNCHER", "../backend/local/sandbox-launcher", local->launcher, err) < 0 ||
      program_find(config, "SANDBOX_LOCAL_SANDBOXD", "../backend/sandboxd/sandboxd", local->agent, err) < 0 ||
      program_find(config, "SANDBOX_LOCAL_BUBBLEWRAP", "/usr/bin/bwrap", local->bubblewrap, err) < 0 ||
      boot_id_read(local->boot, err) < 0 || state_open(local, config, err) < 0 || (local->filter = filter_make(err)) < 0) {
    local_operations.free(&local->backend);
    return NULL;
  }
  return &local->backend;
}
