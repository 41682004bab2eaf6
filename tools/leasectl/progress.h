/*
 * A progress bar on standard error, drawn only on a terminal and at most ten times a second. Thread: one at a time.
 */
#ifndef LEASECTL_PROGRESS_H
#define LEASECTL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
  const char *name;
  bool shown, drawn;
  int64_t started, last; /* boot-clock nanoseconds */
};

/* `name` must live as long as the bar. */
void progress_start(struct progress *progress, const char *name, bool wanted);
void progress_show(struct progress *progress, uint64_t done, uint64_t total);
/* Ends the line. */
void progress_end(struct progress *progress);

#endif
