#include "gateway/loop.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "gateway/exchange.h"
#include "gateway/peer.h"
#include "gateway/tls.h"
#include "rpc/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
  ACCEPT_AT_ONCE = 16,
  RETRY_MS = 1000, /* until connections are accepted again when the process was out of descriptors */
  FORCE_MS = 2000, /* after the grace: for answers that say why */
};

static const uint64_t timer_ms[LOOP_TIMERS] = {
    [CONNECTION_TIMER_NONE] = 0,
    [CONNECTION_TIMER_IDLE] = LIMIT_IDLE_SECONDS * 1000,
    [CONNECTION_TIMER_HEAD] = LIMIT_HEADER_SECONDS * 1000,
    [CONNECTION_TIMER_BODY] = LIMIT_BODY_SECONDS * 1000,
    [CONNECTION_TIMER_WRITE] = LIMIT_WRITE_SECONDS * 1000,
    [CONNECTION_TIMER_LINGER] = LIMIT_LINGER_SECONDS * 1000,
};

/* Small things for others */

const char *loop_date(struct loop *loop) {
  int64_t second = clock_wall() / CLOCK_SECOND;
  if (second != loop->date_second) {
    loop->date_second = second;
    reply_date(second, loop->date);
  }
  return loop->date;
}

void loop_request_id(struct loop *loop, char id[static LOOP_REQUEST_ID_BYTES]) {
  static const char digits[] = "0123456789abcdef";
  uint64_t number = loop->request_count++;
  memcpy(id, loop->request_id_prefix, 16);
  for (size_t i = 0; i < 16; i++)
    id[16 + i] = digits[number >> (60 - 4 * i) & 15];
  id[32] = '\0';
}

/* Events of other threads */

void loop_post(struct loop *loop, struct loop_event *event) {
  h2o_multithread_send_message(&loop->events, &event->message);
}

static void run_events(h2o_linklist_t *messages) {
  while (!h2o_linklist_is_empty(messages)) {
    struct loop_event *event = H2O_STRUCT_FROM_MEMBER(struct loop_event, message.link, messages->next);
    h2o_linklist_unlink(&event->message.link);
    event->run(event);
  }
}

static void on_events(h2o_multithread_receiver_t *receiver, h2o_linklist_t *messages) {
  (void)receiver;
  run_events(messages);
}

/* A turn is what h2o makes of one wait for the kernel's events; an eventfd is what makes it take another. Nothing of this may
 * happen between two turns: h2o counts on finding no finished write then. */
void loop_later(struct loop *loop, struct loop_event *event) {
  if (h2o_linklist_is_empty(&loop->later))
    eventfd_write(h2o_socket_get_fd(loop->tick), 1);
  h2o_linklist_insert(&loop->later, &event->message.link);
}

/* Events that put themselves off again wait for the turn after. */
static void on_tick(h2o_socket_t *socket, const char *failure) {
  struct loop *loop = socket->data;
  eventfd_t count;
  h2o_linklist_t now;
  (void)failure;
  eventfd_read(h2o_socket_get_fd(socket), &count);
  h2o_linklist_init_anchor(&now);
  h2o_linklist_insert_list(&now, &loop->later);
  run_events(&now);
}

/* Accepting */

static void on_connection(h2o_socket_t *listener, const char *failure);

static void accept_start(struct loop *loop) {
  if (loop->accepting || loop->stopping)
    return;
  loop->accepting = true;
  for (size_t i = 0; i < loop->listener_count; i++)
    h2o_socket_read_start(loop->listeners[i], on_connection);
}

static void accept_stop(struct loop *loop) {
  if (!loop->accepting)
    return;
  loop->accepting = false;
  for (size_t i = 0; i < loop->listener_count; i++)
    h2o_socket_read_stop(loop->listeners[i]);
}

static void on_retry(h2o_timeout_entry_t *entry) {
  accept_start(H2O_STRUCT_FROM_MEMBER(struct loop, retry_entry, entry));
}

/* Clients wait in the backlog until a connection ends, or a moment has passed. */
static void accept_later(struct loop *loop) {
  accept_stop(loop);
  if (!h2o_timeout_is_linked(&loop->retry_entry))
    h2o_timeout_link(loop->evloop, &loop->retry, &loop->retry_entry);
}

