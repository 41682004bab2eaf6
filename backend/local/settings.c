/*
 * Everything of the configuration but the Pools: see settings.h.
 */
#include "backend/local/settings.h"

#include "base/buffer.h"
#include "base/memory.h"
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_POOLS "{\"coding\":{}}"
#define DEFAULT_UIDS "524288-589823"

/* A unix socket's path has 107 bytes; "/sandboxes/", 16 digits and "/agent" stand behind the directory. */
enum { STATE_BYTES = 107 - 11 - 16 - 6 };

static int take(char **to, const char *text, struct error **err) {
  *to = memory_string(text);
  return *to != NULL ? 0 : error_set_memory(err);
}

static int read_state(struct config *config, struct local_settings *settings, struct error **err) {
  const char *given;
  if (config_text(config, "SANDBOX_LOCAL_STATE_DIR", NULL, &given, err) != 0)
    return -1;
  size_t length = strlen(given);
  while (length > 1 && given[length - 1] == '/')
    length--;
  if (given[0] != '/' || length < 2 || length > STATE_BYTES)
    return error_set_detail(err, REASON_INTERNAL,
                            "SANDBOX_LOCAL_STATE_DIR must be an absolute path of at most %d bytes", STATE_BYTES);
  settings->state = memory_string_of(given, length);
  return settings->state != NULL ? 0 : error_set_memory(err);
}

