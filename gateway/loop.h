/*
 * One event loop with all that belongs to it: listeners, connections, timers, a gRPC client and the thread of its
 * completion queue. A request is read, sent on and answered on the same loop; the queue's thread only hands over what the
 * server said. Loops share nothing but the listening sockets.
 *
 * Thread: the loop's, unless a line says otherwise.
 */
#ifndef GATEWAY_LOOP_H
#define GATEWAY_LOOP_H

#include "base/error.h"
#include "gateway/connection.h"
#include "gateway/holding.h"
#include "gateway/options.h"
#include "gateway/reply.h"
#include "rpc/client.h"

#include <h2o/linklist.h>
#include <h2o/multithread.h>
#include <h2o/timeout.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

struct tls;

/* What another thread tells the loop, or the loop itself for its next turn. One is under way at a time. */
struct loop_event {
  h2o_multithread_message_t message;
  void (*run)(struct loop_event *event); /* on the loop's thread */
};

enum { LOOP_TIMERS = CONNECTION_TIMER_LINGER + 1 };

struct loop {
  const struct options *options;
  h2o_evloop_t *evloop;
  h2o_multithread_queue_t *queue;
  h2o_multithread_receiver_t events;
  h2o_timeout_t timers[LOOP_TIMERS]; /* one for each enum connection_timer; that of NONE fires at once */
  h2o_timeout_t retry, grace, force; /* accepting again, and the two steps of stopping */
  h2o_timeout_entry_t retry_entry, grace_entry, force_entry;
  struct loop_event stop_event;

  int listening[OPTIONS_ADDRESSES]; /* descriptors, which become these: */
  h2o_socket_t *listeners[OPTIONS_ADDRESSES];
  size_t listener_count;
  struct tls *tls; /* NULL: plain */
  bool accepting, stopping, finished;

  h2o_linklist_t peers;     /* struct peer */
  h2o_linklist_t closed;    /* peers to be freed behind this turn of the loop */
  h2o_linklist_t exchanges; /* struct exchange */
  h2o_linklist_t later;     /* struct loop_event, for the next turn */
  int tick_descriptor;      /* an eventfd, which becomes this: */
  h2o_socket_t *tick;       /* readable while `later` is not empty */
  size_t peer_count, peer_limit, exchange_count;
  struct holdings bodies, answers; /* of the exchanges */

  struct rpc_client *client;
  grpc_completion_queue *completion_queue;
  pthread_t thread, queue_thread;
  sem_t ready; /* posted once the loop takes events */

  int64_t date_second;
  char date[REPLY_DATE_BYTES];
  char request_id_prefix[17]; /* of this loop; a counter follows */
  uint64_t request_count;
  char input[CONNECTION_INPUT_BYTES]; /* of the connection that is being read */
};

/* Starts a loop with its threads; it accepts on its own copies of the `listeners`. NULL and *err. Any thread. */
struct loop *loop_start(const struct options *options, const int *listeners, size_t listener_count, struct error **err);
/* Asks a loop to stop: no new connection, running requests get LIMIT_SHUTDOWN_SECONDS. Any thread, once. */
void loop_stop(struct loop *loop);
/* Waits until it has stopped and frees it. The thread that started it. */
void loop_join(struct loop *loop);

/* Any thread. */
void loop_post(struct loop *loop, struct loop_event *event);
/* Runs the event in the next turn of the loop, after everybody else had a turn: for work that is done in slices. */
void loop_later(struct loop *loop, struct loop_event *event);
/* The Date header's value; valid until the next turn of the loop. */
const char *loop_date(struct loop *loop);
/* A new request id: 32 hexadecimal digits and a NUL. */
#define LOOP_REQUEST_ID_BYTES 33
void loop_request_id(struct loop *loop, char id[static LOOP_REQUEST_ID_BYTES]);
/* A peer was closed or an exchange freed: a place may be free, or a stopping loop done. */
void loop_released(struct loop *loop);

#endif
