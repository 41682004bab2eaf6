/*
 * Answers of the Lease service as protobuf. Those that carry output or file data are put together from slices, so that
 * the payload is not copied. Thread: any.
 */
#ifndef SERVER_LEASE_ENCODE_H
#define SERVER_LEASE_ENCODE_H

#include "backend/backend.h"
#include "backend/session/session.h"
#include "base/buffer.h"
#include "sandbox/lease/v1/lease.pb-c.h"
#include "server/send_queue.h"
#include <grpc/grpc.h>

/* A Lease message with all it points to; it points into the facts too. */
struct lease_message {
  Sandbox__Lease__V1__Lease lease;
  Google__Protobuf__Timestamp created_at, expires_at, last_used_at;
};
void lease_message_fill(struct lease_message *message, const struct backend_sandbox *facts,
                        Sandbox__Lease__V1__LeaseStatus status);

/* Seconds and nanoseconds of a wall time. */
Google__Protobuf__Timestamp lease_timestamp(int64_t wall);

/* What a Consumer is told of how a command ended. */
Sandbox__Lease__V1__EndedBy lease_ended_by(enum session_ended ended);

/* ExecResponse. Takes the bytes out of both buffers. */
grpc_byte_buffer *lease_encode_exec(struct buffer *out, struct buffer *errors, int exit_code,
                                    Sandbox__Lease__V1__EndedBy ended_by);
/* StreamExecResponse.output. Takes over the batch's slices. */
grpc_byte_buffer *lease_encode_output(struct send_batch *batch);
/* A message that is one `bytes` field made of the batch. Takes over the batch's slices. */
grpc_byte_buffer *lease_encode_data(uint32_t field, struct send_batch *batch);
/* The same with the bytes of a buffer, taken out of it. */
grpc_byte_buffer *lease_encode_bytes(uint32_t field, struct buffer *bytes);

#endif
