/*
 * One sandbox of the local backend, from the launcher's start to the kernel's word that nothing of it runs any more.
 *
 * Creating: a folder with the agent's listening socket, the launcher, its control group, the record, the byte that says
 * go; then bubblewrap reports the pid of process 1, then the agent answers. Ending: SIGKILL to process 1, which the kernel
 * turns into the end of everything in its pid namespace; bubblewrap outside then exits, and that is what is waited for.
 */
#define _GNU_SOURCE
#include "local.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { FILES_LIMIT = 4096, TEMPORARY_BYTES = 256 << 20, BACKLOG = 64 };

void sandbox_path(const struct local_backend *backend, const char *name, const char *file, char path[static PATH_SIZE * 2])
{
  snprintf(path, PATH_SIZE * 2, "%s/sandboxes/%s%s%s", backend->state, name, file[0] ? "/" : "", file);
}

void sandbox_folder_remove(const struct local_backend *backend, const char *name)
{
  static const char *const files[] = {"agent", "record", "record.new"};
  char path[PATH_SIZE * 2];
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    sandbox_path(backend, name, files[i], path);
    unlink(path);
  }
  sandbox_path(backend, name, "", path);
  if (rmdir(path) < 0 && errno != ENOENT)
    log_write(LOG_WARNING, "sandbox_folder_left", LOG_TEXT("sandbox", name), LOG_TEXT("detail", strerror(errno)));
}

static void fd_close(int *fd)
{
  if (*fd >= 0)
    close(*fd);
  *fd = -1;
}

/* --- ending --- */

static void sandbox_free(uv_handle_t *handle)
{
  struct local_sandbox *sandbox = handle->data;
  if (--sandbox->handles > 0)
    return;
  fd_close(&sandbox->init_fd);
  fd_close(&sandbox->monitor_fd);
  struct local_backend *backend = sandbox->backend;
  memory_free(sandbox);
  backend_handle_closed(backend);
}

static void handle_end(uv_handle_t *handle)
{
  if (uv_handle_get_type(handle) != UV_UNKNOWN_HANDLE && !uv_is_closing(handle))
    uv_close(handle, sandbox_free);
}

static void handles_end(struct local_sandbox *sandbox)
{
  uv_handle_t *const handles[] = {(uv_handle_t *)&sandbox->process, (uv_handle_t *)&sandbox->go,
                                  (uv_handle_t *)&sandbox->report, (uv_handle_t *)&sandbox->watch,
                                  (uv_handle_t *)&sandbox->timer};
  for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++)
    handle_end(handles[i]);
}

static void sandbox_kill(struct local_sandbox *sandbox)
{
  if (sandbox->init_fd >= 0)
    pidfd_send_signal(sandbox->init_fd, SIGKILL, NULL, 0);
  /* not yet reported: the launcher leads a session of its own, with whatever bubblewrap has made so far */
  else if (sandbox->record.monitor > 0 && kill(-sandbox->record.monitor, SIGKILL) < 0)
    kill(sandbox->record.monitor, SIGKILL);
}

void sandbox_end(struct local_sandbox *sandbox, enum backend_end end)
{
  if (sandbox->state == SANDBOX_ENDING)
    return;
  sandbox->state = SANDBOX_ENDING;
  sandbox->end = end;
  if (sandbox->ask)
    agent_cancel(sandbox->ask);
  sandbox->ask = NULL;
  if (!sandbox->exited)
    sandbox_kill(sandbox);
}

/* A group that will not go away yet (a process is still on its way out) is tried again shortly: the kernel gives no event
 * for that in version 1. */
static void on_group_retry(uv_timer_t *timer);

static void sandbox_finish(struct local_sandbox *sandbox)
{
  if (!cgroup_remove(&sandbox->backend->cgroups, sandbox->name)) {
    uv_timer_start(&sandbox->timer, on_group_retry, 5, 0);
    return;
  }
  sandbox_folder_remove(sandbox->backend, sandbox->name);
  pool_sandbox_gone(sandbox);
  handles_end(sandbox);
}

static void on_group_retry(uv_timer_t *timer)
{
  sandbox_finish(timer->data);
}