/* `name` in the directory of this program. */
static int beside(const char *name, struct buffer *path) {
  char own[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
  if (length <= 0)
    return -1;
  own[length] = '\0';
  *(strrchr(own, '/') + 1) = '\0';
  return buffer_append_format(path, "%s%s", own, name);
}

static bool executable(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* usual: NULL-terminated; absolute, or relative to the directory of this program. The first that can be executed. */
static int find_usual(const char *const *usual, struct buffer *path, struct error **err) {
  for (; *usual != NULL; usual++) {
    buffer_clear(path);
    int failed = **usual == '/' ? buffer_append_string(path, *usual) : beside(*usual, path);
    if (failed)
      return error_set_memory(err);
    if (executable(buffer_text(path)))
      return 0;
  }
  return 0;
}

static int read_program(struct config *config, const char *name, const char *const *usual, char **found,
                        struct error **err) {
  CLEANUP_BUFFER struct buffer path;
  const char *given;
  buffer_init(&path, PATH_MAX);
  if (config_optional(config, name, &given, err) != 0)
    return -1;
  if (given == NULL && find_usual(usual, &path, err) != 0)
    return -1;
  const char *program = given != NULL ? given : buffer_text(&path);
  if (*program != '/' || !executable(program))
    return error_set_detail(err, REASON_INTERNAL, "%s must be the absolute path of a program: %s cannot be executed",
                            name, program);
  return take(found, program, err);
}

/* Whoever a sandbox runs as must be able to read it. */
static int check_agent(const char *path, struct error **err) {
  struct stat status;
  if (stat(path, &status) != 0 || (status.st_mode & 0005) != 0005)
    return error_set_detail(err, REASON_INTERNAL,
                            "SANDBOX_LOCAL_SANDBOXD: everybody must be allowed to read and execute %s", path);
  return 0;
}

static int read_programs(struct config *config, struct local_settings *settings, struct error **err) {
  static const char *const launcher[] = {"sandbox-launcher", "../backend/local/sandbox-launcher", NULL};
  static const char *const agent[] = {"sandboxd", "../backend/sandboxd/sandboxd", NULL};
  static const char *const bubblewrap[] = {"/usr/bin/bwrap", NULL};
  static const char *const runsc[] = {"/usr/local/bin/runsc", "/usr/bin/runsc", NULL};
  bool gvisor = false, other = false;
  for (size_t i = 0; i < settings->pool_count; i++) {
    gvisor |= settings->pools[i].runtime == LOCAL_GVISOR;
    other |= settings->pools[i].runtime == LOCAL_BUBBLEWRAP;
  }
  if (read_program(config, "SANDBOX_LOCAL_LAUNCHER", launcher, &settings->launcher, err) != 0 ||
      read_program(config, "SANDBOX_LOCAL_SANDBOXD", agent, &settings->agent, err) != 0 ||
      check_agent(settings->agent, err) != 0)
    return -1;
  if (other && read_program(config, "SANDBOX_LOCAL_BUBBLEWRAP", bubblewrap, &settings->bubblewrap, err) != 0)
    return -1;
  return gvisor ? read_program(config, "SANDBOX_LOCAL_RUNSC", runsc, &settings->runsc, err) : 0;
}

int local_uids_parse(const char *range, uint32_t *first, uint32_t *count, struct error **err) {
  char *end = NULL;
  errno = 0;
  unsigned long low = strtoul(range, &end, 10), high = 0;
  if (*range >= '0' && *range <= '9' && *end == '-' && end[1] >= '0' && end[1] <= '9')
    high = strtoul(end + 1, &end, 10);
  if (errno != 0 || *end != '\0' || low < 1000 || high < low || high > 4294967293)
    return error_set_detail(err, REASON_INTERNAL,
                            "SANDBOX_LOCAL_UID_RANGE must be FIRST-LAST, from 1000 to 4294967293");
  *first = (uint32_t)low;
  *count = (uint32_t)(high - low + 1);
  return 0;
}

static int read_uids(struct config *config, struct local_settings *settings, struct error **err) {
  const char *range;
  uint32_t first, count;
  if (config_text(config, "SANDBOX_LOCAL_UID_RANGE", DEFAULT_UIDS, &range, err) != 0 ||
      local_uids_parse(range, &first, &count, err) != 0)
    return -1;
  if (geteuid() == 0) { /* nobody else may give a process another uid */
    settings->uid_first = first;
    settings->uid_count = count;
  }
  return 0;
}

static int read_platform(struct config *config, struct local_settings *settings, struct error **err) {
  static const char *const choices[] = {"auto", "systrap", "ptrace", "kvm", NULL};
  int index;
  if (config_choice(config, "SANDBOX_LOCAL_RUNSC_PLATFORM", "auto", choices, &index, err) != 0)
    return -1;
  return index == 0 ? 0 : take(&settings->platform, choices[index], err);
}

static int read_cgroup(struct config *config, struct local_settings *settings, struct error **err) {
  const char *given;
  if (config_optional(config, "SANDBOX_LOCAL_CGROUP", &given, err) != 0)
    return -1;
  if (given == NULL)
    return 0;
  if (given[0] != '/' || strlen(given) > 200 || strstr(given, "..") != NULL)
    return error_set_detail(
        err, REASON_INTERNAL,
        "SANDBOX_LOCAL_CGROUP must be the absolute path of a cgroup below the cgroup mount, of at most 200 bytes");
  return take(&settings->cgroup, given, err);
}

int local_settings_read(struct config *config, struct local_settings *settings, struct error **err) {
  const char *pools;
  *settings = (struct local_settings){0};
  if (config_text(config, "SANDBOX_LOCAL_POOLS", DEFAULT_POOLS, &pools, err) != 0 ||
      local_pools_parse(pools, &settings->pools, &settings->pool_count, err) != 0)
    return -1;
  if (read_state(config, settings, err) != 0 || read_uids(config, settings, err) != 0 ||
      read_platform(config, settings, err) != 0 || read_cgroup(config, settings, err) != 0)
    return -1;
  return read_programs(config, settings, err);
}

void local_settings_free(struct local_settings *settings) {
  memory_free(settings->pools);
  memory_free(settings->state);
  memory_free(settings->launcher);
  memory_free(settings->agent);
  memory_free(settings->bubblewrap);
  memory_free(settings->runsc);
  memory_free(settings->platform);
  memory_free(settings->cgroup);
  *settings = (struct local_settings){0};
}
