/*
 * What a credential plug-in prints.
 */
// Sources: base/*.c backend/kubernetes/exec_credential.c
// Libraries: -lcjson -lcrypto -lprotobuf-c
#include "backend/kubernetes/exec_credential.h"
#include "tests/fuzz/fuzz.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct exec_credential credential;
  struct error *err CLEANUP_ERROR = NULL;
  int result = exec_credential_parse(&credential, (const char *)data, size, "client.authentication.k8s.io/v1", &err);
  PROMISE((result == 0) == (err == NULL));
  PROMISE(!credential.certificate == !credential.key);
  PROMISE((credential.token || credential.certificate) == (result == 0));
  if (credential.token)
    PROMISE(credential.token[0] && !strpbrk(credential.token, "\r\n"));
  exec_credential_free(&credential);
  return 0;
}
