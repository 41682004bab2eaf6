/*
 * What the operator decides about the Kubernetes backend. Thread: one, at start.
 */
#ifndef KUBERNETES_SETTINGS_H
#define KUBERNETES_SETTINGS_H

#include "base/config.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/identity.h"
#include "base/limits.h"
#include <stddef.h>
#include <stdint.h>

enum { SETTINGS_NAME_SIZE = 254 };

struct pool_settings {
  char name[LIMIT_POOL_NAME_BYTES + 1];
  char warm_pool[SETTINGS_NAME_SIZE]; /* the SandboxWarmPool */
  char runtime[SETTINGS_NAME_SIZE];   /* the RuntimeClass its Pods must have; "" is the cluster's default */
  char container[SETTINGS_NAME_SIZE]; /* where commands run; "" is the Pod's first */
  char label[LABEL_SIZE];
};

struct kubernetes_settings {
  const char *kubeconfig; /* path, or NULL: the Pod's own service account */
  const char *context;    /* of the kubeconfig, or NULL: its current one */
  const char *namespace_; /* where Claims live, or NULL: that of the context or of the service account */
  char *sandboxd;         /* path of the program that sandboxes get; owned */
  struct digest_key metadata_key;
  struct pool_settings *pools; /* owned */
  size_t pool_count;
  int64_t ready_timeout;     /* nanoseconds */
  int64_t exhausted_timeout; /* how long a Pod may find no node before its Pool counts as exhausted; nanoseconds */
};

/* Strings belong to the config. 0, or -1 and *err, whose detail is the line to print. */
int settings_read(struct kubernetes_settings *settings, struct config *config, struct error **err);
void settings_free(struct kubernetes_settings *settings);
/* NULL if there is no Pool of that name. */
const struct pool_settings *settings_pool(const struct kubernetes_settings *settings, const char *name);

/* From the JSON of SANDBOX_K8S_POOLS; *pools is freed with memory_free. */
int settings_parse_pools(const char *json, const struct digest_key *metadata_key, struct pool_settings **pools,
                         size_t *count, struct error **err);

#endif
