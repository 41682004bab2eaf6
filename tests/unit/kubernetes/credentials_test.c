#include "backend/kubernetes/credentials.h"
#include "base/log.h"
#include "tests/unit/kubernetes/check.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

struct told {
  unsigned count;
  bool failed;
  char bearer[64];
};

static void on_credential(void *context, const struct credential *credential, struct error *err) {
  struct told *told = context;
  told->count++;
  told->failed = err != NULL;
  snprintf(told->bearer, sizeof told->bearer, "%s", credential && credential->bearer ? credential->bearer : "");
}

static const char *in_folder(const char *name) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void write_file(const char *name, const char *text, mode_t mode) {
  char path[128];
  snprintf(path, sizeof path, "%s", in_folder(name));
  unlink(path);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
  chmod(path, mode);
}

#define CONFIG(user)                                                                                                   \
  "{current-context: c, contexts: [{name: c, context: {cluster: k, user: u, namespace: n}}], clusters: [{name: k, "    \
  "cluster: "                                                                                                          \
  "{server: 'https://a'}}], users: [{name: u, user: {" user "}}]}"

static struct credentials *make(uv_loop_t *loop, const char *config, struct error **err) {
  write_file("config", config, 0600);
  return credentials_new(loop, in_folder("config"), NULL, err);
}

static void ask(uv_loop_t *loop, struct credentials *credentials, struct told *told) {
  struct credentials_waiter waiter = {0};
  *told = (struct told){0};
  credentials_get(credentials, &waiter, on_credential, told);
  uv_run(loop, UV_RUN_DEFAULT);
  assert_int_equal(told->count, 1);
}

static void test_token_file(void **state) {
  uv_loop_t *loop = *state;
  struct told told;
  write_file("token", "first\n", 0600);
  struct credentials *credentials = make(loop, CONFIG("tokenFile: token"), NULL);
  assert_non_null(credentials);
  assert_string_equal(credentials_server(credentials), "https://a");
  assert_string_equal(credentials_namespace(credentials), "n");
  ask(loop, credentials, &told);
  assert_string_equal(told.bearer, "first");
  write_file("token", "second", 0600);
  ask(loop, credentials, &told);
  assert_string_equal(told.bearer, "second");
  unlink(in_folder("token")); /* the old one stays in force */
  ask(loop, credentials, &told);
  assert_string_equal(told.bearer, "second");
  write_file("token", "a\nb", 0600);
  ask(loop, credentials, &told);
  assert_true(told.failed);
  credentials_free(credentials);
}

static void test_refused(void **state) {
  uv_loop_t *loop = *state;
  CLEANUP_ERROR struct error *err = NULL;
  unlink(in_folder("token"));
  assert_null(make(loop, CONFIG("tokenFile: token"), &err));
  assert_non_null(strstr(error_detail(err), "token"));
  error_free(&err);
  assert_null(credentials_new(loop, in_folder("nothing"), NULL, &err));
  assert_non_null(strstr(error_detail(err), "SANDBOX_KUBECONFIG"));
  error_free(&err);
  unsetenv("KUBERNETES_SERVICE_HOST");
  assert_null(credentials_new(loop, NULL, NULL, &err));
  assert_non_null(strstr(error_detail(err), "SANDBOX_KUBECONFIG"));
}

#define PLUGIN                                                                                                         \
  "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, args: [one], env: [{name: EXTRA, value: "    \
  "v}]}"

/* A plug-in that counts how often it ran. */
static void write_plugin(const char *expiry) {
  char text[1024];
  snprintf(text, sizeof text,
           "#!/bin/sh\n"
           "[ \"$1\" = one ] && [ \"$EXTRA\" = v ] && [ -z \"$SANDBOX_METADATA_SECRET\" ] || exit 7\n"
           "case $KUBERNETES_EXEC_INFO in *ExecCredential*) ;; *) exit 8 ;; esac\n"
           "echo x >>\"$(dirname \"$0\")/count\"\n"
           "printf "
           "'{\"apiVersion\":\"client.authentication.k8s.io/"
           "v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"t%%s\"%s}}' "
           "\"$(wc -l <\"$(dirname \"$0\")/count\")\"\n",
           expiry);
  unlink(in_folder("count"));
  write_file("plugin", text, 0700);
}

