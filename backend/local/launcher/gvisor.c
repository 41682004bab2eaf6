/*
 * gVisor. The launcher has entered a user namespace with its own pid, mount, network, ipc and uts namespace; here it
 * forks the keeper, the first process of that pid namespace. The keeper runs runsc, becomes the parent of everything
 * runsc leaves behind, and ends when gVisor's kernel (the "sandbox" process) ends. So gVisor gets the same life as
 * bubblewrap: killing one process ends all of it, and runsc's state lies on the scaffold's tmpfs, which goes with it.
 * `runsc delete` is never needed.
 *
 * The keeper also holds the Lease's deadline. Under gVisor a command may stop the agent; nothing of a sandbox reaches
 * the keeper.
 */
#include "backend/local/launcher/launch.h"
#include "backend/local/protocol.h"
#include "base/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BUNDLE LAUNCH_SCAFFOLD "/bundle"
#define STATE LAUNCH_SCAFFOLD "/runsc"
#define PID_FILE STATE "/pid"
#define CONFIG_LIMIT 16384

static int write_config(const struct launch *launch, struct error **err) {
  CLEANUP_BUFFER struct buffer config;
  buffer_init(&config, CONFIG_LIMIT);
  if (launch_config(launch, &config) != 0)
    return error_set_memory(err);
  int file = open(BUNDLE "/config.json", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0)
    return error_set_errno(err, errno, "cannot make the bundle");
  ssize_t written = write(file, config.data, config.length);
  int number = errno;
  close(file);
  if (written != (ssize_t)config.length)
    return error_set_errno(err, number, "cannot write the bundle");
  return 0;
}

/* In the child of the keeper. Standard output is the pipe on which the guest says that it listens. */
static void execute_runsc(const struct launch *launch, int output) {
  char platform[32] = "--rootless";
  if (launch->platform != NULL)
    snprintf(platform, sizeof platform, "--platform=%s", launch->platform);
  char *const arguments[] = {"runsc", "--rootless", platform, "--root=" STATE, "--network=none", "--host-uds=create",
                             "--ignore-cgroups", "--overlay2=none", "run", "--detach",
                             "--bundle=" BUNDLE, "--pid-file=" PID_FILE, "sandbox", NULL};
  sigset_t none;
  sigemptyset(&none);
  if (dup2(output, STDOUT_FILENO) < 0 || sigprocmask(SIG_SETMASK, &none, NULL) != 0)
    _exit(1);
  for (int file = LAUNCH_FD_LISTEN; file < LAUNCH_FD_COUNT; file++)
    close(file);
  /* runsc looks for its own home; there is none. */
  static char *const environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" STATE, "XDG_RUNTIME_DIR=" STATE,
                                      NULL};
  execveat(launch->program_file, "", arguments, environment, AT_EMPTY_PATH);
  fprintf(stderr, "sandbox-launcher: cannot execute %s: %s\n", launch->program, strerror(errno));
  _exit(1);
}

static int run_runsc(const struct launch *launch, struct error **err) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0)
    return error_set_errno(err, errno, "cannot make a pipe");
  pid_t child = fork();
  if (child == 0)
    execute_runsc(launch, pipe_ends[1]);
  int number = errno;
  close(pipe_ends[1]);
  int status = -1;
  char byte = 0;
  ssize_t got = -1;
  if (child > 0 && waitpid(child, &status, 0) == child && status == 0)
    got = read(pipe_ends[0], &byte, 1);
  close(pipe_ends[0]);
  if (child < 0)
    return error_set_errno(err, number, "cannot fork");
  if (status != 0)
    return error_set_detail(err, REASON_SANDBOX_START_FAILED, "runsc failed");
  if (got != 1)
    return error_set_detail(err, REASON_SANDBOX_START_FAILED, "the guest did not start");
  return 0;
}

static pid_t read_pid_file(void) {
  char text[16] = "";
  int file = open(PID_FILE, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return -1;
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  return length > 0 ? (pid_t)strtol(text, NULL, 10) : -1;
}

/* What the keeper waits for. All of it is blocked before runsc starts, so that nothing is lost. */
static void keeper_signals(sigset_t *signals) {
  sigemptyset(signals);
  sigaddset(signals, SIGCHLD);
  sigaddset(signals, SIGALRM);
  sigaddset(signals, LAUNCH_SIGNAL_DEADLINE);
}

/* Collects what runsc left to us. Returns true once gVisor's kernel has ended. */
static bool collect(pid_t kernel) {
  pid_t ended;
  while ((ended = waitpid(-1, NULL, WNOHANG)) > 0)
    if (ended == kernel)
      return true;
  return ended < 0 && errno != EINTR;
}

static void set_deadline(timer_t timer, int milliseconds) {
  int left = milliseconds > 0 ? milliseconds : 1;
  struct itimerspec when = {.it_value = {.tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000L}};
  timer_settime(timer, 0, &when, NULL);
}

/* Until gVisor's kernel ends or the deadline has come. */
static int keep(pid_t kernel, const sigset_t *signals, struct error **err) {
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
  timer_t timer;
  siginfo_t info;
  if (timer_create(CLOCK_BOOTTIME, &event, &timer) != 0)
    return error_set_errno(err, errno, "cannot make a timer");
  while (!collect(kernel)) {
    int number = sigwaitinfo(signals, &info);
    if (number == SIGALRM)
      return 0;
    if (number == LAUNCH_SIGNAL_DEADLINE)
      set_deadline(timer, info.si_value.sival_int);
  }
  return 0;
}

static int be_keeper(const struct launch *launch, struct error **err) {
  /* The server may be gone when it is told; that must not end the sandbox. */
  signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  keeper_signals(&signals);
  if (sigprocmask(SIG_BLOCK, &signals, NULL) != 0)
    return error_set_errno(err, errno, "cannot block signals");
  if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0)
    return error_set_errno(err, errno, "cannot mount /proc");
  if (write_config(launch, err) != 0 || run_runsc(launch, err) != 0)
    return -1;
  pid_t kernel = read_pid_file();
  if (kernel <= 0)
    return error_set_detail(err, REASON_SANDBOX_START_FAILED, "runsc named no process");
  (void)!write(LAUNCH_FD_READY, "1", 1);
  close(LAUNCH_FD_READY);
  return keep(kernel, &signals, err);
}

static int report(pid_t keeper, struct error **err) {
  char text[64];
  int length = snprintf(text, sizeof text, "{\"child-pid\":%d}\n", (int)keeper);
  if (write(LAUNCH_FD_REPORT, text, (size_t)length) != length)
    return error_set_errno(err, errno, "cannot report");
  return 0;
}

int launch_gvisor(const struct launch *launch, struct error **err) {
  pid_t keeper = fork();
  if (keeper < 0)
    return error_set_errno(err, errno, "cannot fork the keeper");
  if (keeper == 0)
    return be_keeper(launch, err);
  if (report(keeper, err) != 0) {
    kill(keeper, SIGKILL);
    return -1;
  }
  launch_untie();
  for (int file = LAUNCH_FD_LISTEN; file < LAUNCH_FD_COUNT; file++)
    close(file);
  int status = 0;
  while (waitpid(keeper, &status, 0) < 0 && errno == EINTR)
    ;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0
             ? 0
             : error_set_detail(err, REASON_SANDBOX_START_FAILED, "gVisor ended");
}