/* The monitor has ended, so process 1 has, unless somebody killed the monitor alone. */
static void sandbox_exited(struct local_sandbox *sandbox)
{
  if (sandbox->exited)
    return;
  if (sandbox->init_fd >= 0)
    pidfd_send_signal(sandbox->init_fd, SIGKILL, NULL, 0);
  sandbox->exited = true;
  bool expired = sandbox->record.bound && clock_boot() >= sandbox->record.sandbox.deadline - CLOCK_SECOND;
  if (sandbox->state != SANDBOX_ENDING) {
    struct error *err = NULL;
    error_set_detail(&err, REASON_SANDBOX_START_FAILED, "%s", sandbox->text_length ? sandbox->text : "the sandbox ended");
    if (sandbox->state != SANDBOX_BOUND)
      pool_sandbox_failed(sandbox, err);
    error_free(&err);
    sandbox_end(sandbox, expired ? BACKEND_END_EXPIRED : BACKEND_END_LOST);
  }
  uv_timer_stop(&sandbox->timer);
  sandbox_finish(sandbox);
}

void sandbox_forget(struct local_sandbox *sandbox)
{
  if (sandbox->ask)
    agent_cancel(sandbox->ask);
  sandbox->ask = NULL;
  handles_end(sandbox);
}

/* --- creating --- */

static void sandbox_fail(struct local_sandbox *sandbox, struct error *err)
{
  pool_sandbox_failed(sandbox, err);
  error_free(&err);
  sandbox_end(sandbox, BACKEND_END_LOST);
}

static void on_warm(void *context, struct error *err)
{
  struct local_sandbox *sandbox = context;
  if (err) {
    sandbox->ask = NULL;
    pool_sandbox_failed(sandbox, err);
    sandbox_end(sandbox, BACKEND_END_LOST);
    return;
  }
  uv_timer_stop(&sandbox->timer);
  sandbox->state = SANDBOX_WARM;
  pool_sandbox_ready(sandbox);
}

/* While it is warm the connection is kept: an agent without one ends itself. */
static void agent_ask_start(struct local_sandbox *sandbox, uint64_t milliseconds, agent_answered *answered)
{
  char path[PATH_SIZE * 2];
  bool keep = sandbox->state == SANDBOX_CREATING;
  if (sandbox->ask)
    agent_cancel(sandbox->ask);
  sandbox_path(sandbox->backend, sandbox->name, "agent", path);
  sandbox->ask = agent_configure(sandbox->backend->backend.loop, path, milliseconds, ORPHAN_MILLISECONDS,
                                 keep, answered, sandbox);
}

static int record_store(struct local_sandbox *sandbox, struct error **err)
{
  char path[PATH_SIZE * 2];
  sandbox_path(sandbox->backend, sandbox->name, "record", path);
  return record_write(path, &sandbox->record, err);
}

/* bubblewrap's {"child-pid": N, …}. Returns the pid, 0 while it is not complete. */
static pid_t report_pid(const struct local_sandbox *sandbox)
{
  if (!memchr(sandbox->text, '}', sandbox->text_length))
    return 0;
  CLEANUP_JSON struct json *json = json_parse(sandbox->text, sandbox->text_length, NULL);
  bool present;
  int64_t pid = 0;
  if (!json || !json_is_object(json) || json_get_integer(json, "child-pid", &present, &pid, NULL) < 0 || pid <= 1 ||
      pid > INT32_MAX)
    return 0;
  return (pid_t)pid;
}

static void report_take(struct local_sandbox *sandbox, pid_t pid)
{
  struct error *err = NULL;
  sandbox->record.init = pid;
  sandbox->init_fd = pidfd_open(pid, 0);
  sandbox->record.init_start = process_start(pid);
  uv_close((uv_handle_t *)&sandbox->report, sandbox_free);
  if (sandbox->init_fd < 0 || !sandbox->record.init_start)
    error_set_errno(&err, errno, "process 1 of the sandbox is gone");
  else if (record_store(sandbox, &err) == 0) {
    agent_ask_start(sandbox, 0, on_warm);
    if (sandbox->ask)
      return;
    error_set_memory(&err);
  }
  sandbox_fail(sandbox, err);
}

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
  (void)suggested;
  struct local_sandbox *sandbox = handle->data;
  *buffer = uv_buf_init(sandbox->text + sandbox->text_length, (unsigned)(sizeof sandbox->text - 1 - sandbox->text_length));
}

