/*
 * The life of one sandbox, from warm to gone. Ending is SIGKILL to its first process, which the kernel turns into the
 * end of everything in its pid namespace before it says that the process has ended; the monitor outside then ends by
 * itself. When both have, cgroups and files are removed.
 */
#include "backend/local/local.h"

#include "backend/local/protocol.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

void local_path(const struct local_backend *backend, const char *name, const char *file,
                char path[static LOCAL_PATH_SIZE]) {
  snprintf(path, LOCAL_PATH_SIZE, "%s/sandboxes/%s%s%s", backend->settings.state, name, *file != '\0' ? "/" : "", file);
}

void local_mark(const char *name, char mark[static LOCAL_MARK_SIZE]) {
  snprintf(mark, LOCAL_MARK_SIZE, "sandbox-%s", name);
}

void local_agent_path(const struct local_sandbox *sandbox, char path[static LOCAL_PATH_SIZE]) {
  if (sandbox->socket_fd >= 0)
    snprintf(path, LOCAL_PATH_SIZE, "/proc/self/fd/%d", sandbox->socket_fd);
  else
    local_path(sandbox->backend, sandbox->name, "agent", path);
}

void local_uid_mark(struct local_backend *backend, uint32_t uid, bool used) {
  uint32_t first = backend->settings.uid_first;
  /* The range may have changed since a record was made. */
  if (uid >= first && uid - first < backend->settings.uid_count)
    backend->uids[uid - first] = used;
}

static void close_file(int *file) {
  if (*file >= 0)
    close(*file);
  *file = -1;
}

/* --- memory and handles --- */

struct local_sandbox *local_sandbox_new(struct local_pool *pool, struct error **err) {
  struct local_sandbox *sandbox = memory_zero(sizeof *sandbox);
  if (sandbox == NULL) {
    error_set_memory(err);
    return NULL;
  }
  sandbox->backend = pool->backend;
  sandbox->pool = pool;
  sandbox->first_fd = sandbox->socket_fd = sandbox->monitor_fd = -1;
  sandbox->next = pool->sandboxes;
  if (sandbox->next != NULL)
    sandbox->next->previous = sandbox;
  pool->sandboxes = sandbox;
  pool->living++;
  pool->backend->open++;
  uv_timer_init(pool->backend->backend.loop, &sandbox->timer);
  sandbox->timer.data = sandbox;
  sandbox->handles = 1;
  return sandbox;
}

static void unlink_sandbox(struct local_sandbox *sandbox) {
  if (sandbox->previous != NULL)
    sandbox->previous->next = sandbox->next;
  else
    sandbox->pool->sandboxes = sandbox->next;
  if (sandbox->next != NULL)
    sandbox->next->previous = sandbox->previous;
}

static void free_sandbox(struct local_sandbox *sandbox) {
  struct local_backend *backend = sandbox->backend;
  close_file(&sandbox->first_fd);
  close_file(&sandbox->socket_fd);
  close_file(&sandbox->monitor_fd);
  local_uid_mark(backend, sandbox->record.uid, false);
  local_record_free(&sandbox->record);
  memory_free(sandbox);
  local_let_go(backend);
}

static void handle_closed(uv_handle_t *handle) {
  struct local_sandbox *sandbox = handle->data;
  if (--sandbox->handles == 0)
    free_sandbox(sandbox);
}

void local_sandbox_close(struct local_sandbox *sandbox, uv_handle_t *handle) {
  if (uv_handle_get_type(handle) == UV_UNKNOWN_HANDLE || uv_is_closing(handle))
    return;
  handle->data = sandbox;
  uv_close(handle, handle_closed);
}

/* The last handle's end frees it. */
static void close_handles(struct local_sandbox *sandbox) {
  unlink_sandbox(sandbox);
  local_sandbox_close(sandbox, (uv_handle_t *)&sandbox->process);
  local_sandbox_close(sandbox, (uv_handle_t *)&sandbox->first_watch);
  local_sandbox_close(sandbox, (uv_handle_t *)&sandbox->monitor_watch);
  local_sandbox_close(sandbox, (uv_handle_t *)&sandbox->timer);
}

void local_sandbox_forget(struct local_sandbox *sandbox) {
  local_agent_close(sandbox->agent);
  sandbox->agent = NULL;
  close_handles(sandbox);
}

