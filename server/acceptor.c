/*
 * The gRPC server. Each completion queue has a thread of its own and keeps some requests for calls posted; a request
 * that became a call is replaced before that call is looked at, so that the next one finds a place.
 */
#include "server/acceptor.h"

#include "base/limits.h"
#include "base/memory.h"
#include "server/call_state.h"
#include "server/front.h"

#include <grpc/grpc_security.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

enum {
  REQUESTS_POSTED = 16,     /* for each queue; gRPC holds further calls back until one is free, so few are enough */
  STREAMS_MAX = 8192,       /* calls at once on one connection; the gateway has one for all its clients */
  MEMORY_BYTES = 512 << 20, /* of gRPC's own buffers, all connections together */
  KEEPALIVE_MS = 60000,
  KEEPALIVE_TIMEOUT_MS = 20000,
  CLIENT_PING_MS = 10000, /* clients may ping this often */
  HANDSHAKE_MS = 10000,
  CUT_MS = 1000, /* from telling handlers to cutting off clients */
};

struct call_queue {
  struct acceptor *acceptor;
  grpc_completion_queue *queue;
  pthread_t thread;
  struct call_outbox outbox;
};

struct acceptor {
  uv_loop_t *loop;
  grpc_server *server;
  struct front *front; /* NULL without TCP */
  struct call_queue queues[ACCEPTOR_THREADS_MAX];
  unsigned queue_count, thread_count;
  struct call_shared shared;
  struct inbox inbox;
  struct rpc_tag drained;
  uv_timer_t timer;          /* of stopping */
  uv_prepare_t after_timers; /* send the outboxes: what timers wished, and what I/O did */
  uv_check_t after_events;
  unsigned open_handles;
  void (*done)(void *context);
  void *done_context;
};

/* Calls */

static void request_post(struct call_queue *queue);

static void accepted_tag(struct rpc_tag *tag, bool ok) {
  struct call *call = RPC_TAG_OWNER(tag, struct call, accepted);
  if (!ok) { /* the server drains */
    call_unref(call);
    return;
  }
  request_post(MAILBOX_ITEM_OWNER(call->outbox, struct call_queue, outbox));
  call_begin(call);
}

/* Without memory there is one request less, until the server has none; it then answers nobody, but lives. */
static void request_post(struct call_queue *queue) {
  struct call *call = memory_zero(sizeof *call);
  if (!call)
    return;
  atomic_init(&call->references, 1);
  atomic_fetch_add_explicit(&queue->acceptor->shared.open, 1, memory_order_relaxed);
  call->shared = &queue->acceptor->shared;
  call->outbox = &queue->outbox;
  call->accepted.run = accepted_tag;
  grpc_call_details_init(&call->details);
  grpc_metadata_array_init(&call->metadata);
  rpc_tag_publish(&call->accepted);
  if (grpc_server_request_call(queue->acceptor->server, &call->rpc, &call->details, &call->metadata, queue->queue,
                               queue->queue, &call->accepted) != GRPC_CALL_OK)
    call_unref(call);
}

/* Making */

static grpc_arg argument_integer(const char *name, int value) {
  return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)name, .value = {.integer = value}};
}

