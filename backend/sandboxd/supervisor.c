/*
 * The supervisor process: see supervisor.h. It waits in one place, for a message or a dead child, and never blocks
 * elsewhere.
 */
#include "backend/sandboxd/supervisor.h"

#include "backend/sandboxd/descend.h"
#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SUPERVISOR_SOCKET 3    /* where its end of the pair is moved to */
#define SUPERVISOR_STACK 16384 /* bytes, of a child until it becomes the shell */

static struct {
  const struct supervisor_options *options;
  struct descend descend;
  sigset_t none;   /* for commands */
  sigset_t wait;   /* while waiting: all but SIGCHLD */
  pid_t command;   /* the main process; 0: none, or reaped */
  int status;
  bool ended;      /* `status` is still to be reported */
  bool lingering;  /* ENDED was reported, and descendants are left */
  bool killing;
  bool alone;      /* sandboxd is gone */
  char **environment; /* of the next command */
  char mark[SUPERVISOR_MARK_SIZE]; /* its first entry, where commands are marked */
  char text[SCRIPT_ARGUMENT_BYTES + 1];
} self;

static void supervisor_child_ended(int number) { (void)number; }

/* Without memory commands go unmarked. */
static void supervisor_prepare_environment(void) {
  size_t count = 0;
  self.environment = self.options->environment;
  while (self.environment[count])
    count++;
  char **marked = self.options->marks ? memory_array(count + 2, sizeof *marked) : NULL;
  if (!marked)
    return;
  memcpy(marked + 1, self.environment, count * sizeof *marked);
  marked[0] = self.mark;
  self.environment = marked;
}

static void supervisor_prepare(int socket, const struct supervisor_options *options) {
  self.options = options;
  if (socket != SUPERVISOR_SOCKET)
    dup3(socket, SUPERVISOR_SOCKET, O_CLOEXEC);
  closefrom(SUPERVISOR_SOCKET + 1);
  if (!options->marks)
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  supervisor_prepare_environment();
  setrlimit(RLIMIT_NOFILE, &options->files);
  /* Only ppoll lets the one signal through that wakes it; everything else that a command may send stays blocked. */
  sigemptyset(&self.none);
  sigfillset(&self.wait);
  sigdelset(&self.wait, SIGCHLD);
  signal(SIGPIPE, SIG_DFL);
  sigaction(SIGCHLD, &(struct sigaction){.sa_handler = supervisor_child_ended}, NULL);
  descend_open(&self.descend, options->scan);
}

static void supervisor_report(enum supervisor_news news, int status, bool clean) {
  struct supervisor_report report = {.news = news, .status = status, .clean = clean};
  send(SUPERVISOR_SOCKET, &report, sizeof report, MSG_NOSIGNAL);
}

/* What becomes the shell: on its way there it has all memory in common with the supervisor, which waits meanwhile. */
struct supervisor_child {
  const int *descriptors;
  size_t count;
  char *const *arguments;
  int failure; /* the errno of execve */
};

/* In the child: system calls only. Returns if the shell cannot be started. */
static int supervisor_exec(void *context) {
  struct supervisor_child *child = context;
  setsid();
  for (size_t i = 0; i < child->count; i++)
    dup2(child->descriptors[i], (int)i);
  sigprocmask(SIG_SETMASK, &self.none, NULL);
  execve("/bin/sh", child->arguments, self.environment);
  child->failure = errno;
  return 127;
}

/* As vfork, but the child has a stack of its own; and where a tool has put a fork in the place of vfork
 * (ThreadSanitizer does), nobody would wait for the failure, nor see it. */
static int supervisor_spawn(const int *descriptors, size_t count) {
  static _Alignas(16) char stack[SUPERVISOR_STACK];
  char name[] = "sh", flags[] = "-lc";
  char *const arguments[] = {name, flags, self.text, NULL};
  struct supervisor_child child = {.descriptors = descriptors, .count = count, .arguments = arguments};
  pid_t pid = clone(supervisor_exec, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &child);
  if (pid < 0)
    return errno;
  if (child.failure) {
    waitpid(pid, NULL, 0);
    return child.failure;
  }
  self.command = pid;
  return 0;
}

