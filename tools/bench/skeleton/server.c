/*
 * The floor under GetLease, server half: the least a gRPC C-core server can do to answer a unary call. It decodes the
 * request, packs one fixed Lease and answers; no token, no state, no checks. One completion-queue thread, 64 calls
 * asked for in advance. tools/bench measures lease-gateway against it in the same run.
 *
 * Usage: skeleton-server unix:/path
 */
#include "rpc/message.h"
#include "rpc/queue.h"
#include "sandbox/lease/v1/lease.pb-c.h"
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS_IN_ADVANCE = 64 };

struct skeleton {
  grpc_server *server;
  grpc_completion_queue *queue;
};

/* One call; freed when both its batches have completed. */
struct skeleton_call {
  struct rpc_tag accepted, received, closed, answered;
  struct skeleton *skeleton;
  grpc_call *call;
  grpc_call_details details;
  grpc_metadata_array metadata;
  grpc_byte_buffer *request;
  int cancelled;
  int open; /* batches outstanding */
};

static void call_accept(struct skeleton *skeleton);

static void call_free(struct skeleton_call *call)
{
  if (call->request)
    grpc_byte_buffer_destroy(call->request);
  if (call->call)
    grpc_call_unref(call->call);
  grpc_call_details_destroy(&call->details);
  grpc_metadata_array_destroy(&call->metadata);
  free(call);
}

static void call_close_one(struct skeleton_call *call)
{
  if (--call->open == 0)
    call_free(call);
}

static void call_closed(struct rpc_tag *tag, bool ok)
{
  (void)ok;
  call_close_one((struct skeleton_call *)((char *)tag - offsetof(struct skeleton_call, closed)));
}

static void call_answered(struct rpc_tag *tag, bool ok)
{
  (void)ok;
  call_close_one((struct skeleton_call *)((char *)tag - offsetof(struct skeleton_call, answered)));
}

static grpc_byte_buffer *lease_pack(const char *id)
{
  Google__Protobuf__Timestamp time = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
  time.seconds = 1800000000;
  Sandbox__Lease__V1__Lease lease = SANDBOX__LEASE__V1__LEASE__INIT;
  lease.id = (char *)id;
  lease.pool = (char *)"coding";
  lease.status = SANDBOX__LEASE__V1__LEASE_STATUS__LEASE_STATUS_ACTIVE;
  lease.created_at = lease.expires_at = lease.last_used_at = &time;
  Sandbox__Lease__V1__GetLeaseResponse response = SANDBOX__LEASE__V1__GET_LEASE_RESPONSE__INIT;
  response.lease = &lease;
  return rpc_pack(&response.base);
}

static void call_received(struct rpc_tag *tag, bool ok)
{
  struct skeleton_call *call = (struct skeleton_call *)((char *)tag - offsetof(struct skeleton_call, received));
  if (ok && call->request) {
    Sandbox__Lease__V1__GetLeaseRequest *request = (Sandbox__Lease__V1__GetLeaseRequest *)rpc_unpack(
        &sandbox__lease__v1__get_lease_request__descriptor, call->request, NULL);
    grpc_byte_buffer *reply = lease_pack(request ? request->lease_id : "");
    grpc_op operations[2] = {{.op = GRPC_OP_SEND_MESSAGE}, {.op = GRPC_OP_SEND_STATUS_FROM_SERVER}};
    operations[0].data.send_message.send_message = reply;
    operations[1].data.send_status_from_server.status = GRPC_STATUS_OK;
    call->answered.run = call_answered;
    call->open++;
    if (rpc_start_batch(call->call, operations, 2, &call->answered) != GRPC_CALL_OK)
      abort();
    grpc_byte_buffer_destroy(reply);
    if (request)
      protobuf_c_message_free_unpacked(&request->base, NULL);
  } else {
    grpc_call_cancel(call->call, NULL);
  }
  call_close_one(call);
}

static void call_accepted(struct rpc_tag *tag, bool ok)
{
  struct skeleton_call *call = (struct skeleton_call *)((char *)tag - offsetof(struct skeleton_call, accepted));
  if (!ok) {
    call_free(call);
    return;
  }
  call_accept(call->skeleton);
  call->open = 2;
  grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
  close.data.recv_close_on_server.cancelled = &call->cancelled;
  call->closed.run = call_closed;
  grpc_op receive[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}, {.op = GRPC_OP_RECV_MESSAGE}};
  receive[1].data.recv_message.recv_message = &call->request;
  call->received.run = call_received;
  if (rpc_start_batch(call->call, &close, 1, &call->closed) != GRPC_CALL_OK ||
      rpc_start_batch(call->call, receive, 2, &call->received) != GRPC_CALL_OK)
    abort();
}

static void call_accept(struct skeleton *skeleton)
{
  struct skeleton_call *call = calloc(1, sizeof *call);
  if (!call)
    abort();
  call->skeleton = skeleton;
  call->accepted.run = call_accepted;
  grpc_call_details_init(&call->details);
  grpc_metadata_array_init(&call->metadata);
  rpc_tag_publish(&call->accepted);
  if (grpc_server_request_call(skeleton->server, &call->call, &call->details, &call->metadata, skeleton->queue,
                               skeleton->queue, &call->accepted) != GRPC_CALL_OK)
    abort();
}

int main(int argc, char **argv)
{
  if (argc != 2) {
    fprintf(stderr, "usage: skeleton-server unix:/path\n");
    return 2;
  }
  grpc_init();
  struct skeleton skeleton = {.server = grpc_server_create(NULL, NULL),
                              .queue = grpc_completion_queue_create_for_next(NULL)};
  grpc_server_register_completion_queue(skeleton.server, skeleton.queue, NULL);
  grpc_server_credentials *credentials = grpc_insecure_server_credentials_create();
  if (!grpc_server_add_http2_port(skeleton.server, argv[1], credentials)) {
    fprintf(stderr, "skeleton-server: cannot listen on %s\n", argv[1]);
    return 1;
  }
  grpc_server_credentials_release(credentials);
  grpc_server_start(skeleton.server);
  for (int i = 0; i < CALLS_IN_ADVANCE; i++)
    call_accept(&skeleton);
  fprintf(stderr, "ready\n");
  rpc_queue_run(skeleton.queue); /* until killed */
  return 0;
}