static grpc_server *grpc_server_new(void) {
  grpc_resource_quota *quota = grpc_resource_quota_create("lease-server");
  grpc_resource_quota_resize(quota, MEMORY_BYTES);
  grpc_arg arguments[] = {
      argument_integer(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, LIMIT_GRPC_MESSAGE_BYTES),
      argument_integer(GRPC_ARG_MAX_METADATA_SIZE, LIMIT_HEADER_BYTES),
      argument_integer(GRPC_ARG_MAX_CONCURRENT_STREAMS, STREAMS_MAX),
      argument_integer(GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_MS),
      argument_integer(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS),
      argument_integer(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
      argument_integer(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, CLIENT_PING_MS),
      argument_integer(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, HANDSHAKE_MS),
      /* A second server on the same port must fail, not share it. */
      argument_integer(GRPC_ARG_ALLOW_REUSEPORT, 0),
      /* A few compressed bytes could grow to gigabytes. */
      argument_integer(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE),
      argument_integer(GRPC_ARG_ENABLE_CHANNELZ, 0),
      {.type = GRPC_ARG_POINTER,
       .key = (char *)GRPC_ARG_RESOURCE_QUOTA,
       .value.pointer = {.p = quota, .vtable = grpc_resource_quota_arg_vtable()}},
  };
  grpc_server *server = grpc_server_create(
      &(grpc_channel_args){.num_args = sizeof arguments / sizeof arguments[0], .args = arguments}, NULL);
  grpc_resource_quota_unref(quota);
  return server;
}

static int routes_make(struct call_shared *shared, const struct acceptor_options *options, struct error **err) {
  size_t count = 0;
  for (size_t i = 0; i < options->service_count; i++)
    count += options->services[i].count;
  shared->routes = memory_array(count, sizeof *shared->routes);
  if (!shared->routes)
    return error_set_memory(err);
  for (size_t i = 0; i < options->service_count; i++) {
    const struct acceptor_service *service = &options->services[i];
    for (size_t k = 0; k < service->count; k++)
      shared->routes[shared->route_count++] = (struct call_route){
          .path_length = strlen(service->methods[k].path), .method = &service->methods[k], .context = service->context};
  }
  return 0;
}

static void outboxes_send(struct acceptor *acceptor) {
  for (unsigned i = 0; i < acceptor->queue_count; i++)
    call_outbox_send(&acceptor->queues[i].outbox);
}

static void after_timers(uv_prepare_t *prepare) { outboxes_send(prepare->data); }

static void after_events(uv_check_t *check) { outboxes_send(check->data); }

/* The last call has ended, and there will be no other. */
static void ended_item(struct mailbox_item *item) {
  struct acceptor *acceptor = MAILBOX_ITEM_OWNER(item, struct acceptor, shared.ended);
  uv_timer_stop(&acceptor->timer);
  acceptor->done(acceptor->done_context);
}

/* No call runs any more: idle connections need not be waited for. */
static void alone_item(struct mailbox_item *item) {
  struct acceptor *acceptor = MAILBOX_ITEM_OWNER(item, struct acceptor, shared.alone);
  if (acceptor->server)
    grpc_server_cancel_all_calls(acceptor->server);
}

struct acceptor *acceptor_new(const struct acceptor_options *options, struct error **err) {
  struct acceptor *acceptor = memory_zero(sizeof *acceptor);
  if (!acceptor) {
    error_set_memory(err);
    return NULL;
  }
  acceptor->loop = options->loop;
  acceptor->shared.ring = options->ring;
  acceptor->shared.inbox = &acceptor->inbox;
  acceptor->shared.ended.run = ended_item;
  acceptor->shared.alone.run = alone_item;
  atomic_init(&acceptor->shared.open, 1);
  if (routes_make(&acceptor->shared, options, err) < 0 || inbox_open(&acceptor->inbox, options->loop, err) < 0) {
    memory_free(acceptor->shared.routes);
    memory_free(acceptor);
    return NULL;
  }
  uv_timer_init(options->loop, &acceptor->timer);
  uv_prepare_init(options->loop, &acceptor->after_timers);
  uv_check_init(options->loop, &acceptor->after_events);
  acceptor->timer.data = acceptor->after_timers.data = acceptor->after_events.data = acceptor;
  uv_prepare_start(&acceptor->after_timers, after_timers);
  uv_check_start(&acceptor->after_events, after_events);
  acceptor->open_handles = 4;
  acceptor->server = grpc_server_new();
  acceptor->queue_count = options->threads;
  for (unsigned i = 0; i < acceptor->queue_count; i++) {
    struct call_queue *queue = &acceptor->queues[i];
    queue->acceptor = acceptor;
    call_outbox_init(&queue->outbox);
    queue->queue = grpc_completion_queue_create_for_next(NULL);
    grpc_server_register_completion_queue(acceptor->server, queue->queue, NULL);
  }
  return acceptor;
}

int acceptor_listen_unix(struct acceptor *acceptor, const char *address, struct error **err) {
  grpc_server_credentials *credentials = grpc_insecure_server_credentials_create();
  int result = grpc_server_add_http2_port(acceptor->server, address, credentials);
  grpc_server_credentials_release(credentials);
  return result > 0 ? 0 : error_set_detail(err, REASON_INTERNAL, "cannot listen on %s", address);
}

int acceptor_listen_tcp(struct acceptor *acceptor, const char *address, struct certificates *certificates, int *port,
                        struct error **err) {
  if (!acceptor->front && !(acceptor->front = front_new(acceptor->server, err)))
    return -1;
  return front_listen(acceptor->front, address, certificates, port, err);
}

static void *queue_main(void *argument) {
  struct call_queue *queue = argument;
  rpc_queue_run(queue->queue);
  return NULL;
}

int acceptor_start(struct acceptor *acceptor, struct error **err) {
  grpc_server_start(acceptor->server);
  /* Signals are the loop thread's. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int result = 0;
  while (result == 0 && acceptor->thread_count < acceptor->queue_count) {
    struct call_queue *queue = &acceptor->queues[acceptor->thread_count];
    result = pthread_create(&queue->thread, NULL, queue_main, queue);
    if (result == 0)
      acceptor->thread_count++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (result != 0)
    return error_set_errno(err, result, "starting a queue thread");
  for (unsigned i = 0; i < acceptor->queue_count; i++)
    for (unsigned k = 0; k < REQUESTS_POSTED; k++)
      request_post(&acceptor->queues[i]);
  return acceptor->front ? front_start(acceptor->front, err) : 0;
}

/* Ending */

static void drained_tag(struct rpc_tag *tag, bool ok) {
  (void)ok;
  call_shared_leave(&RPC_TAG_OWNER(tag, struct acceptor, drained)->shared);
}

static void drain(struct acceptor *acceptor, void (*run)(struct rpc_tag *tag, bool ok)) {
  acceptor->drained.run = run;
  rpc_tag_publish(&acceptor->drained);
  if (acceptor->front)
    front_refuse(acceptor->front);
  grpc_server_shutdown_and_notify(acceptor->server, acceptor->queues[0].queue, &acceptor->drained);
}

static void cut(uv_timer_t *timer) {
  struct acceptor *acceptor = timer->data;
  grpc_server_cancel_all_calls(acceptor->server);
}

static void cancel(uv_timer_t *timer) {
  struct acceptor *acceptor = timer->data;
  acceptor->shared.is_cancelling = true;
  /* A handler may answer other calls than its own, so the walk starts again until nobody is left to be told. */
  struct call *call = acceptor->shared.live;
  while (call) {
    bool is_told = call->events && !call->cancel_told;
    struct call *next = call->next;
    call_tell_cancelled(call);
    call = is_told ? acceptor->shared.live : next;
  }
  uv_timer_start(timer, cut, CUT_MS, 0);
}

void acceptor_stop(struct acceptor *acceptor, uint64_t grace, void (*done)(void *context), void *context) {
  acceptor->done = done;
  acceptor->done_context = context;
  uv_timer_start(&acceptor->timer, cancel, grace, 0);
  atomic_store(&acceptor->shared.waits_to_be_alone, true);
  drain(acceptor, drained_tag);
}

static void nothing_tag(struct rpc_tag *tag, bool ok) {
  (void)tag;
  (void)ok;
}

static void handle_closed(uv_handle_t *handle) {
  struct acceptor *acceptor = handle->data;
  if (--acceptor->open_handles > 0)
    return;
  memory_free(acceptor->shared.routes);
  memory_free(acceptor);
}

static void inbox_closed(uv_handle_t *handle) {
  struct inbox *inbox = handle->data;
  handle->data = MAILBOX_ITEM_OWNER(inbox, struct acceptor, inbox);
  handle_closed(handle);
}

void acceptor_free(struct acceptor *acceptor) {
  if (!acceptor)
    return;
  if (!acceptor->done) /* never started, or not wholly: gRPC wants it shut down all the same */
    drain(acceptor, nothing_tag);
  for (unsigned i = 0; i < acceptor->queue_count; i++)
    grpc_completion_queue_shutdown(acceptor->queues[i].queue);
  for (unsigned i = 0; i < acceptor->thread_count; i++)
    pthread_join(acceptor->queues[i].thread, NULL);
  for (unsigned i = acceptor->thread_count; i < acceptor->queue_count; i++)
    rpc_queue_run(acceptor->queues[i].queue);
  grpc_server_destroy(acceptor->server);
  acceptor->server = NULL;
  front_free(acceptor->front);
  for (unsigned i = 0; i < acceptor->queue_count; i++)
    grpc_completion_queue_destroy(acceptor->queues[i].queue);
  inbox_close(&acceptor->inbox, inbox_closed);
  uv_close((uv_handle_t *)&acceptor->timer, handle_closed);
  uv_close((uv_handle_t *)&acceptor->after_timers, handle_closed);
  uv_close((uv_handle_t *)&acceptor->after_events, handle_closed);
}
