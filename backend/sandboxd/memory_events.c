/*
 * Reading the out-of-memory counter: see memory_events.h.
 */
#include "backend/sandboxd/memory_events.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const memory_events_places[] = {"/sys/fs/cgroup/memory.events",
                                                   "/sys/fs/cgroup/memory/memory.oom_control"};

void memory_events_open(struct memory_events *events, const char *path) {
  events->descriptor = -1;
  if (path)
    events->descriptor = open(path, O_RDONLY | O_CLOEXEC);
  const size_t places = sizeof memory_events_places / sizeof memory_events_places[0];
  for (size_t i = 0; !path && events->descriptor < 0 && i < places; i++)
    events->descriptor = open(memory_events_places[i], O_RDONLY | O_CLOEXEC);
}

uint64_t memory_events_kills(const struct memory_events *events) {
  static const char name[] = "oom_kill ";
  char text[1024];
  ssize_t length = events->descriptor < 0 ? 0 : pread(events->descriptor, text, sizeof text - 1, 0);
  text[length > 0 ? length : 0] = 0;
  for (const char *line = text; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (!strncmp(line, name, sizeof name - 1))
      return strtoull(line + sizeof name - 1, NULL, 10);
  }
  return 0;
}
