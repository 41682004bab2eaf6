/*
 * What the server and its launcher agree on: the numbers of the descriptors that the launcher inherits, and the facts
 * of the inside of a sandbox that both name.
 */
#ifndef BACKEND_LOCAL_PROTOCOL_H
#define BACKEND_LOCAL_PROTOCOL_H

#include <signal.h>

enum {
  LAUNCH_FD_LISTEN = 3,  /* the agent's listening socket; whoever holds it belongs to the sandbox */
  LAUNCH_FD_REPORT = 4,  /* a regular file that gets one JSON object with "child-pid": the sandbox's first process */
  LAUNCH_FD_SECCOMP = 5, /* bubblewrap: the filter program; else /dev/null */
  LAUNCH_FD_READY = 6,   /* gVisor: a pipe that gets one byte when the agent listens; else /dev/null */
  LAUNCH_FD_COUNT
};

/* gVisor: its value tells the first process how many milliseconds are left until the deadline. It ends then. */
#define LAUNCH_SIGNAL_DEADLINE SIGRTMIN

/* Where the parts of a sandbox lie, as seen by the launcher and, for gVisor, through /proc/PID/root. */
#define LAUNCH_SCAFFOLD "/mnt"
#define LAUNCH_CHANNEL LAUNCH_SCAFFOLD "/channel"
#define LAUNCH_CHANNEL_SOCKET "agent"

/* Inside: how often the kernel killed for lack of memory. */
#define LAUNCH_EVENTS "/run/memory-events"

/* gVisor has no bind mounts inside: home, /tmp and /dev/shm are file systems of their own beside the workspace,
 * and each may hold this part of what the workspace may. */
#define LAUNCH_GVISOR_PART 8

/* Inside. The same as in the platform's images. */
#define SANDBOX_USER "sandbox"
#define SANDBOX_UID 10001
#define SANDBOX_HOME "/home/sandbox"
#define SANDBOX_WORKSPACE "/workspace"

#endif
