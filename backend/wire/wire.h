/*
 * gRPC over HTTP/2 on one byte stream, without any I/O: bytes in, bytes out, callbacks. Both ends of the session use
 * it: backend/session/ as client, sandboxd as server. HTTP/2 is nghttp2's; gRPC's framing is here (see
 * PROTOCOL-HTTP2.md of gRPC: 5-byte message prefix, grpc-status trailers). Messages are opaque bytes.
 *
 * Flow control is by the receiver: bytes of a message count as taken only when wire_call_consume says so, so a reader
 * that stops stops the writer. One connection belongs to one thread.
 */
#ifndef BACKEND_WIRE_WIRE_H
#define BACKEND_WIRE_WIRE_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wire;
struct wire_call;

enum wire_role { WIRE_CLIENT, WIRE_SERVER };

/* gRPC status codes that are used between the two ends. */
enum {
  WIRE_OK = 0,
  WIRE_CANCELLED = 1,
  WIRE_UNKNOWN = 2,
  WIRE_RESOURCE_EXHAUSTED = 8,
  WIRE_UNIMPLEMENTED = 12,
  WIRE_INTERNAL = 13,
  WIRE_UNAVAILABLE = 14
};

struct wire_options {
  enum wire_role role;
  size_t message_limit; /* bytes of one received message; a longer one resets its call */
  /* Bytes of received messages a call may hold that are not consumed, at least 16 KiB. A longer message comes through
   * when the call holds nothing else: it never holds more than the larger of call_window and message_limit. */
  size_t call_window;
  size_t calls_limit; /* calls open at once; further ones are refused */
  /* Bytes the answers to the other side's control frames may take before the connection is failed. */
  size_t output_limit;
};

/* For one call. A call's functions, and wire_call_start, may be called from within callbacks; wire_receive,
 * wire_transmit and wire_free may not. Only wire_receive, wire_transmit and wire_free call back. */
struct wire_call_events {
  /* One whole message; the bytes are valid for the call. They count against the window until wire_call_consume. */
  void (*message)(struct wire_call *call, void *context, const uint8_t *bytes, size_t length);
  /* The other side will send no more messages (server role: the client half-closed). */
  void (*half_closed)(struct wire_call *call, void *context);
  /* Less than the low-water mark (64 KiB) of this call's output is waiting, after more was. */
  void (*writable)(struct wire_call *call, void *context);
  /* The last callback, once: the call is over and `call` must not be used after it returns. Client role: the status the
   * server sent, or WIRE_UNAVAILABLE when the connection broke, WIRE_CANCELLED when it was reset. Server role: WIRE_OK
   * after a sent status, WIRE_CANCELLED when the client reset it, WIRE_UNAVAILABLE when the connection broke. Both
   * roles: another status when the other side broke gRPC's rules or message_limit and the call was reset here. text:
   * valid for the call, "" if there is none, repaired UTF-8 without control characters, at most 1 KiB. */
  void (*ended)(struct wire_call *call, void *context, int status, const char *text);
};

struct wire_events {
  /* Server role: a new call of this path ("/package.Service/Method"). Set its events by wire_call_accept, or answer at
   * once with wire_call_finish. */
  void (*opened)(struct wire *wire, void *context, struct wire_call *call, const char *path);
  /* A ping of ours was answered. */
  void (*pong)(struct wire *wire, void *context);
};

/* NULL without memory. */
struct wire *wire_new(const struct wire_options *options, const struct wire_events *events, void *context);
/* Ends every call (`ended` with WIRE_UNAVAILABLE) and frees. Not from within a callback. */
void wire_free(struct wire *wire);

/* Bytes from the other side. Returns 0, or -1 and *err: the connection must be closed. */
int wire_receive(struct wire *wire, const uint8_t *bytes, size_t length, struct error **err);
/* The next bytes to write, owned by the wire until the next call of any of its functions: returns their number, 0 if
 * there are none now, or -1 and *err. Call again until 0. Large message payloads are not copied on their way here. */
long wire_transmit(struct wire *wire, const uint8_t **bytes, struct error **err);
bool wire_wants_transmit(const struct wire *wire);
int wire_ping(struct wire *wire);
size_t wire_calls(const struct wire *wire);
/* Bytes of memory held, waiting and unfinished messages included. */
size_t wire_memory(const struct wire *wire);

/* Client role. NULL without memory or when calls_limit is reached. */
struct wire_call *wire_call_start(struct wire *wire, const char *path, const struct wire_call_events *events,
                                  void *context);
/* Server role, within `opened`. */
void wire_call_accept(struct wire_call *call, const struct wire_call_events *events, void *context);
/* Queues one message; the bytes are copied by wire_call_send, and taken over (memory_free) by wire_call_send_owned, on
 * failure too. Returns 0, or -1 without memory or when the call is over or half-closed. */
int wire_call_send(struct wire_call *call, const uint8_t *bytes, size_t length);
int wire_call_send_owned(struct wire_call *call, uint8_t *bytes, size_t length);
/* As wire_call_send_owned, for a message that begins `offset` bytes behind the block's begin, at least WIRE_HEADROOM:
 * frame headers are then written right in front of it, and a large message leaves in one piece. */
#define WIRE_HEADROOM 14
int wire_call_send_block(struct wire_call *call, uint8_t *block, size_t offset, size_t length);
/* Bytes queued and not yet transmitted. */
size_t wire_call_queued(const struct wire_call *call);
/* At least the message bytes that left and that the other side did not say it has consumed: what may be lost if the
 * connection breaks now, less what is queued. */
size_t wire_call_unconfirmed(const struct wire_call *call);
/* Client role: no more messages from us. Server role: sends the status behind what is queued. */
void wire_call_half_close(struct wire_call *call);
void wire_call_finish(struct wire_call *call, int status, const char *text);
/* Resets the call; `ended` (WIRE_CANCELLED) comes during the next wire_receive or wire_transmit, nothing else before
 * it. */
void wire_call_cancel(struct wire_call *call);
/* So many received message bytes are done with. */
void wire_call_consume(struct wire_call *call, size_t length);
/* Adds to this call's window, at most 64 MiB. Once, right after the call was started or accepted. */
void wire_call_widen(struct wire_call *call, size_t bytes);

#endif
