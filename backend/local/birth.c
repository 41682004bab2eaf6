/*
 * The making of one sandbox: its directory with the agent's listening socket and the record, its cgroup (work, in
 * libuv's pool); then the launcher, which becomes bubblewrap or runs gVisor; then the agent answers Configure, and
 * the sandbox is warm. If this process dies at any moment, the launcher dies with it, or the agent ends itself as an
 * orphan; the record tells the next process what to look for.
 */
#include "backend/local/local.h"

#include "backend/local/protocol.h"
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
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
  BACKLOG = 64,
  START_MILLISECONDS = 30000, /* from the launcher's start to the agent's answer */
  REPORT_BYTES = 1024,
  LOG_BYTES = 400, /* of the end of a log that explain a failure */
  WORDS_MAX = 128,
};

struct local_birth {
  uv_work_t work;
  int listener, log, report, null;
  uv_pipe_t ready; /* gVisor: one byte when the agent listens */
  char byte;
  struct error *err; /* why it failed */
};

static void close_file(int *file) {
  if (*file >= 0)
    close(*file);
  *file = -1;
}

/* --- files and cgroup: work --- */

static int make_listener(const struct local_sandbox *sandbox, int *listener, struct error **err) {
  char path[LOCAL_PATH_SIZE];
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  local_path(sandbox->backend, sandbox->name, "agent", path);
  memcpy(address.sun_path, path, strlen(path)); /* the state directory's length was checked at start */
  *listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (*listener < 0 || bind(*listener, (struct sockaddr *)&address, sizeof address) != 0 ||
      listen(*listener, BACKLOG) != 0)
    return error_set_errno(err, errno, "cannot listen at %s", path);
  return 0;
}

static int make_file(const struct local_sandbox *sandbox, const char *name, int flags, int *file, struct error **err) {
  char path[LOCAL_PATH_SIZE];
  local_path(sandbox->backend, sandbox->name, name, path);
  *file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | flags, 0600);
  return *file >= 0 ? 0 : error_set_errno(err, errno, "cannot make %s", path);
}

static int prepare(struct local_sandbox *sandbox, struct local_birth *birth) {
  char path[LOCAL_PATH_SIZE];
  struct error **err = &birth->err;
  bool gvisor = sandbox->record.runtime == LOCAL_GVISOR;
  local_path(sandbox->backend, sandbox->name, "", path);
  if (mkdir(path, 0700) != 0)
    return error_set_errno(err, errno, "cannot make %s", path);
  birth->null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (birth->null < 0)
    return error_set_errno(err, errno, "cannot open /dev/null");
  if ((!gvisor && make_listener(sandbox, &birth->listener, err) != 0) ||
      make_file(sandbox, "log", O_APPEND, &birth->log, err) != 0 ||
      make_file(sandbox, "report", 0, &birth->report, err) != 0)
    return -1;
  /* A cgroup without a record is found by the directory's name. */
  if (local_cgroup_make(&sandbox->backend->cgroups, sandbox->name, sandbox->pool->settings, &sandbox->record.cgroup,
                        err) != 0)
    return -1;
  local_path(sandbox->backend, sandbox->name, "record", path);
  return local_record_write(path, &sandbox->record, err);
}

static void prepare_work(uv_work_t *work) {
  struct local_sandbox *sandbox = work->data;
  prepare(sandbox, sandbox->birth);
}

/* --- the report --- */

/* {"child-pid": N, …}; 0 while it is not there. */
static pid_t read_report(int report) {
  char text[REPORT_BYTES];
  ssize_t length = pread(report, text, sizeof text, 0);
  CLEANUP_JSON struct json *json = length > 0 ? json_parse(text, (size_t)length, NULL) : NULL;
  bool present = false;
  int64_t pid = 0;
  if (json == NULL || !json_is_object(json) || json_get_integer(json, "child-pid", &present, &pid, NULL) != 0 ||
      !present)
    return 0;
  return pid > 1 && pid <= INT32_MAX ? (pid_t)pid : 0;
}

