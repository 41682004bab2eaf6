#include "backend/kubernetes/settings.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define VARIABLE "SANDBOX_K8S_POOLS"

enum { POOLS_MAX = 256 };

/* A DNS subdomain, or only a DNS label: what Kubernetes accepts as a name. */
static bool name_good(const char *name, size_t length, size_t maximum, bool dots) {
  if (length == 0 || length > maximum)
    return false;
  char before = '.';
  for (size_t i = 0; i <= length; i++) {
    char c = i < length ? name[i] : '.';
    bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    bool edge = before == '.' || c == '.';
    if (!letter && c != '-' && !(c == '.' && (dots || i == length)))
      return false;
    if (edge && (before == '-' || c == '-' || before == c))
      return false;
    before = c;
  }
  return true;
}

static int pool_member(struct pool_settings *pool, const char *name, const struct json *value, struct error **err) {
  static const struct {
    const char *name;
    size_t offset;
  } members[] = {{"warmPoolName", offsetof(struct pool_settings, warm_pool)},
                 {"runtimeClassName", offsetof(struct pool_settings, runtime)},
                 {"containerName", offsetof(struct pool_settings, container)}};
  for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
    struct json_text text;
    if (strcmp(name, members[i].name) != 0)
      continue;
    if (json_as_text(value, &text) < 0 || !name_good(text.data, text.length, SETTINGS_NAME_SIZE - 1, true))
      return error_set_detail(err, REASON_INTERNAL, VARIABLE ": %s.%s must be the name of a Kubernetes object",
                              pool->name, name);
    memcpy((char *)pool + members[i].offset, text.data, text.length + 1);
    return 0;
  }
  return error_set_detail(err, REASON_INTERNAL, VARIABLE ": %s has an unknown setting \"%.64s\"", pool->name, name);
}

static int pool_parse(struct pool_settings *pool, const struct json_text *name, const struct json *value,
                      const struct digest_key *metadata_key, struct error **err) {
  if (!name_good(name->data, name->length, LIMIT_POOL_NAME_BYTES, false))
    return error_set_detail(
        err, REASON_INTERNAL,
        VARIABLE ": a Pool's name has 1 to 63 lower-case letters, digits and inner hyphens, not \"%.64s\"", name->data);
  memcpy(pool->name, name->data, name->length + 1);
  if (!json_is_object(value))
    return error_set_detail(err, REASON_INTERNAL, VARIABLE ": %s must be an object of settings", pool->name);
  const void *position = NULL;
  struct json_text member;
  const struct json *setting;
  while (json_next(value, &position, &member, &setting))
    if (pool_member(pool, member.data, setting, err) < 0)
      return -1;
  if (!pool->warm_pool[0] || !pool->runtime[0])
    return error_set_detail(err, REASON_INTERNAL, VARIABLE ": %s must have a warmPoolName and a runtimeClassName",
                            pool->name);
  const char *parts[] = {"idempotency", "pool", "pool", pool->name};
  return label_make(metadata_key, parts, 4, pool->label) < 0 ? error_set_memory(err) : 0;
}

int settings_parse_pools(const char *json, const struct digest_key *metadata_key, struct pool_settings **pools,
                         size_t *count, struct error **err) {
  CLEANUP_ERROR struct error *problem = NULL;
  CLEANUP_JSON struct json *parsed = json_parse(json, strlen(json), &problem);
  if (!parsed && error_reason(problem) == REASON_INTERNAL)
    return error_set_memory(err);
  if (!parsed || !json_is_object(parsed))
    return error_set_detail(err, REASON_INTERNAL, VARIABLE " must be a JSON object, Pool name to settings");
  const void *position = NULL;
  struct json_text name;
  const struct json *value;
  size_t total = 0;
  while (json_next(parsed, &position, &name, &value))
    total++;
  if (total == 0 || total > POOLS_MAX)
    return error_set_detail(err, REASON_INTERNAL, VARIABLE " must name 1 to %d Pools", POOLS_MAX);
  CLEANUP_MEMORY struct pool_settings *list = memory_array(total, sizeof *list);
  if (!list)
    return error_set_memory(err);
  position = NULL;
  for (size_t i = 0; json_next(parsed, &position, &name, &value); i++) {
    if (pool_parse(&list[i], &name, value, metadata_key, err) < 0)
      return -1;
    for (size_t j = 0; j < i; j++)
      if (strcmp(list[j].name, list[i].name) == 0)
        return error_set_detail(err, REASON_INTERNAL, VARIABLE " names the Pool %s twice", list[i].name);
  }
  *pools = list;
  *count = total;
  list = NULL;
  return 0;
}

