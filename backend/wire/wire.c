/*
 * The connection: its life, the bytes that come in, and the callbacks of nghttp2 that tell what they mean. Limits on
 * what the other side can make us hold: header lists (header.c), messages and windows (receive.c), calls (max
 * concurrent streams), and the answers to its control frames (begin_frame below).
 */
#include "backend/wire/wire_internal.h"
#include "base/memory.h"
#include <malloc.h>
#include <stdio.h>
#include <string.h>

/* DATA frames are passed on as they come, so a large limit costs no memory; a GOAWAY of this size would. */
#define MAX_FRAME_SIZE (256 * 1024)
#define SMALLEST_WINDOW 16384
#define LARGEST_WINDOW (INT32_MAX / 2) /* leaves room for wire_call_widen and for large messages */
/* What nghttp2 holds for one queued control frame, its allocation's overhead included. */
#define CONTROL_FRAME_BYTES 192

/* nghttp2's memory, counted. */
static void *memory_call_new(size_t size, void *user) {
  struct wire *wire = user;
  void *block = memory_new(size);
  wire->memory += malloc_usable_size(block);
  return block;
}

static void memory_call_free(void *block, void *user) {
  struct wire *wire = user;
  wire->memory -= malloc_usable_size(block);
  memory_free(block);
}

static void *memory_call_array(size_t count, size_t size, void *user) {
  struct wire *wire = user;
  void *block = memory_array(count, size);
  wire->memory += malloc_usable_size(block);
  return block;
}

static void *memory_call_resize(void *block, size_t size, void *user) {
  struct wire *wire = user;
  size_t before = malloc_usable_size(block);
  void *resized = memory_resize(block, size);
  if (resized)
    wire->memory += malloc_usable_size(resized) - before;
  return resized;
}

static void note_failure(struct wire *wire, const char *text) {
  if (wire->failure[0] == '\0')
    snprintf(wire->failure, sizeof wire->failure, "%s", text);
}

/* The answers that wait to be sent are bounded: whoever sends pings, settings or bad frames faster than it reads is
 * cut. */
static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *header, void *context) {
  struct wire *wire = context;
  (void)header;
  size_t allowed = wire->options.output_limit / CONTROL_FRAME_BYTES + 4 * wire->call_count + 8;
  if (nghttp2_session_get_outbound_queue_size(session) <= allowed)
    return 0;
  note_failure(wire, "too many control frames");
  return NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *context) {
  struct wire *wire = context;
  if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
    return 0;
  if (wire->call_count >= wire->options.calls_limit) {
    nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_REFUSED_STREAM);
    return 0;
  }
  struct wire_call *call = wire_call_new(wire);
  if (!call)
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  call->stream = frame->hd.stream_id;
  return nghttp2_session_set_stream_user_data(session, call->stream, call);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, nghttp2_rcbuf *name, nghttp2_rcbuf *value,
                     uint8_t flags, void *context) {
  (void)session;
  (void)flags;
  struct wire_call *call = wire_call_find(context, frame->hd.stream_id);
  if (!call || frame->hd.type != NGHTTP2_HEADERS)
    return 0;
  if (wire_header_take(call, name, value) == 0)
    return 0;
  wire_call_fail(call, NGHTTP2_ENHANCE_YOUR_CALM, WIRE_RESOURCE_EXHAUSTED, "headers are too long");
  return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

/* Server role: the request's headers are complete. */
static void open_call(struct wire_call *call) {
  struct wire *wire = call->wire;
  if (!call->post || !call->grpc) {
    call->closing = true;
    call->status = WIRE_UNKNOWN;
    if (wire_header_submit_status(call, call->post ? "415" : "405") != 0)
      wire_call_fail(call, NGHTTP2_INTERNAL_ERROR, WIRE_INTERNAL, "out of memory");
    return;
  }
  if (call->path)
    wire->events->opened(wire, wire->context, call, call->path);
  if (!call->events && !call->closing && !call->over)
    wire_call_finish(call, WIRE_UNIMPLEMENTED, "");
  memory_free(call->path);
  call->path = NULL;
}

/* The other side ended its half of the stream. */
static void end_of_stream(struct wire_call *call) {
  if (call->wire->options.role == WIRE_CLIENT) {
    wire_header_end_call(call);
  } else if (!wire_receive_complete(call)) {
    wire_call_fail(call, NGHTTP2_PROTOCOL_ERROR, WIRE_INTERNAL, "the last message is cut short");
  } else if (call->events && call->events->half_closed && !call->closing) {
    call->events->half_closed(call, call->context);
  }
}

static int on_frame_received(nghttp2_session *session, const nghttp2_frame *frame, void *context) {
  (void)session;
  struct wire *wire = context;
  if (frame->hd.type == NGHTTP2_PING && frame->hd.flags & NGHTTP2_FLAG_ACK) {
    if (wire->pings == 0)
      return 0;
    wire->pings--;
    if (wire->events->pong)
      wire->events->pong(wire, wire->context);
    return 0;
  }
  if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
    return 0;
  struct wire_call *call = wire_call_find(wire, frame->hd.stream_id);
  if (!call)
    return 0;
  if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
    open_call(call);
  if (call->over)
    return 0;
  if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
    end_of_stream(call);
  else if (frame->hd.type == NGHTTP2_HEADERS && wire->options.role == WIRE_CLIENT)
    wire_header_check_answer(call);
  return 0;
}

/* All bytes count as taken for the connection; the calls' windows hold the other side back. */
static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *bytes, size_t length,
                   void *context) {
  (void)flags;
  int code = nghttp2_session_consume_connection(session, length);
  if (code != 0)
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  struct wire_call *call = wire_call_find(context, stream);
  if (call)
    wire_receive_data(call, bytes, length);
  return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream, uint32_t error_code, void *context) {
  (void)session;
  struct wire_call *call = wire_call_find(context, stream);
  if (!call)
    return 0;
  if (error_code == NGHTTP2_REFUSED_STREAM) {
    wire_call_end(call, WIRE_UNAVAILABLE, "the call was refused");
  } else if (error_code == NGHTTP2_CANCEL || error_code == NGHTTP2_NO_ERROR) {
    wire_call_end(call, WIRE_CANCELLED, "the call was reset");
  } else {
    char text[64];
    snprintf(text, sizeof text, "the call was reset: %s", nghttp2_http2_strerror(error_code));
    wire_call_end(call, WIRE_CANCELLED, text);
  }
  return 0;
}

