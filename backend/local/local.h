/*
 * The inside of the local backend. backend.c answers the interface and keeps Pools filled, sandbox.c makes and ends one
 * sandbox, recover.c finds those of a former process. Thread: the loop's.
 */
#ifndef LOCAL_LOCAL_H
#define LOCAL_LOCAL_H

#include "agent.h"
#include "backend/backend.h"
#include "cgroup.h"
#include "pool.h"
#include "record.h"
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

enum { NAME_SIZE = 17, PATH_SIZE = 256, ID_BUCKETS = 1024, ORPHAN_MILLISECONDS = 60000, CREATE_MILLISECONDS = 20000 };

struct local_backend;
struct local_sandbox;

struct local_pool {
  struct pool_settings settings;
  struct local_sandbox *sandboxes; /* all of them, in any state */
  struct backend_pending *pending, **pending_end;
  unsigned total, creating, warm, bound;
  unsigned binding;   /* acquires that have a sandbox and wait for its agent */
  unsigned failures;  /* creations that failed one after the other */
  uv_timer_t retry;   /* runs while refilling waits after a failure */
  bool waiting;
};

/* One acquire that has not been answered. */
struct backend_pending {
  struct local_backend *backend;
  struct local_pool *pool;
  struct backend_pending *next;
  struct local_sandbox *sandbox; /* being bound for it, or NULL while it queues */
  bool cancelled;
  struct backend_sandbox facts;
  int64_t ttl;
  backend_acquired *acquired;
  void *context;
};

struct release_waiter {
  struct release_waiter *next;
  backend_done *done;
  void *context;
};

enum sandbox_state {
  SANDBOX_CREATING, /* until its agent has answered */
  SANDBOX_WARM,
  SANDBOX_BINDING, /* for `pending` */
  SANDBOX_BOUND,
  SANDBOX_ENDING, /* killed; until the kernel says it is gone */
};

struct local_sandbox {
  struct local_backend *backend;
  struct local_pool *pool;
  struct local_sandbox *next, *previous; /* in the Pool */
  struct local_sandbox *bucket;          /* by Lease id, while bound or ending from bound */
  enum sandbox_state state;
  bool told; /* the owner knows it: `ended` must follow */
  char name[NAME_SIZE];
  struct record record;
  struct backend_pending *pending;
  struct agent_ask *ask;
  struct release_waiter *waiters;
  enum backend_end end;
  int64_t touched;
  int init_fd; /* pidfd, or -1 */
  int monitor_fd;
  int handles; /* libuv handles still open */
  bool exited;
  uv_process_t process; /* of one that this process made */
  uv_pipe_t go, report;
  uv_poll_t watch; /* of a recovered one: its monitor's end */
  uv_timer_t timer;
  char text[1024]; /* what came on the report pipe */
  size_t text_length;
};

struct local_backend {
  struct backend backend;
  struct backend_events events;
  struct local_pool *pools;
  size_t pool_count;
  struct cgroup_root cgroups;
  int filter, lock;
  uint32_t uid_first, uid_count, uid_next; /* uid_first 0: sandboxes run as this process does */
  char state[PATH_SIZE], launcher[PATH_SIZE], agent[PATH_SIZE], bubblewrap[PATH_SIZE];
  char boot[BOOT_ID_SIZE];
  struct local_sandbox *by_id[ID_BUCKETS];
  bool started, stopping;
  bool leftovers; /* folders of ended sandboxes wait for their groups to empty */
  backend_done *stopped;
  void *stopped_context;
  unsigned closing; /* sandboxes and timers that still hold the backend */
};

/* --- sandbox.c --- */

/* Starts one; when its agent answers pool_sandbox_ready is called, else pool_sandbox_failed. Returns 0, or -1 and *err. */
int sandbox_create(struct local_backend *backend, struct local_pool *pool, struct error **err);
/* Takes one over from a former process. */
int sandbox_adopt(struct local_backend *backend, struct local_pool *pool, const char *name, const struct record *record,
                  struct error **err);
/* Gives it to the pending acquire: pool_sandbox_bound or pool_sandbox_failed follows. */
void sandbox_bind(struct local_sandbox *sandbox, struct backend_pending *pending);
/* Kills everything in it; it is freed when the kernel says so. Idempotent; the first reason counts. */
void sandbox_end(struct local_sandbox *sandbox, enum backend_end end);
/* Stops watching a bound one without ending it, and frees. */
void sandbox_forget(struct local_sandbox *sandbox);
/* Of a file of the sandbox: "agent", "record". */
void sandbox_path(const struct local_backend *backend, const char *name, const char *file, char path[static PATH_SIZE * 2]);
void sandbox_folder_remove(const struct local_backend *backend, const char *name);

/* --- backend.c, called by sandbox.c --- */

void pool_sandbox_ready(struct local_sandbox *sandbox);
void pool_sandbox_bound(struct local_sandbox *sandbox);
/* It could not be made or bound: err (not freed) says why. The sandbox ends by itself. */
void pool_sandbox_failed(struct local_sandbox *sandbox, const struct error *err);
/* It is gone; the last call before it is freed. */
void pool_sandbox_gone(struct local_sandbox *sandbox);
/* A handle of the backend has been closed. */
void backend_handle_closed(struct local_backend *backend);

/* --- recover.c --- */

int local_recover(struct local_backend *backend, struct error **err);
/* Removes what of former sandboxes could not go yet then. */
void local_recover_rest(struct local_backend *backend);

#endif