/* The file of that name in the folder of this program. */
static char *beside(const char *name) {
  char path[4096];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  while (length > 0 && path[length - 1] != '/')
    length--;
  struct buffer whole;
  buffer_init(&whole, sizeof path);
  if (length <= 0 || buffer_append(&whole, path, (size_t)length) < 0 || buffer_append_string(&whole, name) < 0) {
    buffer_free(&whole);
    return NULL;
  }
  return buffer_take(&whole);
}

static int sandboxd_read(struct kubernetes_settings *settings, struct config *config, struct error **err) {
  const char *given = NULL;
  if (config_optional(config, "SANDBOX_K8S_SANDBOXD", &given, err) < 0)
    return -1;
  settings->sandboxd = given ? memory_string(given) : beside("sandboxd");
  return settings->sandboxd ? 0 : error_set_memory(err);
}

int settings_read(struct kubernetes_settings *settings, struct config *config, struct error **err) {
  const char *secret = NULL, *pools = NULL;
  int64_t unused = 0;
  *settings = (struct kubernetes_settings){0};
  if (config_text(config, "SANDBOX_METADATA_SECRET", NULL, &secret, err) < 0 ||
      config_text(config, VARIABLE, NULL, &pools, err) < 0 ||
      config_optional(config, "SANDBOX_KUBECONFIG", &settings->kubeconfig, err) < 0 ||
      config_optional(config, "SANDBOX_K8S_CONTEXT", &settings->context, err) < 0 ||
      config_optional(config, "SANDBOX_K8S_NAMESPACE", &settings->namespace_, err) < 0)
    return -1;
  if (settings->namespace_ && !name_good(settings->namespace_, strlen(settings->namespace_), 63, false))
    return error_set_detail(err, REASON_INTERNAL, "SANDBOX_K8S_NAMESPACE must be the name of a namespace");
  if (settings->context && !settings->kubeconfig)
    return error_set_detail(err, REASON_INTERNAL, "SANDBOX_K8S_CONTEXT needs SANDBOX_KUBECONFIG");
  if (config_duration(config, "SANDBOX_K8S_READY_TIMEOUT", 120 * CLOCK_SECOND, CLOCK_SECOND, 3600 * CLOCK_SECOND,
                      &settings->ready_timeout, err) < 0 ||
      config_duration(config, "SANDBOX_K8S_EXHAUSTED_TIMEOUT", 10 * CLOCK_SECOND, CLOCK_MILLISECOND,
                      3600 * CLOCK_SECOND, &settings->exhausted_timeout, err) < 0 ||
      config_duration(config, "SANDBOX_K8S_POLL_INTERVAL", CLOCK_SECOND, CLOCK_MILLISECOND, 3600 * CLOCK_SECOND,
                      &unused, err) < 0)
    return -1;
  if (sandboxd_read(settings, config, err) < 0)
    return -1;
  digest_key_set(&settings->metadata_key, secret, strlen(secret));
  return settings_parse_pools(pools, &settings->metadata_key, &settings->pools, &settings->pool_count, err);
}

void settings_free(struct kubernetes_settings *settings) {
  memory_wipe(&settings->metadata_key, sizeof settings->metadata_key);
  memory_free(settings->pools);
  memory_free(settings->sandboxd);
  settings->sandboxd = NULL;
  settings->pools = NULL;
  settings->pool_count = 0;
}

const struct pool_settings *settings_pool(const struct kubernetes_settings *settings, const char *name) {
  for (size_t i = 0; i < settings->pool_count; i++)
    if (strcmp(settings->pools[i].name, name) == 0)
      return &settings->pools[i];
  return NULL;
}
