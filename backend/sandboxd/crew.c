/*
 * The supervisors as sandboxd sees them: see crew.h. A supervisor is FREE, then BUSY with a command; when that has
 * ended, ENDED until it is released; then FREE again, or LINGERING while leftovers live. LEAVING ones were told to go.
 */
#include "backend/sandboxd/crew.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CREW_GUARD (CLOCK_SECOND / 4) /* for a supervisor to kill what it has, before we help */
#define CREW_HELP 20                 /* times that we help before it is given up */
#define CREW_IDLE (5 * CLOCK_SECOND)  /* after the last command, before the free ones but one are let go */
#define CREW_SUPERVISORS (CREW_COMMANDS + CREW_LINGERING + CREW_FREE)
#define CREW_SCRIPT_TEXT ". /proc/self/fd/3"

enum crew_state { CREW_STATE_FREE, CREW_STATE_BUSY, CREW_STATE_ENDED, CREW_STATE_LINGERING, CREW_STATE_LEAVING };

struct crew_supervisor {
  struct crew *crew;
  struct crew_supervisor *previous, *next;
  pid_t pid; /* 0: reaped */
  enum crew_state state;
  bool clean; /* ENDED: nothing is left */
  struct loop_watch socket;
  struct loop_timer guard;
  unsigned helped;
  crew_command_ended *ended;
  void *context;
  uint64_t released;
  uint64_t mark;
  bool killing; /* the command was told to die */
  bool over;    /* its main process has ended, with `status` */
  int status;
};

/* --- making and unmaking --- */

static void crew_socket_close(struct crew_supervisor *supervisor) {
  if (supervisor->socket.descriptor < 0)
    return;
  loop_watch_set(supervisor->crew->loop, &supervisor->socket, 0);
  close(supervisor->socket.descriptor);
  supervisor->socket.descriptor = -1;
}

static void crew_state_set(struct crew_supervisor *supervisor, enum crew_state state) {
  struct crew *crew = supervisor->crew;
  size_t *const counts[] = {[CREW_STATE_FREE] = &crew->free,
                            [CREW_STATE_BUSY] = &crew->busy,
                            [CREW_STATE_ENDED] = &crew->busy,
                            [CREW_STATE_LINGERING] = &crew->lingering,
                            [CREW_STATE_LEAVING] = NULL};
  if (counts[supervisor->state])
    --*counts[supervisor->state];
  if (counts[state])
    ++*counts[state];
  supervisor->state = state;
}

static void crew_supervisor_free(struct crew_supervisor *supervisor) {
  crew_state_set(supervisor, CREW_STATE_LEAVING);
  loop_timer_stop(supervisor->crew->loop, &supervisor->guard);
  crew_socket_close(supervisor);
  *(supervisor->previous ? &supervisor->previous->next : &supervisor->crew->all) = supervisor->next;
  if (supervisor->next)
    supervisor->next->previous = supervisor->previous;
  memory_free(supervisor);
}

static int crew_fork(struct crew *crew, pid_t *pid) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair))
    return -1;
  oom_score_raise(&crew->oom_score);
  *pid = fork();
  if (*pid == 0)
    supervisor_run(pair[1], &crew->options);
  oom_score_restore(&crew->oom_score);
  close(pair[1]);
  if (*pid > 0)
    return pair[0];
  close(pair[0]);
  return -1;
}

static void crew_socket_ready(void *context, uint32_t events);
static void crew_guard_fired(void *context);

