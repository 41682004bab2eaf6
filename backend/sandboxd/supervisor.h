/*
 * The supervisor process: sandboxd forks it, and it runs one command at a time. It is the command's child subreaper, so
 * every descendant whose parent dies becomes its child: it can reap all of them and, told to, kill them to the last,
 * however they were forked. When nothing of a command is left it takes the next one; starting a command then costs one
 * clone. If sandboxd ends, a supervisor kills what it has and ends too.
 *
 * Both sides talk over a SOCK_SEQPACKET pair with the messages below. The commands run under the same uid and may kill
 * or stop a supervisor, but not trace it or reach its descriptors (it is not dumpable).
 */
#ifndef BACKEND_SANDBOXD_SUPERVISOR_H
#define BACKEND_SANDBOXD_SUPERVISOR_H

#include "backend/sandboxd/script.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

enum supervisor_order {
  /* With the text for `sh -lc`, its NUL included, and descriptors: stdin, stdout, stderr, perhaps a script. */
  SUPERVISOR_START = 1,
  /* To the command's process group, if its main process was not reaped yet. */
  SUPERVISOR_SIGNAL,
  /* Every descendant; ENDED or CLEAN comes when none is left. Without any descendant nothing comes. */
  SUPERVISOR_KILL,
  /* Exit without killing: the descendants become sandboxd's. */
  SUPERVISOR_LEAVE,
};

struct supervisor_request {
  uint32_t order;
  int32_t signal;
  uint64_t mark; /* START, where options say so: the command's environment gets SUPERVISOR_MARK with this number */
};

#define SUPERVISOR_MARK_NAME "SANDBOXD_COMMAND="
#define SUPERVISOR_MARK SUPERVISOR_MARK_NAME "%" PRIu64 "." /* the point ends it: no mark is the begin of another */
#define SUPERVISOR_MARK_SIZE 48

/* A script too long for an argument comes as a file, under this descriptor in the shell. */
#define SUPERVISOR_SCRIPT 3
#define SUPERVISOR_DESCRIPTORS 4

enum supervisor_news {
  SUPERVISOR_ENDED = 1, /* the main process ended with this wait status */
  SUPERVISOR_CLEAN,     /* the last descendant that was left after ENDED is gone */
  SUPERVISOR_FAILED,    /* the shell could not be started: `status` is an errno */
};

struct supervisor_report {
  uint32_t news;
  int32_t status;
  uint32_t clean; /* no descendant is left: the next command may come */
};

struct supervisor_options {
  char **environment;       /* of every command, NULL at its end */
  struct rlimit files;      /* RLIMIT_NOFILE of every command */
  bool scan;                /* see struct descend */
  bool marks;               /* the kernel has no child subreapers: see descend_kill_marked */
};

/* The life of a supervisor, right after fork and with all signals blocked; `socket` is its end of the pair. */
void supervisor_run(int socket, const struct supervisor_options *options) __attribute__((noreturn));

#endif