static void on_report(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer)
{
  (void)buffer;
  struct local_sandbox *sandbox = stream->data;
  if (length < 0) {
    uv_read_stop(stream); /* the process's end says the rest */
    return;
  }
  sandbox->text_length += (size_t)length;
  sandbox->text[sandbox->text_length] = '\0';
  pid_t pid = sandbox->state == SANDBOX_CREATING ? report_pid(sandbox) : 0;
  if (pid > 0) {
    sandbox->text_length = 0;
    report_take(sandbox, pid);
  } else if (sandbox->text_length == sizeof sandbox->text - 1)
    uv_read_stop(stream);
}

static void on_exit_process(uv_process_t *process, int64_t status, int signal_number)
{
  (void)status;
  (void)signal_number;
  sandbox_exited(process->data);
}

static void on_create_timeout(uv_timer_t *timer)
{
  struct local_sandbox *sandbox = timer->data;
  struct error *err = NULL;
  error_set(&err, REASON_SANDBOX_READY_TIMEOUT, NULL);
  sandbox_fail(sandbox, err);
}

static int listener_open(const struct local_sandbox *sandbox, struct error **err)
{
  char path[PATH_SIZE * 2];
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  sandbox_path(sandbox->backend, sandbox->name, "", path);
  if (mkdir(path, 0700) < 0)
    return error_set_errno(err, errno, "cannot make %s", path);
  sandbox_path(sandbox->backend, sandbox->name, "agent", path);
  memcpy(address.sun_path, path, strlen(path) + 1); /* the state folder's length is bounded at start */
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, BACKLOG) < 0) {
    error_set_errno(err, errno, "cannot listen on %s", path);
    fd_close(&fd);
  }
  return fd;
}

/* uids are given out in turn, so that one is not used again soon. */
static uint32_t uid_choose(struct local_backend *backend)
{
  if (backend->uid_first == 0)
    return 0;
  for (uint32_t tried = 0; tried < backend->uid_count; tried++) {
    uint32_t uid = backend->uid_first + backend->uid_next;
    backend->uid_next = (backend->uid_next + 1) % backend->uid_count;
    bool used = false;
    for (size_t i = 0; i < backend->pool_count && !used; i++)
      for (struct local_sandbox *other = backend->pools[i].sandboxes; other && !used; other = other->next)
        used = other->record.uid == uid;
    if (!used)
      return uid;
  }
  return 0;
}

static int launcher_spawn(struct local_sandbox *sandbox, int listener, int filter)
{
  struct local_backend *backend = sandbox->backend;
  const struct pool_settings *limits = &sandbox->pool->settings;
  char words[8][24];
  const uint64_t numbers[8] = {sandbox->record.uid,      limits->memory_bytes,    limits->processes,
                               limits->workspace_bytes,  limits->workspace_files, FILES_LIMIT,
                               TEMPORARY_BYTES,          backend->cgroups.version == 0};
  char groups[CGROUP_FILES][CGROUP_PATH_SIZE];
  char *arguments[12 + CGROUP_FILES] = {backend->launcher, backend->bubblewrap, backend->agent};
  for (size_t i = 0; i < 8; i++) {
    snprintf(words[i], sizeof words[i], "%" PRIu64, numbers[i]);
    arguments[3 + i] = words[i];
  }
  size_t group_count = cgroup_join_files(&backend->cgroups, sandbox->name, groups);
  for (size_t i = 0; i < group_count; i++)
    arguments[11 + i] = groups[i];
  uv_stdio_container_t stdio[5] = {
      {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE, .data.stream = (uv_stream_t *)&sandbox->go},
      {.flags = UV_IGNORE},
      {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&sandbox->report},
      {.flags = UV_INHERIT_FD, .data.fd = filter},
      {.flags = UV_INHERIT_FD, .data.fd = listener}};
  char *environment[] = {NULL};
  uv_process_options_t options = {.file = backend->launcher, .args = arguments, .env = environment, .stdio = stdio,
                                  .stdio_count = 5, .exit_cb = on_exit_process, .flags = UV_PROCESS_DETACHED};
  return uv_spawn(backend->backend.loop, &sandbox->process, &options);
}