/* --- the end --- */

void local_directory_remove(const struct local_backend *backend, const char *name) {
  static const char *const files[] = {"agent", "record.new", "record", "log", "report"};
  char path[LOCAL_PATH_SIZE];
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    local_path(backend, name, files[i], path);
    unlink(path);
  }
  local_path(backend, name, "", path);
  if (rmdir(path) != 0 && errno != ENOENT)
    log_write(LOG_WARNING, "sandbox_directory_left", LOG_TEXT("sandbox", name), LOG_TEXT("detail", strerror(errno)));
}

/* Work. */
static void remove_work(uv_work_t *work) {
  struct local_sandbox *sandbox = work->data;
  sandbox->out_of_memory = local_cgroup_out_of_memory(&sandbox->record.cgroup);
  if (!local_cgroup_end(&sandbox->record.cgroup))
    return;
  local_cgroup_free(&sandbox->record.cgroup);
  local_directory_remove(sandbox->backend, sandbox->name);
}

static void log_end(const struct local_sandbox *sandbox) {
  static const char *const ends[] = {"released", "expired", "lost"};
  if (sandbox->told)
    log_write(sandbox->end == BACKEND_END_LOST ? LOG_WARNING : LOG_INFO, "sandbox_ended",
              LOG_TEXT("lease", sandbox->record.sandbox.id), LOG_TEXT("pool", sandbox->record.pool),
              LOG_TEXT("end", ends[sandbox->end]),
              LOG_TEXT("out_of_memory", sandbox->out_of_memory ? "true" : "false"));
}

static void removed(uv_work_t *work, int status) {
  struct local_sandbox *sandbox = work->data;
  struct local_backend *backend = sandbox->backend;
  (void)status; /* never cancelled */
  if (sandbox->record.cgroup.count > 0)
    local_leftover_add(backend, sandbox->name, &sandbox->record.cgroup);
  else
    local_leftovers_remove(backend);
  log_end(sandbox);
  local_pool_gone(sandbox);
  close_handles(sandbox);
}

void local_sandbox_ended(struct local_sandbox *sandbox) {
  if (!sandbox->monitor_ended || !sandbox->first_ended || sandbox->removing)
    return;
  sandbox->removing = true;
  uv_timer_stop(&sandbox->timer);
  if (sandbox->birth != NULL) {
    CLEANUP_ERROR struct error *err = NULL;
    local_birth_end(sandbox, &err);
    local_pool_failed(sandbox, LOCAL_STARTING, err);
  }
  sandbox->work.data = sandbox;
  uv_queue_work(sandbox->backend->backend.loop, &sandbox->work, remove_work, removed);
}

static void kill_sandbox(struct local_sandbox *sandbox) {
  if (sandbox->first_fd >= 0)
    pidfd_send_signal(sandbox->first_fd, SIGKILL, NULL, 0);
  /* The monitor leads a process group that its child leaves only when it is in the report. While it is not known
   * to have ended its number is its own: nobody else collects our children. */
  else if (!sandbox->monitor_ended && sandbox->record.monitor.pid > 0)
    kill(-sandbox->record.monitor.pid, SIGKILL);
}

void local_sandbox_end(struct local_sandbox *sandbox, enum backend_end end) {
  if (sandbox->state == LOCAL_ENDING)
    return;
  local_pool_ending(sandbox);
  sandbox->state = LOCAL_ENDING;
  sandbox->end = end;
  local_agent_close(sandbox->agent);
  sandbox->agent = NULL;
  kill_sandbox(sandbox);
  local_sandbox_ended(sandbox);
}

/* The first process has ended by itself: at its deadline, or before its time. */
static void ended_by_itself(struct local_sandbox *sandbox) {
  struct error *err = NULL;
  bool expired = sandbox->record.bound && clock_boot() >= sandbox->record.sandbox.deadline - CLOCK_SECOND;
  if (sandbox->state != LOCAL_BOUND)
    error_set_detail(&err, REASON_SANDBOX_START_FAILED, "the sandbox ended before it was bound");
  if (sandbox->birth != NULL) {
    local_birth_fail(sandbox, err);
    return;
  }
  if (err != NULL)
    local_pool_failed(sandbox, sandbox->state, err);
  error_free(&err);
  local_sandbox_end(sandbox, expired ? BACKEND_END_EXPIRED : BACKEND_END_LOST);
}

