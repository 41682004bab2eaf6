/*
 * Makes commands likelier victims than sandboxd when the kernel must kill for lack of memory: a supervisor is forked
 * while our own score is raised, and commands inherit it. A preference: where it cannot be had, the kernel chooses by
 * size alone.
 */
#ifndef BACKEND_SANDBOXD_OOM_SCORE_H
#define BACKEND_SANDBOXD_OOM_SCORE_H

struct oom_score {
  int descriptor; /* our /proc/self/oom_score_adj; -1: it cannot be changed */
  int own, commands;
};

/* descriptor: opened for reading and writing, since a process that is not dumpable cannot open it any more; taken over.
 * -1: none. */
void oom_score_init(struct oom_score *score, int descriptor);
/* Around a fork. */
void oom_score_raise(const struct oom_score *score);
void oom_score_restore(const struct oom_score *score);

#endif
