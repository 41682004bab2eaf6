/*
 * A file that is being written: it appears under its path whole, by one rename, or not at all. Until then it has no
 * name (O_TMPFILE), or where the file system has no such files, a hidden one in the same directory. Nothing is synced
 * to disk: a sandbox does not outlive its machine.
 */
#ifndef BACKEND_SANDBOXD_TARGET_H
#define BACKEND_SANDBOXD_TARGET_H

#include "backend/sandboxd/path.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TARGET_TEMPORARY_SIZE 40

struct target {
  int directory; /* -1: not open */
  int file;
  char name[256];                        /* in the directory */
  char temporary[TARGET_TEMPORARY_SIZE]; /* "" while the file has no name */
};

/* Reasons of all: INVALID_PATH, FILE_TRANSFER_FAILED. path and make: see path_open_parent. named: without O_TMPFILE. */
int target_open(struct target *target, const struct path_root *root, const char *path, bool make, bool named,
                struct error **err);
int target_write(struct target *target, const uint8_t *bytes, size_t length, struct error **err);
/* Puts the file in its place, with the mode of the one that was there, or 0644. */
int target_commit(struct target *target, struct error **err);
/* Closes; what was not committed vanishes. */
void target_close(struct target *target);

#endif
