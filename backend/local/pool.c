#include "pool.h"

#include "base/json.h"
#include "base/memory.h"
#include <stdbool.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define VARIABLE "SANDBOX_LOCAL_POOLS"

enum { POOLS_MAX = 256 };

struct number_setting {
  const char *name;
  size_t offset;
  uint64_t minimum, maximum, fallback;
};

static const struct number_setting numbers[] = {
    {"warm", offsetof(struct pool_settings, warm), 0, 1000, 2},
    {"maximum", offsetof(struct pool_settings, maximum), 1, 100000, 10000},
    {"memoryBytes", offsetof(struct pool_settings, memory_bytes), 16 * MIB, 1048576 * MIB, 1024 * MIB},
    {"processes", offsetof(struct pool_settings, processes), 8, 100000, 512},
    {"workspaceBytes", offsetof(struct pool_settings, workspace_bytes), MIB, 1048576 * MIB, 1024 * MIB},
    {"workspaceFiles", offsetof(struct pool_settings, workspace_files), 16, 100000000, 200000},
};

enum { NUMBERS = sizeof numbers / sizeof numbers[0] };

static uint64_t *number_at(struct pool_settings *pool, const struct number_setting *setting)
{
  return (uint64_t *)(void *)((char *)pool + setting->offset);
}

static int runtime_parse(struct pool_settings *pool, const struct json *value, struct error **err)
{
  struct json_text text;
  if (json_as_text(value, &text) == 0) {
    if (strcmp(text.data, "bubblewrap") == 0 || strcmp(text.data, "gvisor") == 0) {
      pool->runtime = text.data[0] == 'g' ? POOL_GVISOR : POOL_BUBBLEWRAP;
      return 0;
    }
  }
  return error_set_detail(err, REASON_INTERNAL, VARIABLE ": %s.runtime must be \"bubblewrap\" or \"gvisor\"", pool->name);
}

static int setting_parse(struct pool_settings *pool, const char *name, const struct json *value, struct error **err)
{
  if (strcmp(name, "runtime") == 0)
    return runtime_parse(pool, value, err);
  for (size_t i = 0; i < NUMBERS; i++) {
    if (strcmp(name, numbers[i].name) != 0)
      continue;
    int64_t number;
    if (json_as_integer(value, &number) < 0 || number < 0 || (uint64_t)number < numbers[i].minimum ||
        (uint64_t)number > numbers[i].maximum)
      return error_set_detail(err, REASON_INTERNAL, VARIABLE ": %s.%s must be an integer between %llu and %llu", pool->name,
                              name, (unsigned long long)numbers[i].minimum, (unsigned long long)numbers[i].maximum);
    *number_at(pool, &numbers[i]) = (uint64_t)number;
    return 0;
  }
  return error_set_detail(err, REASON_INTERNAL, VARIABLE ": %s has an unknown setting \"%.64s\"", pool->name, name);
}

/* [a-z0-9]([-a-z0-9]*[a-z0-9])?, at most 63 bytes: also a Kubernetes label. */
static bool name_good(const struct json_text *name)
{
  if (name->length == 0 || name->length > LIMIT_POOL_NAME_BYTES || name->data[0] == '-' || name->data[name->length - 1] == '-')
    return false;
  for (size_t i = 0; i < name->length; i++) {
    char c = name->data[i];
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'))
      return false;
  }
  return true;
}

static int one_parse(struct pool_settings *pool, const struct json_text *name, const struct json *settings, struct error **err)
{
  if (!name_good(name))
    return error_set_detail(err, REASON_INTERNAL,
                            VARIABLE ": a Pool's name has 1 to 63 lower-case letters, digits and inner hyphens, not \"%.64s\"",
                            name->data);
  memcpy(pool->name, name->data, name->length);
  if (!json_is_object(settings))
    return error_set_detail(err, REASON_INTERNAL, VARIABLE ": %s must be an object of settings", pool->name);
  for (size_t i = 0; i < NUMBERS; i++)
    *number_at(pool, &numbers[i]) = numbers[i].fallback;
  const void *position = NULL;
  struct json_text setting;
  const struct json *value;
  while (json_next(settings, &position, &setting, &value))
    if (setting_parse(pool, setting.data, value, err) < 0)
      return -1;
  return 0;
}

int pool_parse(const char *json, struct pool_settings **pools, size_t *count, struct error **err)
{
  CLEANUP_JSON struct json *parsed = json_parse(json, strlen(json), NULL);
  if (!parsed || !json_is_object(parsed))
    return error_set_detail(err, REASON_INTERNAL, VARIABLE " must be a JSON object, Pool name → settings");
  CLEANUP_MEMORY struct pool_settings *list = memory_array(POOLS_MAX, sizeof *list);
  if (!list)
    return error_set_memory(err);
  const void *position = NULL;
  struct json_text name;
  const struct json *settings;
  size_t used = 0;
  while (json_next(parsed, &position, &name, &settings)) {
    if (used == POOLS_MAX)
      return error_set_detail(err, REASON_INTERNAL, VARIABLE ": at most %d Pools", POOLS_MAX);
    if (one_parse(&list[used++], &name, settings, err) < 0)
      return -1;
  }
  if (used == 0)
    return error_set_detail(err, REASON_INTERNAL, VARIABLE " must name at least one Pool");
  *pools = list;
  *count = used;
  list = NULL;
  return 0;
}