/* Opens and watches the first process: a living child of our child, whose number cannot have been given out again. */
static int open_first(struct local_sandbox *sandbox, struct error **err) {
  struct local_process first, again;
  pid_t parent = 0;
  pid_t pid = read_report(sandbox->birth->report);
  if (pid == 0)
    return error_set_detail(err, REASON_SANDBOX_START_FAILED, "the runtime has not said which process it made");
  if (local_process_read(pid, &first, &parent) != 0 || parent != sandbox->record.monitor.pid)
    return error_set_detail(err, REASON_SANDBOX_START_FAILED, "the first process of the sandbox is gone");
  sandbox->first_fd = local_process_open(&first);
  if (sandbox->first_fd < 0 || local_process_read(pid, &again, NULL) != 0)
    return error_set_detail(err, REASON_SANDBOX_START_FAILED, "the first process of the sandbox is gone");
  sandbox->record.first = first;
  return local_sandbox_watch(sandbox, err);
}

void local_birth_find(struct local_sandbox *sandbox) {
  char mark[LOCAL_MARK_SIZE];
  struct local_process first;
  pid_t pid = sandbox->birth != NULL ? read_report(sandbox->birth->report) : 0;
  local_mark(sandbox->name, mark);
  if (pid > 0 && local_process_read(pid, &first, NULL) == 0 &&
      local_process_marked(pid, &(struct local_mark){.mark = mark, .uid = sandbox->record.uid}))
    sandbox->first_fd = local_process_open(&first);
}

int local_socket_open(const struct local_sandbox *sandbox) {
  char path[LOCAL_PATH_SIZE];
  struct stat status;
  snprintf(path, sizeof path, "/proc/%d/root" LAUNCH_CHANNEL "/" LAUNCH_CHANNEL_SOCKET, (int)sandbox->record.first.pid);
  int file = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (file >= 0 && (fstat(file, &status) != 0 || !S_ISSOCK(status.st_mode)))
    close_file(&file);
  return file;
}

/* --- the agent --- */

static void close_birth(struct local_birth *birth) {
  close_file(&birth->listener);
  close_file(&birth->log);
  close_file(&birth->report);
  close_file(&birth->null);
}

static void ready_closed(uv_handle_t *handle) { memory_free(handle->data); }

/* The pipe's memory is the birth's. */
static void free_birth(struct local_sandbox *sandbox) {
  struct local_birth *birth = sandbox->birth;
  sandbox->birth = NULL;
  close_birth(birth);
  error_free(&birth->err);
  birth->ready.data = birth;
  uv_close((uv_handle_t *)&birth->ready, ready_closed);
}

static void on_agent_answered(void *context, struct error *err) {
  struct local_sandbox *sandbox = context;
  struct error *failed = NULL;
  if (err != NULL) {
    error_set_detail(&failed, REASON_SANDBOX_START_FAILED, "%s", error_detail(err));
    local_birth_fail(sandbox, failed);
    return;
  }
  if (sandbox->first_fd < 0 && open_first(sandbox, &failed) != 0) {
    local_birth_fail(sandbox, failed);
    return;
  }
  uv_timer_stop(&sandbox->timer);
  free_birth(sandbox);
  sandbox->state = LOCAL_WARM;
  local_pool_ready(sandbox);
}

static void ask_agent(struct local_sandbox *sandbox) {
  char path[LOCAL_PATH_SIZE];
  local_agent_path(sandbox, path);
  sandbox->agent = local_agent_new(sandbox->backend->backend.loop, path);
  if (sandbox->agent != NULL) {
    local_agent_configure(sandbox->agent, 0, LOCAL_ORPHAN_MILLISECONDS, on_agent_answered, sandbox);
    return;
  }
  struct error *err = NULL;
  error_set_memory(&err);
  local_birth_fail(sandbox, err);
}

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer) {
  struct local_sandbox *sandbox = handle->data;
  (void)suggested;
  *buffer = uv_buf_init(&sandbox->birth->byte, 1);
}