static void on_connection(h2o_socket_t *listener, const char *failure) {
  struct loop *loop = listener->data;
  (void)failure;
  for (int i = 0; i < ACCEPT_AT_ONCE && loop->accepting; i++) {
    if (loop->peer_count >= loop->peer_limit && !peer_close_idle(loop)) {
      accept_later(loop);
      return;
    }
    errno = 0;
    h2o_socket_t *socket = h2o_evloop_socket_accept(listener);
    if (socket) {
      peer_start(loop, socket, loop->tls ? tls_context(loop->tls) : NULL);
    } else {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        log_write(LOG_WARNING, "accept_failed", LOG_NUMBER("errno", errno));
        if (!peer_close_idle(loop))
          accept_later(loop);
      }
      return;
    }
  }
}

/* Stopping */

void loop_released(struct loop *loop) {
  if (loop->stopping && loop->peer_count == 0 && loop->exchange_count == 0)
    loop->finished = true;
  else if (!loop->accepting && loop->peer_count < loop->peer_limit)
    accept_start(loop);
}

static void for_each_exchange(struct loop *loop, void (*tell)(struct exchange *exchange)) {
  h2o_linklist_t *next;
  for (h2o_linklist_t *at = loop->exchanges.next; at != &loop->exchanges; at = next) {
    next = at->next;
    tell(H2O_STRUCT_FROM_MEMBER(struct exchange, link, at));
  }
}

static void on_force(h2o_timeout_entry_t *entry) {
  peer_close_all(H2O_STRUCT_FROM_MEMBER(struct loop, force_entry, entry));
}

static void on_grace_over(h2o_timeout_entry_t *entry) {
  struct loop *loop = H2O_STRUCT_FROM_MEMBER(struct loop, grace_entry, entry);
  for_each_exchange(loop, exchange_abort);
  h2o_timeout_link(loop->evloop, &loop->force, &loop->force_entry);
}

static void close_listeners(struct loop *loop) {
  accept_stop(loop);
  while (loop->listener_count > 0)
    h2o_socket_close(loop->listeners[--loop->listener_count]);
}

static void on_stop(struct loop_event *event) {
  struct loop *loop = H2O_STRUCT_FROM_MEMBER(struct loop, stop_event, event);
  loop->stopping = true;
  close_listeners(loop);
  h2o_timeout_link(loop->evloop, &loop->grace, &loop->grace_entry);
  peer_stop_all(loop);
  loop_released(loop);
}

void loop_stop(struct loop *loop) {
  loop->stop_event.run = on_stop;
  loop_post(loop, &loop->stop_event);
}

/* Threads */

static void *run_queue(void *context) {
  rpc_queue_run(((struct loop *)context)->completion_queue);
  return NULL;
}

static void timers_init(struct loop *loop) {
  for (size_t i = 0; i < LOOP_TIMERS; i++)
    h2o_timeout_init(loop->evloop, &loop->timers[i], timer_ms[i]);
  h2o_timeout_init(loop->evloop, &loop->retry, RETRY_MS);
  h2o_timeout_init(loop->evloop, &loop->grace, LIMIT_SHUTDOWN_SECONDS * 1000);
  h2o_timeout_init(loop->evloop, &loop->force, FORCE_MS);
  loop->retry_entry.cb = on_retry;
  loop->grace_entry.cb = on_grace_over;
  loop->force_entry.cb = on_force;
}

static void timers_free(struct loop *loop) {
  h2o_timeout_entry_t *entries[] = {&loop->retry_entry, &loop->grace_entry, &loop->force_entry};
  for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
    if (h2o_timeout_is_linked(entries[i]))
      h2o_timeout_unlink(entries[i]);
  for (size_t i = 0; i < LOOP_TIMERS; i++)
    h2o_timeout_dispose(loop->evloop, &loop->timers[i]);
  h2o_timeout_dispose(loop->evloop, &loop->retry);
  h2o_timeout_dispose(loop->evloop, &loop->grace);
  h2o_timeout_dispose(loop->evloop, &loop->force);
}

/* h2o keeps buffers for each thread, so what is h2o's is made and unmade on the loop's own thread. */
static void evloop_init(struct loop *loop) {
  loop->evloop = h2o_evloop_create();
  loop->queue = h2o_multithread_create_queue(loop->evloop);
  h2o_multithread_register_receiver(loop->queue, &loop->events, on_events);
  timers_init(loop);
  loop->tick = h2o_evloop_socket_create(loop->evloop, loop->tick_descriptor, H2O_SOCKET_FLAG_DONT_READ);
  loop->tick->data = loop;
  h2o_socket_read_start(loop->tick, on_tick);
  for (size_t i = 0; i < loop->listener_count; i++) {
    loop->listeners[i] = h2o_evloop_socket_create(loop->evloop, loop->listening[i], H2O_SOCKET_FLAG_DONT_READ);
    loop->listeners[i]->data = loop;
  }
  accept_start(loop);
}