static void handles_start(struct local_sandbox *sandbox)
{
  uv_loop_t *loop = sandbox->backend->backend.loop;
  sandbox->init_fd = sandbox->monitor_fd = -1;
  uv_timer_init(loop, &sandbox->timer);
  sandbox->timer.data = sandbox;
  sandbox->handles = 1;
}

static struct local_sandbox *sandbox_new(struct local_backend *backend, struct local_pool *pool, struct error **err)
{
  struct local_sandbox *sandbox = memory_zero(sizeof *sandbox);
  if (!sandbox) {
    error_set_memory(err);
    return NULL;
  }
  sandbox->backend = backend;
  sandbox->pool = pool;
  sandbox->next = pool->sandboxes;
  if (sandbox->next)
    sandbox->next->previous = sandbox;
  pool->sandboxes = sandbox;
  pool->total++;
  backend->closing++;
  handles_start(sandbox);
  return sandbox;
}

/* Let go: its group is made, and it is on record, before it does anything. */
static int launcher_release(struct local_sandbox *sandbox, struct error **err)
{
  sandbox->record.monitor = uv_process_get_pid(&sandbox->process);
  sandbox->record.monitor_start = process_start(sandbox->record.monitor);
  if (cgroup_make(&sandbox->backend->cgroups, sandbox->name, &sandbox->pool->settings, err) < 0 ||
      record_store(sandbox, err) < 0)
    return -1;
  uv_buf_t byte = uv_buf_init((char *)"g", 1);
  if (uv_try_write((uv_stream_t *)&sandbox->go, &byte, 1) != 1)
    return error_set_detail(err, REASON_INTERNAL, "the launcher is gone");
  uv_read_start((uv_stream_t *)&sandbox->report, on_room, on_report);
  return 0;
}

static int sandbox_start(struct local_sandbox *sandbox, struct error **err)
{
  struct local_backend *backend = sandbox->backend;
  uint8_t bytes[(NAME_SIZE - 1) / 2];
  random_bytes(bytes, sizeof bytes);
  text_hex(bytes, sizeof bytes, sandbox->name);
  memcpy(sandbox->record.pool, sandbox->pool->settings.name, sizeof sandbox->record.pool);
  memcpy(sandbox->record.boot, backend->boot, sizeof backend->boot);
  sandbox->record.uid = uid_choose(backend);
  if (backend->uid_first && !sandbox->record.uid)
    return error_set_detail(err, REASON_POOL_EXHAUSTED, "every uid of the range is in use");
  char filter_path[64];
  snprintf(filter_path, sizeof filter_path, "/proc/self/fd/%d", backend->filter);
  int listener = listener_open(sandbox, err), filter = open(filter_path, O_RDONLY | O_CLOEXEC);
  uv_pipe_init(backend->backend.loop, &sandbox->go, 0);
  uv_pipe_init(backend->backend.loop, &sandbox->report, 0);
  sandbox->go.data = sandbox->report.data = sandbox->process.data = sandbox;
  sandbox->handles += 2;
  int failed = listener < 0 ? -1 : filter < 0 ? error_set_errno(err, errno, "cannot open the seccomp filter") : 0;
  if (!failed) {
    int refused = launcher_spawn(sandbox, listener, filter);
    sandbox->handles++; /* uv_spawn initialises its handle even when it fails */
    if (refused)
      failed = error_set_detail(err, REASON_SANDBOX_START_FAILED, "cannot start the launcher: %s", uv_strerror(refused));
    else
      failed = launcher_release(sandbox, err);
  }
  fd_close(&listener);
  fd_close(&filter);
  return failed;
}

