/*
 * The launcher: a small program of one thread that turns itself into one sandbox. The server starts it with a
 * listening socket; it limits itself, gives up what privilege it has, builds the sandbox's file system in a mount
 * namespace of its own and executes bubblewrap, or runs gVisor. It exists because all of this must happen between
 * fork and exec, in an order that matters, and a server with threads cannot do it there.
 *
 * Two modes. As root it drops to a uid that belongs to this sandbox alone. As a user it works in a user namespace;
 * then every sandbox has the user's own uid, seen from outside.
 *
 * Until the last exec it dies with the server. From then on the sandbox lives by itself: its agent ends it at its
 * deadline, or when nobody comes to bind it.
 */
#ifndef BACKEND_LOCAL_LAUNCHER_LAUNCH_H
#define BACKEND_LOCAL_LAUNCHER_LAUNCH_H

#include "base/buffer.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LAUNCH_JOINS 8
#define LAUNCH_LIVE 32

enum launch_runtime { LAUNCH_BUBBLEWRAP, LAUNCH_GVISOR };

/* Strings are the command line's. */
struct launch {
  enum launch_runtime runtime;
  const char *program;  /* bubblewrap or runsc */
  int program_file;     /* open since before privilege was given up: its directory may be closed to the sandbox's uid */
  const char *platform; /* gVisor: ptrace, systrap, kvm; NULL: runsc's own choice */
  const char *agent;    /* sandboxd */
  const char *etc;      /* directory that becomes /etc */
  const char *mark;     /* name of the workspace's mount, by which the sandbox's processes are found */
  const char *events;   /* the cgroup's count of out-of-memory kills, shown to the agent; NULL: there is none */
  const char *live[LAUNCH_LIVE]; /* names below /etc that are shown as the host has them */
  size_t live_count;
  const char *joins[LAUNCH_JOINS]; /* files of cgroups that this process writes itself into */
  size_t join_count;
  pid_t parent;    /* the server: it must still be our parent */
  uid_t uid;       /* to drop to; 0: stay who we are */
  uint64_t bytes;  /* workspace, home, /tmp and /dev/shm together */
  uint64_t files;
  uint64_t processes; /* limit for the uid in its user namespace; 0: none */
  uint64_t memory;    /* bytes of data of one process; 0: none */
};

/* Returns 0, or -1 and *err that names the option. */
int launch_parse(int count, char **arguments, struct launch *launch, struct error **err);

/* limits.c: everything that binds this process and what comes out of it. Return 0, or -1 and *err. */
int launch_tie(const struct launch *launch, struct error **err); /* to the life of the server */
void launch_untie(void);
int launch_join(const struct launch *launch, struct error **err);
int launch_limit(const struct launch *launch, struct error **err);
int launch_limit_processes(const struct launch *launch, struct error **err);

/* identity.c */
int launch_drop(const struct launch *launch, struct error **err); /* to launch->uid, which is not 0 */
/* New user namespace (with `more` namespaces) in which this process has all capabilities and is `inside`. */
int launch_enter(int more, uid_t inside, struct error **err);

/* scaffold.c: in a new mount namespace of ours, below LAUNCH_SCAFFOLD: `root`, the read-only root file system, and the
 * bounded directories `workspace`, `home`, `tmp`, `shm`. */
int launch_scaffold(const struct launch *launch, struct error **err);

/* Neither returns if it succeeds. */
int launch_bubblewrap(const struct launch *launch, struct error **err);
int launch_gvisor(const struct launch *launch, struct error **err);

/* config.c: appends the OCI configuration of a gVisor sandbox. Returns 0, or -1 if the buffer is full. */
int launch_config(const struct launch *launch, struct buffer *config);

/* guest.c: the first program inside gVisor: listens, becomes the sandbox's user, executes the agent. */
int launch_guest(int count, char **arguments, struct error **err);

/* The environment that the agent starts with: NULL-terminated "name=value". Static. */
extern const char *const launch_environment[];

#endif
