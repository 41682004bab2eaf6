/*
 * What an exec plug-in is told and what it prints: the ExecCredential of client.authentication.k8s.io. No I/O. Thread:
 * any.
 */
#ifndef KUBERNETES_EXEC_CREDENTIAL_H
#define KUBERNETES_EXEC_CREDENTIAL_H

#include "backend/kubernetes/kubeconfig.h"
#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

struct buffer;

struct exec_credential {
  char *token;             /* or NULL */
  char *certificate, *key; /* PEM; both or neither */
  int64_t expires;         /* wall nanoseconds; INT64_MAX: not said */
};

/* Returns 0, or -1 and *err, which quotes nothing of the text. api_version: the one the kubeconfig asked for. Free with
 * exec_credential_free. */
int exec_credential_parse(struct exec_credential *credential, const char *text, size_t length, const char *api_version,
                          struct error **err);
/* Wipes. */
void exec_credential_free(struct exec_credential *credential);
/* Appends the JSON of KUBERNETES_EXEC_INFO. 0, or -1 when the buffer is full. */
int exec_credential_info(struct buffer *out, const struct kubeconfig *config);

#endif
