/*
 * What programs in a bubblewrap sandbox may ask of the host's kernel: a seccomp filter. Calls are allowed by name; what
 * is not named does not exist (ENOSYS), so that a call of a future kernel is closed before anybody knows it.
 * Thread: any.
 */
#ifndef BACKEND_LOCAL_FILTER_H
#define BACKEND_LOCAL_FILTER_H

#include "base/error.h"
#include <linux/filter.h>
#include <stddef.h>

#define LOCAL_FILTER_SIZE 1024 /* instructions */

/* Writes the program. Returns the number of instructions, or -1 if it did not fit. */
int local_filter_build(struct sock_filter program[static LOCAL_FILTER_SIZE]);

/* A sealed memory file that holds the program; every reader opens it anew by /proc/self/fd. The caller closes it.
 * -1 and *err. */
int local_filter_open(struct error **err);

#endif
