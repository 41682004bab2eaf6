/*
 * Processes by number and start time, so that a number that was given out again is never taken for the old process; and
 * the processes of a sandbox by the mark that the launcher leaves in their mounts. Thread: any.
 */
#ifndef BACKEND_LOCAL_PROCESS_H
#define BACKEND_LOCAL_PROCESS_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BOOT_ID_SIZE 37

struct local_process {
  pid_t pid;      /* 0: not known */
  uint64_t start; /* clock ticks since boot */
};

/* The kernel's boot id: numbers and start times mean nothing under another. Returns 0, or -1 and *err. */
int local_boot_id(char boot[static BOOT_ID_SIZE], struct error **err);

/* Start time and parent of a process, from /proc. Returns 0, or -1 if there is none. */
int local_process_read(pid_t pid, struct local_process *process, pid_t *parent);
/* A pidfd of exactly this process; -1 if it is gone. */
int local_process_open(const struct local_process *process);

/* A process is marked if a tmpfs named `mark` is among its mounts and, if uid is not 0, it runs as that uid. */
struct local_mark {
  const char *mark;
  uint32_t uid;
};
bool local_process_marked(pid_t pid, const struct local_mark *mark);
/* Kills every marked process, waits until they are gone and looks again, until there are none. Blocks. Returns how many
 * there were, or -1 if some would not go within 10 s. */
int local_process_end_marked(const struct local_mark *marks, size_t count);

#endif