static void on_first_ended(uv_poll_t *poll, int status, int events) {
  struct local_sandbox *sandbox = poll->data;
  (void)status;
  (void)events;
  uv_poll_stop(poll);
  sandbox->first_ended = true;
  if (sandbox->state != LOCAL_ENDING)
    ended_by_itself(sandbox);
  else
    local_sandbox_ended(sandbox);
}

int local_sandbox_watch(struct local_sandbox *sandbox, struct error **err) {
  int failed = uv_poll_init(sandbox->backend->backend.loop, &sandbox->first_watch, sandbox->first_fd);
  if (failed != 0)
    return error_set_detail(err, REASON_INTERNAL, "cannot watch the sandbox: %s", uv_strerror(failed));
  sandbox->first_watch.data = sandbox;
  sandbox->handles++;
  failed = uv_poll_start(&sandbox->first_watch, UV_READABLE, on_first_ended);
  return failed == 0 ? 0 : error_set_detail(err, REASON_INTERNAL, "cannot watch the sandbox: %s", uv_strerror(failed));
}

/* --- binding --- */

/* Loop timers stand still while the machine sleeps; the deadline does not. */
static void on_deadline(uv_timer_t *timer) {
  struct local_sandbox *sandbox = timer->data;
  int64_t left = sandbox->record.sandbox.deadline - clock_boot();
  if (left <= 0)
    local_sandbox_end(sandbox, BACKEND_END_EXPIRED);
  else
    uv_timer_start(timer, on_deadline, (uint64_t)(left / CLOCK_MILLISECOND) + 1, 0);
}

static uint64_t milliseconds_left(const struct local_sandbox *sandbox) {
  int64_t left = sandbox->record.sandbox.deadline - clock_boot();
  return left > 0 ? (uint64_t)(left / CLOCK_MILLISECOND) + 1 : 1;
}

/* gVisor's keeper has the deadline, too: commands can stop the agent there. Under bubblewrap the agent is the first
 * process, and nothing inside can stop it. */
static int tell_keeper(const struct local_sandbox *sandbox, struct error **err) {
  if (sandbox->record.runtime != LOCAL_GVISOR)
    return 0;
  siginfo_t info = {.si_signo = LAUNCH_SIGNAL_DEADLINE, .si_code = SI_QUEUE};
  info.si_pid = getpid();
  info.si_uid = getuid();
  info.si_value.sival_int = (int)milliseconds_left(sandbox);
  if (pidfd_send_signal(sandbox->first_fd, LAUNCH_SIGNAL_DEADLINE, &info, 0) != 0)
    return error_set_errno(err, errno, "cannot tell the first process its deadline");
  return 0;
}

static void become_bound(struct local_sandbox *sandbox) {
  sandbox->state = LOCAL_BOUND;
  uv_update_time(sandbox->backend->backend.loop);
  uv_timer_start(&sandbox->timer, on_deadline, milliseconds_left(sandbox), 0);
  local_pool_bound(sandbox);
}

static void on_deadline_taken(void *context, struct error *err) {
  struct local_sandbox *sandbox = context;
  local_agent_close(sandbox->agent);
  sandbox->agent = NULL;
  if (err == NULL) {
    become_bound(sandbox);
    return;
  }
  local_pool_failed(sandbox, sandbox->state, err);
  local_sandbox_end(sandbox, BACKEND_END_LOST);
}

static int store_record(struct local_sandbox *sandbox, struct error **err) {
  char path[LOCAL_PATH_SIZE];
  local_path(sandbox->backend, sandbox->name, "record", path);
  return local_record_write(path, &sandbox->record, err);
}

/* The record comes first. If this process dies before the agent has the deadline, the agent ends itself as an
 * orphan, or the next process gives it the deadline on record. */
void local_sandbox_bind(struct local_sandbox *sandbox, struct backend_pending *pending) {
  CLEANUP_ERROR struct error *err = NULL;
  struct backend_sandbox *facts = &sandbox->record.sandbox;
  sandbox->state = LOCAL_BINDING;
  sandbox->pending = pending;
  pending->sandbox = sandbox;
  *facts = pending->facts;
  facts->created_at = facts->last_used_at = clock_wall();
  facts->expires_at = facts->created_at + pending->ttl;
  facts->deadline = clock_boot() + pending->ttl;
  sandbox->record.bound = true;
  if (store_record(sandbox, &err) == 0 && tell_keeper(sandbox, &err) == 0) {
    local_agent_configure(sandbox->agent, milliseconds_left(sandbox), LOCAL_ORPHAN_MILLISECONDS, on_deadline_taken,
                          sandbox);
    return;
  }
  local_pool_failed(sandbox, sandbox->state, err);
  local_sandbox_end(sandbox, BACKEND_END_LOST);
}