static void evloop_free(struct loop *loop) {
  timers_free(loop);
  h2o_socket_close(loop->tick);
  h2o_multithread_unregister_receiver(loop->queue, &loop->events);
  h2o_multithread_destroy_queue(loop->queue);
  h2o_evloop_run(loop->evloop, 0); /* frees the sockets that were closed last */
  h2o_evloop_destroy(loop->evloop);
}

static void *run(void *context) {
  struct loop *loop = context;
  evloop_init(loop);
  sem_post(&loop->ready);
  while (!loop->finished) {
    h2o_evloop_run(loop->evloop, INT32_MAX);
    peer_free_closed(loop);
  }
  evloop_free(loop);
  return NULL;
}

#ifdef __SANITIZE_ADDRESS__
/* h2o keeps freed buffers in lists of the thread, which end with it, and never frees the struct of a queue. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:h2o_mem_alloc_recycle\nleak:h2o_multithread_create_queue\n"; }
/* Without a list of what was suppressed: every line of a log is JSON. Other leaks are reported all the same. */
const char *__lsan_default_options(void);
const char *__lsan_default_options(void) { return "print_suppressions=0"; }
#endif

/* Life */

static void random_prefix(struct loop *loop) {
  uint8_t bytes[8];
  random_bytes(bytes, sizeof bytes);
  text_hex(bytes, sizeof bytes, loop->request_id_prefix);
}

static int listeners_init(struct loop *loop, const int *listeners, size_t count, struct error **err) {
  for (size_t i = 0; i < count; i++) {
    int copy = fcntl(listeners[i], F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
      return error_set_errno(err, errno, "copying a listening socket");
    loop->listening[loop->listener_count++] = copy;
  }
  return 0;
}

static int client_init(struct loop *loop, struct error **err) {
  const struct options *options = loop->options;
  const struct rpc_client_options client = {.address = options->grpc_address,
                                            .ca = options->grpc_ca,
                                            .certificate = options->grpc_certificate,
                                            .key = options->grpc_key,
                                            .authority = options->grpc_authority};
  loop->completion_queue = grpc_completion_queue_create_for_next(NULL);
  loop->client = rpc_client_new(&client, loop->completion_queue, err);
  return loop->client ? 0 : -1;
}

static void loop_init(struct loop *loop, const struct options *options) {
  loop->options = options;
  loop->peer_limit = (size_t)(options->connections / options->loops);
  holdings_init(&loop->bodies, (size_t)(LIMIT_HELD_BYTES / options->loops));
  holdings_init(&loop->answers, (size_t)(LIMIT_HELD_BYTES / options->loops));
  h2o_linklist_init_anchor(&loop->peers);
  h2o_linklist_init_anchor(&loop->closed);
  h2o_linklist_init_anchor(&loop->exchanges);
  h2o_linklist_init_anchor(&loop->later);
  random_prefix(loop);
  sem_init(&loop->ready, 0, 0);
}

static int start(struct loop *loop, const int *listeners, size_t count, struct error **err) {
  const struct options *options = loop->options;
  if (options->tls_certificate && !(loop->tls = tls_new(options->tls_certificate, options->tls_key, err)))
    return -1;
  loop->tick_descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (loop->tick_descriptor < 0)
    return error_set_errno(err, errno, "eventfd");
  if (client_init(loop, err) < 0 || listeners_init(loop, listeners, count, err) < 0)
    return -1;
  int failed = pthread_create(&loop->queue_thread, NULL, run_queue, loop);
  if (failed == 0)
    failed = pthread_create(&loop->thread, NULL, run, loop);
  if (failed)
    return error_set_errno(err, failed, "starting a thread");
  while (sem_wait(&loop->ready) < 0)
    ; /* interrupted */
  return 0;
}

/* A gateway that cannot start exits: what a failed start leaves behind is not taken apart. */
struct loop *loop_start(const struct options *options, const int *listeners, size_t listener_count, struct error **err) {
  struct loop *loop = memory_zero(sizeof *loop);
  if (!loop) {
    error_set_memory(err);
    return NULL;
  }
  loop_init(loop, options);
  return start(loop, listeners, listener_count, err) < 0 ? NULL : loop;
}

void loop_join(struct loop *loop) {
  pthread_join(loop->thread, NULL);
  rpc_client_free(loop->client);
  grpc_completion_queue_shutdown(loop->completion_queue);
  pthread_join(loop->queue_thread, NULL);
  grpc_completion_queue_destroy(loop->completion_queue);
  tls_free(loop->tls);
  sem_destroy(&loop->ready);
  memory_free(loop);
}
