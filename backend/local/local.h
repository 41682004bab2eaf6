/*
 * The inside of the local backend: backend.c answers the interface, pool.c keeps Pools filled and acquires in order,
 * birth.c makes a sandbox, sandbox.c is its life and end, recover.c finds those of a former process.
 *
 * Thread: the loop's, except what a comment calls work: that runs in libuv's pool and touches nothing but its own.
 */
#ifndef BACKEND_LOCAL_LOCAL_H
#define BACKEND_LOCAL_LOCAL_H

#include "backend/backend.h"
#include "backend/local/agent.h"
#include "backend/local/cgroup.h"
#include "backend/local/etc.h"
#include "backend/local/process.h"
#include "backend/local/record.h"
#include "backend/local/settings.h"
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

enum {
  LOCAL_PATH_SIZE = 256,
  LOCAL_MARK_SIZE = 32,
  LOCAL_BUCKETS = 1024,
  LOCAL_ORPHAN_MILLISECONDS = 30000, /* an unbound agent without a server ends itself after so long */
};

struct local_backend;
struct local_sandbox;

struct local_pool {
  struct local_backend *backend;
  const struct local_pool_settings *settings;
  struct local_sandbox *sandboxes;              /* all of them, in any state */
  struct local_sandbox *warm_first, **warm_end; /* in the order in which they became warm */
  struct backend_pending *pending, **pending_end;
  unsigned pendings;
  unsigned living;   /* all but those that end */
  unsigned creating, warm, bound;
  unsigned binding;  /* acquires that have a sandbox and wait for its agent */
  unsigned failures; /* creations that failed one after the other */
  bool waiting;      /* refilling waits for `retry` */
  uv_timer_t retry;
};

/* One acquire that has not been answered. */
struct backend_pending {
  struct local_pool *pool;
  struct backend_pending *next;      /* in the Pool's queue */
  struct backend_pending *all_next, *all_previous;
  struct backend_pending *followers; /* the same key: answered with what this one gets */
  struct backend_pending *leader;
  struct local_sandbox *sandbox;     /* being bound for it, or NULL while it queues */
  bool cancelled;
  struct backend_sandbox facts;
  int64_t ttl;
  backend_acquired *acquired;
  void *context;
};

struct local_waiter {
  struct local_waiter *next;
  backend_done *done;
  void *context;
};

enum local_state {
  LOCAL_PREPARING, /* its files are being made */
  LOCAL_STARTING,  /* the launcher runs; its agent has not answered */
  LOCAL_WARM,
  LOCAL_BINDING,   /* for `pending` */
  LOCAL_BOUND,
  LOCAL_ENDING,    /* killed; until the kernel says that it is gone, and its files are */
};

struct local_sandbox {
  struct local_backend *backend;
  struct local_pool *pool;
  struct local_sandbox *next, *previous; /* in the Pool */
  struct local_sandbox *warm_next;
  struct local_sandbox *by_id, *by_key;  /* in the buckets, while bound or ending from bound */
  enum local_state state;
  bool told; /* the owner knows it: `ended` must follow */
  char name[LOCAL_NAME_SIZE];
  struct local_record record;
  struct backend_pending *pending;
  struct local_birth *birth; /* until it is warm, or has ended before */
  struct local_agent *agent;
  struct local_waiter *waiters;
  enum backend_end end;
  int64_t touched;      /* wall time of the last touch on record */
  int first_fd;         /* pidfd, or -1 */
  int socket_fd;        /* gVisor: the agent's socket, opened as a path; else -1 */
  bool own; /* its monitor is a child of this process: `process` is in use */
  bool monitor_ended, first_ended, removing, out_of_memory;
  int handles;          /* libuv handles still open */
  uv_process_t process; /* of one that this process made */
  uv_poll_t first_watch;
  uv_poll_t monitor_watch;
  int monitor_fd;
  uv_timer_t timer;     /* starting: the time it may take; bound: its deadline */
  uv_work_t work;
};

/* A cgroup that would not go away yet; its sandbox's record stays, so that it is found again after a restart. */
struct local_leftover {
  struct local_leftover *next;
  char name[LOCAL_NAME_SIZE];
  struct local_cgroup cgroup;
};

struct local_backend {
  struct backend backend;
  struct backend_events events;
  struct local_settings settings;
  struct local_pool *pools; /* one for each of settings.pools */
  struct local_cgroups cgroups;
  struct local_etc etc;
  int filter, lock;
  uint8_t *uids; /* one byte for each of the range: in use */
  uint32_t uid_next;
  char boot[BOOT_ID_SIZE];
  struct local_sandbox *by_id[LOCAL_BUCKETS], *by_key[LOCAL_BUCKETS];
  struct backend_pending *pendings; /* all of them, for finding the same key */
  struct local_leftover *leftovers;
  bool started, stopping;
  backend_done *done; /* of start, then of stop */
  void *done_context;
  unsigned open; /* sandboxes, timers and works that still hold the backend */
};

