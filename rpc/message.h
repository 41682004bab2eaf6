/*
 * Between gRPC's byte buffers and protobuf-c. Thread: any.
 */
#ifndef RPC_MESSAGE_H
#define RPC_MESSAGE_H

#include "base/error.h"
#include <grpc/grpc.h>
#include <protobuf-c/protobuf-c.h>

/* NULL without memory. The caller destroys the buffer. */
grpc_byte_buffer *rpc_pack(const ProtobufCMessage *message);
/* Checked as message_unpack does; `bytes` stays the caller's. NULL and *err. */
ProtobufCMessage *rpc_unpack(const ProtobufCMessageDescriptor *descriptor, grpc_byte_buffer *bytes, struct error **err);

/* A message that is one `bytes` field and nothing else, without copying the payload: how file data and output travel.
 * rpc_pack_bytes takes over one reference of `payload`. */
grpc_byte_buffer *rpc_pack_bytes(uint32_t field, grpc_slice payload);
/* True if `bytes` is such a message with that field; *payload is then a slice the caller unrefs. */
bool rpc_unpack_bytes(uint32_t field, grpc_byte_buffer *bytes, grpc_slice *payload);

#endif
