/*
 * How often the kernel killed for lack of memory in our control group, where that can be read: memory.events of cgroup
 * v2 or memory.oom_control of v1. It is the evidence for saying that a command that was killed had run out of memory.
 */
#ifndef BACKEND_SANDBOXD_MEMORY_EVENTS_H
#define BACKEND_SANDBOXD_MEMORY_EVENTS_H

#include <stdint.h>

struct memory_events {
  int descriptor; /* -1: it cannot be read */
};

/* path: the file, or NULL for the places where one is usually found. */
void memory_events_open(struct memory_events *events, const char *path);
/* The number so far; 0 where it cannot be read. */
uint64_t memory_events_kills(const struct memory_events *events);

#endif
