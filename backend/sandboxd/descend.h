/*
 * Kills all descendants of a process, whatever sessions and groups they moved to. The caller is a child subreaper: a
 * process whose parent dies becomes its child, so nobody can leave the tree. One call is one round; processes may fork
 * while it runs. The caller goes on after each child that it reaps, until it has none left: every process that a round
 * missed has become a child by then. Nothing is waited for here.
 */
#ifndef BACKEND_SANDBOXD_DESCEND_H
#define BACKEND_SANDBOXD_DESCEND_H

#include <stdbool.h>
#include <sys/types.h>

struct descend {
  int proc;  /* /proc, O_PATH; -1: nothing can be found */
  bool scan; /* the kernel has no /proc/PID/task/TID/children: look at the parent of every process */
};

/* Opens /proc. scan: do without the children lists. Never fails; without /proc nothing is found. */
void descend_open(struct descend *descend, bool scan);
void descend_close(struct descend *descend);

/* Sends SIGKILL to every descendant of `root` found now, except `spared` children of root and what is below them.
 * Returns how many. */
size_t descend_kill(const struct descend *descend, pid_t root, const pid_t *spared, size_t spared_count);

/* For kernels without child subreapers (old gVisor), where a process whose parent dies is lost to the tree: sends
 * SIGKILL to every process whose environment holds `mark`, a whole "NAME=value" or the begin of one; again and again
 * while there are some, but not for ever. A process that hides its environment escapes; it dies with the sandbox. */
void descend_kill_marked(const struct descend *descend, const char *mark);

#endif