int sandbox_create(struct local_backend *backend, struct local_pool *pool, struct error **err)
{
  struct local_sandbox *sandbox = sandbox_new(backend, pool, err);
  if (!sandbox)
    return -1;
  pool->creating++;
  sandbox->state = SANDBOX_CREATING;
  if (sandbox_start(sandbox, err) == 0) {
    uv_timer_start(&sandbox->timer, on_create_timeout, CREATE_MILLISECONDS, 0);
    return 0;
  }
  pool->creating--;
  sandbox_end(sandbox, BACKEND_END_LOST);
  if (sandbox->record.monitor == 0) { /* nothing runs: no exit will tell */
    sandbox->exited = true;
    sandbox_finish(sandbox);
  }
  return -1;
}

/* --- binding --- */

static void on_bound(void *context, struct error *err)
{
  struct local_sandbox *sandbox = context;
  sandbox->ask = NULL;
  if (err) {
    pool_sandbox_failed(sandbox, err);
    sandbox_end(sandbox, BACKEND_END_LOST);
    return;
  }
  sandbox->state = SANDBOX_BOUND;
  pool_sandbox_bound(sandbox);
}

void sandbox_bind(struct local_sandbox *sandbox, struct backend_pending *pending)
{
  struct error *err = NULL;
  sandbox->state = SANDBOX_BINDING;
  sandbox->pool->binding++;
  sandbox->pending = pending;
  pending->sandbox = sandbox;
  struct backend_sandbox *facts = &sandbox->record.sandbox;
  *facts = pending->facts;
  facts->created_at = facts->last_used_at = clock_wall();
  facts->expires_at = facts->created_at + pending->ttl;
  facts->deadline = clock_boot() + pending->ttl;
  sandbox->record.bound = true;
  if (record_store(sandbox, &err) == 0) {
    agent_ask_start(sandbox, (uint64_t)(pending->ttl / CLOCK_MILLISECOND), on_bound);
    if (sandbox->ask)
      return;
    error_set_memory(&err);
  }
  sandbox_fail(sandbox, err);
}

/* --- taking over --- */

static void on_monitor_end(uv_poll_t *poll, int status, int events)
{
  (void)status;
  (void)events;
  uv_poll_stop(poll);
  sandbox_exited(poll->data);
}

static void on_deadline_told(void *context, struct error *err)
{
  struct local_sandbox *sandbox = context;
  sandbox->ask = NULL;
  if (err)
    log_write(LOG_WARNING, "deadline_not_taken", LOG_TEXT("lease", sandbox->record.sandbox.id), LOG_REASON(err), LOG_DETAIL(err));
}

int sandbox_adopt(struct local_backend *backend, struct local_pool *pool, const char *name, const struct record *record,
                  struct error **err)
{
  int monitor = pidfd_open(record->monitor, 0), init = pidfd_open(record->init, 0);
  /* the start times are read after the descriptors were opened: they then belong to the same processes */
  if (monitor < 0 || init < 0 || process_start(record->monitor) != record->monitor_start ||
      process_start(record->init) != record->init_start) {
    fd_close(&monitor);
    fd_close(&init);
    return error_set_detail(err, REASON_INTERNAL, "its processes are gone");
  }
  struct local_sandbox *sandbox = sandbox_new(backend, pool, err);
  if (!sandbox) {
    fd_close(&monitor);
    fd_close(&init);
    return -1;
  }
  memcpy(sandbox->name, name, NAME_SIZE - 1);
  sandbox->record = *record;
  sandbox->monitor_fd = monitor;
  sandbox->init_fd = init;
  sandbox->state = SANDBOX_BOUND;
  uv_poll_init(backend->backend.loop, &sandbox->watch, monitor);
  sandbox->watch.data = sandbox;
  sandbox->handles++;
  uv_poll_start(&sandbox->watch, UV_READABLE, on_monitor_end);
  int64_t left = record->sandbox.deadline - clock_boot();
  if (!record->bound || left <= 0) {
    sandbox_end(sandbox, record->bound ? BACKEND_END_EXPIRED : BACKEND_END_LOST);
    return 0;
  }
  agent_ask_start(sandbox, (uint64_t)(left / CLOCK_MILLISECOND) + 1, on_deadline_told);
  pool_sandbox_bound(sandbox);
  return 0;
}
