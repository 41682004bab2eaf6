/*
 * The settings of the local backend: SANDBOX_LOCAL_… of the configuration. A bad one is an error whose detail names the
 * setting, inside SANDBOX_LOCAL_POOLS also the Pool and its member. Thread: one, at start.
 */
#ifndef BACKEND_LOCAL_SETTINGS_H
#define BACKEND_LOCAL_SETTINGS_H

#include "base/config.h"
#include "base/error.h"
#include "base/limits.h"
#include <stddef.h>
#include <stdint.h>

enum local_runtime { LOCAL_BUBBLEWRAP, LOCAL_GVISOR };

struct local_pool_settings {
  char name[LIMIT_POOL_NAME_BYTES + 1];
  enum local_runtime runtime;
  uint64_t warm;            /* kept ready, 0 to 1,000 */
  uint64_t maximum;         /* at once, warm ones included; at least 1 */
  uint64_t memory_bytes;    /* of all processes in a sandbox together; its files count beside it */
  uint64_t processes;       /* threads count too */
  uint64_t workspace_bytes; /* workspace, home, /tmp and /dev/shm together; gVisor: see LAUNCH_GVISOR_PART */
  uint64_t workspace_files; /* not with gVisor, where files cost memory */
};

/* Strings belong to the settings. */
struct local_settings {
  struct local_pool_settings *pools;
  size_t pool_count;
  char *state;      /* directory, absolute */
  char *launcher;   /* programs */
  char *agent;
  char *bubblewrap;
  char *runsc;      /* NULL: no Pool wants it */
  char *platform;   /* of gVisor; NULL: runsc's own choice */
  char *cgroup;     /* NULL: found by itself */
  uint32_t uid_first, uid_count; /* 0: sandboxes have the uid of this process */
};

/* Returns 0, or -1 and *err. Free with local_settings_free in either case. */
int local_settings_read(struct config *config, struct local_settings *settings, struct error **err);
void local_settings_free(struct local_settings *settings);

/* The JSON of SANDBOX_LOCAL_POOLS. *pools: one block (memory_free). */
int local_pools_parse(const char *json, struct local_pool_settings **pools, size_t *count, struct error **err);
/* "FIRST-LAST", from 1000 to 4294967293. */
int local_uids_parse(const char *range, uint32_t *first, uint32_t *count, struct error **err);

#endif
