/*
 * sandboxd: the program inside a sandbox. This file reads its arguments and makes the process hard to disturb; agent.c
 * does the work. As pid 1 of a pid namespace it cannot be killed or stopped from inside; it is never dumpable, so it
 * cannot be traced, and its memory and descriptors cannot be read.
 */
#include "backend/sandboxd/agent.h"
#include "backend/sandboxd/connect.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAIN_VERSION "0.1.0"
#define MAIN_FILES 8192 /* descriptors that sandboxd wants for itself */

static const char main_usage[] =
    "usage: sandboxd serve (--listen-fd N | --stdio) [--workspace DIR] [--memory-events FILE]\n"
    "       sandboxd connect [--digest SHA256] [--name NAME] [--workspace DIR] [--memory-events FILE]\n"
    "       sandboxd --version\n"
    "\n"
    "  --listen-fd N         serve on this inherited, listening unix socket\n"
    "  --stdio               serve one connection on standard input and output, and end with it\n"
    "  --digest SHA256       fail unless this program's SHA-256 is this one\n"
    "  --name NAME           another sandboxd of this user and container than the usual one\n"
    "  --workspace DIR       where files are read and written (default /workspace)\n"
    "  --memory-events FILE  the control group's memory.events or memory.oom_control\n"
    "  --without-openat2     walk paths component by component\n"
    "  --without-children    find processes by their parents, not by /proc/PID/task/TID/children\n"
    "  --without-subreaper   find the processes of a command by a mark in their environment\n";

struct main_arguments {
  struct agent_options agent;
  struct crew_options crew;
  bool stdio;
  bool connect;
  const char *digest, *name; /* NULL: not given */
};

static int main_wrong(const char *what, const char *argument) {
  fprintf(stderr, "sandboxd: %s%s\n%s", what, argument, main_usage);
  return -1;
}

static int main_parse_descriptor(const char *text, int *descriptor) {
  char *end;
  errno = 0;
  long number = strtol(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || errno || number > 1000000 || fcntl((int)number, F_GETFD) < 0)
    return main_wrong("--listen-fd must be an open descriptor, not ", text);
  *descriptor = (int)number;
  return 0;
}

/* An option that takes a value; value NULL: it is missing. */
static int main_parse_value(struct main_arguments *arguments, const char *option, const char *value) {
  const struct {
    const char *option;
    const char **value;
  } texts[] = {{"--workspace", &arguments->agent.workspace},
               {"--memory-events", &arguments->agent.memory_events},
               {"--digest", arguments->connect ? &arguments->digest : NULL},
               {"--name", arguments->connect ? &arguments->name : NULL}};
  const char **place = NULL;
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    place = !strcmp(option, texts[i].option) ? texts[i].value : place;
  bool listen = !strcmp(option, "--listen-fd") && !arguments->connect;
  if ((!place && !listen) || !value)
    return main_wrong(place || listen ? "a value is missing behind " : "unknown argument ", option);
  if (listen)
    return main_parse_descriptor(value, &arguments->agent.listener);
  *place = value;
  return 0;
}

/* What must be together, and what must not. */
static int main_check(const struct main_arguments *arguments) {
  if (arguments->name && strlen(arguments->name) > CONNECT_NAME_BYTES)
    return main_wrong("--name must be at most 32 bytes, not ", arguments->name);
  if (!arguments->connect && arguments->stdio == (arguments->agent.listener >= 0))
    return main_wrong("exactly one of --listen-fd and --stdio is needed", "");
  return 0;
}

static int main_parse(struct main_arguments *arguments, int count, char **texts) {
  arguments->connect = count >= 2 && !strcmp(texts[1], "connect");
  if (!arguments->connect && (count < 2 || strcmp(texts[1], "serve")))
    return main_wrong("the first argument must be serve, connect or --version", "");
  for (int i = 2; i < count; i++) {
    if (!strcmp(texts[i], "--stdio") && !arguments->connect)
      arguments->stdio = true;
    else if (!strcmp(texts[i], "--without-openat2"))
      arguments->agent.walk = true;
    else if (!strcmp(texts[i], "--without-children"))
      arguments->crew.scan = true;
    else if (!strcmp(texts[i], "--without-subreaper"))
      arguments->crew.marks = true;
    else if (main_parse_value(arguments, texts[i], i + 1 < count ? texts[i + 1] : NULL))
      return -1;
    else
      i++;
  }
  return main_check(arguments);
}

/* Moves a descriptor to 10 or above. */
static int main_lift(int descriptor) { return fcntl(descriptor, F_DUPFD_CLOEXEC, 10); }

