/* The settings of the local backend: what is taken, and which word of a refusal says what is wrong. */
#include "backend/local/settings.h"
#include "base/memory.h"
#include "tests/unit/local/check.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static void pools_have_defaults(void **state) {
  (void)state;
  CLEANUP_ERROR struct error *err = NULL;
  CLEANUP_MEMORY struct local_pool_settings *pools = NULL;
  size_t count = 0;
  assert_int_equal(local_pools_parse("{\"coding\":{}}", &pools, &count, &err), 0);
  assert_int_equal(count, 1);
  assert_string_equal(pools[0].name, "coding");
  assert_int_equal(pools[0].runtime, LOCAL_BUBBLEWRAP);
  assert_int_equal(pools[0].warm, 2);
  assert_int_equal(pools[0].maximum, 10000);
  assert_int_equal(pools[0].memory_bytes, 1024 * MIB);
  assert_int_equal(pools[0].processes, 512);
  assert_int_equal(pools[0].workspace_bytes, 1024 * MIB);
  assert_int_equal(pools[0].workspace_files, 200000);
}

static void pools_are_as_configured(void **state) {
  (void)state;
  CLEANUP_ERROR struct error *err = NULL;
  CLEANUP_MEMORY struct local_pool_settings *pools = NULL;
  size_t count = 0;
  const char *json =
      "{\"a\":{\"runtime\":\"gvisor\",\"warm\":0,\"maximum\":1,\"memoryBytes\":268435456,\"processes\":8,"
      "\"workspaceBytes\":1048576,\"workspaceFiles\":16},\"b-1\":{\"runtime\":\"bubblewrap\"}}";
  assert_int_equal(local_pools_parse(json, &pools, &count, &err), 0);
  assert_int_equal(count, 2);
  assert_int_equal(pools[0].runtime, LOCAL_GVISOR);
  assert_int_equal(pools[0].warm, 0);
  assert_int_equal(pools[0].maximum, 1);
  assert_int_equal(pools[0].memory_bytes, 256 * MIB);
  assert_int_equal(pools[0].processes, 8);
  assert_int_equal(pools[0].workspace_bytes, MIB);
  assert_int_equal(pools[0].workspace_files, 16);
  assert_string_equal(pools[1].name, "b-1");
}

/* The setting, and the words that its refusal must hold. */
static const struct {
  const char *json, *words;
} bad_pools[] = {
  {"", "must be a JSON object"},
  {"[]", "must be a JSON object"},
  {"{}", "at least one Pool"},
  {"{\"a\":1}", "a must be an object"},
  {"{\"A\":{}}", "lower-case"},
  {"{\"\":{}}", "lower-case"},
  {"{\"-a\":{}}", "lower-case"},
  {"{\"a-\":{}}", "lower-case"},
  {"{\"a/b\":{}}", "lower-case"},
  {"{\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\":{}}", "lower-case"},
  {"{\"a\":{\"runtime\":\"docker\"}}", "a.runtime must be"},
  {"{\"a\":{\"runtime\":7}}", "a.runtime must be"},
  {"{\"a\":{\"runtime\":\"gvisor\\u0000\"}}", "a.runtime must be"},
  {"{\"a\":{\"wram\":1}}", "unknown member \"wram\""},
  {"{\"a\":{\"warm\":-1}}", "a.warm must be an integer from 0 to 1000"},
  {"{\"a\":{\"warm\":1001}}", "a.warm must be"},
  {"{\"a\":{\"warm\":1.5}}", "a.warm must be"},
  {"{\"a\":{\"warm\":\"1\"}}", "a.warm must be"},
  {"{\"a\":{\"maximum\":0}}", "a.maximum must be"},
  {"{\"a\":{\"warm\":3,\"maximum\":2}}", "a.warm must be at most maximum"},
  {"{\"a\":{\"memoryBytes\":1}}", "a.memoryBytes must be"},
  {"{\"a\":{\"memoryBytes\":1e300}}", "a.memoryBytes must be"},
  {"{\"a\":{\"processes\":7}}", "a.processes must be"},
  {"{\"a\":{\"workspaceBytes\":1048575}}", "a.workspaceBytes must be"},
  {"{\"a\":{\"workspaceFiles\":15}}", "a.workspaceFiles must be"},
  {"{\"a\":{\"runtime\":\"gvisor\",\"memoryBytes\":67108864}}", "for gVisor"},
};

static void bad_pools_are_refused_by_name(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(bad_pools); i++) {
    CLEANUP_ERROR struct error *err = NULL;
    struct local_pool_settings *pools = NULL;
    size_t count = 0;
    assert_int_equal(local_pools_parse(bad_pools[i].json, &pools, &count, &err), -1);
    assert_null(pools);
    if (strstr(error_detail(err), bad_pools[i].words) == NULL)
      fail_msg("%s: %s", bad_pools[i].json, error_detail(err));
    assert_non_null(strstr(error_detail(err), "SANDBOX_LOCAL_POOLS"));
  }
}