/* gVisor listens. Anything but the byte is the end of the launcher, which tells by itself. */
static void on_ready(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer) {
  struct local_sandbox *sandbox = stream->data;
  struct error *err = NULL;
  (void)buffer;
  uv_read_stop(stream);
  if (length != 1 || sandbox->state != LOCAL_STARTING)
    return;
  if (open_first(sandbox, &err) == 0 && (sandbox->socket_fd = local_socket_open(sandbox)) >= 0) {
    ask_agent(sandbox);
    return;
  }
  if (err == NULL)
    error_set_detail(&err, REASON_SANDBOX_START_FAILED, "the agent's socket is not there");
  local_birth_fail(sandbox, err);
}

/* --- failing --- */

void local_birth_fail(struct local_sandbox *sandbox, struct error *err) {
  struct local_birth *birth = sandbox->birth;
  if (birth->err == NULL)
    birth->err = err;
  else
    error_free(&err);
  local_sandbox_end(sandbox, err != NULL ? BACKEND_END_LOST : BACKEND_END_RELEASED);
}

/* The end of the log says more than "it ended". */
static void explain(const struct local_birth *birth, struct error **err) {
  char text[LOG_BYTES + 1];
  struct stat status;
  if (birth->log < 0 || fstat(birth->log, &status) != 0 || status.st_size == 0)
    return;
  off_t from = status.st_size > LOG_BYTES ? status.st_size - LOG_BYTES : 0;
  ssize_t length = pread(birth->log, text, LOG_BYTES, from);
  while (length > 0 && text[length - 1] == '\n')
    length--;
  if (length <= 0)
    return;
  text[length] = '\0';
  enum reason reason = error_reason(*err);
  error_free(err);
  error_set_detail(err, reason, "%s", text);
}

void local_birth_end(struct local_sandbox *sandbox, struct error **err) {
  struct local_birth *birth = sandbox->birth;
  *err = birth->err;
  birth->err = NULL;
  if (*err != NULL)
    explain(birth, err);
  free_birth(sandbox);
}

static void on_timeout(uv_timer_t *timer) {
  struct error *err = NULL;
  error_set_detail(&err, REASON_SANDBOX_READY_TIMEOUT, "no answer within %d s", START_MILLISECONDS / 1000);
  local_birth_fail(timer->data, err);
}

/* --- the launcher --- */

/* The monitor has ended. With a sandbox that lives that means nothing: somebody ended the monitor alone. */
static void on_exit_process(uv_process_t *process, int64_t status, int signal_number) {
  struct local_sandbox *sandbox = process->data;
  (void)status;
  (void)signal_number;
  sandbox->monitor_ended = true;
  if (sandbox->birth != NULL && sandbox->first_fd < 0) {
    /* The kernel has told the whole process group by now; what has left it is in the report. */
    local_birth_find(sandbox);
    sandbox->first_ended = sandbox->first_fd < 0 || local_sandbox_watch(sandbox, NULL) != 0;
    if (sandbox->first_fd >= 0)
      pidfd_send_signal(sandbox->first_fd, SIGKILL, NULL, 0);
    if (sandbox->state != LOCAL_ENDING) {
      struct error *err = NULL;
      error_set_detail(&err, REASON_SANDBOX_START_FAILED, "the launcher ended");
      local_birth_fail(sandbox, err);
      return;
    }
  }
  local_sandbox_ended(sandbox);
}

struct words {
  char text[64][48]; /* those that are made here */
  size_t texts;
  char *list[WORDS_MAX];
  size_t count;
};

static void add(struct words *words, const char *option, const char *value) {
  words->list[words->count++] = (char *)option;
  words->list[words->count++] = (char *)value;
}

static void add_number(struct words *words, const char *option, uint64_t number) {
  char *text = words->text[words->texts++];
  snprintf(text, sizeof *words->text, "%" PRIu64, number);
  add(words, option, text);
}

