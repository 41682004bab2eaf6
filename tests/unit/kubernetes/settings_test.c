#include "backend/kubernetes/settings.h"
#include "base/clock.h"
#include "tests/unit/kubernetes/check.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static struct digest_key key;

static const char good[] =
    "{\"coding\":{\"warmPoolName\":\"coding.pool\",\"runtimeClassName\":\"runc\"},"
    "\"gvisor\":{\"warmPoolName\":\"g\",\"runtimeClassName\":\"gvisor\",\"containerName\":\"shell\"}}";

static void test_pools(void **state) {
  (void)state;
  CLEANUP_MEMORY struct pool_settings *pools = NULL;
  size_t count = 0;
  assert_int_equal(settings_parse_pools(good, &key, &pools, &count, NULL), 0);
  assert_int_equal(count, 2);
  assert_string_equal(pools[0].name, "coding");
  assert_string_equal(pools[0].warm_pool, "coding.pool");
  assert_string_equal(pools[0].container, "");
  assert_string_equal(pools[1].runtime, "gvisor");
  assert_string_equal(pools[1].container, "shell");
  assert_int_equal(strlen(pools[0].label), LABEL_SIZE - 1);
  assert_string_not_equal(pools[0].label, pools[1].label);
}

#define POOL(name, settings) "{\"" name "\":" settings "}"
#define GOOD_SETTINGS "{\"warmPoolName\":\"w\",\"runtimeClassName\":\"r\"}"

static void test_refused(void **state) {
  (void)state;
  static const struct {
    const char *json, *says;
  } cases[] = {
      {"", "must be a JSON object"},
      {"[]", "must be a JSON object"},
      {"{}", "must name 1 to 256"},
      {POOL("", GOOD_SETTINGS), "Pool's name"},
      {POOL("Coding", GOOD_SETTINGS), "Pool's name"},
      {POOL("-a", GOOD_SETTINGS), "Pool's name"},
      {POOL("a-", GOOD_SETTINGS), "Pool's name"},
      {POOL("a.b", GOOD_SETTINGS), "Pool's name"},
      {POOL("a\\u0000b", GOOD_SETTINGS), "Pool's name"},
      {POOL("a", "7"), "must be an object"},
      {POOL("a", "{}"), "must have a warmPoolName"},
      {POOL("a", "{\"warmPoolName\":\"w\"}"), "must have a warmPoolName"},
      {POOL("a", "{\"warmPoolName\":7}"), "a.warmPoolName must be"},
      {POOL("a", "{\"warmPoolName\":\"a..b\"}"), "a.warmPoolName must be"},
      {POOL("a", "{\"warmPoolName\":\"a.-b\"}"), "a.warmPoolName must be"},
      {POOL("a", "{\"warmPoolName\":\"a-.b\"}"), "a.warmPoolName must be"},
      {POOL("a", "{\"warmPoolName\":\"../a\"}"), "a.warmPoolName must be"},
      {POOL("a", "{\"runtimeClassName\":\"\"}"), "a.runtimeClassName must be"},
      {POOL("a", "{\"color\":\"red\"}"), "unknown setting \"color\""},
      {"{\"a\":" GOOD_SETTINGS ",\"a\":" GOOD_SETTINGS "}", "names the Pool a twice"},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    CLEANUP_MEMORY struct pool_settings *pools = NULL;
    CLEANUP_ERROR struct error *err = NULL;
    size_t count = 0;
    assert_int_equal(settings_parse_pools(cases[i].json, &key, &pools, &count, &err), -1);
    if (!strstr(error_detail(err), cases[i].says))
      fail_msg("case %zu says: %s", i, error_detail(err));
  }
}

static void test_memory(void **state) {
  (void)state;
  TORTURE(CLEANUP_MEMORY struct pool_settings *pools = NULL; CLEANUP_ERROR struct error *err = NULL; size_t count = 0;
          int result = settings_parse_pools(good, &key, &pools, &count, &err),
          assert_int_equal(result, torture_failed ? -1 : 0);
          if (err) assert_string_equal(error_detail(err), "out of memory"));
}

/* The environment is this test's own. */
static int read_settings(struct kubernetes_settings *settings, struct config **config, struct error **err) {
  *config = config_load(NULL, NULL);
  assert_non_null(*config);
  return settings_read(settings, *config, err);
}

static void test_environment(void **state) {
  (void)state;
  struct kubernetes_settings settings;
  struct config *config;
  setenv("SANDBOX_METADATA_SECRET", "secret", 1);
  setenv("SANDBOX_K8S_POOLS", good, 1);
  assert_int_equal(read_settings(&settings, &config, NULL), 0);
  assert_int_equal(settings.ready_timeout, 120 * CLOCK_SECOND);
  assert_null(settings.kubeconfig);
  assert_non_null(settings_pool(&settings, "gvisor"));
  assert_null(settings_pool(&settings, "other"));
  settings_free(&settings);
  config_free(config);
  static const struct {
    const char *name, *value;
  } bad[] = {{"SANDBOX_K8S_NAMESPACE", "a/b"},
             {"SANDBOX_K8S_CONTEXT", "c"},
             {"SANDBOX_K8S_READY_TIMEOUT", "soon"},
             {"SANDBOX_K8S_POLL_INTERVAL", "0s"},
             {"SANDBOX_K8S_EXHAUSTED_TIMEOUT", "-1s"}};
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    CLEANUP_ERROR struct error *err = NULL;
    setenv(bad[i].name, bad[i].value, 1);
    assert_int_equal(read_settings(&settings, &config, &err), -1);
    assert_non_null(strstr(error_detail(err), bad[i].name));
    settings_free(&settings);
    config_free(config);
    unsetenv(bad[i].name);
  }
}

int main(void) {
  digest_key_set(&key, "secret", 6);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pools),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_environment),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
