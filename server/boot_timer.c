/*
 * One timer on the boot clock: a timerfd watched by the loop.
 */
#include "server/boot_timer.h"

#include "base/clock.h"
#include "base/memory.h"
#include <errno.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

struct boot_timer {
  uv_poll_t poll;
  int fd;
  int64_t deadline;
  void (*fired)(void *context);
  void *context;
};

static void boot_timer_readable(uv_poll_t *poll, int status, int events) {
  (void)events;
  struct boot_timer *timer = poll->data;
  uint64_t expirations;
  /* A deadline set meanwhile leaves nothing to read. */
  if (status < 0 || read(timer->fd, &expirations, sizeof(expirations)) != (ssize_t)sizeof(expirations))
    return;
  timer->deadline = INT64_MAX;
  timer->fired(timer->context);
}

static void boot_timer_closed(uv_handle_t *handle) {
  struct boot_timer *timer = handle->data;
  close(timer->fd);
  memory_free(timer);
}

void boot_timer_free(struct boot_timer *timer) {
  if (timer)
    uv_close((uv_handle_t *)&timer->poll, boot_timer_closed);
}

struct boot_timer *boot_timer_new(uv_loop_t *loop, void (*fired)(void *context), void *context, struct error **err) {
  struct boot_timer *timer = memory_zero(sizeof(*timer));
  if (!timer) {
    error_set_memory(err);
    return NULL;
  }
  timer->deadline = INT64_MAX;
  timer->fired = fired;
  timer->context = context;
  timer->fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
  if (timer->fd < 0) {
    error_set_errno(err, errno, "timerfd_create");
    memory_free(timer);
    return NULL;
  }
  int status = uv_poll_init(loop, &timer->poll, timer->fd);
  if (status < 0) {
    error_set_errno(err, -status, "cannot watch a timer");
    close(timer->fd);
    memory_free(timer);
    return NULL;
  }
  timer->poll.data = timer;
  status = uv_poll_start(&timer->poll, UV_READABLE, boot_timer_readable);
  if (status < 0) {
    error_set_errno(err, -status, "cannot watch a timer");
    boot_timer_free(timer);
    return NULL;
  }
  return timer;
}

void boot_timer_set(struct boot_timer *timer, int64_t deadline) {
  if (deadline == timer->deadline)
    return;
  timer->deadline = deadline;
  struct itimerspec spec = {0};
  if (deadline != INT64_MAX) {
    /* All zeros would turn the timer off; a time that has passed fires at once. */
    int64_t when = deadline > 0 ? deadline : 1;
    spec.it_value.tv_sec = (time_t)(when / CLOCK_SECOND);
    spec.it_value.tv_nsec = (long)(when % CLOCK_SECOND);
  }
  timerfd_settime(timer->fd, TFD_TIMER_ABSTIME, &spec, NULL);
}
