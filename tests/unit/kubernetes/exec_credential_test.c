#include "backend/kubernetes/exec_credential.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "tests/unit/kubernetes/check.h"
#include <stdbool.h>
#include <string.h>

static const char V1[] = "client.authentication.k8s.io/v1";

#define CREDENTIAL(status) "{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\"" status "}"

static const char whole[] = CREDENTIAL(
    ",\"status\":{\"token\":\"t\",\"clientCertificateData\":\"c\\nd\",\"clientKeyData\":\"k\","
    "\"expirationTimestamp\":\"2026-01-02T03:04:05Z\"}");

static void test_read(void **state) {
  (void)state;
  struct exec_credential credential;
  assert_int_equal(exec_credential_parse(&credential, whole, strlen(whole), V1, NULL), 0);
  assert_string_equal(credential.token, "t");
  assert_string_equal(credential.certificate, "c\nd");
  assert_string_equal(credential.key, "k");
  assert_int_equal(credential.expires, 1767323045 * CLOCK_SECOND);
  exec_credential_free(&credential);
  static const char token[] = CREDENTIAL(",\"status\":{\"token\":\"t\"}");
  assert_int_equal(exec_credential_parse(&credential, token, strlen(token), V1, NULL), 0);
  assert_int_equal(credential.expires, INT64_MAX);
  exec_credential_free(&credential);
}

static void test_refused(void **state) {
  (void)state;
  static const char *const cases[] = {
      "",
      "[]",
      "{}",
      CREDENTIAL(""),
      CREDENTIAL(",\"status\":{}"),
      CREDENTIAL(",\"status\":{\"token\":\"hunter2\\r\\nX: y\"}"),
      CREDENTIAL(",\"status\":{\"token\":\"hunter2\\n\"}"),
      CREDENTIAL(",\"status\":{\"token\":\"hunter2\\u0000\"}"),
      CREDENTIAL(",\"status\":{\"clientKeyData\":\"hunter2\"}"),
      CREDENTIAL(",\"status\":{\"token\":\"hunter2\",\"expirationTimestamp\":\"soon\"}"),
      CREDENTIAL(",\"status\":{\"token\":7}"),
      "{\"apiVersion\":\"client.authentication.k8s.io/"
      "v1beta1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"hunter2\"}}",
      "{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"Other\",\"status\":{\"token\":\"hunter2\"}}",
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct exec_credential credential;
    CLEANUP_ERROR struct error *err = NULL;
    assert_int_equal(exec_credential_parse(&credential, cases[i], strlen(cases[i]), V1, &err), -1);
    assert_non_null(err);
    assert_null(strstr(error_detail(err), "hunter2"));
    assert_null(credential.token);
  }
}

static void test_info(void **state) {
  (void)state;
  char version[] = "client.authentication.k8s.io/v1", server[] = "https://a", authority[] = "A CA";
  struct kubeconfig config = {.server = server, .authority = authority, .exec = {.api_version = version}};
  struct buffer out CLEANUP_BUFFER;
  buffer_init(&out, 4096);
  assert_int_equal(exec_credential_info(&out, &config), 0);
  assert_string_equal(buffer_text(&out),
                      "{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\","
                      "\"spec\":{\"interactive\":false}}");
  buffer_clear(&out);
  config.exec.cluster_info = true;
  assert_int_equal(exec_credential_info(&out, &config), 0);
  assert_string_equal(buffer_text(&out),
                      "{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\","
                      "\"spec\":{\"interactive\":false,\"cluster\":{\"server\":\"https://a\","
                      "\"certificate-authority-data\":\"QSBDQQ==\"}}}");
}

static void test_memory(void **state) {
  (void)state;
  TORTURE(struct exec_credential credential; CLEANUP_ERROR struct error *err = NULL;
          int result = exec_credential_parse(&credential, whole, strlen(whole), V1, &err),
          assert_int_equal(result, torture_failed ? -1 : 0);
          exec_credential_free(&credential));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_read),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_info),
      cmocka_unit_test(test_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
