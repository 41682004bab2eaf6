/*
 * A kubeconfig, of any context it names.
 */
// Sources: base/*.c backend/kubernetes/kubeconfig.c
// Libraries: -lcjson -lcrypto -lprotobuf-c -lyaml
#include "backend/kubernetes/kubeconfig.h"
#include "tests/fuzz/fuzz.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct kubeconfig config;
  struct error *err CLEANUP_ERROR = NULL;
  int result = kubeconfig_parse(&config, (const char *)data, size, "/folder", size % 2 ? "c" : NULL, &err);
  PROMISE((result == 0) == (err == NULL));
  if (result == 0) {
    PROMISE(strncmp(config.server, "https://", 8) == 0 && !(config.certificate && config.certificate_file));
    PROMISE((config.certificate || config.certificate_file) == (config.key || config.key_file));
    PROMISE(config.certificate || config.certificate_file || config.token || config.token_file || config.exec.command);
  }
  kubeconfig_free(&config);
  return 0;
}
