/*
 * Client calls. A call lives as long as its caller holds it or a batch of it is under way, whichever is longer.
 *
 * `pending` counts the batches under way. The batch that receives the status is the first of them, so the count reaches
 * zero exactly once, after the status is known and every other batch has come back: that is when `ended` is called. A
 * batch asked for after that is not started any more.
 */
#include "rpc/client.h"

#include "base/memory.h"
#include "rpc/status.h"

#include <grpc/byte_buffer.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <stdatomic.h>
#include <string.h>

enum {
  RECEIVE_MESSAGE_BYTES = 64 << 20,
  RECONNECT_FIRST_MS = 100, /* after a connection was lost or refused */
  RECONNECT_MAX_MS = 300,
  CONNECT_TIMEOUT_MS = 2000,
  KEEPALIVE_MS = 30000,
  KEEPALIVE_TIMEOUT_MS = 10000,
};

#define CANCELLED_MESSAGE "cancelled by the caller"

struct rpc_client {
  grpc_channel *channel;
  grpc_completion_queue *queue;
};

struct rpc_client_call {
  grpc_call *call;
  const struct rpc_client_events *events;
  void *context;
  atomic_uint references; /* the caller's, and one for all pending batches together */
  atomic_uint pending;    /* batches under way */

  struct rpc_tag start, message, sent, closed, status;

  /* What waits for the first batch: NULL, a message, HELD_CLOSE; or STARTED once nothing has to wait any more. */
  _Atomic(void *) held;

  grpc_byte_buffer *received;
  grpc_metadata_array initial, trailing;
  grpc_status_code code;
  grpc_slice details;
};

static char HELD_CLOSE, STARTED;

/* Client */

static grpc_channel_credentials *credentials_new(const struct rpc_client_options *options) {
  if (!options->ca)
    return grpc_insecure_credentials_create();
  grpc_ssl_pem_key_cert_pair pair = {.private_key = options->key, .cert_chain = options->certificate};
  return grpc_ssl_credentials_create_ex(options->ca, options->certificate ? &pair : NULL, NULL, NULL);
}

static grpc_arg argument_integer(const char *name, int value) {
  return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)name, .value = {.integer = value}};
}

