/*
 * What the local backend knows of one sandbox across restarts: a JSON file in the sandbox's folder, replaced by rename.
 * Thread: any.
 */
#ifndef LOCAL_RECORD_H
#define LOCAL_RECORD_H

#include "backend/backend.h"
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define BOOT_ID_SIZE 37

struct record {
  char pool[LIMIT_POOL_NAME_BYTES + 1];
  bool bound; /* the facts of `sandbox` count */
  struct backend_sandbox sandbox;
  char boot[BOOT_ID_SIZE]; /* of the kernel that runs it: pids and the boot clock mean nothing on another */
  pid_t monitor, init;     /* bubblewrap outside, process 1 inside; 0 while not known */
  uint64_t monitor_start, init_start; /* clock ticks since boot, from /proc: tells a reused pid */
  uint32_t uid;            /* 0: the server's own */
};

/* Returns 0, or -1 and *err. */
int record_write(const char *path, const struct record *record, struct error **err);
/* A file that is missing, cut short or malformed is an error. */
int record_read(const char *path, struct record *record, struct error **err);

/* The kernel's boot id. */
int boot_id_read(char boot[static BOOT_ID_SIZE], struct error **err);
/* Start time of a process; 0 if there is none. */
uint64_t process_start(pid_t pid);

#endif
