#include "tools/leasectl/call.h"

#include "base/memory.h"
#include "rpc/message.h"
#include "rpc/queue.h"
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

struct connection {
  grpc_completion_queue *queue;
  struct rpc_client *client;
  pthread_t thread;
  const struct settings *settings;
};

static void *queue_main(void *queue) {
  rpc_queue_run(queue);
  return NULL;
}

static void connection_end_queue(struct connection *connection) {
  grpc_completion_queue_shutdown(connection->queue);
  pthread_join(connection->thread, NULL);
  grpc_completion_queue_destroy(connection->queue);
}

struct connection *connection_open(const struct settings *settings, struct error **err) {
  if (!settings->address) {
    error_set_detail(
        err, REASON_INTERNAL,
        "no server address: give --address or SANDBOX_GRPC_ADDRESS (unix:/path or host:port), or run from a "
        "checkout where tools/up has run");
    return NULL;
  }
  struct connection *connection = memory_zero(sizeof *connection);
  if (!connection) {
    error_set_memory(err);
    return NULL;
  }
  grpc_init();
  connection->settings = settings;
  connection->queue = grpc_completion_queue_create_for_next(NULL);
  int failed = pthread_create(&connection->thread, NULL, queue_main, connection->queue);
  if (failed) {
    grpc_completion_queue_shutdown(connection->queue);
    grpc_completion_queue_destroy(connection->queue);
    memory_free(connection);
    error_set_errno(err, failed, "cannot start a thread");
    return NULL;
  }
  struct rpc_client_options options = {
      .address = settings->address, .ca = settings->ca, .certificate = settings->certificate, .key = settings->key};
  connection->client = rpc_client_new(&options, connection->queue, err);
  if (!connection->client) {
    connection_end_queue(connection);
    memory_free(connection);
    return NULL;
  }
  return connection;
}

void connection_close(struct connection *connection) {
  if (!connection)
    return;
  rpc_client_free(connection->client);
  connection_end_queue(connection);
  memory_free(connection);
  grpc_shutdown();
}

/* --- streams; a unary call is one whose first message is kept --- */

struct stream {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct rpc_client_call *call;
  stream_message *message;
  void *context;
  int notify;
  bool sending, ended, started, begun; /* begun: the call exists and messages are asked for */
  struct error *failure;
};

static void stream_changed(struct stream *stream) {
  pthread_cond_broadcast(&stream->changed);
  uint64_t one = 1;
  if (stream->notify >= 0 && write(stream->notify, &one, sizeof one) < 0)
    return; /* the counter is full: whoever waits on it is awake already */
}

/* The call's own pointer is set right after it was started; a callback may be quicker. */
static struct rpc_client_call *stream_call(struct stream *stream) {
  pthread_mutex_lock(&stream->lock);
  while (!stream->begun)
    pthread_cond_wait(&stream->changed, &stream->lock);
  struct rpc_client_call *call = stream->call;
  pthread_mutex_unlock(&stream->lock);
  return call;
}

static void on_message(void *context, grpc_byte_buffer *message) {
  struct stream *stream = context;
  if (!message)
    return;
  struct rpc_client_call *call = stream_call(stream);
  if (stream->message(stream->context, message))
    rpc_client_receive(call);
  else
    rpc_client_cancel(call);
}

static void on_unary_message(void *context, grpc_byte_buffer *message) {
  struct stream *stream = context;
  if (message)
    stream->message(stream->context, message);
}

static void on_sent(void *context, bool ok) {
  (void)ok;
  struct stream *stream = context;
  pthread_mutex_lock(&stream->lock);
  stream->sending = false;
  stream_changed(stream);
  pthread_mutex_unlock(&stream->lock);
}

/* What the caller of `ended` frees, kept. */
static void failure_copy(struct error **to, const struct error *from) {
  const char *message = error_message(from);
  if (strcmp(message, reason_message(error_reason(from))) != 0 || error_field(from))
    error_set_field(to, error_reason(from), error_field(from), message);
  else
    error_set_detail(to, error_reason(from), "%s", error_detail(from));
  if (to && error_retry_after(from) > 0)
    error_set_retry_after(*to, error_retry_after(from));
}

static void on_ended(void *context, struct error *err) {
  struct stream *stream = context;
  pthread_mutex_lock(&stream->lock);
  if (err)
    failure_copy(&stream->failure, err);
  stream->ended = true;
  stream->sending = false;
  stream_changed(stream);
  pthread_mutex_unlock(&stream->lock);
}

static struct stream *stream_new(stream_message *message, void *context, int notify, struct error **err) {
  struct stream *stream = memory_zero(sizeof *stream);
  if (!stream) {
    error_set_memory(err);
    return NULL;
  }
  pthread_mutex_init(&stream->lock, NULL);
  pthread_cond_init(&stream->changed, NULL);
  stream->message = message;
  stream->context = context;
  stream->notify = notify;
  return stream;
}