static grpc_channel *channel_new(const struct rpc_client_options *options, grpc_channel_credentials *credentials) {
  grpc_arg arguments[16];
  size_t count = 0;
  arguments[count++] = argument_integer(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, RECEIVE_MESSAGE_BYTES);
  arguments[count++] = argument_integer(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, RECONNECT_FIRST_MS);
  arguments[count++] = argument_integer(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, RECONNECT_MAX_MS);
  arguments[count++] = argument_integer(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, CONNECT_TIMEOUT_MS);
  arguments[count++] = argument_integer(GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_MS);
  arguments[count++] = argument_integer(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS);
  /* One connection for each client, whatever other clients of the process connect to. */
  arguments[count++] = argument_integer(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  /* The address is meant as written: no proxy of the environment, no service configuration from DNS. */
  arguments[count++] = argument_integer(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments[count++] = argument_integer(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments[count++] = argument_integer(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  arguments[count++] = argument_integer(GRPC_ARG_ENABLE_CHANNELZ, 0);
  if (options->authority)
    arguments[count++] = (grpc_arg){.type = GRPC_ARG_STRING,
                                    .key = (char *)GRPC_SSL_TARGET_NAME_OVERRIDE_ARG,
                                    .value = {.string = (char *)options->authority}};
  return grpc_channel_create(options->address, credentials, &(grpc_channel_args){.num_args = count, .args = arguments});
}

struct rpc_client *rpc_client_new(const struct rpc_client_options *options, grpc_completion_queue *queue,
                                  struct error **err) {
  if (!options->certificate != !options->key || (options->certificate && !options->ca)) {
    error_set_detail(err, REASON_INTERNAL, "a client certificate needs its key and the server's CA");
    return NULL;
  }
  grpc_channel_credentials *credentials = credentials_new(options);
  if (!credentials) {
    error_set_detail(err, REASON_INTERNAL, "the TLS certificates are not usable");
    return NULL;
  }
  struct rpc_client *client = memory_zero(sizeof *client);
  if (client) {
    client->queue = queue;
    client->channel = channel_new(options, credentials);
  } else {
    error_set_memory(err);
  }
  grpc_channel_credentials_release(credentials);
  return client;
}

void rpc_client_free(struct rpc_client *client) {
  if (!client)
    return;
  grpc_channel_destroy(client->channel);
  memory_free(client);
}

/* Life of a call */

static void call_unref(struct rpc_client_call *call) {
  if (atomic_fetch_sub_explicit(&call->references, 1, memory_order_acq_rel) != 1)
    return;
  grpc_call_unref(call->call);
  grpc_metadata_array_destroy(&call->initial);
  grpc_metadata_array_destroy(&call->trailing);
  grpc_slice_unref(call->details);
  memory_free(call);
}

/* Takes back one pending batch; the last one ends the call. On the queue's thread, or where a batch could not be
 * started. */
static void pending_done(struct rpc_client_call *call) {
  if (atomic_fetch_sub_explicit(&call->pending, 1, memory_order_acq_rel) != 1)
    return;
  struct error *err = NULL;
  rpc_status_read(call->code, call->details, &call->trailing, &err);
  call->events->ended(call->context, err);
  error_free(&err);
  call_unref(call);
}

/* False once the call has ended. */
static bool pending_add(struct rpc_client_call *call) {
  unsigned count = atomic_load_explicit(&call->pending, memory_order_relaxed);
  while (count > 0)
    if (atomic_compare_exchange_weak_explicit(&call->pending, &count, count + 1, memory_order_acq_rel,
                                              memory_order_relaxed))
      return true;
  return false;
}

static void status_run(struct rpc_tag *tag, bool ok) {
  (void)ok;
  pending_done(RPC_TAG_OWNER(tag, struct rpc_client_call, status));
}

static void message_run(struct rpc_tag *tag, bool ok) {
  struct rpc_client_call *call = RPC_TAG_OWNER(tag, struct rpc_client_call, message);
  grpc_byte_buffer *received = call->received;
  call->received = NULL;
  call->events->message(call->context, ok ? received : NULL);
  if (received)
    grpc_byte_buffer_destroy(received);
  pending_done(call);
}

static void sent_run(struct rpc_tag *tag, bool ok) {
  struct rpc_client_call *call = RPC_TAG_OWNER(tag, struct rpc_client_call, sent);
  call->events->sent(call->context, ok);
  pending_done(call);
}

static void closed_run(struct rpc_tag *tag, bool ok) {
  (void)ok;
  pending_done(RPC_TAG_OWNER(tag, struct rpc_client_call, closed));
}

/* Writing */

/* The pending count already holds the batch. */
static void send_start(struct rpc_client_call *call, grpc_byte_buffer *message) {
  grpc_op operation = {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = message};
  grpc_call_error refused = rpc_start_batch(call->call, &operation, 1, &call->sent);
  grpc_byte_buffer_destroy(message);
  if (refused != GRPC_CALL_OK) { /* two sends at once: the caller's mistake, told in the way it listens to */
    call->events->sent(call->context, false);
    pending_done(call);
  }
}

static void close_start(struct rpc_client_call *call) {
  grpc_op operation = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
  if (rpc_start_batch(call->call, &operation, 1, &call->closed) != GRPC_CALL_OK)
    pending_done(call);
}

/* The first batch is out: what was held back may follow. */
static void start_run(struct rpc_tag *tag, bool ok) {
  (void)ok;
  struct rpc_client_call *call = RPC_TAG_OWNER(tag, struct rpc_client_call, start);
  void *held = atomic_exchange_explicit(&call->held, &STARTED, memory_order_acq_rel);
  if (held == &HELD_CLOSE)
    close_start(call);
  else if (held)
    send_start(call, held);
  pending_done(call);
}

/* True if `what` now waits for the first batch. */
static bool hold(struct rpc_client_call *call, void *what) {
  void *nothing = NULL;
  return atomic_compare_exchange_strong_explicit(&call->held, &nothing, what, memory_order_acq_rel,
                                                 memory_order_acquire);
}

void rpc_client_send(struct rpc_client_call *call, grpc_byte_buffer *message) {
  if (!pending_add(call))
    grpc_byte_buffer_destroy(message);
  else if (!hold(call, message))
    send_start(call, message);
}

void rpc_client_half_close(struct rpc_client_call *call) {
  if (pending_add(call) && !hold(call, &HELD_CLOSE))
    close_start(call);
}

/* Reading and ending */

void rpc_client_receive(struct rpc_client_call *call) {
  if (!pending_add(call))
    return;
  grpc_op operation = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &call->received};
  if (rpc_start_batch(call->call, &operation, 1, &call->message) != GRPC_CALL_OK)
    pending_done(call);
}

void rpc_client_cancel(struct rpc_client_call *call) {
  grpc_call_cancel_with_status(call->call, GRPC_STATUS_CANCELLED, CANCELLED_MESSAGE, NULL);
}

void rpc_client_call_release(struct rpc_client_call *call) {
  if (call)
    call_unref(call);
}

/* Starting */

static gpr_timespec deadline_from_now(int64_t milliseconds) {
  if (milliseconds <= 0)
    return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(milliseconds, GPR_TIMESPAN));
}

static struct rpc_client_call *call_new(struct rpc_client *client, const char *method, int64_t deadline_ms,
                                        const struct rpc_client_events *events, void *context, struct error **err) {
  struct rpc_client_call *call = memory_zero(sizeof *call);
  if (!call) {
    error_set_memory(err);
    return NULL;
  }
  call->call =
      grpc_channel_create_call(client->channel, NULL, GRPC_PROPAGATE_DEFAULTS, client->queue,
                               grpc_slice_from_static_string(method), NULL, deadline_from_now(deadline_ms), NULL);
  call->events = events;
  call->context = context;
  atomic_init(&call->references, 2);
  atomic_init(&call->pending, 1);
  call->details = grpc_empty_slice();
  grpc_metadata_array_init(&call->initial);
  grpc_metadata_array_init(&call->trailing);
  return call;
}

/* One call in the making: the operations of its first batch, and what they point to. */
struct beginning {
  grpc_op operations[6];
  size_t count;
  grpc_metadata authorization;
};

static grpc_op *beginning_add(struct beginning *beginning, grpc_op_type type) {
  grpc_op *operation = &beginning->operations[beginning->count++];
  *operation = (grpc_op){.op = type};
  return operation;
}

/* Returns 0, or -1 and REASON_UNAUTHORIZED for a value that no metadata can carry: such a token is never a good one. */
static int beginning_write(struct beginning *beginning, const char *authorization, size_t authorization_length,
                           grpc_byte_buffer *request, bool half_close, struct error **err) {
  grpc_op *metadata = beginning_add(beginning, GRPC_OP_SEND_INITIAL_METADATA);
  if (authorization) {
    beginning->authorization = (grpc_metadata){
        .key = grpc_slice_from_static_string("authorization"),
        .value = grpc_slice_from_copied_buffer(authorization, authorization_length),
    };
    if (!grpc_header_nonbin_value_is_legal(beginning->authorization.value))
      return error_set(err, REASON_UNAUTHORIZED, NULL);
    metadata->data.send_initial_metadata.count = 1;
    metadata->data.send_initial_metadata.metadata = &beginning->authorization;
  }
  if (request)
    beginning_add(beginning, GRPC_OP_SEND_MESSAGE)->data.send_message.send_message = request;
  if (half_close)
    beginning_add(beginning, GRPC_OP_SEND_CLOSE_FROM_CLIENT);
  return 0;
}

static void beginning_read(struct beginning *beginning, struct rpc_client_call *call) {
  /* The initial metadata is not needed, but without asking for it the status comes only at the deadline. */
  beginning_add(beginning, GRPC_OP_RECV_INITIAL_METADATA)->data.recv_initial_metadata.recv_initial_metadata =
      &call->initial;
  grpc_op *status = beginning_add(beginning, GRPC_OP_RECV_STATUS_ON_CLIENT);
  status->data.recv_status_on_client.status = &call->code;
  status->data.recv_status_on_client.status_details = &call->details;
  status->data.recv_status_on_client.trailing_metadata = &call->trailing;
}

static int batch_start(struct rpc_client_call *call, const struct beginning *beginning, struct rpc_tag *tag,
                       struct error **err) {
  grpc_call_error refused = rpc_start_batch(call->call, beginning->operations, beginning->count, tag);
  if (refused == GRPC_CALL_OK)
    return 0;
  return error_set_detail(err, REASON_INTERNAL, "starting a call: %s", grpc_call_error_to_string(refused));
}

/* Neither callback nor reference is left after a failed start. */
static struct rpc_client_call *call_abandon(struct rpc_client_call *call) {
  call_unref(call);
  call_unref(call);
  return NULL;
}

static void beginning_end(struct beginning *beginning, grpc_byte_buffer *request) {
  grpc_slice_unref(beginning->authorization.value);
  if (request)
    grpc_byte_buffer_destroy(request);
}

static int stream_start(struct rpc_client_call *call, struct beginning *beginning, struct error **err) {
  call->start.run = start_run;
  call->message.run = message_run;
  call->sent.run = sent_run;
  call->closed.run = closed_run;
  call->status.run = status_run;
  atomic_store_explicit(&call->pending, 2, memory_order_relaxed);
  if (batch_start(call, beginning, &call->start, err) < 0)
    return -1;
  struct beginning reading = {.count = 0};
  beginning_read(&reading, call);
  if (rpc_start_batch(call->call, reading.operations, reading.count, &call->status) != GRPC_CALL_OK) {
    /* Not known to happen. The first batch is out, so the call ends through `ended`. */
    call->code = GRPC_STATUS_INTERNAL;
    rpc_client_cancel(call);
    pending_done(call);
  }
  return 0;
}

struct rpc_client_call *rpc_client_start(struct rpc_client *client, const char *method, const char *authorization,
                                         size_t authorization_length, int64_t deadline_ms, grpc_byte_buffer *request,
                                         bool half_close, const struct rpc_client_events *events, void *context,
                                         struct error **err) {
  struct beginning beginning = {.authorization.value = grpc_empty_slice()};
  struct rpc_client_call *call = call_new(client, method, deadline_ms, events, context, err);
  if (call && (beginning_write(&beginning, authorization, authorization_length, request, half_close, err) < 0 ||
               stream_start(call, &beginning, err) < 0))
    call = call_abandon(call);
  beginning_end(&beginning, request);
  return call;
}

static void unary_run(struct rpc_tag *tag, bool ok) {
  (void)ok;
  struct rpc_client_call *call = RPC_TAG_OWNER(tag, struct rpc_client_call, status);
  if (call->received && call->code == GRPC_STATUS_OK)
    call->events->message(call->context, call->received);
  if (call->received)
    grpc_byte_buffer_destroy(call->received);
  pending_done(call);
}

struct rpc_client_call *rpc_client_unary(struct rpc_client *client, const char *method, const char *authorization,
                                         size_t authorization_length, int64_t deadline_ms, grpc_byte_buffer *request,
                                         const struct rpc_client_events *events, void *context, struct error **err) {
  struct beginning beginning = {.authorization.value = grpc_empty_slice()};
  struct rpc_client_call *call = call_new(client, method, deadline_ms, events, context, err);
  if (call && beginning_write(&beginning, authorization, authorization_length, request, true, err) < 0)
    call = call_abandon(call);
  if (call) {
    beginning_add(&beginning, GRPC_OP_RECV_MESSAGE)->data.recv_message.recv_message = &call->received;
    beginning_read(&beginning, call);
    call->status.run = unary_run;
    if (batch_start(call, &beginning, &call->status, err) < 0)
      call = call_abandon(call);
  }
  beginning_end(&beginning, request);
  return call;
}