/* Descriptors for the shell must not be in the way of one another: each is moved above the places they go to. */
static int supervisor_lift(int *descriptors, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (descriptors[i] > SUPERVISOR_SCRIPT)
      continue;
    int lifted = fcntl(descriptors[i], F_DUPFD_CLOEXEC, SUPERVISOR_SCRIPT + 1);
    if (lifted < 0)
      return errno;
    close(descriptors[i]);
    descriptors[i] = lifted;
  }
  return 0;
}

static void supervisor_start(int *descriptors, size_t count) {
  int failure = count < 3 ? EBADF : supervisor_lift(descriptors, count);
  if (!failure)
    failure = supervisor_spawn(descriptors, count);
  for (size_t i = 0; i < count; i++)
    close(descriptors[i]);
  self.killing = false;
  if (failure)
    supervisor_report(SUPERVISOR_FAILED, failure, true);
}

static void supervisor_obey(const struct supervisor_request *request, int *descriptors, size_t count) {
  switch (request->order) {
  case SUPERVISOR_START:
    snprintf(self.mark, sizeof self.mark, SUPERVISOR_MARK, request->mark);
    supervisor_start(descriptors, count);
    break;
  case SUPERVISOR_SIGNAL:
    if (self.command)
      kill(-self.command, request->signal);
    break;
  case SUPERVISOR_KILL:
    self.killing = true;
    break;
  case SUPERVISOR_LEAVE:
    _exit(0);
  }
}

static void supervisor_receive(void) {
  struct supervisor_request request;
  union {
    char bytes[CMSG_SPACE(SUPERVISOR_DESCRIPTORS * sizeof(int))];
    struct cmsghdr header;
  } control;
  struct iovec parts[2] = {{&request, sizeof request}, {self.text, sizeof self.text}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2, .msg_control = &control,
                           .msg_controllen = sizeof control};
  ssize_t length = recvmsg(SUPERVISOR_SOCKET, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (length < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (length < (ssize_t)sizeof request) {
    self.alone = self.killing = true;
    return;
  }
  int descriptors[SUPERVISOR_DESCRIPTORS];
  size_t count = 0;
  struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
  if (rights && rights->cmsg_type == SCM_RIGHTS) {
    count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(descriptors, CMSG_DATA(rights), count * sizeof(int));
  }
  self.text[sizeof self.text - 1] = 0;
  supervisor_obey(&request, descriptors, count);
}

/* Reaps every child that died; tells what there is to tell. A round of killing follows each death until no child is
 * left. */
static void supervisor_reap(void) {
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0)
    if (pid == self.command) {
      self.command = 0;
      self.status = status;
      self.ended = true;
    }
  bool clean = pid < 0;
  if (!clean && self.killing) {
    descend_kill(&self.descend, getpid(), NULL, 0);
    return;
  }
  if (self.ended)
    supervisor_report(SUPERVISOR_ENDED, self.status, clean);
  else if (self.lingering && clean)
    supervisor_report(SUPERVISOR_CLEAN, 0, true);
  self.lingering = !clean && (self.lingering || self.ended);
  self.ended = false;
  if (!clean)
    return;
  self.killing = false;
  if (self.alone)
    _exit(0);
}

void supervisor_run(int socket, const struct supervisor_options *options) {
  supervisor_prepare(socket, options);
  for (;;) {
    struct pollfd wait = {.fd = self.alone ? -1 : SUPERVISOR_SOCKET, .events = POLLIN};
    if (ppoll(&wait, 1, NULL, &self.wait) > 0)
      supervisor_receive();
    supervisor_reap();
  }
}