/* Client role: the stream is open, so its window can be made wider. Server role: the status is on its way, so the call
 * is over, whatever the client still wants to send. */
static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *context) {
  struct wire *wire = context;
  if (frame->hd.type == NGHTTP2_GOAWAY)
    wire->said_goodbye = true;
  struct wire_call *call = frame->hd.type == NGHTTP2_HEADERS ? wire_call_find(wire, frame->hd.stream_id) : NULL;
  if (call && wire->options.role == WIRE_CLIENT)
    wire_receive_widen(call);
  if (!call || wire->options.role == WIRE_CLIENT || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
    return 0;
  if (nghttp2_session_get_stream_remote_close(session, call->stream) == 0)
    nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, call->stream, NGHTTP2_NO_ERROR);
  wire_call_end(call, WIRE_OK, NULL);
  return 0;
}

static int on_frame_not_sent(nghttp2_session *session, const nghttp2_frame *frame, int code, void *context) {
  (void)session;
  struct wire_call *call = frame->hd.type == NGHTTP2_HEADERS ? wire_call_find(context, frame->hd.stream_id) : NULL;
  if (call)
    wire_call_fail(call, NGHTTP2_INTERNAL_ERROR, WIRE_UNAVAILABLE, nghttp2_strerror(code));
  return 0;
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int code, void *context) {
  (void)session;
  (void)frame;
  note_failure(context, nghttp2_strerror(code));
  return 0;
}

static int make_session(struct wire *wire, const nghttp2_session_callbacks *callbacks) {
  nghttp2_option *option;
  if (nghttp2_option_new(&option) != 0)
    return -1;
  nghttp2_option_set_no_auto_window_update(option, 1);
  nghttp2_option_set_no_closed_streams(option, 1);
  nghttp2_option_set_max_outbound_ack(option, wire->options.output_limit / CONTROL_FRAME_BYTES + 1);
  /* A client resets what it no longer wants, and every call that the server ended before it had closed its side: as
   * often as there are calls. nghttp2 would close the connection at the thousandth within half a minute. */
  nghttp2_option_set_stream_reset_rate_limit(option, UINT64_MAX, UINT64_MAX);
  nghttp2_option_set_peer_max_concurrent_streams(option, (uint32_t)wire->options.calls_limit);
  nghttp2_mem memory = {.mem_user_data = wire,
                        .malloc = memory_call_new,
                        .free = memory_call_free,
                        .calloc = memory_call_array,
                        .realloc = memory_call_resize};
  int code = wire->options.role == WIRE_CLIENT
                 ? nghttp2_session_client_new3(&wire->session, callbacks, wire, option, &memory)
                 : nghttp2_session_server_new3(&wire->session, callbacks, wire, option, &memory);
  nghttp2_option_del(option);
  return code == 0 ? 0 : -1;
}

