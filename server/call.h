/*
 * One call of a client, as the handlers of the Lease service see it. Completion-queue threads receive, authenticate,
 * check and decode; a handler then runs on the loop thread, which owns all state, and answers from there.
 *
 * Thread: everything here is the loop's, unless a line says otherwise.
 */
#ifndef SERVER_CALL_H
#define SERVER_CALL_H

#include "base/error.h"
#include "base/identity.h"
#include <grpc/grpc.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

struct call;

enum call_kind { CALL_UNARY, CALL_SERVER_STREAM, CALL_CLIENT_STREAM, CALL_BIDIRECTIONAL };

/* What a handler wants to know of a call it has not answered yet. */
struct call_events {
  /* The next message, asked for by call_receive; NULL: the client half-closed. The buffer is the callback's caller's. An
   * undecodable one is the handler's to refuse (rpc_unpack). Streams only. */
  void (*message)(void *context, grpc_byte_buffer *message);
  /* The message of call_send has left; send the next one now. Streams only. */
  void (*sent)(void *context);
  /* The client cancelled, vanished, or its deadline passed, or the server is stopping; once. The handler must still
   * answer (call_fail with REASON_ABORTED), soon. */
  void (*cancelled)(void *context);
  /* May be NULL. The last word on a call that was answered and not cancelled before: once, later. `delivered` false: the
   * client had gone before the answer left, and knows nothing of it. */
  void (*closed)(void *context, bool delivered);
};

struct call_method {
  const char *path; /* "/sandbox.lease.v1.LeaseService/Exec" */
  enum call_kind kind;
  /* Of the request, or of the first message of a client stream. */
  const ProtobufCMessageDescriptor *request;
  /* False for methods that need no token (health, reflection). */
  bool authenticated;
  /* Rules that need no state; on a completion-queue thread. 0, or -1 and *err. May be NULL. */
  int (*check)(const ProtobufCMessage *request, struct error **err);
  /* Runs on the loop. `request` is valid until the call is answered. `context` is the server's handler context. */
  void (*handle)(struct call *call, const ProtobufCMessage *request, void *context);
};

/* Valid until the call is answered. */
const struct identity *call_identity(const struct call *call);
/* Boot-clock nanoseconds; INT64_MAX without a deadline. */
int64_t call_deadline(const struct call *call);
/* For handlers that do not answer at once. `context` is passed to the events. */
void call_watch(struct call *call, const struct call_events *events, void *context);

/* Each answers the call, once; afterwards it must not be used. */
void call_reply(struct call *call, const ProtobufCMessage *reply); /* unary and client-streaming */
void call_reply_buffer(struct call *call, grpc_byte_buffer *reply); /* the same with packed bytes, taken over */
void call_finish(struct call *call);                               /* server-streaming and bidirectional: OK */
void call_fail(struct call *call, struct error *err);              /* err is freed */

/* Streams: one message at a time each way, until `message` or `sent` was called. */
void call_send(struct call *call, grpc_byte_buffer *message); /* taken over */
void call_receive(struct call *call);

#endif
