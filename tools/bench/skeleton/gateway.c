/*
 * The floor under GetLease, gateway half: h2o's own HTTP/1 handler, one unary gRPC call, one JSON body. No token, no
 * routes, no limits, no request ids. One h2o loop and one completion-queue thread. tools/bench measures lease-gateway
 * against it in the same run.
 *
 * Usage: skeleton-gateway PORT unix:/path
 */
#include "rpc/message.h"
#include "rpc/queue.h"
#include "sandbox/lease/v1/lease.pb-c.h"
#include <arpa/inet.h>
#include <cjson/cJSON.h>
#include <grpc/grpc_security.h>
#include <h2o.h>
#include <h2o/http1.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static h2o_globalconf_t configuration;
static h2o_context_t context;
static h2o_accept_ctx_t accept_context;
static h2o_multithread_receiver_t receiver;
static grpc_completion_queue *queue;
static grpc_channel *channel;

struct exchange {
  struct rpc_tag tag;
  h2o_multithread_message_t message; /* from the queue's thread to the loop's */
  h2o_req_t *request;                /* NULL once h2o has dropped it */
  struct exchange **link;
  grpc_call *call;
  grpc_metadata_array initial, trailing;
  grpc_status_code status;
  grpc_slice details;
  grpc_byte_buffer *response;
};

static void exchange_completed(struct rpc_tag *tag, bool ok)
{
  (void)ok;
  struct exchange *exchange = (struct exchange *)((char *)tag - offsetof(struct exchange, tag));
  h2o_multithread_send_message(&receiver, &exchange->message);
}

static void link_dispose(void *pointer)
{
  struct exchange **link = pointer;
  if (*link)
    (*link)->request = NULL;
}

static void time_add(cJSON *object, const char *name, const Google__Protobuf__Timestamp *stamp)
{
  char text[40];
  time_t seconds = stamp ? (time_t)stamp->seconds : 0;
  struct tm broken;
  gmtime_r(&seconds, &broken);
  size_t length = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &broken);
  snprintf(text + length, sizeof text - length, ".%09dZ", stamp ? stamp->nanos : 0);
  cJSON_AddStringToObject(object, name, text);
}

static void exchange_answer(struct exchange *exchange)
{
  h2o_req_t *request = exchange->request;
  Sandbox__Lease__V1__GetLeaseResponse *response =
      exchange->status == GRPC_STATUS_OK
          ? (Sandbox__Lease__V1__GetLeaseResponse *)rpc_unpack(&sandbox__lease__v1__get_lease_response__descriptor,
                                                               exchange->response, NULL)
          : NULL;
  cJSON *body = cJSON_CreateObject(), *lease = cJSON_AddObjectToObject(body, "lease");
  if (response && response->lease) {
    cJSON_AddStringToObject(lease, "id", response->lease->id);
    cJSON_AddStringToObject(lease, "pool", response->lease->pool);
    cJSON_AddStringToObject(lease, "status", "active");
    time_add(lease, "createdAt", response->lease->created_at);
    time_add(lease, "expiresAt", response->lease->expires_at);
    time_add(lease, "lastUsedAt", response->lease->last_used_at);
  }
  if (response)
    protobuf_c_message_free_unpacked(&response->base, NULL);
  char *text = cJSON_PrintUnformatted(body);
  cJSON_Delete(body);
  h2o_iovec_t bytes = h2o_strdup(&request->pool, text, SIZE_MAX);
  free(text);
  static h2o_generator_t generator;
  request->res.status = exchange->status == GRPC_STATUS_OK ? 200 : 503;
  request->res.reason = "OK";
  request->res.content_length = bytes.len;
  h2o_add_header(&request->pool, &request->res.headers, H2O_TOKEN_CONTENT_TYPE, NULL, H2O_STRLIT("application/json"));
  h2o_start_response(request, &generator);
  h2o_send(request, &bytes, 1, H2O_SEND_STATE_FINAL);
}

static void on_completed(h2o_multithread_receiver_t *from, h2o_linklist_t *messages)
{
  (void)from;
  while (!h2o_linklist_is_empty(messages)) {
    struct exchange *exchange = H2O_STRUCT_FROM_MEMBER(struct exchange, message.link, messages->next);
    h2o_linklist_unlink(&exchange->message.link);
    if (exchange->request) {
      *exchange->link = NULL;
      exchange_answer(exchange);
    }
    grpc_metadata_array_destroy(&exchange->initial);
    grpc_metadata_array_destroy(&exchange->trailing);
    grpc_slice_unref(exchange->details);
    if (exchange->response)
      grpc_byte_buffer_destroy(exchange->response);
    grpc_call_unref(exchange->call);
    free(exchange);
  }
}

