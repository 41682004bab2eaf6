/*
 * The system calls of a sandbox, as a seccomp program for bubblewrap. Thread: one, at start.
 */
#ifndef LOCAL_FILTER_H
#define LOCAL_FILTER_H

#include "base/error.h"

/* A sealed memory file with the program, at its beginning; each user opens it anew by /proc/self/fd or passes a copy whose
 * offset is 0. The caller closes it. -1 and *err. */
int filter_make(struct error **err);

#endif