/* A new one, BUSY. */
static struct crew_supervisor *crew_supervisor_new(struct crew *crew) {
  struct crew_supervisor *supervisor = memory_zero(sizeof *supervisor);
  if (!supervisor)
    return NULL;
  int socket = crew_fork(crew, &supervisor->pid);
  if (socket < 0) {
    memory_free(supervisor);
    return NULL;
  }
  supervisor->crew = crew;
  supervisor->state = CREW_STATE_BUSY;
  crew->busy++;
  supervisor->socket = (struct loop_watch){.descriptor = socket, .ready = crew_socket_ready, .context = supervisor};
  supervisor->guard = (struct loop_timer){.fired = crew_guard_fired, .context = supervisor};
  supervisor->next = crew->all;
  if (crew->all)
    crew->all->previous = supervisor;
  crew->all = supervisor;
  if (!loop_watch_set(crew->loop, &supervisor->socket, EPOLLIN))
    return supervisor;
  kill(supervisor->pid, SIGKILL); /* reaped as a child that is no supervisor */
  crew_supervisor_free(supervisor);
  return NULL;
}

/* --- talking --- */

/* script: -1, or the file that the text stands for. */
static int crew_send(struct crew_supervisor *supervisor, enum supervisor_order order, int number, const char *text,
                     const int *descriptors, int script) {
  struct supervisor_request request = {.order = order, .signal = number, .mark = supervisor->mark};
  union {
    char bytes[CMSG_SPACE(SUPERVISOR_DESCRIPTORS * sizeof(int))];
    struct cmsghdr header;
  } control = {0};
  struct iovec parts[2] = {{&request, sizeof request}, {(void *)(uintptr_t)text, text ? strlen(text) + 1 : 0}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = text ? 2 : 1};
  if (descriptors) {
    size_t count = script < 0 ? 3 : 4;
    message.msg_control = &control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(rights), descriptors, 3 * sizeof(int));
    if (script >= 0)
      memcpy(CMSG_DATA(rights) + 3 * sizeof(int), &script, sizeof script);
  }
  return sendmsg(supervisor->socket.descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -1 : 0;
}

/* It has nothing to kill, and ends when its socket is closed. */
static void crew_dismiss(struct crew_supervisor *supervisor) {
  crew_state_set(supervisor, CREW_STATE_LEAVING);
  crew_socket_close(supervisor);
}

static void crew_idle(void *context) {
  struct crew *crew = context;
  for (struct crew_supervisor *supervisor = crew->all; supervisor && crew->free > 1; supervisor = supervisor->next)
    if (supervisor->state == CREW_STATE_FREE)
      crew_dismiss(supervisor);
}

/* Takes a supervisor whose command is done back, or lets it go. */
static void crew_recycle(struct crew_supervisor *supervisor) {
  struct crew *crew = supervisor->crew;
  loop_timer_stop(crew->loop, &supervisor->guard);
  if (crew->free >= CREW_FREE) {
    crew_dismiss(supervisor);
    return;
  }
  crew_state_set(supervisor, CREW_STATE_FREE);
  if (crew->free > 1)
    loop_timer_set(crew->loop, &crew->idle, clock_boot() + CREW_IDLE);
}

/* What has left the supervisor's tree, where the kernel lets it. */
static void crew_kill_marked(const struct crew_supervisor *supervisor) {
  char mark[SUPERVISOR_MARK_SIZE];
  if (!supervisor->crew->options.marks)
    return;
  snprintf(mark, sizeof mark, SUPERVISOR_MARK, supervisor->mark);
  descend_kill_marked(&supervisor->crew->descend, mark);
}

static void crew_tell_ended(struct crew_supervisor *supervisor, enum crew_ended ended, int status) {
  crew_state_set(supervisor, CREW_STATE_ENDED);
  if (supervisor->killing)
    crew_kill_marked(supervisor);
  supervisor->ended(supervisor->context, ended, status);
}

static void crew_report(struct crew_supervisor *supervisor, const struct supervisor_report *report) {
  supervisor->clean = report->clean;
  if (report->clean)
    loop_timer_stop(supervisor->crew->loop, &supervisor->guard);
  if (supervisor->state == CREW_STATE_LINGERING && report->clean)
    crew_recycle(supervisor);
  if (supervisor->state != CREW_STATE_BUSY)
    return;
  if (report->news != SUPERVISOR_CLEAN) {
    supervisor->over = true;
    supervisor->status = report->status;
  }
  /* It may have ended by itself just before it was told to die: then its end is told when the rest is dead, too. */
  if (report->clean || !supervisor->killing)
    crew_tell_ended(supervisor, report->news == SUPERVISOR_FAILED ? CREW_FAILED : CREW_ENDED, supervisor->status);
}