/* --- taking over --- */

static void on_monitor_ended(uv_poll_t *poll, int status, int events) {
  struct local_sandbox *sandbox = poll->data;
  (void)status;
  (void)events;
  uv_poll_stop(poll);
  if (sandbox->own) {
    /* libuv collects children when SIGCHLD comes, and then tells. Another thread may have got the signal, for this one
     * blocks it while it makes a sandbox; ThreadSanitizer keeps it from being handled until that thread wakes. */
    if (!sandbox->monitor_ended)
      raise(SIGCHLD);
    return;
  }
  sandbox->monitor_ended = true;
  local_sandbox_ended(sandbox);
}

static void on_deadline_repeated(void *context, struct error *err) {
  struct local_sandbox *sandbox = context;
  local_agent_close(sandbox->agent);
  sandbox->agent = NULL;
  if (err != NULL)
    log_write(LOG_WARNING, "deadline_not_taken", LOG_TEXT("lease", sandbox->record.sandbox.id), LOG_REASON(err),
              LOG_DETAIL(err));
}

int local_sandbox_watch_monitor(struct local_sandbox *sandbox, struct error **err) {
  sandbox->monitor_fd = local_process_open(&sandbox->record.monitor);
  sandbox->monitor_ended = sandbox->monitor_fd < 0 && !sandbox->own;
  if (sandbox->monitor_fd < 0)
    return 0; /* somebody ended it; the sandbox lives without */
  int failed = uv_poll_init(sandbox->backend->backend.loop, &sandbox->monitor_watch, sandbox->monitor_fd);
  if (failed != 0)
    return error_set_detail(err, REASON_INTERNAL, "cannot watch the monitor: %s", uv_strerror(failed));
  sandbox->monitor_watch.data = sandbox;
  sandbox->handles++;
  uv_poll_start(&sandbox->monitor_watch, UV_READABLE, on_monitor_ended);
  return 0;
}

static int take_over(struct local_sandbox *sandbox, struct error **err) {
  char path[LOCAL_PATH_SIZE];
  sandbox->first_fd = local_process_open(&sandbox->record.first);
  if (sandbox->first_fd < 0)
    return error_set_detail(err, REASON_INTERNAL, "its first process is gone");
  if (tell_keeper(sandbox, err) != 0)
    return -1;
  if (local_sandbox_watch_monitor(sandbox, err) != 0 || local_sandbox_watch(sandbox, err) != 0)
    return -1;
  if (sandbox->record.runtime == LOCAL_GVISOR && (sandbox->socket_fd = local_socket_open(sandbox)) < 0)
    return error_set_detail(err, REASON_INTERNAL, "its socket is gone");
  local_agent_path(sandbox, path);
  sandbox->agent = local_agent_new(sandbox->backend->backend.loop, path);
  return sandbox->agent != NULL ? 0 : error_set_memory(err);
}

int local_sandbox_adopt(struct local_pool *pool, const char *name, struct local_record *record, struct error **err) {
  struct local_backend *backend = pool->backend;
  struct local_sandbox *sandbox = local_sandbox_new(pool, err);
  if (sandbox == NULL)
    return -1;
  memcpy(sandbox->name, name, LOCAL_NAME_SIZE - 1);
  sandbox->record = *record;
  sandbox->state = LOCAL_BOUND;
  if (take_over(sandbox, err) != 0) {
    sandbox->record = (struct local_record){.uid = 0};
    pool->living--;
    local_sandbox_forget(sandbox);
    return -1;
  }
  *record = (struct local_record){.uid = 0};
  local_uid_mark(backend, sandbox->record.uid, true);
  become_bound(sandbox);
  local_agent_configure(sandbox->agent, milliseconds_left(sandbox), LOCAL_ORPHAN_MILLISECONDS, on_deadline_repeated,
                        sandbox);
  return 0;
}