static void uids_are_a_range(void **state) {
  (void)state;
  uint32_t first = 0, count = 0;
  CLEANUP_ERROR struct error *good = NULL;
  assert_int_equal(local_uids_parse("1000-1000", &first, &count, &good), 0);
  assert_int_equal(first, 1000);
  assert_int_equal(count, 1);
  assert_int_equal(local_uids_parse("524288-4294967293", &first, &count, &good), 0);
  static const char *const bad[] = {"",           "1000",       "1000-",           "-1000",
                                    "999-2000",   "2000-1999",  "1000-4294967294", "1000-2000x",
                                    "+1000-2000", " 1000-2000", "1000- 2000",      "1000-99999999999999999999"};
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    CLEANUP_ERROR struct error *err = NULL;
    assert_int_equal(local_uids_parse(bad[i], &first, &count, &err), -1);
    assert_non_null(strstr(error_detail(err), "SANDBOX_LOCAL_UID_RANGE"));
  }
}

/* --- the rest, from the environment --- */

static const char *const names[] = {
    "SANDBOX_LOCAL_STATE_DIR", "SANDBOX_LOCAL_POOLS",      "SANDBOX_LOCAL_LAUNCHER",
    "SANDBOX_LOCAL_SANDBOXD",  "SANDBOX_LOCAL_BUBBLEWRAP", "SANDBOX_LOCAL_RUNSC",
    "SANDBOX_LOCAL_CGROUP",    "SANDBOX_LOCAL_UID_RANGE",  "SANDBOX_LOCAL_RUNSC_PLATFORM"};

static int set_good(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(names); i++)
    unsetenv(names[i]);
  setenv("SANDBOX_LOCAL_STATE_DIR", "/tmp/state//", 1);
  for (size_t i = 2; i < 6; i++)
    setenv(names[i], "/bin/sh", 1);
  return 0;
}

static int read_settings(struct local_settings *settings, struct error **err) {
  struct config *config = config_load(NULL, err);
  assert_non_null(config);
  int failed = local_settings_read(config, settings, err);
  config_free(config);
  return failed;
}

static void settings_are_read(void **state) {
  (void)state;
  CLEANUP_ERROR struct error *err = NULL;
  struct local_settings settings;
  setenv("SANDBOX_LOCAL_CGROUP", "/mine/own", 1);
  setenv("SANDBOX_LOCAL_RUNSC_PLATFORM", "systrap", 1);
  setenv("SANDBOX_LOCAL_POOLS", "{\"a\":{\"runtime\":\"gvisor\"}}", 1);
  assert_int_equal(read_settings(&settings, &err), 0);
  assert_string_equal(settings.state, "/tmp/state");
  assert_string_equal(settings.launcher, "/bin/sh");
  assert_string_equal(settings.runsc, "/bin/sh");
  assert_null(settings.bubblewrap); /* no Pool wants it */
  assert_string_equal(settings.cgroup, "/mine/own");
  assert_string_equal(settings.platform, "systrap");
  assert_int_equal(settings.uid_count, geteuid() == 0 ? 65536 : 0);
  local_settings_free(&settings);
}

static void bad_settings_are_refused_by_name(void **state) {
  (void)state;
  static const struct {
    const char *name, *value;
  } bad[] = {
    {"SANDBOX_LOCAL_STATE_DIR", "relative"},
    {"SANDBOX_LOCAL_STATE_DIR", "/"},
    {"SANDBOX_LOCAL_STATE_DIR", "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},
    {"SANDBOX_LOCAL_LAUNCHER", "sh"},
    {"SANDBOX_LOCAL_LAUNCHER", "/nowhere/launcher"},
    {"SANDBOX_LOCAL_SANDBOXD", "/etc/passwd"},
    {"SANDBOX_LOCAL_SANDBOXD", "/etc"},
    {"SANDBOX_LOCAL_BUBBLEWRAP", "/nowhere/bwrap"},
    {"SANDBOX_LOCAL_CGROUP", "mine"},
    {"SANDBOX_LOCAL_CGROUP", "/mine/../other"},
    {"SANDBOX_LOCAL_UID_RANGE", "1-2"},
    {"SANDBOX_LOCAL_RUNSC_PLATFORM", "fast"},
  };
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    CLEANUP_ERROR struct error *err = NULL;
    struct local_settings settings;
    set_good(NULL);
    setenv(bad[i].name, bad[i].value, 1);
    assert_int_equal(read_settings(&settings, &err), -1);
    if (strstr(error_detail(err), bad[i].name) == NULL)
      fail_msg("%s=%s: %s", bad[i].name, bad[i].value, error_detail(err));
    local_settings_free(&settings);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(pools_have_defaults),
    cmocka_unit_test(pools_are_as_configured),
    cmocka_unit_test(bad_pools_are_refused_by_name),
    cmocka_unit_test(uids_are_a_range),
    cmocka_unit_test_setup(settings_are_read, set_good),
    cmocka_unit_test_setup(bad_settings_are_refused_by_name, set_good),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