static int set_callbacks_and_make_session(struct wire *wire) {
  nghttp2_session_callbacks *callbacks;
  if (nghttp2_session_callbacks_new(&callbacks) != 0)
    return -1;
  nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
  nghttp2_session_callbacks_set_on_header_callback2(callbacks, on_header);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_received);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
  nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_sent);
  nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, on_frame_not_sent);
  nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
  wire_output_set_callbacks(callbacks);
  int result = make_session(wire, callbacks);
  nghttp2_session_callbacks_del(callbacks);
  return result;
}

static int submit_settings(struct wire *wire) {
  nghttp2_settings_entry entries[] = {
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, (uint32_t)wire->options.call_window},
      {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, MAX_FRAME_SIZE},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, WIRE_HEADER_LIMIT},
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, (uint32_t)wire->options.calls_limit},
      {NGHTTP2_SETTINGS_ENABLE_PUSH, 0}, /* the last: a server does not say it */
  };
  size_t count = sizeof entries / sizeof entries[0];
  if (wire->options.role == WIRE_SERVER)
    count--;
  if (nghttp2_submit_settings(wire->session, NGHTTP2_FLAG_NONE, entries, count) != 0)
    return -1;
  return nghttp2_session_set_local_window_size(wire->session, NGHTTP2_FLAG_NONE, 0, INT32_MAX) == 0 ? 0 : -1;
}

struct wire *wire_new(const struct wire_options *options, const struct wire_events *events, void *context) {
  struct wire *wire = memory_zero(sizeof *wire);
  if (!wire)
    return NULL;
  wire->options = *options;
  wire->events = events;
  wire->context = context;
  if (wire->options.call_window < SMALLEST_WINDOW)
    wire->options.call_window = SMALLEST_WINDOW;
  if (wire->options.call_window > LARGEST_WINDOW)
    wire->options.call_window = LARGEST_WINDOW;
  if (set_callbacks_and_make_session(wire) != 0) {
    memory_free(wire);
    return NULL;
  }
  if (submit_settings(wire) != 0) {
    wire_free(wire);
    return NULL;
  }
  return wire;
}

void wire_free(struct wire *wire) {
  if (!wire)
    return;
  wire->broken = true;
  while (wire->calls)
    wire_call_end(wire->calls, WIRE_UNAVAILABLE, "the connection broke");
  wire_call_reap(wire);
  nghttp2_session_del(wire->session);
  wire_output_free(wire);
  memory_free(wire);
}

int wire_receive(struct wire *wire, const uint8_t *bytes, size_t length, struct error **err) {
  if (wire->broken)
    return error_set_detail(err, REASON_SANDBOX_NOT_READY, "the connection failed before");
  ssize_t taken = nghttp2_session_mem_recv(wire->session, bytes, length);
  if (taken < 0 || (size_t)taken != length || !nghttp2_session_want_read(wire->session)) {
    wire->broken = true;
    if (taken == NGHTTP2_ERR_NOMEM)
      error_set_memory(err);
    else
      error_set_detail(err, REASON_SANDBOX_NOT_READY, "HTTP/2: %s",
                       wire->failure[0] ? wire->failure
                       : taken < 0      ? nghttp2_strerror((int)taken)
                                        : "the other side closed");
  }
  wire_call_reap(wire);
  return wire->broken ? -1 : 0;
}

int wire_ping(struct wire *wire) {
  if (wire->broken || nghttp2_submit_ping(wire->session, NGHTTP2_FLAG_NONE, NULL) != 0)
    return -1;
  wire->pings++;
  return 0;
}

size_t wire_calls(const struct wire *wire) {
  return wire->call_count;
}

size_t wire_memory(const struct wire *wire) {
  size_t total = sizeof *wire + wire->memory;
  for (const struct wire_call *call = wire->calls; call; call = call->next)
    total += sizeof *call + call->assembly_capacity + call->queued;
  return total;
}
