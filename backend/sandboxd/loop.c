/*
 * The event loop: see loop.h. Timers are a sorted list: a new one is nearly always the latest, or sooner than most.
 */
#include "backend/sandboxd/loop.h"

#include "base/clock.h"
#include <errno.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static void loop_clock_ready(void *context, uint32_t events) {
  struct loop *loop = context;
  uint64_t expirations;
  (void)events;
  if (read(loop->clock, &expirations, sizeof expirations) < 0 && errno == EAGAIN)
    return;
  loop->clock_at = INT64_MAX;
}

int loop_init(struct loop *loop, struct error **err) {
  memset(loop, 0, sizeof *loop);
  loop->clock_at = INT64_MAX;
  loop->clock = -1;
  loop->epoll = epoll_create1(EPOLL_CLOEXEC);
  if (loop->epoll < 0)
    return error_set_errno(err, errno, "epoll_create1");
  loop->clock = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
  if (loop->clock < 0)
    return error_set_errno(err, errno, "timerfd_create");
  loop->clock_watch = (struct loop_watch){.descriptor = loop->clock, .ready = loop_clock_ready, .context = loop};
  if (loop_watch_set(loop, &loop->clock_watch, EPOLLIN))
    return error_set_errno(err, errno, "epoll_ctl");
  return 0;
}

void loop_free(struct loop *loop) {
  if (loop->clock >= 0)
    close(loop->clock);
  if (loop->epoll >= 0)
    close(loop->epoll);
  loop->clock = loop->epoll = -1;
}

/* Events of the current batch that were not yet delivered must not reach a watch that was stopped. */
static void loop_batch_forget(struct loop *loop, const struct loop_watch *watch) {
  for (int i = loop->batch_next; i < loop->batch_count; i++)
    if (loop->batch[i].data.ptr == watch)
      loop->batch[i].data.ptr = NULL;
}

int loop_watch_set(struct loop *loop, struct loop_watch *watch, uint32_t events) {
  if (events == watch->events)
    return 0;
  if (!events) {
    loop_batch_forget(loop, watch);
    watch->events = 0;
    epoll_ctl(loop->epoll, EPOLL_CTL_DEL, watch->descriptor, NULL);
    return 0;
  }
  struct epoll_event event = {.events = events, .data.ptr = watch};
  if (epoll_ctl(loop->epoll, watch->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, watch->descriptor, &event))
    return -1;
  watch->events = events;
  return 0;
}

/* Makes the timerfd fire at the soonest timer. Firing too early does no harm, so it is only ever moved forward. */
static void loop_clock_arm(struct loop *loop) {
  if (!loop->timers || loop->timers->at >= loop->clock_at)
    return;
  int64_t at = loop->timers->at > 0 ? loop->timers->at : 1;
  struct itimerspec when = {.it_value = {.tv_sec = at / CLOCK_SECOND, .tv_nsec = at % CLOCK_SECOND}};
  if (!timerfd_settime(loop->clock, TFD_TIMER_ABSTIME, &when, NULL))
    loop->clock_at = at;
}

/* The last timer that comes no later, or NULL. Looked for from the nearer end: behind the few that are due soon come
 * those of all commands that are remembered. */
static struct loop_timer *loop_timer_before(const struct loop *loop, int64_t at) {
  if (!loop->timers || loop->timers->at > at)
    return NULL;
  struct loop_timer *before = loop->timers;
  if (at - loop->timers->at < loop->timers_last->at - at) {
    while (before->next && before->next->at <= at)
      before = before->next;
    return before;
  }
  before = loop->timers_last;
  while (before->at > at)
    before = before->previous;
  return before;
}

void loop_timer_set(struct loop *loop, struct loop_timer *timer, int64_t at) {
  loop_timer_stop(loop, timer);
  timer->at = at;
  timer->armed = true;
  struct loop_timer *before = loop_timer_before(loop, at);
  timer->previous = before;
  timer->next = before ? before->next : loop->timers;
  *(timer->previous ? &timer->previous->next : &loop->timers) = timer;
  *(timer->next ? &timer->next->previous : &loop->timers_last) = timer;
}

void loop_timer_stop(struct loop *loop, struct loop_timer *timer) {
  if (!timer->armed)
    return;
  *(timer->previous ? &timer->previous->next : &loop->timers) = timer->next;
  *(timer->next ? &timer->next->previous : &loop->timers_last) = timer->previous;
  timer->armed = false;
}

static void loop_timers_run(struct loop *loop) {
  if (!loop->timers)
    return;
  int64_t now = clock_boot();
  while (loop->timers && loop->timers->at <= now) {
    struct loop_timer *timer = loop->timers;
    loop_timer_stop(loop, timer);
    timer->fired(timer->context);
  }
}

void loop_task_queue(struct loop *loop, struct loop_task *task) {
  if (task->queued)
    return;
  task->queued = true;
  task->round = loop->round;
  task->previous = loop->tasks_last;
  task->next = NULL;
  *(task->previous ? &task->previous->next : &loop->tasks) = task;
  loop->tasks_last = task;
}

void loop_task_cancel(struct loop *loop, struct loop_task *task) {
  if (!task->queued)
    return;
  *(task->previous ? &task->previous->next : &loop->tasks) = task->next;
  *(task->next ? &task->next->previous : &loop->tasks_last) = task->previous;
  task->queued = false;
}

static void loop_tasks_run(struct loop *loop) {
  loop->round++;
  while (loop->tasks && loop->tasks->round != loop->round) {
    struct loop_task *task = loop->tasks;
    loop_task_cancel(loop, task);
    task->run(task->context);
  }
}

static void loop_batch_run(struct loop *loop) {
  for (loop->batch_next = 0; loop->batch_next < loop->batch_count;) {
    struct epoll_event *event = &loop->batch[loop->batch_next++];
    struct loop_watch *watch = event->data.ptr;
    if (watch)
      watch->ready(watch->context, event->events);
  }
  loop->batch_next = loop->batch_count = 0;
}

int loop_run(struct loop *loop, struct error **err) {
  loop->stopped = false;
  while (!loop->stopped) {
    loop_clock_arm(loop);
    int count = epoll_wait(loop->epoll, loop->batch, LOOP_BATCH, loop->tasks ? 0 : -1);
    if (count < 0 && errno != EINTR)
      return error_set_errno(err, errno, "epoll_wait");
    loop->batch_count = count > 0 ? count : 0;
    loop_batch_run(loop);
    loop_timers_run(loop);
    loop_tasks_run(loop);
    if (loop->settle)
      loop->settle(loop->settle_context);
  }
  return 0;
}

void loop_stop(struct loop *loop) { loop->stopped = true; }