/* One report. Returns false if there is none; *over then says that none will come. */
static bool crew_receive(struct crew_supervisor *supervisor, bool *over) {
  struct supervisor_report report;
  ssize_t length = recv(supervisor->socket.descriptor, &report, sizeof report, MSG_DONTWAIT);
  *over = length >= 0 || (errno != EAGAIN && errno != EINTR);
  if (length != (ssize_t)sizeof report)
    return false;
  crew_report(supervisor, &report);
  return true;
}

static void crew_socket_ready(void *context, uint32_t events) {
  struct crew_supervisor *supervisor = context;
  bool over;
  (void)events;
  if (!crew_receive(supervisor, &over) && over) {
    crew_socket_close(supervisor);
    kill(supervisor->pid, SIGKILL); /* dead already; the rest follows when it is reaped */
  }
}

/* --- children --- */

static struct crew_supervisor *crew_find(const struct crew *crew, pid_t pid) {
  struct crew_supervisor *supervisor = crew->all;
  while (supervisor && supervisor->pid != pid)
    supervisor = supervisor->next;
  return supervisor;
}

/* A supervisor died, perhaps with its last word still unread. What it had has become our child. */
static void crew_supervisor_died(struct crew_supervisor *supervisor) {
  struct crew *crew = supervisor->crew;
  bool over;
  while (supervisor->socket.descriptor >= 0 && crew_receive(supervisor, &over))
    ;
  enum crew_state state = supervisor->state;
  if (state != CREW_STATE_LEAVING && state != CREW_STATE_FREE && !supervisor->clean) {
    crew->purging = !crew->options.marks;
    crew_kill_marked(supervisor);
  }
  supervisor->pid = 0;
  supervisor->clean = true;
  loop_timer_stop(crew->loop, &supervisor->guard);
  crew_socket_close(supervisor);
  if (state == CREW_STATE_BUSY) {
    crew_tell_ended(supervisor, supervisor->over ? CREW_ENDED : CREW_LOST, supervisor->status);
  } else if (state != CREW_STATE_ENDED) {
    crew_supervisor_free(supervisor);
  }
}

/* One round against the children that are no supervisors; each death among them brings the next. */
static void crew_purge(struct crew *crew) {
  pid_t spared[CREW_SUPERVISORS];
  size_t count = 0;
  for (struct crew_supervisor *supervisor = crew->all; supervisor; supervisor = supervisor->next)
    if (supervisor->pid && count < CREW_SUPERVISORS)
      spared[count++] = supervisor->pid;
  size_t killed = descend_kill(&crew->descend, getpid(), spared, count);
  crew->purging = killed > 0;
}

static void crew_children_ready(void *context, uint32_t events) {
  struct crew *crew = context;
  struct signalfd_siginfo information;
  (void)events;
  if (read(crew->children, &information, sizeof information) < 0)
    return;
  for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG | __WALL)) > 0;) {
    struct crew_supervisor *supervisor = crew_find(crew, pid);
    if (supervisor)
      crew_supervisor_died(supervisor);
  }
  if (crew->purging)
    crew_purge(crew);
}

