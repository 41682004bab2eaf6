/*
 * sandboxd's side of its supervisors: forks them, hands them commands, hears how those ended, and keeps a few that are
 * free for the next ones. What a command leaves behind when it ended by itself (a server it started, say) goes on
 * living under its supervisor until the sandbox ends; what it still writes to the command's pipes is read and dropped,
 * so that it does not die of SIGPIPE.
 *
 * A command may kill its own supervisor. Its processes then become sandboxd's children, and are killed; with them
 * whatever else is sandboxd's child and no supervisor: the leftovers of commands whose supervisors had to go because
 * too many of them lingered.
 */
#ifndef BACKEND_SANDBOXD_CREW_H
#define BACKEND_SANDBOXD_CREW_H

#include "backend/sandboxd/descend.h"
#include "backend/sandboxd/leftover.h"
#include "backend/sandboxd/loop.h"
#include "backend/sandboxd/oom_score.h"
#include "backend/sandboxd/supervisor.h"
#include "base/error.h"

#define CREW_COMMANDS 256 /* running at once */
#define CREW_LINGERING 64 /* supervisors that stay for leftovers alone */
#define CREW_FREE 8       /* supervisors kept free; a while after the last command, one */

enum crew_ended {
  CREW_ENDED,  /* with a wait status */
  CREW_FAILED, /* the shell could not be started: an errno */
  CREW_LOST,   /* the supervisor was killed */
};

/* Called once for a command; not before crew_start returns. */
typedef void crew_command_ended(void *context, enum crew_ended ended, int status);

struct crew_supervisor;

struct crew {
  struct loop *loop;
  struct supervisor_options options;
  struct descend descend;
  struct leftovers leftovers;
  struct crew_supervisor *all;
  size_t busy, lingering, free;
  int children; /* signalfd for SIGCHLD */
  struct loop_watch children_watch;
  bool purging;           /* children that are no supervisors are being killed */
  uint64_t released;      /* commands so far: tells which supervisor lingers longest */
  uint64_t marks;         /* the same, for marks */
  struct oom_score oom_score;
  struct loop_timer idle;
};

struct crew_options {
  char **environment; /* of every command; lives as long as the crew */
  struct rlimit files;
  bool scan;          /* see struct descend */
  bool marks; /* do without child subreapers: see descend_kill_marked; so too where the kernel has none */
  int oom_score; /* descriptor; see oom_score_init */
};

/* Blocks every signal; becomes a child subreaper. Returns 0, or -1 and *err. */
int crew_init(struct crew *crew, struct loop *loop, const struct crew_options *options, struct error **err);
/* Kills every command and everything that was left by former ones, and every supervisor; returns when they are dead,
 * after a second at the latest. */
void crew_end(struct crew *crew);
/* Forks a supervisor ahead of its command, if none is free. */
void crew_prepare(struct crew *crew);

/* Starts `sh -lc text`. descriptors: stdin, stdout, stderr; they stay the caller's. Returns NULL and *err:
 * SANDBOX_NOT_READY if CREW_COMMANDS run already, INTERNAL if the kernel refuses. */
struct crew_supervisor *crew_start(struct crew *crew, const char *text, size_t length, const int descriptors[static 3],
                                   crew_command_ended *ended, void *context, struct error **err);
/* To the command's process group. */
void crew_signal(struct crew_supervisor *supervisor, int number);
/* Kills the command and all its descendants; `ended` comes when all are dead. A supervisor that does not get there is
 * helped, and after five seconds given up: then `ended` says CREW_LOST. After `ended` (before crew_release) it kills
 * what was left, and nothing more comes. */
void crew_kill(struct crew_supervisor *supervisor);
/* The command is done with; after `ended` only. The read ends of its output pipes (-1: closed) are taken over. */
void crew_release(struct crew_supervisor *supervisor, const int pipes[static 2]);

#endif