/* joins: room for the paths of the files that are written to enter a cgroup. */
static void add_limits(struct words *words, const struct local_sandbox *sandbox,
                       char joins[static LOCAL_CGROUPS_MAX][LOCAL_CGROUP_PATH_SIZE + 16]) {
  const struct local_pool_settings *limits = sandbox->pool->settings;
  const struct local_cgroup *cgroup = &sandbox->record.cgroup;
  add_number(words, "--bytes", limits->workspace_bytes);
  add_number(words, "--files", limits->workspace_files);
  if (limits->runtime == LOCAL_BUBBLEWRAP)
    add_number(words, "--processes", limits->processes);
  if (cgroup->count == 0)
    add_number(words, "--memory", limits->memory_bytes);
  for (size_t i = 0; i < cgroup->count; i++) {
    snprintf(joins[i], LOCAL_CGROUP_PATH_SIZE + 16, "%s/cgroup.procs", cgroup->paths[i]);
    add(words, "--join", joins[i]);
  }
}

static void add_programs(struct words *words, const struct local_backend *backend, bool gvisor) {
  const struct local_settings *settings = &backend->settings;
  words->list[words->count++] = settings->launcher;
  add(words, "--runtime", gvisor ? "gvisor" : "bubblewrap");
  add(words, "--program", gvisor ? settings->runsc : settings->bubblewrap);
  if (gvisor && settings->platform != NULL)
    add(words, "--platform", settings->platform);
  add(words, "--agent", settings->agent);
  for (size_t i = 0; i < backend->etc.live_count; i++)
    add(words, "--live", backend->etc.live[i]);
}

static int spawn(struct local_sandbox *sandbox, char **arguments) {
  struct local_birth *birth = sandbox->birth;
  bool gvisor = sandbox->record.runtime == LOCAL_GVISOR;
  uv_stdio_container_t stdio[LAUNCH_FD_COUNT] = {
    [STDIN_FILENO] = {.flags = UV_INHERIT_FD, .data.fd = birth->null},
    [STDOUT_FILENO] = {.flags = UV_INHERIT_FD, .data.fd = birth->null},
    [STDERR_FILENO] = {.flags = UV_INHERIT_FD, .data.fd = birth->log},
    [LAUNCH_FD_LISTEN] = {.flags = UV_INHERIT_FD, .data.fd = gvisor ? birth->null : birth->listener},
    [LAUNCH_FD_REPORT] = {.flags = UV_INHERIT_FD, .data.fd = birth->report},
    [LAUNCH_FD_SECCOMP] = {.flags = UV_INHERIT_FD, .data.fd = gvisor ? birth->null : sandbox->backend->filter},
    [LAUNCH_FD_READY] = {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&birth->ready},
  };
  char *environment[] = {NULL};
  /* Detached: a session of its own, so that a signal to the server's process group leaves sandboxes alone. */
  uv_process_options_t options = {.file = arguments[0], .args = arguments, .env = environment, .stdio = stdio,
                                  .stdio_count = LAUNCH_FD_COUNT, .exit_cb = on_exit_process,
                                  .flags = UV_PROCESS_DETACHED};
  return uv_spawn(sandbox->backend->backend.loop, &sandbox->process, &options);
}

static int launch(struct local_sandbox *sandbox, struct error **err) {
  char joins[LOCAL_CGROUPS_MAX][LOCAL_CGROUP_PATH_SIZE + 16], etc[LOCAL_PATH_SIZE], events[LOCAL_CGROUP_PATH_SIZE];
  char mark[LOCAL_MARK_SIZE];
  struct words words = {.count = 0};
  add_programs(&words, sandbox->backend, sandbox->record.runtime == LOCAL_GVISOR);
  snprintf(etc, sizeof etc, "%s/etc", sandbox->backend->settings.state);
  add(&words, "--etc", etc);
  local_mark(sandbox->name, mark);
  add(&words, "--mark", mark);
  add_number(&words, "--parent", (uint64_t)getpid());
  add_number(&words, "--uid", sandbox->record.uid);
  add_limits(&words, sandbox, joins);
  if (local_cgroup_events(&sandbox->record.cgroup, events) == 0)
    add(&words, "--events", events);
  int failed = spawn(sandbox, words.list);
  sandbox->process.data = sandbox;
  sandbox->handles++; /* uv_spawn initialises its handle even when it fails */
  if (failed != 0)
    return error_set_detail(err, REASON_SANDBOX_START_FAILED, "cannot start the launcher: %s", uv_strerror(failed));
  sandbox->monitor_ended = sandbox->first_ended = false;
  sandbox->own = true;
  if (local_process_read(uv_process_get_pid(&sandbox->process), &sandbox->record.monitor, NULL) != 0)
    return error_set_detail(err, REASON_SANDBOX_START_FAILED, "the launcher is gone");
  return local_sandbox_watch_monitor(sandbox, err);
}