static int on_request(h2o_handler_t *handler, h2o_req_t *request)
{
  (void)handler;
  struct exchange *exchange = calloc(1, sizeof *exchange);
  if (!exchange)
    abort();
  exchange->tag.run = exchange_completed;
  exchange->request = request;
  exchange->link = h2o_mem_alloc_shared(&request->pool, sizeof *exchange->link, link_dispose);
  *exchange->link = exchange;
  exchange->details = grpc_empty_slice();
  grpc_metadata_array_init(&exchange->initial);
  grpc_metadata_array_init(&exchange->trailing);
  Sandbox__Lease__V1__GetLeaseRequest get = SANDBOX__LEASE__V1__GET_LEASE_REQUEST__INIT;
  h2o_iovec_t id = h2o_strdup(&request->pool, request->path.base + 1, request->path.len - 1);
  get.lease_id = id.base;
  grpc_byte_buffer *message = rpc_pack(&get.base);
  gpr_timespec deadline =
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(30, GPR_TIMESPAN));
  exchange->call = grpc_channel_create_call(
      channel, NULL, GRPC_PROPAGATE_DEFAULTS, queue,
      grpc_slice_from_static_string("/sandbox.lease.v1.LeaseService/GetLease"), NULL, deadline, NULL);
  grpc_op operations[6] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}, {.op = GRPC_OP_SEND_MESSAGE},
                           {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA},
                           {.op = GRPC_OP_RECV_MESSAGE},           {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};
  operations[1].data.send_message.send_message = message;
  operations[3].data.recv_initial_metadata.recv_initial_metadata = &exchange->initial;
  operations[4].data.recv_message.recv_message = &exchange->response;
  operations[5].data.recv_status_on_client.status = &exchange->status;
  operations[5].data.recv_status_on_client.status_details = &exchange->details;
  operations[5].data.recv_status_on_client.trailing_metadata = &exchange->trailing;
  if (rpc_start_batch(exchange->call, operations, 6, &exchange->tag) != GRPC_CALL_OK)
    abort();
  grpc_byte_buffer_destroy(message);
  return 0;
}

static void on_accept(h2o_socket_t *listener, const char *err)
{
  for (int i = 0; !err && i < 16; i++) {
    h2o_socket_t *connection = h2o_evloop_socket_accept(listener);
    if (!connection)
      return;
    h2o_accept(&accept_context, connection);
  }
}

static int port_listen(uint16_t port)
{
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  return fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 1024) ? -1 : fd;
}

static void *queue_main(void *unused)
{
  (void)unused;
  rpc_queue_run(queue);
  return NULL;
}

int main(int argc, char **argv)
{
  unsigned long port = argc == 3 ? strtoul(argv[1], NULL, 10) : 0;
  if (port == 0 || port > 65535) {
    fprintf(stderr, "usage: skeleton-gateway PORT unix:/path\n");
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  grpc_init();
  queue = grpc_completion_queue_create_for_next(NULL);
  grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
  channel = grpc_channel_create(argv[2], credentials, NULL);
  grpc_channel_credentials_release(credentials);
  h2o_config_init(&configuration);
  h2o_hostconf_t *host = h2o_config_register_host(&configuration, h2o_iovec_init(H2O_STRLIT("default")), 65535);
  h2o_create_handler(h2o_config_register_path(host, "/", 0), sizeof(h2o_handler_t))->on_req = on_request;
  h2o_context_init(&context, h2o_evloop_create(), &configuration);
  h2o_multithread_register_receiver(h2o_multithread_create_queue(context.loop), &receiver, on_completed);
  accept_context = (h2o_accept_ctx_t){.ctx = &context, .hosts = configuration.hosts};
  int fd = port_listen((uint16_t)port);
  if (fd < 0) {
    perror("skeleton-gateway: listen");
    return 1;
  }
  h2o_socket_t *listener = h2o_evloop_socket_create(context.loop, fd, H2O_SOCKET_FLAG_DONT_READ);
  h2o_socket_read_start(listener, on_accept);
  pthread_t thread;
  if (pthread_create(&thread, NULL, queue_main, NULL))
    return 1;
  fprintf(stderr, "ready\n");
  for (;;)
    h2o_evloop_run(context.loop, INT32_MAX);
}
