/*
 * Received message bytes: gRPC's framing (one byte "compressed", four bytes length, the message) and the flow-control
 * window of a call. A message that lies whole in what came is handed on from there; one in pieces is put together
 * first.
 *
 * Window: prefixes count as consumed when read, messages when wire_call_consume says so. The other side is told in large
 * steps, or at once when what is open is not enough for the message that it is sending. For a message larger than the
 * whole window it is told of more than was consumed, once the call holds nothing else.
 */
#include "backend/wire/wire_internal.h"
#include "base/memory.h"
#include <string.h>

/* A block up to this size is kept for the call's next message. */
#define KEEP_ASSEMBLY (256 * 1024)

#define LARGEST_WIDENING (64 * 1024 * 1024)

/* Bytes still missing of the prefix or the message that is being received. */
static size_t missing(const struct wire_call *call) {
  if (call->prefix_length < WIRE_PREFIX)
    return WIRE_PREFIX - call->prefix_length;
  return call->message_length - call->assembly_length;
}

static void open_window(struct wire_call *call, size_t bytes) {
  nghttp2_session *session = call->wire->session;
  if (nghttp2_submit_window_update(session, NGHTTP2_FLAG_NONE, call->stream, (int32_t)bytes) != 0)
    wire_call_fail(call, NGHTTP2_INTERNAL_ERROR, WIRE_UNAVAILABLE, "out of memory");
}

static void announce(struct wire_call *call) {
  nghttp2_session *session = call->wire->session;
  if (call->over || nghttp2_session_get_stream_remote_close(session, call->stream) != 0)
    return;
  int32_t window = nghttp2_session_get_stream_local_window_size(session, call->stream);
  size_t open = window > 0 ? (size_t)window : 0, wanted = missing(call), bytes = call->credit;
  if (open >= wanted && bytes < call->wire->options.call_window / 2)
    return;
  if (call->prefix_length == WIRE_PREFIX && call->unconsumed == 0 && open + bytes < wanted) {
    call->advance += wanted - open - bytes;
    bytes = wanted - open;
  }
  call->credit = 0;
  if (bytes > 0)
    open_window(call, bytes);
}

void wire_receive_widen(struct wire_call *call) {
  if (call->widen > 0)
    open_window(call, call->widen);
  call->widen = 0;
}

void wire_call_widen(struct wire_call *call, size_t bytes) {
  if (call->over || bytes > LARGEST_WIDENING)
    return;
  call->widen = bytes;
  if (nghttp2_session_find_stream(call->wire->session, call->stream))
    wire_receive_widen(call);
}

void wire_call_consume(struct wire_call *call, size_t length) {
  if (length > call->unconsumed)
    length = call->unconsumed;
  call->unconsumed -= length;
  size_t ahead = length < call->advance ? length : call->advance;
  call->advance -= ahead;
  call->credit += length - ahead;
  if (!call->receiving)
    announce(call);
}

static void deliver(struct wire_call *call, const uint8_t *bytes, size_t length) {
  call->prefix_length = 0;
  call->assembly_length = 0;
  call->unconsumed += length;
  bool finished = call->wire->options.role == WIRE_SERVER && call->closing;
  if (call->events && call->events->message && !finished)
    call->events->message(call, call->context, bytes, length);
}

static size_t take_prefix(struct wire_call *call, const uint8_t *bytes, size_t length) {
  size_t taken = WIRE_PREFIX - call->prefix_length;
  if (taken > length)
    taken = length;
  memcpy(call->prefix + call->prefix_length, bytes, taken);
  call->prefix_length += taken;
  call->credit += taken;
  if (call->prefix_length < WIRE_PREFIX)
    return taken;
  call->message_length = (size_t)call->prefix[1] << 24 | (size_t)call->prefix[2] << 16 | (size_t)call->prefix[3] << 8 |
                         call->prefix[4];
  if (call->prefix[0] != 0)
    wire_call_fail(call, NGHTTP2_PROTOCOL_ERROR, WIRE_UNIMPLEMENTED, "a message is compressed");
  else if (call->message_length > call->wire->options.message_limit)
    wire_call_fail(call, NGHTTP2_ENHANCE_YOUR_CALM, WIRE_RESOURCE_EXHAUSTED, "a message is too long");
  else if (call->message_length == 0)
    deliver(call, call->prefix, 0);
  return taken;
}

static int make_room(struct wire_call *call) {
  if (call->assembly_capacity >= call->message_length)
    return 0;
  memory_free(call->assembly);
  call->assembly_capacity = 0;
  call->assembly = memory_new(call->message_length);
  if (!call->assembly)
    return -1;
  call->assembly_capacity = call->message_length;
  return 0;
}

static size_t take_payload(struct wire_call *call, const uint8_t *bytes, size_t length) {
  size_t taken = call->message_length - call->assembly_length;
  if (taken <= length && call->assembly_length == 0) {
    deliver(call, bytes, taken);
    return taken;
  }
  if (taken > length)
    taken = length;
  if (call->assembly_length == 0 && make_room(call) != 0) {
    wire_call_fail(call, NGHTTP2_INTERNAL_ERROR, WIRE_RESOURCE_EXHAUSTED, "out of memory");
    return taken;
  }
  memcpy(call->assembly + call->assembly_length, bytes, taken);
  call->assembly_length += taken;
  if (call->assembly_length < call->message_length)
    return taken;
  deliver(call, call->assembly, call->message_length);
  if (call->assembly_capacity > KEEP_ASSEMBLY) {
    memory_free(call->assembly);
    call->assembly = NULL;
    call->assembly_capacity = 0;
  }
  return taken;
}

void wire_receive_data(struct wire_call *call, const uint8_t *bytes, size_t length) {
  call->receiving = true;
  while (length > 0 && !call->over) {
    size_t taken = call->prefix_length < WIRE_PREFIX ? take_prefix(call, bytes, length)
                                                     : take_payload(call, bytes, length);
    bytes += taken;
    length -= taken;
  }
  call->receiving = false;
  announce(call);
}

bool wire_receive_complete(const struct wire_call *call) {
  return call->prefix_length == 0;
}