static void test_plugin(void **state) {
  uv_loop_t *loop = *state;
  struct told told;
  setenv("SANDBOX_METADATA_SECRET", "secret", 1);
  write_plugin("");
  struct credentials *credentials = make(loop, CONFIG(PLUGIN), NULL);
  assert_non_null(credentials);
  ask(loop, credentials, &told);
  assert_string_equal(told.bearer, "t1");
  ask(loop, credentials, &told);
  assert_string_equal(told.bearer, "t1");
  credentials_refused(credentials);
  ask(loop, credentials, &told);
  assert_string_equal(told.bearer, "t2");
  credentials_free(credentials);
}

static void test_plugin_expires(void **state) {
  uv_loop_t *loop = *state;
  struct told told;
  write_plugin(",\"expirationTimestamp\":\"2020-01-01T00:00:00Z\"");
  struct credentials *credentials = make(loop, CONFIG(PLUGIN), NULL);
  ask(loop, credentials, &told);
  assert_string_equal(told.bearer, "t1");
  ask(loop, credentials, &told);
  assert_string_equal(told.bearer, "t2");
  credentials_free(credentials);
}

/* Those who wait share one run; one who does not wait any more is not told. */
static void test_plugin_is_shared(void **state) {
  uv_loop_t *loop = *state;
  struct told told[3] = {{0}};
  struct credentials_waiter waiters[3] = {{0}};
  write_plugin("");
  struct credentials *credentials = make(loop, CONFIG(PLUGIN), NULL);
  for (int i = 0; i < 3; i++)
    credentials_get(credentials, &waiters[i], on_credential, &told[i]);
  credentials_cancel(credentials, &waiters[1]);
  uv_run(loop, UV_RUN_DEFAULT);
  assert_string_equal(told[0].bearer, "t1");
  assert_int_equal(told[1].count, 0);
  assert_string_equal(told[2].bearer, "t1");
  credentials_free(credentials);
}

static void test_plugin_fails(void **state) {
  uv_loop_t *loop = *state;
  struct told told;
  static const char *const programs[] = {"#!/bin/sh\nexit 1\n", "#!/bin/sh\necho nonsense\n", "#!/bin/sh\nkill -9 $$\n",
                                         "#!/bin/sh\nhead -c 2000000 /dev/zero\n"};
  log_set_level(LOG_ERROR);
  for (size_t i = 0; i < COUNT_OF(programs); i++) {
    write_file("plugin", programs[i], 0700);
    struct credentials *credentials = make(loop, CONFIG(PLUGIN), NULL);
    ask(loop, credentials, &told);
    assert_true(told.failed);
    credentials_free(credentials);
  }
  unlink(in_folder("plugin"));
  struct credentials *credentials = make(loop, CONFIG(PLUGIN), NULL);
  ask(loop, credentials, &told);
  assert_true(told.failed);
  credentials_free(credentials);
}

static void test_freed_while_it_runs(void **state) {
  uv_loop_t *loop = *state;
  struct told told = {0};
  struct credentials_waiter waiter = {0};
  write_file("plugin", "#!/bin/sh\nexec sleep 600\n", 0700);
  struct credentials *credentials = make(loop, CONFIG(PLUGIN), NULL);
  credentials_get(credentials, &waiter, on_credential, &told);
  credentials_free(credentials);
  uv_run(loop, UV_RUN_DEFAULT); /* ends, because the plug-in is killed */
  assert_int_equal(told.count, 0);
}

int main(void) {
  static uv_loop_t loop;
  snprintf(folder, sizeof folder, "/tmp/credentials-XXXXXX");
  if (!mkdtemp(folder) || uv_loop_init(&loop) < 0)
    return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_prestate(test_token_file, &loop),
      cmocka_unit_test_prestate(test_refused, &loop),
      cmocka_unit_test_prestate(test_plugin, &loop),
      cmocka_unit_test_prestate(test_plugin_expires, &loop),
      cmocka_unit_test_prestate(test_plugin_is_shared, &loop),
      cmocka_unit_test_prestate(test_plugin_fails, &loop),
      cmocka_unit_test_prestate(test_freed_while_it_runs, &loop),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  static const char *const names[] = {"config", "token", "plugin", "count"};
  for (size_t i = 0; i < COUNT_OF(names); i++)
    unlink(in_folder(names[i]));
  rmdir(folder);
  return uv_loop_close(&loop) == 0 ? failed : 1;
}
