/*
 * The Pools of the local backend as SANDBOX_LOCAL_POOLS configures them: a JSON object, Pool name → settings. Every
 * setting has a default; an unknown one is refused. Thread: one, at start.
 */
#ifndef LOCAL_POOL_H
#define LOCAL_POOL_H

#include "base/error.h"
#include "base/limits.h"
#include <stddef.h>
#include <stdint.h>

enum pool_runtime { POOL_BUBBLEWRAP, POOL_GVISOR };

struct pool_settings {
  char name[LIMIT_POOL_NAME_BYTES + 1];
  enum pool_runtime runtime; /* "runtime": "bubblewrap" (default) or "gvisor" */
  uint64_t warm;             /* sandboxes kept ready: 0 to 1,000, default 2 */
  uint64_t maximum;          /* sandboxes at once, warm ones included: 1 to 100,000, default 10,000 */
  uint64_t memory_bytes;     /* 16 MiB to 1 TiB, default 1 GiB */
  uint64_t processes;        /* 8 to 100,000, default 512 */
  uint64_t workspace_bytes;  /* 1 MiB to 1 TiB, default 1 GiB */
  uint64_t workspace_files;  /* 16 to 100,000,000, default 200,000 */
};

/* *pools: memory_free. Returns 0, or -1 and *err whose detail names the Pool, the setting and the rule. */
int pool_parse(const char *json, struct pool_settings **pools, size_t *count, struct error **err);

#endif