/* What came with us and is not ours must not reach commands, nor keep anything open: all is closed but standard error
 * and what is served on. Standard input and output become /dev/null. */
static int main_take_descriptors(struct main_arguments *arguments) {
  struct agent_options *agent = &arguments->agent;
  int score = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
  int first = 3;
  const struct {
    int from, *to;
  } wanted[] = {{arguments->stdio ? 0 : -1, &agent->input},
                {arguments->stdio ? 1 : -1, &agent->output},
                {agent->listener, &agent->listener},
                {score, &arguments->crew.oom_score}};
  int lifted[4];
  for (int i = 0; i < 4; i++) {
    lifted[i] = wanted[i].from < 0 ? -1 : main_lift(wanted[i].from);
    if (wanted[i].from >= 0 && lifted[i] < 0)
      return -1;
  }
  for (int i = 0; i < 4; i++) {
    *wanted[i].to = lifted[i] < 0 ? -1 : dup3(lifted[i], first, O_CLOEXEC);
    first += lifted[i] >= 0;
  }
  closefrom(first);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
    return -1;
  close(null);
  return 0;
}

/* Many descriptors for us; commands get the limit that we came with. */
static void main_raise_files(struct crew_options *crew) {
  if (getrlimit(RLIMIT_NOFILE, &crew->files))
    return;
  struct rlimit more = crew->files;
  if (more.rlim_cur < MAIN_FILES)
    more.rlim_cur = more.rlim_max < MAIN_FILES ? more.rlim_max : MAIN_FILES;
  setrlimit(RLIMIT_NOFILE, &more);
}

/* The environment of commands is ours, with what no command should be without. */
static char **main_environment(const char *workspace) {
  if (setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 0) ||
      setenv("HOME", workspace, 0) || setenv("LANG", "C.UTF-8", 0))
    return NULL;
  return environ;
}

static int main_harden(struct main_arguments *arguments) {
  if (main_take_descriptors(arguments))
    return -1;
  prctl(PR_SET_DUMPABLE, 0);
  signal(SIGPIPE, SIG_IGN);
  umask(022);
  main_raise_files(&arguments->crew);
  /* Freed memory goes back to the sandbox, and blocks of a transfer are reused without asking the kernel each time. */
  mallopt(M_MMAP_THRESHOLD, 192 << 10);
  mallopt(M_TRIM_THRESHOLD, 256 << 10);
  arguments->crew.environment = main_environment(arguments->agent.workspace);
  return arguments->crew.environment && !chdir("/") ? 0 : -1;
}

/* Returns the exit code of `sandboxd connect`; or, in a process of its own that is to serve, -1. */
static int main_connect(struct main_arguments *arguments, struct error **err) {
  if (arguments->digest && connect_verify(arguments->digest, err))
    return CONNECT_ANOTHER;
  int socket = connect_reach(arguments->name, &arguments->agent.listener, err);
  if (socket < 0)
    return 1;
  prctl(PR_SET_DUMPABLE, 0);
  arguments->agent.handover = true;
  if (arguments->agent.listener < 0)
    return connect_stay(socket);
  pid_t pid = fork();
  if (pid < 0) {
    error_set_errno(err, errno, "fork");
    return 1;
  }
  if (pid > 0) {
    close(arguments->agent.listener);
    return connect_stay(socket);
  }
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  return null >= 0 && setsid() > 0 && dup2(null, STDERR_FILENO) == STDERR_FILENO ? -1 : 1;
}

int main(int count, char **texts) {
  static struct agent agent;
  CLEANUP_ERROR struct error *err = NULL;
  struct main_arguments arguments = {.agent = {.workspace = "/workspace", .listener = -1, .input = -1, .output = -1}};
  arguments.agent.crew = &arguments.crew;
  if (count == 2 && !strcmp(texts[1], "--version")) {
    puts("sandboxd " MAIN_VERSION);
    return 0;
  }
  if (main_parse(&arguments, count, texts))
    return 2;
  if (arguments.connect) {
    int code = main_connect(&arguments, &err);
    if (err)
      log_write(LOG_ERROR, "connect_failed", LOG_DETAIL(err));
    if (code >= 0)
      return code;
  }
  if (main_harden(&arguments)) {
    log_write(LOG_ERROR, "start_failed", LOG_TEXT("detail", strerror(errno)));
    return 1;
  }
  if (agent_init(&agent, &arguments.agent, &err) || agent_run(&agent, &err)) {
    log_write(LOG_ERROR, "failed", LOG_DETAIL(err));
    return 1;
  }
  return 0;
}
