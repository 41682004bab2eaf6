/*
 * SANDBOX_LOCAL_POOLS: Pool name → settings. Strict: an unknown member, a number out of range or a combination that
 * cannot work stops the start, and the message says which and what it must be.
 */
#include "backend/local/settings.h"

#include "base/json.h"
#include "base/memory.h"
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#define VARIABLE "SANDBOX_LOCAL_POOLS"
#define MIB (UINT64_C(1) << 20)

enum { POOLS_MAX = 256 };

struct member {
  const char *name;
  size_t offset;
  uint64_t minimum, maximum, fallback;
};

static const struct member members[] = {
  {"warm", offsetof(struct local_pool_settings, warm), 0, 1000, 2},
  {"maximum", offsetof(struct local_pool_settings, maximum), 1, 100000, 10000},
  {"memoryBytes", offsetof(struct local_pool_settings, memory_bytes), 16 * MIB, 1048576 * MIB, 1024 * MIB},
  {"processes", offsetof(struct local_pool_settings, processes), 8, 100000, 512},
  {"workspaceBytes", offsetof(struct local_pool_settings, workspace_bytes), MIB, 1048576 * MIB, 1024 * MIB},
  {"workspaceFiles", offsetof(struct local_pool_settings, workspace_files), 16, 100000000, 200000},
};

enum { MEMBERS = sizeof members / sizeof *members };

static uint64_t *number_at(struct local_pool_settings *pool, const struct member *member) {
  return (uint64_t *)(void *)((char *)pool + member->offset);
}

static int parse_runtime(struct local_pool_settings *pool, const struct json *value, struct error **err) {
  struct json_text text = {NULL, 0};
  if (json_as_text(value, &text) == 0 && strlen(text.data) == text.length) {
    static const char *const names[] = {"bubblewrap", "gvisor"};
    for (size_t i = 0; i < 2; i++)
      if (strcmp(text.data, names[i]) == 0) {
        pool->runtime = i == 0 ? LOCAL_BUBBLEWRAP : LOCAL_GVISOR;
        return 0;
      }
  }
  return error_set_detail(err, REASON_INTERNAL, VARIABLE ": %s.runtime must be \"bubblewrap\" or \"gvisor\"",
                          pool->name);
}

static int parse_member(struct local_pool_settings *pool, const char *name, const struct json *value,
                        struct error **err) {
  if (strcmp(name, "runtime") == 0)
    return parse_runtime(pool, value, err);
  for (size_t i = 0; i < MEMBERS; i++) {
    const struct member *member = &members[i];
    int64_t number = -1;
    if (strcmp(name, member->name) != 0)
      continue;
    if (json_as_integer(value, &number) != 0 || number < 0 || (uint64_t)number < member->minimum ||
        (uint64_t)number > member->maximum)
      return error_set_detail(err, REASON_INTERNAL, VARIABLE ": %s.%s must be an integer from %" PRIu64 " to %" PRIu64,
                              pool->name, name, member->minimum, member->maximum);
    *number_at(pool, member) = (uint64_t)number;
    return 0;
  }
  return error_set_detail(err, REASON_INTERNAL, VARIABLE ": %s has an unknown member \"%.64s\"", pool->name, name);
}

/* [a-z0-9]([-a-z0-9]*[a-z0-9])?: also a Kubernetes label. */
static bool name_good(const struct json_text *name) {
  if (name->length == 0 || name->length > LIMIT_POOL_NAME_BYTES || name->data[0] == '-' ||
      name->data[name->length - 1] == '-')
    return false;
  for (size_t i = 0; i < name->length; i++) {
    char c = name->data[i];
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'))
      return false;
  }
  return true;
}

/* Rules between members. */
static int check_pool(const struct local_pool_settings *pool, struct error **err) {
  if (pool->warm > pool->maximum)
    return error_set_detail(err, REASON_INTERNAL, VARIABLE ": %s.warm must be at most maximum", pool->name);
  if (pool->runtime == LOCAL_GVISOR && pool->memory_bytes < 128 * MIB)
    return error_set_detail(err, REASON_INTERNAL,
                            VARIABLE ": %s.memoryBytes must be at least %" PRIu64 " for gVisor, whose kernel counts",
                            pool->name, 128 * MIB);
  return 0;
}

static int parse_pool(struct local_pool_settings *pool, const struct json_text *name, const struct json *value,
                      struct error **err) {
  if (!name_good(name))
    return error_set_detail(err, REASON_INTERNAL,
                            VARIABLE ": a Pool's name has 1 to %d lower-case letters, digits and inner hyphens, "
                                     "not \"%.64s\"", LIMIT_POOL_NAME_BYTES, name->data);
  memcpy(pool->name, name->data, name->length);
  if (!json_is_object(value))
    return error_set_detail(err, REASON_INTERNAL, VARIABLE ": %s must be an object", pool->name);
  for (size_t i = 0; i < MEMBERS; i++)
    *number_at(pool, &members[i]) = members[i].fallback;
  const void *position = NULL;
  struct json_text member;
  const struct json *number;
  while (json_next(value, &position, &member, &number))
    if (parse_member(pool, member.data, number, err) != 0)
      return -1;
  return check_pool(pool, err);
}

int local_pools_parse(const char *json, struct local_pool_settings **pools, size_t *count, struct error **err) {
  CLEANUP_JSON struct json *parsed = json_parse(json, strlen(json), NULL);
  CLEANUP_MEMORY struct local_pool_settings *list = memory_array(POOLS_MAX, sizeof *list);
  const void *position = NULL;
  struct json_text name;
  const struct json *value;
  size_t used = 0;
  if (list == NULL)
    return error_set_memory(err);
  if (parsed == NULL || !json_is_object(parsed))
    return error_set_detail(err, REASON_INTERNAL, VARIABLE " must be a JSON object: Pool name → settings");
  while (json_next(parsed, &position, &name, &value)) {
    if (used == POOLS_MAX)
      return error_set_detail(err, REASON_INTERNAL, VARIABLE ": there may be at most %d Pools", POOLS_MAX);
    if (parse_pool(&list[used], &name, value, err) != 0)
      return -1;
    for (size_t i = 0; i < used; i++)
      if (strcmp(list[i].name, list[used].name) == 0)
        return error_set_detail(err, REASON_INTERNAL, VARIABLE ": %s is there twice", list[i].name);
    used++;
  }
  if (used == 0)
    return error_set_detail(err, REASON_INTERNAL, VARIABLE " must name at least one Pool");
  *pools = list;
  *count = used;
  list = NULL;
  return 0;
}