/* Asked of a child: old gVisor says yes to pid 1, which is one anyway, and no to everybody else. */
static bool crew_can_subreap(void) {
  int status = 1;
  pid_t child = vfork();
  if (child == 0)
    _exit(prctl(PR_SET_CHILD_SUBREAPER, 1) ? 1 : 0);
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int crew_init(struct crew *crew, struct loop *loop, const struct crew_options *options, struct error **err) {
  sigset_t all, child;
  *crew = (struct crew){.loop = loop, .leftovers.loop = loop, .idle = {.fired = crew_idle, .context = crew}};
  crew->options = (struct supervisor_options){.environment = options->environment, .files = options->files,
                                              .scan = options->scan};
  oom_score_init(&crew->oom_score, options->oom_score);
  descend_open(&crew->descend, options->scan);
  prctl(PR_SET_CHILD_SUBREAPER, !options->marks);
  crew->options.marks = options->marks || !crew_can_subreap();
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, NULL);
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  crew->children = signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
  if (crew->children < 0)
    return error_set_errno(err, errno, "signalfd");
  crew->children_watch = (struct loop_watch){.descriptor = crew->children, .ready = crew_children_ready,
                                             .context = crew};
  if (loop_watch_set(loop, &crew->children_watch, EPOLLIN))
    return error_set_errno(err, errno, "epoll_ctl");
  return 0;
}

void crew_end(struct crew *crew) {
  sigset_t child;
  if (crew->options.marks)
    descend_kill_marked(&crew->descend, SUPERVISOR_MARK_NAME);
  const struct timespec patience = {.tv_nsec = 100 * CLOCK_MILLISECOND};
  int64_t limit = clock_boot() + CLOCK_SECOND;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  for (;;) {
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG | __WALL)) > 0)
      ;
    if (pid < 0 || clock_boot() > limit)
      break;
    descend_kill(&crew->descend, getpid(), NULL, 0);
    sigtimedwait(&child, NULL, &patience);
  }
  while (crew->all)
    crew_supervisor_free(crew->all);
  loop_timer_stop(crew->loop, &crew->idle);
  leftovers_free(&crew->leftovers);
  loop_watch_set(crew->loop, &crew->children_watch, 0);
  close(crew->children);
  descend_close(&crew->descend);
}

/* --- commands --- */

void crew_prepare(struct crew *crew) {
  if (crew->free)
    return;
  struct crew_supervisor *supervisor = crew_supervisor_new(crew);
  if (supervisor)
    crew_state_set(supervisor, CREW_STATE_FREE);
}

/* A text too long for an argument goes into a file that has no name; the shell closes it as its first act. Returns -1
 * with errno. */
static int crew_script(const char *text, size_t length) {
  static const char head[] = "exec 3<&-; ";
  int file = memfd_create("script", MFD_CLOEXEC);
  if (file < 0)
    return -1;
  ssize_t written = write(file, head, sizeof head - 1);
  while (written > 0 && length) {
    written = write(file, text, length);
    text += written > 0 ? written : 0;
    length -= written > 0 ? (size_t)written : 0;
  }
  if (written > 0)
    return file;
  close(file);
  return -1;
}

static void crew_mark(struct crew_supervisor *supervisor) {
  supervisor->mark = ++supervisor->crew->marks;
  supervisor->killing = supervisor->over = false;
  supervisor->status = 0;
}

/* A free one, which a command may have stopped or killed, or a new one. It gets the command. */
static struct crew_supervisor *crew_dispatch(struct crew *crew, const char *text, const int *descriptors, int script) {
  for (struct crew_supervisor *next, *supervisor = crew->all; supervisor; supervisor = next) {
    next = supervisor->next;
    if (supervisor->state != CREW_STATE_FREE)
      continue;
    kill(supervisor->pid, SIGCONT);
    crew_state_set(supervisor, CREW_STATE_BUSY);
    crew_mark(supervisor);
    if (supervisor->socket.descriptor >= 0 && !crew_send(supervisor, SUPERVISOR_START, 0, text, descriptors, script))
      return supervisor;
    crew_state_set(supervisor, CREW_STATE_LEAVING);
  }
  struct crew_supervisor *supervisor = crew_supervisor_new(crew);
  if (supervisor)
    crew_mark(supervisor);
  if (!supervisor || !crew_send(supervisor, SUPERVISOR_START, 0, text, descriptors, script))
    return supervisor;
  kill(supervisor->pid, SIGKILL);
  crew_state_set(supervisor, CREW_STATE_LEAVING);
  return NULL;
}

