/*
 * A call's life and the functions of its user. An open call is known to nghttp2 as its stream's user data; one that is
 * over is not, and waits in wire->ended until no function of nghttp2 is running, when `ended` is called and it is
 * freed.
 */
#include "backend/wire/wire_internal.h"
#include "base/memory.h"
#include <string.h>

static void link_call(struct wire_call *call, struct wire_call **list) {
  call->next = *list;
  call->link = list;
  if (*list)
    (*list)->link = &call->next;
  *list = call;
}

static void unlink_call(struct wire_call *call) {
  *call->link = call->next;
  if (call->next)
    call->next->link = call->link;
}

struct wire_call *wire_call_new(struct wire *wire) {
  struct wire_call *call = memory_zero(sizeof *call);
  if (!call)
    return NULL;
  call->wire = wire;
  call->queue_end = &call->queue;
  call->peer_status = -1;
  link_call(call, &wire->calls);
  wire->call_count++;
  return call;
}

struct wire_call *wire_call_find(struct wire *wire, int32_t stream) {
  return stream > 0 ? nghttp2_session_get_stream_user_data(wire->session, stream) : NULL;
}

static void set_text(struct wire_call *call, const char *text) {
  if (text == call->text)
    return;
  memory_free(call->text);
  call->text = text && text[0] ? memory_string_of(text, strnlen(text, WIRE_TEXT_LIMIT)) : NULL;
}

void wire_call_end(struct wire_call *call, int status, const char *text) {
  struct wire *wire = call->wire;
  if (call->over)
    return;
  call->over = true;
  call->closing = true;
  call->status = status;
  set_text(call, text);
  nghttp2_session_set_stream_user_data(wire->session, call->stream, NULL);
  wire_output_drop(call);
  if (call->writable_due)
    wire->writable_due--;
  unlink_call(call);
  link_call(call, &wire->ended);
}

void wire_call_fail(struct wire_call *call, uint32_t error_code, int status, const char *text) {
  if (call->over)
    return;
  /* Without memory the stream stays open at the other side until the connection ends; here it is over all the same. */
  nghttp2_submit_rst_stream(call->wire->session, NGHTTP2_FLAG_NONE, call->stream, error_code);
  wire_call_end(call, status, text);
}

static void free_call(struct wire_call *call) {
  unlink_call(call);
  call->wire->call_count--;
  memory_free(call->assembly);
  memory_free(call->path);
  memory_free(call->text);
  memory_free(call);
}

void wire_call_reap(struct wire *wire) {
  while (wire->ended) {
    struct wire_call *call = wire->ended;
    if (call->events)
      call->events->ended(call, call->context, call->status, call->text ? call->text : "");
    free_call(call);
  }
}

struct wire_call *wire_call_start(struct wire *wire, const char *path, const struct wire_call_events *events,
                                  void *context) {
  if (wire->broken || wire->options.role != WIRE_CLIENT || wire->call_count >= wire->options.calls_limit)
    return NULL;
  if (!nghttp2_session_check_request_allowed(wire->session))
    return NULL;
  struct wire_call *call = wire_call_new(wire);
  if (!call)
    return NULL;
  call->stream = wire_header_submit_request(call, path);
  if (call->stream < 0) {
    free_call(call);
    return NULL;
  }
  call->events = events;
  call->context = context;
  return call;
}

void wire_call_accept(struct wire_call *call, const struct wire_call_events *events, void *context) {
  call->events = events;
  call->context = context;
}

size_t wire_call_queued(const struct wire_call *call) {
  return call->queued;
}

size_t wire_call_unconfirmed(const struct wire_call *call) {
  nghttp2_session *session = call->wire->session;
  if (call->over)
    return 0;
  /* How far the other side lets us go at most, and how far it still lets us go. */
  uint32_t whole = nghttp2_session_get_remote_settings(session, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE);
  int32_t open = nghttp2_session_get_stream_remote_window_size(session, call->stream);
  if (open < 0)
    return whole;
  return (uint32_t)open < whole ? whole - (uint32_t)open : 0;
}

void wire_call_half_close(struct wire_call *call) {
  if (call->closing)
    return;
  call->closing = true;
  if (wire_output_resume(call) != 0)
    wire_call_fail(call, NGHTTP2_INTERNAL_ERROR, WIRE_UNAVAILABLE, "out of memory");
}

void wire_call_finish(struct wire_call *call, int status, const char *text) {
  if (call->closing)
    return;
  call->closing = true;
  call->status = status;
  set_text(call, text);
  int code = call->answered ? wire_output_resume(call) : wire_header_submit_status(call, "200");
  if (code != 0)
    wire_call_fail(call, NGHTTP2_INTERNAL_ERROR, WIRE_UNAVAILABLE, "out of memory");
}

void wire_call_cancel(struct wire_call *call) {
  wire_call_fail(call, NGHTTP2_CANCEL, WIRE_CANCELLED, NULL);
}