static void prepared(uv_work_t *work, int status) {
  struct local_sandbox *sandbox = work->data;
  struct local_birth *birth = sandbox->birth;
  struct error *err = NULL;
  (void)status; /* never cancelled */
  /* Until the launcher runs there is nothing whose end could be waited for. */
  sandbox->monitor_ended = sandbox->first_ended = true;
  if (sandbox->state == LOCAL_ENDING) {
    local_sandbox_ended(sandbox);
    return;
  }
  sandbox->state = LOCAL_STARTING;
  if (birth->err != NULL || launch(sandbox, &err) != 0) {
    local_birth_fail(sandbox, err);
    return;
  }
  close_file(&birth->listener);
  birth->ready.data = sandbox;
  uv_timer_start(&sandbox->timer, on_timeout, START_MILLISECONDS, 0);
  if (sandbox->record.runtime == LOCAL_GVISOR)
    uv_read_start((uv_stream_t *)&birth->ready, on_room, on_ready);
  else
    ask_agent(sandbox); /* it is answered once the agent runs: the socket listens already */
}

/* uids are given out in turn, so that one is not used again soon. 0: none is free. */
static uint32_t choose_uid(struct local_backend *backend) {
  uint32_t count = backend->settings.uid_count;
  for (uint32_t tried = 0; tried < count; tried++) {
    uint32_t place = backend->uid_next;
    backend->uid_next = (place + 1) % count;
    if (backend->uids[place] == 0)
      return backend->settings.uid_first + place;
  }
  return 0;
}

static void describe(struct local_sandbox *sandbox) {
  struct local_backend *backend = sandbox->backend;
  uint8_t bytes[(LOCAL_NAME_SIZE - 1) / 2];
  random_bytes(bytes, sizeof bytes);
  text_hex(bytes, sizeof bytes, sandbox->name);
  memcpy(sandbox->record.pool, sandbox->pool->settings->name, sizeof sandbox->record.pool);
  memcpy(sandbox->record.boot, backend->boot, sizeof backend->boot);
  sandbox->record.runtime = sandbox->pool->settings->runtime;
  sandbox->record.uid = choose_uid(backend);
  local_uid_mark(backend, sandbox->record.uid, true);
}

int local_birth_start(struct local_pool *pool, struct error **err) {
  CLEANUP_MEMORY struct local_birth *birth = memory_zero(sizeof *birth);
  struct local_sandbox *sandbox = birth != NULL ? local_sandbox_new(pool, err) : NULL;
  if (sandbox == NULL)
    return birth != NULL ? -1 : error_set_memory(err);
  describe(sandbox);
  if (pool->backend->settings.uid_count > 0 && sandbox->record.uid == 0) {
    pool->living--;
    local_sandbox_forget(sandbox);
    return error_set_detail(err, REASON_POOL_EXHAUSTED, "every uid of SANDBOX_LOCAL_UID_RANGE is in use");
  }
  birth->listener = birth->log = birth->report = birth->null = -1;
  birth->work.data = sandbox;
  uv_pipe_init(pool->backend->backend.loop, &birth->ready, 0);
  sandbox->birth = birth;
  birth = NULL;
  sandbox->state = LOCAL_PREPARING;
  pool->creating++;
  uv_queue_work(pool->backend->backend.loop, &sandbox->birth->work, prepare_work, prepared);
  return 0;
}
