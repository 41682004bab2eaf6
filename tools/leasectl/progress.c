#include "tools/leasectl/progress.h"

#include "base/clock.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BAR_WIDTH = 30 };

void progress_start(struct progress *progress, const char *name, bool wanted) {
  *progress = (struct progress){.name = name, .shown = wanted && isatty(STDERR_FILENO), .started = clock_boot()};
}

void progress_show(struct progress *progress, uint64_t done, uint64_t total) {
  int64_t now = clock_boot();
  if (!progress->shown || (done < total && now - progress->last < 100 * CLOCK_MILLISECOND))
    return;
  progress->last = now;
  progress->drawn = true;
  char bar[BAR_WIDTH + 1];
  size_t filled = total ? (size_t)(BAR_WIDTH * done / total) : BAR_WIDTH;
  memset(bar, ' ', BAR_WIDTH);
  memset(bar, '#', filled < BAR_WIDTH ? filled : BAR_WIDTH);
  bar[BAR_WIDTH] = '\0';
  double seconds = (double)(now - progress->started) / 1e9;
  fprintf(stderr, "\r%-24.24s [%s] %3u %%  %.1f MiB  %.1f MiB/s ", progress->name, bar,
          total ? (unsigned)(100 * done / total) : 100u, (double)done / 1048576,
          seconds > 0 ? (double)done / 1048576 / seconds : 0);
}

void progress_end(struct progress *progress) {
  if (progress->drawn)
    fputc('\n', stderr);
}
