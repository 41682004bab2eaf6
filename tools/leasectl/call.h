/*
 * Calls as a command-line program wants them: start, then wait. One completion-queue thread runs the callbacks; the
 * functions here are the main thread's.
 */
#ifndef LEASECTL_CALL_H
#define LEASECTL_CALL_H

#include "base/error.h"
#include "rpc/client.h"
#include "tools/leasectl/settings.h"
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

struct connection;

/* NULL and *err. */
struct connection *connection_open(const struct settings *settings, struct error **err);
void connection_close(struct connection *connection);

/* One unary call. The response is freed with protobuf_c_message_free_unpacked; NULL and *err. */
ProtobufCMessage *connection_call(struct connection *connection, const char *method, const ProtobufCMessage *request,
                                  const ProtobufCMessageDescriptor *response, struct error **err);

/* A streaming call. */
struct stream;

/* Called on the queue's thread for each message; returning false cancels the call. */
typedef bool stream_message(void *context, grpc_byte_buffer *message);

/* The first message is sent at once. half_close: it is the only one. notify: a descriptor that gets an 8-byte write
 * (eventfd) when something changed, or -1. NULL and *err. */
struct stream *stream_start(struct connection *connection, const char *method, const ProtobufCMessage *request,
                            bool half_close, stream_message *message, void *context, int notify, struct error **err);
/* Sends one message (taken over) and returns at once; not while stream_busy, which `notify` tells the end of. */
void stream_post(struct stream *stream, grpc_byte_buffer *message);
bool stream_busy(struct stream *stream);
/* Sends one message (taken over) and waits until it has left. Returns false once the call has ended. */
bool stream_send(struct stream *stream, grpc_byte_buffer *message);
void stream_half_close(struct stream *stream);
void stream_cancel(struct stream *stream);
bool stream_ended(struct stream *stream);
/* Waits for the end, frees the stream; 0, or -1 and *err. */
int stream_finish(struct stream *stream, struct error **err);

#endif
