/*
 * Limits of a sandbox by cgroups: version 1 (a hierarchy for each controller) or 2 (one for all), where this process
 * may make groups. Where it may not, resource limits alone bound a sandbox; docs/local-backend.md says what that
 * means.
 *
 * Thread: local_cgroups_open and _close the loop's; the rest any, on a cgroup that nobody else uses meanwhile.
 */
#ifndef BACKEND_LOCAL_CGROUP_H
#define BACKEND_LOCAL_CGROUP_H

#include "backend/local/settings.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>

#define LOCAL_CGROUP_MOUNT "/sys/fs/cgroup"

enum { LOCAL_CGROUPS_MAX = 3, LOCAL_CGROUP_PATH_SIZE = 400 };

/* The groups of one sandbox: one directory for each hierarchy that is used. */
struct local_cgroup {
  char *paths[LOCAL_CGROUPS_MAX]; /* owned; the one that bounds memory comes first */
  size_t count;
};

/* The groups below which those of sandboxes are made. */
struct local_cgroups {
  int version; /* 0: none may be made */
  struct local_cgroup parents;
};

/* Finds what can be had and makes the parents. given: a group to use, relative to the mount, or NULL:
 * "sandbox-platform" at the top (version 1), or beside our own group (version 2): not below it, or whoever ends
 * the server's group would end every sandbox. mount: LOCAL_CGROUP_MOUNT. self: /proc/self/cgroup's text. Never
 * fails; version 0 is logged, once. */
void local_cgroups_open(struct local_cgroups *cgroups, const char *mount, const char *self, const char *given);
/* As above, on this system. */
void local_cgroups_open_own(struct local_cgroups *cgroups, const char *given);
/* Removes the parents if they are empty. */
void local_cgroups_close(struct local_cgroups *cgroups);

/* Makes the groups of a sandbox and sets its limits. Returns 0, or -1 and *err; then nothing is left. */
int local_cgroup_make(const struct local_cgroups *cgroups, const char *name, const struct local_pool_settings *limits,
                      struct local_cgroup *cgroup, struct error **err);
/* Adds one that exists (from a record). Returns 0, or -1: not a path below a cgroup mount, too many, no memory. */
int local_cgroup_add(struct local_cgroup *cgroup, const char *path);
/* Kills what is still in it and removes the directories. Returns true once they are gone; false: call again later. */
bool local_cgroup_remove(struct local_cgroup *cgroup);
/* The same, but waits a few seconds for the end of what was killed. Blocks. */
bool local_cgroup_end(struct local_cgroup *cgroup);
void local_cgroup_free(struct local_cgroup *cgroup);

/* The file that counts kills for lack of memory; -1 if there is none. */
int local_cgroup_events(const struct local_cgroup *cgroup, char path[static LOCAL_CGROUP_PATH_SIZE]);
/* Did the kernel kill in it for lack of memory? */
bool local_cgroup_out_of_memory(const struct local_cgroup *cgroup);

#endif
