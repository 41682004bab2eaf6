/* Removes a directory with all that is in it. */
#ifndef TESTS_UNIT_SANDBOXD_TREE_H
#define TESTS_UNIT_SANDBOXD_TREE_H

#include <ftw.h>
#include <stdio.h>

static int tree_remove_one(const char *path, const struct stat *status, int kind, struct FTW *at) {
  (void)status;
  (void)kind;
  (void)at;
  return remove(path);
}

static inline int tree_remove(const char *path) { return nftw(path, tree_remove_one, 16, FTW_DEPTH | FTW_PHYS); }

#endif
