/*
 * The first process of a pid namespace: of every Pod, and of a cluster itself. It does nothing but take over orphans
 * and end on SIGTERM or SIGINT; when it ends, the kernel ends everything else in the namespace.
 */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

int main(void) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  if (sigprocmask(SIG_BLOCK, &signals, NULL) != 0)
    return 1;
  for (;;) {
    int number = sigwaitinfo(&signals, NULL);
    if (number == SIGTERM || number == SIGINT)
      return 0;
    while (waitpid(-1, NULL, WNOHANG) > 0)
      continue;
  }
}
