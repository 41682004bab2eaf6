#include "backend/kubernetes/kubeconfig.h"
#include "tests/unit/kubernetes/check.h"
#include <stdbool.h>
#include <string.h>

static const char whole[] = "apiVersion: v1\n"
                            "kind: Config\n"
                            "current-context: certificates\n"
                            "clusters:\n"
                            "- name: one\n"
                            "  cluster:\n"
                            "    server: https://10.0.0.1:6443/base//\n"
                            "    certificate-authority-data: QSBDQQ==\n"
                            "    tls-server-name: kubernetes\n"
                            "    proxy-url: http://proxy:3128\n"
                            "- {name: two, cluster: {server: 'https://two', certificate-authority: pki/ca.crt}}\n"
                            "users:\n"
                            "- name: files\n"
                            "  user: {client-certificate: a.crt, client-key: /keys/a.key}\n"
                            "- name: data\n"
                            "  user:\n"
                            "    client-certificate-data: |\n"
                            "      QSBj\n"
                            "      ZXJ0\n"
                            "    client-key-data: QSBrZXk=\n"
                            "- name: token\n"
                            "  user: {token: secret}\n"
                            "- name: rotated\n"
                            "  user: {token: old, tokenFile: token}\n"
                            "- name: plugin\n"
                            "  user:\n"
                            "    exec:\n"
                            "      apiVersion: client.authentication.k8s.io/v1\n"
                            "      command: bin/plug-in\n"
                            "      args: [get, \"--cluster=x y\"]\n"
                            "      env: [{name: A, value: 'b=c'}, {name: D, value: ''}]\n"
                            "      provideClusterInfo: true\n"
                            "      interactiveMode: Never\n"
                            "contexts:\n"
                            "- {name: certificates, context: {cluster: two, user: files, namespace: pools}}\n"
                            "- {name: data, context: {cluster: one, user: data}}\n"
                            "- {name: token, context: {cluster: one, user: token}}\n"
                            "- {name: rotated, context: {cluster: one, user: rotated}}\n"
                            "- {name: plugin, context: {cluster: one, user: plugin}}\n"
                            "- {name: lost, context: {cluster: three, user: token}}\n"
                            "- {name: nobody, context: {cluster: one, user: who}}\n";

static int parse(struct kubeconfig *config, const char *text, const char *context, struct error **err) {
  size_t length = strlen(text);
  CLEANUP_MEMORY char *copy = memory_string_of(text, length);
  return kubeconfig_parse(config, copy, length, "/home/config", context, err);
}

static void test_current_context(void **state) {
  (void)state;
  struct kubeconfig config;
  assert_int_equal(parse(&config, whole, NULL, NULL), 0);
  assert_string_equal(config.server, "https://two");
  assert_string_equal(config.authority_file, "/home/config/pki/ca.crt");
  assert_string_equal(config.certificate_file, "/home/config/a.crt");
  assert_string_equal(config.key_file, "/keys/a.key");
  assert_string_equal(config.namespace_, "pools");
  assert_null(config.authority);
  assert_null(config.token);
  assert_null(config.exec.command);
  kubeconfig_free(&config);
}

static void test_data(void **state) {
  (void)state;
  struct kubeconfig config;
  assert_int_equal(parse(&config, whole, "data", NULL), 0);
  assert_string_equal(config.server, "https://10.0.0.1:6443/base");
  assert_string_equal(config.authority, "A CA");
  assert_string_equal(config.server_name, "kubernetes");
  assert_string_equal(config.proxy, "http://proxy:3128");
  assert_string_equal(config.certificate, "A cert");
  assert_string_equal(config.key, "A key");
  assert_null(config.namespace_);
  kubeconfig_free(&config);
}

static void test_tokens(void **state) {
  (void)state;
  struct kubeconfig config;
  assert_int_equal(parse(&config, whole, "token", NULL), 0);
  assert_string_equal(config.token, "secret");
  kubeconfig_free(&config);
  assert_int_equal(parse(&config, whole, "rotated", NULL), 0);
  assert_null(config.token);
  assert_string_equal(config.token_file, "/home/config/token");
  kubeconfig_free(&config);
}

static void test_plugin(void **state) {
  (void)state;
  struct kubeconfig config;
  assert_int_equal(parse(&config, whole, "plugin", NULL), 0);
  assert_string_equal(config.exec.command, "/home/config/bin/plug-in");
  assert_string_equal(config.exec.arguments[0], "get");
  assert_string_equal(config.exec.arguments[1], "--cluster=x y");
  assert_null(config.exec.arguments[2]);
  assert_string_equal(config.exec.environment[0], "A=b=c");
  assert_string_equal(config.exec.environment[1], "D=");
  assert_null(config.exec.environment[2]);
  assert_true(config.exec.cluster_info);
  kubeconfig_free(&config);
}