/* --- sandbox.c --- */

/* In the Pool's list, with nothing running yet. NULL and *err. */
struct local_sandbox *local_sandbox_new(struct local_pool *pool, struct error **err);
/* Takes one over from a former process; *record is taken over. Returns 0, or -1 and *err (nothing is taken over). */
int local_sandbox_adopt(struct local_pool *pool, const char *name, struct local_record *record, struct error **err);
/* Watches its first process from here on. Returns 0, or -1 and *err. */
int local_sandbox_watch(struct local_sandbox *sandbox, struct error **err);
/* The same of its monitor, if that lives. */
int local_sandbox_watch_monitor(struct local_sandbox *sandbox, struct error **err);
/* Gives a warm one to the pending acquire: local_pool_bound or local_pool_failed follows. */
void local_sandbox_bind(struct local_sandbox *sandbox, struct backend_pending *pending);
/* Kills everything in it; it is freed when the kernel says so. Idempotent; the first reason counts. */
void local_sandbox_end(struct local_sandbox *sandbox, enum backend_end end);
/* Some part of it has ended: goes on to the removal once all have. */
void local_sandbox_ended(struct local_sandbox *sandbox);
/* Stops watching a bound one without ending it, and frees it. */
void local_sandbox_forget(struct local_sandbox *sandbox);
/* Closes a handle of the sandbox; it may be closed or not initialised already. */
void local_sandbox_close(struct local_sandbox *sandbox, uv_handle_t *handle);

/* Of a file of a sandbox: "agent", "record", "log", "report"; "" is its directory. */
void local_path(const struct local_backend *backend, const char *name, const char *file,
                char path[static LOCAL_PATH_SIZE]);
/* Where the agent of a sandbox listens. */
void local_agent_path(const struct local_sandbox *sandbox, char path[static LOCAL_PATH_SIZE]);
/* gVisor: opens the agent's socket, through the mount namespace of its first process, which lives, and without
 * following a link at the end. -1: it is not there. */
int local_socket_open(const struct local_sandbox *sandbox);
/* Notes that a uid of the range is in use, or not any more. Another uid: nothing. */
void local_uid_mark(struct local_backend *backend, uint32_t uid, bool used);
/* What the launcher names its mounts, by which its processes are found. */
void local_mark(const char *name, char mark[static LOCAL_MARK_SIZE]);
/* Removes the files of a sandbox. Work. */
void local_directory_remove(const struct local_backend *backend, const char *name);
/* Tries again to remove what was left. */
void local_leftovers_remove(struct local_backend *backend);
int local_leftover_add(struct local_backend *backend, const char *name, struct local_cgroup *cgroup);

/* --- birth.c --- */

/* Starts to make one: local_pool_ready or local_pool_failed follows. Returns 0, or -1 and *err. */
int local_birth_start(struct local_pool *pool, struct error **err);
/* Ends the making of one: kills what there is. Why it failed is told when it has ended. err is taken over; NULL: it was
 * not wanted any more. */
void local_birth_fail(struct local_sandbox *sandbox, struct error *err);
/* The first process of a sandbox that died while it was made, if it may still live: opens first_fd. */
void local_birth_find(struct local_sandbox *sandbox);
/* Frees it; *err is why it failed, NULL if it did not. */
void local_birth_end(struct local_sandbox *sandbox, struct error **err);

/* --- pool.c --- */

void local_pool_init(struct local_backend *backend);
void local_pool_stop(struct local_pool *pool);
/* Waiting acquires get what is warm; then as many are made as are waited for or missing. */
void local_pool_balance(struct local_pool *pool);
void local_pool_ready(struct local_sandbox *sandbox);
void local_pool_bound(struct local_sandbox *sandbox);
/* It could not be made or bound, or ended while warm. was: STARTING, WARM or BINDING; err (not freed) says why,
 * NULL: it was not wanted any more. The caller ends it. */
void local_pool_failed(struct local_sandbox *sandbox, enum local_state was, const struct error *err);
/* It no longer counts as living. */
void local_pool_ending(struct local_sandbox *sandbox);
/* It is gone; the last call before it is freed. */
void local_pool_gone(struct local_sandbox *sandbox);
/* Adds the acquire, or answers it at once. */
void local_pool_acquire(struct backend_pending *pending);
void local_pool_cancel(struct backend_pending *pending);

/* --- backend.c --- */

struct local_sandbox *local_find(struct local_backend *backend, const char *id);
/* The active one with this idempotency label. */
struct local_sandbox *local_find_key(struct local_backend *backend, const char *key);
void local_index_add(struct local_sandbox *sandbox);
void local_index_remove(struct local_sandbox *sandbox);
/* Something that held the backend is gone. */
void local_let_go(struct local_backend *backend);
/* Acquires are accepted from now on, or err. */
void local_started(struct local_backend *backend, struct error *err);

/* --- recover.c --- */

/* local_started follows. */
void local_recover(struct local_backend *backend);

extern const struct backend_operations local_operations;

#endif
