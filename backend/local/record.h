/*
 * What the local backend knows of one sandbox across restarts: a JSON file in the sandbox's directory, replaced by
 * rename. It is not synced: a sandbox does not survive what a file that was not synced does not survive. Thread: any.
 */
#ifndef BACKEND_LOCAL_RECORD_H
#define BACKEND_LOCAL_RECORD_H

#include "backend/backend.h"
#include "backend/local/cgroup.h"
#include "backend/local/process.h"
#include "backend/local/settings.h"
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

/* The sandbox's directory and mark: 16 hexadecimal digits. */
#define LOCAL_NAME_SIZE 17

struct local_record {
  char pool[LIMIT_POOL_NAME_BYTES + 1];
  enum local_runtime runtime;
  char boot[BOOT_ID_SIZE];        /* of the kernel that runs it */
  uint32_t uid;                   /* 0: the server's own */
  struct local_cgroup cgroup;     /* owned: local_record_free */
  struct local_process monitor;   /* outside: the launcher, then bubblewrap */
  struct local_process first;     /* the first process of its pid namespace: with it everything in the sandbox ends */
  bool bound;                     /* `sandbox` and both processes count */
  struct backend_sandbox sandbox; /* last_used_at: the file's time of change */
};

/* Return 0, or -1 and *err. A file that is missing, cut short or malformed is an error. */
int local_record_write(const char *path, const struct local_record *record, struct error **err);
int local_record_read(const char *path, struct local_record *record, struct error **err);
void local_record_free(struct local_record *record);

/* As written; for tests. Returns 0, or -1 and *err. */
int local_record_parse(const char *text, size_t length, struct local_record *record, struct error **err);

#endif
