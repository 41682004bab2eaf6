/*
 * Limits of a sandbox by cgroups: version 1 (one folder for each controller) or version 2 (one for all), where this
 * process may make groups. Where it may not, rlimits alone bound a sandbox. Thread: the loop's.
 */
#ifndef LOCAL_CGROUP_H
#define LOCAL_CGROUP_H

#include "pool.h"
#include <stdbool.h>
#include <stddef.h>

enum { CGROUP_FILES = 3, CGROUP_PATH_SIZE = 400 };

/* The parents under which sandboxes get their groups. */
struct cgroup_root {
  int version;         /* 0: none */
  char memory[256];    /* v1: of each controller, "" if it is not there; v2: `memory` is the one folder */
  char pids[256], cpu[256];
};

/* Finds what is there and makes the parent groups, named `name`. Never fails: version 0 says why nothing could be had, once,
 * in the log. */
void cgroup_open(struct cgroup_root *root, const char *name);
/* Removes the parent groups if they are empty. */
void cgroup_close(const struct cgroup_root *root);

/* Makes the group of one sandbox. Returns 0, or -1 and *err. */
int cgroup_make(const struct cgroup_root *root, const char *sandbox, const struct pool_settings *limits, struct error **err);
/* The files through which a process of the sandbox joins its group, by writing "0". It does so itself: the kernel takes
 * its time, up to tens of milliseconds. Returns their number. */
size_t cgroup_join_files(const struct cgroup_root *root, const char *sandbox, char paths[static CGROUP_FILES][CGROUP_PATH_SIZE]);
/* True once the group is gone. False: processes are still in it; try again later. */
bool cgroup_remove(const struct cgroup_root *root, const char *sandbox);
/* True if the kernel killed something in it for want of memory. */
bool cgroup_out_of_memory(const struct cgroup_root *root, const char *sandbox);

#endif
