/*
 * A test double of server/call.h: one call of a client without gRPC. The test plays the client. It checks the rules of
 * call.h: one answer, one message each way at a time, nothing after the answer.
 */
#ifndef TESTS_UNIT_SERVER_CALL_DOUBLE_H
#define TESTS_UNIT_SERVER_CALL_DOUBLE_H

#include "base/identity.h"
#include "server/call.h"
#include "server/lease_service.h"
#include <grpc/grpc.h>

enum call_outcome { CALL_WAITING, CALL_REPLIED, CALL_FINISHED, CALL_FAILED };

#define CALL_DOUBLE_MESSAGES 4096

struct call {
  struct identity identity;
  ProtobufCMessage *request;
  const struct call_events *events;
  void *context;
  enum call_outcome outcome;
  enum reason reason; /* of CALL_FAILED, or of a check that refused */
  char message[256], field[64];
  unsigned retry_after;
  grpc_byte_buffer *reply;
  grpc_byte_buffer *sent[CALL_DOUBLE_MESSAGES]; /* a stream's, in order */
  size_t sent_count;
  bool sending, receiving, cancelled;
  bool told; /* its last word: `cancelled` or `closed` */
  struct call *next; /* of the calls in being */
};

/* A client of `consumer` and `subject` calls LeaseService/`method`: the check, then the handler, as the plumbing does. */
struct call *call_double_start(struct lease_service *service, const char *consumer, const char *subject, const char *method,
                               const ProtobufCMessage *request);
void call_double_free(struct call *call);
/* The client goes away. */
void call_double_cancel(struct call *call);
/* The next message of the client; NULL: half-close. The handler must have asked for it. */
void call_double_message(struct call *call, const ProtobufCMessage *message);
/* The answer has left, or was in vain. Otherwise told by call_double_free or call_double_close_all, of an answer that arrived. */
void call_double_close(struct call *call, bool delivered);
/* Of every answered call: what the plumbing does before it has stopped. */
void call_double_close_all(void);
/* The message under way has left. */
void call_double_sent(struct call *call);

/* The reply, unpacked; the caller frees. */
ProtobufCMessage *call_double_reply(const struct call *call, const ProtobufCMessageDescriptor *descriptor);
/* The n-th message of a stream, unpacked; the caller frees. */
ProtobufCMessage *call_double_sent_message(const struct call *call, size_t n, const ProtobufCMessageDescriptor *descriptor);

#endif