#define WITH(cluster, user)                                                                                            \
  "{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}], clusters: [{name: k, cluster: "         \
  "{" cluster "}}], users: [{name: u, user: {" user "}}]}"

static void test_refused(void **state) {
  (void)state;
  static const struct {
    const char *text, *context, *says;
  } cases[] = {
      {"", NULL, "must be a map"},
      {"[]", NULL, "must be a map"},
      {"a: [", NULL, "is no YAML"},
      {"a: \tb: c: d", NULL, "is no YAML"},
      {"{}", NULL, "current-context"},
      {whole, "none", "no context \"none\""},
      {whole, "lost", "cluster is not among"},
      {whole, "nobody", "user is not among"},
      {WITH("server: 'http://a'", "token: t"), NULL, "https://"},
      {WITH("server: 'https://'", "token: t"), NULL, "https://"},
      {WITH("server: [a]", "token: t"), NULL, "server must be a text"},
      {WITH("", "token: t"), NULL, "https://"},
      {WITH("server: 'https://a', insecure-skip-tls-verify: true", "token: t"), NULL, "insecure-skip-tls-verify"},
      {WITH("server: 'https://a', certificate-authority-data: '!'", "token: t"), NULL, "certificate-authority-data"},
      {WITH("server: 'https://a', certificate-authority-data: AAAA", "token: t"), NULL, "certificate-authority-data"},
      {WITH("server: 'https://a'", ""), NULL, "user must have"},
      {WITH("server: 'https://a'", "username: a, password: b"), NULL, "username"},
      {WITH("server: 'https://a'", "auth-provider: {name: gcp}"), NULL, "auth-provider"},
      {WITH("server: 'https://a'", "client-certificate: a"), NULL, "belong together"},
      {WITH("server: 'https://a'", "exec: {command: a}"), NULL, "exec.apiVersion"},
      {WITH("server: 'https://a'", "exec: {apiVersion: client.authentication.k8s.io/v1}"), NULL, "exec.command"},
      {WITH("server: 'https://a'", "exec: {apiVersion: client.authentication.k8s.io/v1, command: a, args: b}"), NULL,
       "args"},
      {WITH("server: 'https://a'", "exec: {apiVersion: client.authentication.k8s.io/v1, command: a, args: [[b]]}"),
       NULL, "args"},
      {WITH("server: 'https://a'",
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: a, env: [{value: b}]}"),
       NULL, "env"},
      {WITH("server: 'https://a'", "token: \"a\\0b\""), NULL, "token"},
      {"a: &x [*x]\ncurrent-context: *x", NULL, "current-context"},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct kubeconfig config;
    CLEANUP_ERROR struct error *err = NULL;
    assert_int_equal(parse(&config, cases[i].text, cases[i].context, &err), -1);
    if (!strstr(error_detail(err), cases[i].says))
      fail_msg("case %zu says: %s", i, error_detail(err));
    kubeconfig_free(&config);
  }
}

static void test_secrets_are_not_quoted(void **state) {
  (void)state;
  struct kubeconfig config;
  CLEANUP_ERROR struct error *err = NULL;
  assert_int_equal(parse(&config, WITH("server: 'https://a'", "client-key-data: hunter2"), NULL, &err), -1);
  assert_null(strstr(error_detail(err), "hunter2"));
  kubeconfig_free(&config);
}

static void test_memory(void **state) {
  (void)state;
  static const char *const contexts[] = {"certificates", "data", "rotated", "plugin"};
  for (size_t i = 0; i < COUNT_OF(contexts); i++)
    TORTURE(struct kubeconfig config; CLEANUP_ERROR struct error *err = NULL;
            int result = kubeconfig_parse(&config, whole, strlen(whole), "/home", contexts[i], &err),
            assert_int_equal(result, torture_failed ? -1 : 0);
            assert_int_equal(err != NULL, torture_failed);
            if (err) assert_string_equal(error_detail(err), "out of memory"); kubeconfig_free(&config));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_current_context), cmocka_unit_test(test_data),
      cmocka_unit_test(test_tokens),          cmocka_unit_test(test_plugin),
      cmocka_unit_test(test_refused),         cmocka_unit_test(test_secrets_are_not_quoted),
      cmocka_unit_test(test_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