static void stream_free(struct stream *stream) {
  pthread_mutex_destroy(&stream->lock);
  pthread_cond_destroy(&stream->changed);
  error_free(&stream->failure);
  memory_free(stream);
}

static void stream_begin(struct stream *stream, struct rpc_client_call *call) {
  pthread_mutex_lock(&stream->lock);
  stream->call = call;
  stream->begun = true;
  pthread_cond_broadcast(&stream->changed);
  pthread_mutex_unlock(&stream->lock);
}

struct stream *stream_start(struct connection *connection, const char *method, const ProtobufCMessage *request,
                            bool half_close, stream_message *message, void *context, int notify, struct error **err) {
  static const struct rpc_client_events events = {.message = on_message, .sent = on_sent, .ended = on_ended};
  CLEANUP_MEMORY char *authorization = settings_authorization(connection->settings, err);
  struct stream *stream = authorization ? stream_new(message, context, notify, err) : NULL;
  if (!stream)
    return NULL;
  grpc_byte_buffer *packed = rpc_pack(request);
  struct rpc_client_call *call = rpc_client_start(connection->client, method, authorization, strlen(authorization), 0,
                                                  packed, half_close, &events, stream, err);
  if (!call) {
    stream_free(stream);
    return NULL;
  }
  stream_begin(stream, call);
  rpc_client_receive(call);
  return stream;
}

static bool stream_idle(struct stream *stream) {
  pthread_mutex_lock(&stream->lock);
  while (stream->sending && !stream->ended)
    pthread_cond_wait(&stream->changed, &stream->lock);
  bool open = !stream->ended;
  pthread_mutex_unlock(&stream->lock);
  return open;
}

bool stream_busy(struct stream *stream) {
  pthread_mutex_lock(&stream->lock);
  bool busy = stream->sending && !stream->ended;
  pthread_mutex_unlock(&stream->lock);
  return busy;
}

void stream_post(struct stream *stream, grpc_byte_buffer *message) {
  pthread_mutex_lock(&stream->lock);
  stream->sending = true;
  pthread_mutex_unlock(&stream->lock);
  rpc_client_send(stream->call, message);
}

bool stream_send(struct stream *stream, grpc_byte_buffer *message) {
  if (!message || !stream_idle(stream)) {
    if (message)
      grpc_byte_buffer_destroy(message);
    return false;
  }
  stream_post(stream, message);
  return stream_idle(stream);
}

void stream_half_close(struct stream *stream) {
  if (stream_idle(stream))
    rpc_client_half_close(stream->call);
}

void stream_cancel(struct stream *stream) {
  rpc_client_cancel(stream->call);
}

bool stream_ended(struct stream *stream) {
  pthread_mutex_lock(&stream->lock);
  bool ended = stream->ended;
  pthread_mutex_unlock(&stream->lock);
  return ended;
}

int stream_finish(struct stream *stream, struct error **err) {
  pthread_mutex_lock(&stream->lock);
  while (!stream->ended)
    pthread_cond_wait(&stream->changed, &stream->lock);
  pthread_mutex_unlock(&stream->lock);
  rpc_client_call_release(stream->call);
  int result = stream->failure ? error_move(err, &stream->failure) : 0;
  stream_free(stream);
  return result;
}

/* --- unary calls --- */

struct answer {
  const ProtobufCMessageDescriptor *descriptor;
  ProtobufCMessage *message;
  struct error *failure;
};

static bool answer_take(void *context, grpc_byte_buffer *message) {
  struct answer *answer = context;
  if (!answer->message && !answer->failure)
    answer->message = rpc_unpack(answer->descriptor, message, &answer->failure);
  return true;
}

ProtobufCMessage *connection_call(struct connection *connection, const char *method, const ProtobufCMessage *request,
                                  const ProtobufCMessageDescriptor *response, struct error **err) {
  static const struct rpc_client_events events = {.message = on_unary_message, .ended = on_ended};
  struct answer answer = {.descriptor = response};
  CLEANUP_MEMORY char *authorization = settings_authorization(connection->settings, err);
  struct stream *stream = authorization ? stream_new(answer_take, &answer, -1, err) : NULL;
  if (!stream)
    return NULL;
  struct rpc_client_call *call = rpc_client_unary(connection->client, method, authorization, strlen(authorization), 0,
                                                  rpc_pack(request), &events, stream, err);
  if (!call) {
    stream_free(stream);
    return NULL;
  }
  stream_begin(stream, call);
  int failed = stream_finish(stream, err);
  if (!failed && !answer.message)
    failed = answer.failure ? error_move(err, &answer.failure) : error_set_detail(err, REASON_INTERNAL, "empty answer");
  error_free(&answer.failure);
  if (failed && answer.message) {
    protobuf_c_message_free_unpacked(answer.message, NULL);
    answer.message = NULL;
  }
  return answer.message;
}
