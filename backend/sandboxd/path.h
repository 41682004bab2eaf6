/*
 * Opens what lies under the workspace, and nothing else, whatever a command does to the tree at the same time: no
 * symlink is followed anywhere in a path and no path leads out. openat2 does it in one call; where the kernel has none
 * (gVisor) or a filter forbids it, the path is walked component by component, each opened without following.
 *
 * Paths are relative to the workspace and normalised: no empty, "." or ".." component.
 */
#ifndef BACKEND_SANDBOXD_PATH_H
#define BACKEND_SANDBOXD_PATH_H

#include "base/error.h"
#include <stdbool.h>
#include <sys/stat.h>

struct path_root {
  int descriptor; /* the workspace, O_PATH */
  bool walk;      /* component by component */
};

/* Opens the workspace and finds out whether openat2 works; walk: do without it. Returns 0, or -1 and *err. */
int path_root_open(struct path_root *root, const char *workspace, bool walk, struct error **err);
void path_root_close(struct path_root *root);

/* Opens a regular file for reading and fills *status. Returns the descriptor, or -1 and INVALID_PATH (a symlink
 * anywhere, not a regular file, the workspace itself, a malformed path), FILE_NOT_FOUND or FILE_TRANSFER_FAILED. */
int path_open_file(const struct path_root *root, const char *path, struct stat *status, struct error **err);

/* Opens the directory that the last component of the path lies in (O_PATH); *name points to that component, inside
 * `path`. make: missing directories are made, mode 0755. Returns the descriptor, or -1 and INVALID_PATH (also a missing
 * directory) or FILE_TRANSFER_FAILED. */
int path_open_parent(const struct path_root *root, const char *path, bool make, const char **name, struct error **err);

/* What is called `name` in this directory: fills *status and returns 1, or 0 if there is nothing, or -1 and
 * INVALID_PATH if it is no regular file, or FILE_TRANSFER_FAILED. */
int path_look(int directory, const char *name, struct stat *status, struct error **err);

#endif
