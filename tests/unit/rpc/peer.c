#include "tests/unit/rpc/peer.h"

#include "base/error.h"
#include "rpc/queue.h"
#include "rpc/status.h"

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct peer {
  grpc_server *server;
  grpc_completion_queue *queue, *calls;
  pthread_t thread;
  char folder[64], address[128];
  int cancelled;
};

/* One call at a time: what it is made of. */
struct visit {
  struct peer *peer;
  grpc_call *call;
  grpc_call_details details;
  grpc_metadata_array metadata;
  grpc_byte_buffer *message;
  int closed; /* set by RECV_CLOSE */
};

/* Starts the batch and waits for it. Returns whether it succeeded. */
static bool step(struct visit *visit, const grpc_op *operations, size_t count) {
  struct rpc_tag tag = {NULL};
  if (rpc_start_batch(visit->call, operations, count, &tag) != GRPC_CALL_OK)
    abort();
  grpc_event event = grpc_completion_queue_pluck(visit->peer->calls, &tag, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
  return event.success != 0;
}

static bool receive(struct visit *visit) {
  grpc_op operation = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &visit->message};
  return step(visit, &operation, 1) && visit->message;
}

/* Takes over the message. */
static void send(struct visit *visit, grpc_byte_buffer *message) {
  grpc_op operation = {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = message};
  step(visit, &operation, 1);
  grpc_byte_buffer_destroy(message);
}

static grpc_byte_buffer *buffer_from(grpc_slice slice) {
  grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
  grpc_slice_unref(slice);
  return buffer;
}

static void end(struct visit *visit, grpc_status_code code, grpc_metadata *trailing) {
  grpc_op operation = {.op = GRPC_OP_SEND_STATUS_FROM_SERVER};
  operation.data.send_status_from_server.status = code;
  operation.data.send_status_from_server.trailing_metadata = trailing;
  operation.data.send_status_from_server.trailing_metadata_count = trailing ? 1 : 0;
  step(visit, &operation, 1);
}

static void serve_echo(struct visit *visit) {
  while (receive(visit)) {
    grpc_byte_buffer *message = visit->message;
    visit->message = NULL;
    send(visit, message);
  }
  end(visit, GRPC_STATUS_OK, NULL);
}

static void serve_count(struct visit *visit) {
  char count = 0;
  while (receive(visit)) {
    grpc_byte_buffer_destroy(visit->message);
    visit->message = NULL;
    count++;
  }
  send(visit, buffer_from(grpc_slice_from_copied_buffer(&count, 1)));
  end(visit, GRPC_STATUS_OK, NULL);
}

static void serve_many(struct visit *visit) {
  for (int i = 0; i < 100; i++) {
    grpc_slice slice = grpc_slice_malloc(10000);
    memset(GRPC_SLICE_START_PTR(slice), i, 10000);
    send(visit, buffer_from(slice));
  }
  end(visit, GRPC_STATUS_OK, NULL);
}

static void serve_fail(struct visit *visit) {
  struct error *err = NULL;
  error_set(&err, REASON_LEASE_NOT_FOUND, NULL);
  grpc_metadata trailing = {.key = grpc_slice_from_static_string("grpc-status-details-bin"),
                            .value = rpc_status_details(err)};
  end(visit, GRPC_STATUS_NOT_FOUND, &trailing);
  grpc_slice_unref(trailing.value);
  error_free(&err);
}

static void serve_token(struct visit *visit) {
  for (size_t i = 0; i < visit->metadata.count; i++)
    if (grpc_slice_str_cmp(visit->metadata.metadata[i].key, "authorization") == 0)
      send(visit, buffer_from(grpc_slice_ref(visit->metadata.metadata[i].value)));
  end(visit, GRPC_STATUS_OK, NULL);
}

static void serve_never(struct visit *visit) {
  grpc_op operation = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server.cancelled = &visit->closed};
  step(visit, &operation, 1);
  visit->peer->cancelled += visit->closed;
  end(visit, GRPC_STATUS_CANCELLED, NULL);
}

static void serve(struct visit *visit) {
  static const struct {
    const char *method;
    void (*serve)(struct visit *visit);
  } methods[] = {
      {"/test/Echo", serve_echo}, {"/test/Count", serve_count}, {"/test/Many", serve_many},
      {"/test/Fail", serve_fail}, {"/test/Token", serve_token}, {"/test/Never", serve_never},
  };
  grpc_op begin = {.op = GRPC_OP_SEND_INITIAL_METADATA};
  step(visit, &begin, 1);
  for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
    if (grpc_slice_str_cmp(visit->details.method, methods[i].method) == 0) {
      methods[i].serve(visit);
      if (methods[i].serve != serve_never) {
        grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server.cancelled = &visit->closed};
        step(visit, &close, 1);
      }
    }
  }
  if (visit->message)
    grpc_byte_buffer_destroy(visit->message);
  grpc_call_unref(visit->call);
}

static void *peer_run(void *argument) {
  struct peer *peer = argument;
  for (;;) {
    struct visit visit = {.peer = peer};
    grpc_call_details_init(&visit.details);
    grpc_metadata_array_init(&visit.metadata);
    grpc_server_request_call(peer->server, &visit.call, &visit.details, &visit.metadata, peer->calls, peer->queue,
                             peer);
    grpc_event event = grpc_completion_queue_next(peer->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    bool called = event.tag == peer && event.success;
    if (called)
      serve(&visit);
    grpc_call_details_destroy(&visit.details);
    grpc_metadata_array_destroy(&visit.metadata);
    if (!called)
      return NULL;
  }
}

struct peer *peer_start(void) {
  struct peer *peer = calloc(1, sizeof *peer);
  if (!peer)
    abort();
  snprintf(peer->folder, sizeof peer->folder, "/tmp/peer-XXXXXX");
  if (!mkdtemp(peer->folder))
    abort();
  snprintf(peer->address, sizeof peer->address, "unix:%s/socket", peer->folder);
  peer->server = grpc_server_create(NULL, NULL);
  peer->queue = grpc_completion_queue_create_for_next(NULL);
  peer->calls = grpc_completion_queue_create_for_pluck(NULL);
  grpc_server_register_completion_queue(peer->server, peer->queue, NULL);
  grpc_server_register_completion_queue(peer->server, peer->calls, NULL);
  grpc_server_credentials *credentials = grpc_insecure_server_credentials_create();
  if (!grpc_server_add_http2_port(peer->server, peer->address, credentials))
    abort();
  grpc_server_credentials_release(credentials);
  grpc_server_start(peer->server);
  if (pthread_create(&peer->thread, NULL, peer_run, peer) != 0)
    abort();
  return peer;
}

const char *peer_address(const struct peer *peer) { return peer->address; }

int peer_cancelled(const struct peer *peer) { return peer->cancelled; }

void peer_stop(struct peer *peer) {
  int down;
  grpc_server_shutdown_and_notify(peer->server, peer->calls, &down);
  grpc_completion_queue_pluck(peer->calls, &down, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
  pthread_join(peer->thread, NULL);
  grpc_completion_queue_shutdown(peer->queue);
  while (grpc_completion_queue_next(peer->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type != GRPC_QUEUE_SHUTDOWN)
    ;
  grpc_completion_queue_shutdown(peer->calls);
  grpc_server_destroy(peer->server);
  grpc_completion_queue_destroy(peer->queue);
  grpc_completion_queue_destroy(peer->calls);
  unlink(peer->address + strlen("unix:"));
  rmdir(peer->folder);
}

void peer_free(struct peer *peer) { free(peer); }
