/*
 * What gRPC's library needs to be told once, because of how Debian 12 builds it and how we use it.
 *
 * gRPC's mutexes are Abseil's, and Debian builds Abseil for debugging: each lock is entered into one graph for the whole
 * process, under one lock, to find deadlocks. That is a tool for gRPC's authors. For us it costs 5 to 10 % of the
 * processor time of a call, and threads that wait for each other where they have nothing in common.
 */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "rpc/library.h"

#include <dlfcn.h>
#include <grpc/grpc.h>
#include <malloc.h>
#include <stddef.h>

/* absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle), as Debian 12 names it. Elsewhere it is not found, and
 * nothing changes. */
#define SET_MODE "_ZN4absl7debian329SetMutexDeadlockDetectionModeENS0_15OnDeadlockCycleE"

enum {
  DEADLOCKS_IGNORED = 0,
  KEPT_BYTES = 1 << 20, /* of what was freed; and what is larger comes from the kernel, and goes back to it */
};

static void deadlock_graph_off(void) {
  union {
    void *address;
    void (*call)(int mode);
  } set_mode = {.address = dlsym(RTLD_DEFAULT, SET_MODE)};
  if (set_mode.address)
    set_mode.call(DEADLOCKS_IGNORED);
}

/* A message of a transfer has 256 KiB: too large for malloc to keep by itself, so each of its pages would come from the
 * kernel anew, which doubled the time of the server's loop for an upload. */
static void messages_reuse_memory(void) {
  mallopt(M_MMAP_THRESHOLD, KEPT_BYTES);
  mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
}

void rpc_library_init(void) {
  messages_reuse_memory();
  grpc_init();
  deadlock_graph_off();
}
