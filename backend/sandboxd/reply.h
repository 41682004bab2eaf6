/*
 * What sandboxd answers on a call: messages, and the status that ends it.
 */
#ifndef BACKEND_SANDBOXD_REPLY_H
#define BACKEND_SANDBOXD_REPLY_H

#include "backend/sandboxd/spool.h"
#include "backend/wire/wire.h"
#include "base/error.h"
#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

/* While so many bytes wait to leave on a call, it is given no more; its `writable` tells when to go on. */
#define REPLY_HIGH_WATER (256 * 1024)

/* All return 0, or -1 without memory or when the call is over. */
int reply_message(struct wire_call *call, const ProtobufCMessage *message);
/* The next `length` unsent bytes of a spool, at most LIMIT_CHUNK_BYTES, as OutputChunk of this stream. */
int reply_output(struct wire_call *call, uint32_t stream, struct spool *spool, size_t length);

/* A block for file data: reply_data_bytes says where its `length` bytes, at most LIMIT_CHUNK_BYTES, go. NULL without
 * memory; freed by reply_data or memory_free. */
uint8_t *reply_data_new(size_t length);
uint8_t *reply_data_bytes(uint8_t *block, size_t length);
int reply_data(struct wire_call *call, uint8_t *block, size_t length);

/* Ends the call with "<REASON> <text>"; frees *err. */
void reply_failure(struct wire_call *call, struct error **err);

#endif
