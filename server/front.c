/*
 * The thread of the front, its listening sockets, and its end.
 */
#define _GNU_SOURCE /* accept4 */
#include "base/log.h"
#include "base/memory.h"
#include "server/front_state.h"
#include "server/tcp_sockets.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
  CONNECTIONS_MAX = 10000,
  DESCRIPTORS_EACH = 3,  /* the client's and both ends of the pair */
  DESCRIPTORS_SHARE = 2, /* the front may use one of so many parts of the process's descriptors */
  ACCEPTS = 64,          /* in one go */
  PAUSE_MS = 1000,       /* without accepting, when the machine has no descriptor or memory for a connection */
  LAST_MS = 1000,        /* for what gRPC wrote last */
};

/* Accepting */

static void on_listener(uv_poll_t *poll, int status, int events);

static void listeners_start(struct front *front) {
  for (size_t i = 0; i < front->listener_count; i++)
    uv_poll_start(&front->listeners[i].poll, UV_READABLE, on_listener);
}

static void on_pause_over(uv_timer_t *timer) { listeners_start(timer->data); }

static void pause_accepting(struct front *front, int error) {
  log_write(LOG_WARNING, "accept_failed", LOG_NUMBER("errno", error));
  for (size_t i = 0; i < front->listener_count; i++)
    uv_poll_stop(&front->listeners[i].poll);
  uv_timer_start(&front->pause, on_pause_over, PAUSE_MS, 0);
}

static bool is_passing(int error) { return error == EINTR || error == ECONNABORTED || error == EPROTO; }

static void on_listener(uv_poll_t *poll, int status, int events) {
  (void)status;
  (void)events;
  struct front_listener *listener = poll->data;
  struct front *front = listener->front;
  for (int i = 0; i < ACCEPTS; i++) {
    int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0 && front->connection_count >= front->connections_max)
      close(fd);
    else if (fd >= 0)
      front_connection_open(listener, fd);
    else if (is_passing(errno))
      continue;
    else if (errno != EAGAIN && errno != EWOULDBLOCK)
      pause_accepting(front, errno);
    if (fd < 0)
      return;
  }
}

/* The end */

static void close_all(struct front *front, bool only_idle) {
  struct front_connection *connection = front->connections;
  while (connection) {
    struct front_connection *next = front_connection_next(connection);
    if (!only_idle || front_connection_idle(connection))
      front_connection_close(connection);
    connection = next;
  }
}

static void on_last_moment(uv_timer_t *timer) { close_all(timer->data, false); }

static void close_if_done(struct front *front) {
  if (front->is_ending && front->connection_count == 0 && !uv_is_closing((uv_handle_t *)&front->pause))
    uv_close((uv_handle_t *)&front->pause, NULL);
}

void front_connection_gone(struct front *front) {
  front->connection_count--;
  close_if_done(front);
}

static void on_ending(uv_async_t *async) {
  struct front *front = async->data;
  front->is_ending = true;
  uv_close((uv_handle_t *)async, NULL);
  for (size_t i = 0; i < front->listener_count; i++)
    uv_close((uv_handle_t *)&front->listeners[i].poll, NULL);
  uv_timer_start(&front->pause, on_last_moment, LAST_MS, 0);
  close_all(front, true);
  close_if_done(front);
}

/* Making */

/* As many as descriptors allow. */
static size_t connections_max(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
    return CONNECTIONS_MAX;
  size_t fitting = limit.rlim_cur / DESCRIPTORS_SHARE / DESCRIPTORS_EACH;
  return fitting < CONNECTIONS_MAX ? fitting : CONNECTIONS_MAX;
}

struct front *front_new(grpc_server *server, struct error **err) {
  struct front *front = memory_zero(sizeof *front);
  if (!front) {
    error_set_memory(err);
    return NULL;
  }
  int result = uv_loop_init(&front->loop);
  if (result == 0 && (result = uv_async_init(&front->loop, &front->ending, on_ending)) < 0)
    uv_loop_close(&front->loop);
  if (result < 0) {
    error_set_detail(err, REASON_INTERNAL, "making an event loop: %s", uv_strerror(result));
    memory_free(front);
    return NULL;
  }
  uv_timer_init(&front->loop, &front->pause);
  front->ending.data = front->pause.data = front;
  pthread_mutex_init(&front->mutex, NULL);
  front->server = server;
  front->connections_max = connections_max();
  guard_budget_init(&front->resets, GUARD_ALL_RESETS_PER_SECOND, GUARD_ALL_RESETS_AT_ONCE);
  return front;
}

int front_listen(struct front *front, const char *address, struct certificates *certificates, int *port,
                 struct error **err) {
  int sockets[TCP_SOCKETS_MAX];
  size_t count = FRONT_LISTENERS_MAX - front->listener_count;
  if (tcp_sockets_open(address, sockets, &count, port, err) < 0)
    return -1;
  for (size_t i = 0; i < count; i++) {
    struct front_listener *listener = &front->listeners[front->listener_count++];
    listener->front = front;
    listener->certificates = certificates;
    listener->fd = sockets[i];
    uv_poll_init(&front->loop, &listener->poll, listener->fd);
    listener->poll.data = listener;
  }
  return 0;
}

static void *front_main(void *argument) {
  struct front *front = argument;
  uv_run(&front->loop, UV_RUN_DEFAULT);
  return NULL;
}

int front_start(struct front *front, struct error **err) {
  listeners_start(front);
  sigset_t all, before; /* signals are the loop thread's */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int result = pthread_create(&front->thread, NULL, front_main, front);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (result != 0)
    return error_set_errno(err, result, "starting the front's thread");
  front->is_running = true;
  return 0;
}

void front_refuse(struct front *front) {
  pthread_mutex_lock(&front->mutex);
  front->is_refusing = true;
  pthread_mutex_unlock(&front->mutex);
}

void front_free(struct front *front) {
  if (!front)
    return;
  uv_async_send(&front->ending);
  if (front->is_running)
    pthread_join(front->thread, NULL);
  else
    uv_run(&front->loop, UV_RUN_DEFAULT);
  for (size_t i = 0; i < front->listener_count; i++)
    close(front->listeners[i].fd);
  uv_loop_close(&front->loop);
  pthread_mutex_destroy(&front->mutex);
  memory_free(front);
}