struct crew_supervisor *crew_start(struct crew *crew, const char *text, size_t length, const int descriptors[static 3],
                                   crew_command_ended *ended, void *context, struct error **err) {
  int script = -1;
  if (crew->busy >= CREW_COMMANDS) {
    error_set_detail(err, REASON_SANDBOX_NOT_READY, "%d commands run already", CREW_COMMANDS);
    return NULL;
  }
  if (length > SCRIPT_ARGUMENT_BYTES) {
    script = crew_script(text, length);
    if (script < 0) {
      error_set_errno(err, errno, "memfd_create");
      return NULL;
    }
    text = CREW_SCRIPT_TEXT;
  }
  struct crew_supervisor *supervisor = crew_dispatch(crew, text, descriptors, script);
  int number = errno;
  if (script >= 0)
    close(script);
  if (!supervisor) {
    error_set_errno(err, number, "a supervisor cannot be started");
    return NULL;
  }
  supervisor->clean = false;
  supervisor->ended = ended;
  supervisor->context = context;
  return supervisor;
}

void crew_signal(struct crew_supervisor *supervisor, int number) {
  if (supervisor->pid && supervisor->state == CREW_STATE_BUSY)
    crew_send(supervisor, SUPERVISOR_SIGNAL, number, NULL, NULL, -1);
}

/* The supervisor has not killed everything yet: a command has stopped it, or there is very much. */
static void crew_guard_fired(void *context) {
  struct crew_supervisor *supervisor = context;
  struct crew *crew = supervisor->crew;
  if (!supervisor->pid)
    return;
  if (supervisor->helped++ == CREW_HELP) {
    kill(supervisor->pid, SIGKILL);
    return;
  }
  descend_kill(&crew->descend, supervisor->pid, NULL, 0);
  kill(supervisor->pid, SIGCONT);
  loop_timer_set(crew->loop, &supervisor->guard, clock_boot() + CREW_GUARD);
}

void crew_kill(struct crew_supervisor *supervisor) {
  supervisor->killing = true;
  crew_kill_marked(supervisor);
  if (!supervisor->pid || supervisor->clean)
    return;
  kill(supervisor->pid, SIGCONT);
  crew_send(supervisor, SUPERVISOR_KILL, 0, NULL, NULL, -1);
  supervisor->helped = 0;
  loop_timer_set(supervisor->crew->loop, &supervisor->guard, clock_boot() + CREW_GUARD);
}

/* Too many linger: the one that has done so longest goes, and its processes become ours. */
static void crew_retire(struct crew *crew) {
  struct crew_supervisor *oldest = NULL;
  for (struct crew_supervisor *supervisor = crew->all; supervisor; supervisor = supervisor->next)
    if (supervisor->state == CREW_STATE_LINGERING && (!oldest || supervisor->released < oldest->released))
      oldest = supervisor;
  if (!oldest)
    return;
  crew_state_set(oldest, CREW_STATE_LEAVING);
  kill(oldest->pid, SIGCONT);
  if (oldest->socket.descriptor >= 0)
    crew_send(oldest, SUPERVISOR_LEAVE, 0, NULL, NULL, -1);
}

void crew_release(struct crew_supervisor *supervisor, const int pipes[static 2]) {
  struct crew *crew = supervisor->crew;
  for (int i = 0; i < 2; i++)
    if (supervisor->clean && !crew->options.marks && pipes[i] >= 0)
      close(pipes[i]); /* nobody is left to write */
    else
      leftovers_take(&crew->leftovers, pipes[i]);
  if (!supervisor->pid) {
    crew_supervisor_free(supervisor);
    return;
  }
  if (supervisor->clean) {
    crew_recycle(supervisor);
    return;
  }
  supervisor->released = ++crew->released;
  crew_state_set(supervisor, CREW_STATE_LINGERING);
  if (crew->lingering > CREW_LINGERING)
    crew_retire(crew);
}
