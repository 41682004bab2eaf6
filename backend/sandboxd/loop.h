/*
 * The one event loop of sandboxd: descriptors (epoll, level-triggered), timers on the boot clock (one timerfd) and
 * tasks that run at the end of the current round. No threads. Watches, timers and tasks are embedded in their owner's
 * struct, so that setting one allocates nothing; each must be stopped before its memory goes.
 */
#ifndef BACKEND_SANDBOXD_LOOP_H
#define BACKEND_SANDBOXD_LOOP_H

#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#define LOOP_BATCH 64

struct loop_watch {
  int descriptor;
  void (*ready)(void *context, uint32_t events);
  void *context;
  uint32_t events; /* the loop's: 0 while not watched */
};

struct loop_timer {
  void (*fired)(void *context);
  void *context;
  struct loop_timer *previous, *next; /* the loop's, as all below */
  int64_t at;
  bool armed;
};

struct loop_task {
  void (*run)(void *context);
  void *context;
  struct loop_task *previous, *next; /* the loop's, as all below */
  uint64_t round;
  bool queued;
};

struct loop {
  int epoll;
  int clock; /* timerfd */
  struct loop_watch clock_watch;
  int64_t clock_at; /* when the timerfd fires; INT64_MAX: not set */
  struct loop_timer *timers; /* soonest first */
  struct loop_timer *timers_last;
  struct loop_task *tasks, *tasks_last;
  uint64_t round;
  void (*settle)(void *context); /* NULL, or what is called at the end of each round, before waiting */
  void *settle_context;
  bool stopped;
  struct epoll_event batch[LOOP_BATCH];
  int batch_next, batch_count;
};

/* Returns 0, or -1 and *err. */
int loop_init(struct loop *loop, struct error **err);
void loop_free(struct loop *loop);

/* Calls `ready` while any of these EPOLL… events holds; 0 stops watching. To be stopped before the descriptor is
 * closed. EPOLLHUP and EPOLLERR come unasked. Returns 0, or -1 if the kernel refused (no memory). */
int loop_watch_set(struct loop *loop, struct loop_watch *watch, uint32_t events);
/* Calls `fired` once at this boot-clock time; may be set again to move it. */
void loop_timer_set(struct loop *loop, struct loop_timer *timer, int64_t at);
void loop_timer_stop(struct loop *loop, struct loop_timer *timer);
/* Calls `run` once when this round's events are done; a task queued by a task runs in the next round. */
void loop_task_queue(struct loop *loop, struct loop_task *task);
void loop_task_cancel(struct loop *loop, struct loop_task *task);

/* Runs until loop_stop. Returns 0, or -1 and *err. */
int loop_run(struct loop *loop, struct error **err);
void loop_stop(struct loop *loop);

#endif
