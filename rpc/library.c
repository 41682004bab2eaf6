/*
 * gRPC's mutexes are Abseil's, and Debian builds Abseil for debugging: each lock is entered into one graph for the whole
 * process, under one lock, to find deadlocks. That is a tool for gRPC's authors. For us it costs 5 to 10 % of the
 * processor time of a call, and threads that wait for each other where they have nothing in common.
 */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "rpc/library.h"

#include <dlfcn.h>
#include <grpc/grpc.h>
#include <stddef.h>

/* absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle), as Debian 12 names it. Elsewhere it is not found, and
 * nothing changes. */
#define SET_MODE "_ZN4absl7debian329SetMutexDeadlockDetectionModeENS0_15OnDeadlockCycleE"

enum { DEADLOCKS_IGNORED = 0 };

static void deadlock_graph_off(void) {
  union {
    void *address;
    void (*call)(int mode);
  } set_mode = {.address = dlsym(RTLD_DEFAULT, SET_MODE)};
  if (set_mode.address)
    set_mode.call(DEADLOCKS_IGNORED);
}

void rpc_library_init(void) {
  grpc_init();
  deadlock_graph_off();
}
