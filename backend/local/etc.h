/*
 * The /etc of every sandbox, kept in the state directory: a few files of its own, and places for what is shown as the
 * host has it. Thread: one, at start.
 */
#ifndef BACKEND_LOCAL_ETC_H
#define BACKEND_LOCAL_ETC_H

#include "base/error.h"
#include <stddef.h>

enum { LOCAL_ETC_LIVE_MAX = 32, LOCAL_ETC_NAME_SIZE = 64 };

struct local_etc {
  char live[LOCAL_ETC_LIVE_MAX][LOCAL_ETC_NAME_SIZE]; /* names below /etc, e.g. "ssl/certs" */
  size_t live_count;
};

/* Makes it below `directory`, which exists. What is there already and right is left alone: living sandboxes have it
 * mounted. host: "/etc". Returns 0, or -1 and *err. */
int local_etc_make(const char *directory, const char *host, struct local_etc *etc, struct error **err);

#endif
