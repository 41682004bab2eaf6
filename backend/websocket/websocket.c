/*
 * The websocket itself: see websocket.h. What is read goes through TLS, the handshake and the frames to its user; what
 * is sent takes the same way back.
 */
#include "backend/websocket/internal.h"

#include "base/clock.h"
#include "base/memory.h"
#include <string.h>

enum { READ_BYTES = 262144, RECORD_BYTES = 16384, PART_BYTES = 65536, SILENCE = 20000, KEEP_ALIVE_SECONDS = 30 };

/* Of one loop, and used only within one callback at a time. */
static uint8_t read_bytes[READ_BYTES];
static uint8_t record_bytes[RECORD_BYTES];
static uint8_t part_bytes[PART_BYTES];

struct pending_write {
  uv_write_t request;
  struct websocket *websocket;
  char *bytes;
  size_t length;
};

static bool is_over(const struct websocket *websocket) {
  return websocket->state >= WEBSOCKET_OVER;
}

/* --- its end --- */

static void end(struct websocket *websocket) {
  websocket->state = WEBSOCKET_OVER;
  websocket->blocked = false;
  uv_timer_stop(&websocket->timer);
  if (!uv_is_closing((uv_handle_t *)&websocket->tcp))
    uv_read_stop((uv_stream_t *)&websocket->tcp);
}

/* On an event of the loop. */
static void lose(struct websocket *websocket, struct error *err) {
  if (is_over(websocket))
    return;
  end(websocket);
  websocket->events.lost(websocket->events.context, err);
}

static void lose_for(struct websocket *websocket, const char *what) {
  CLEANUP_ERROR struct error *err = NULL;
  error_set_detail(&err, REASON_SANDBOX_NOT_READY, "websocket: %s", what);
  lose(websocket, err);
}

static void on_timer(uv_timer_t *timer);

/* From within a function of the header: in the next turn of the loop. Takes *err over. */
static void lose_later(struct websocket *websocket, struct error **err) {
  if (is_over(websocket) || websocket->failure)
    return;
  websocket->failure = *err;
  *err = NULL;
  uv_timer_start(&websocket->timer, on_timer, 0, 0);
}

/* --- out --- */

static void flush(struct websocket *websocket);

static void on_written(uv_write_t *request, int status) {
  struct pending_write *write = request->data;
  struct websocket *websocket = write->websocket;
  websocket->writing -= write->length;
  memory_free(write->bytes);
  memory_free(write);
  if (is_over(websocket))
    return;
  if (status < 0) {
    lose_for(websocket, uv_strerror(status));
    return;
  }
  flush(websocket);
  if (websocket->blocked && websocket_queued(websocket) == 0) {
    websocket->blocked = false;
    websocket->events.drained(websocket->events.context);
  }
}

static int write_rest(struct websocket *websocket) {
  struct pending_write *write = memory_zero(sizeof *write);
  if (!write)
    return -1;
  write->websocket = websocket;
  write->length = websocket->outward.length;
  write->bytes = buffer_take(&websocket->outward);
  write->request.data = write;
  uv_buf_t buffer = uv_buf_init(write->bytes, (unsigned)write->length);
  if (uv_write(&write->request, (uv_stream_t *)&websocket->tcp, &buffer, 1, on_written) == 0) {
    websocket->writing += write->length;
    return 0;
  }
  memory_free(write->bytes);
  memory_free(write);
  return -1;
}

/* What the system takes at once goes at once. */
static void write_some(struct websocket *websocket) {
  uv_buf_t buffer = uv_buf_init((char *)websocket->outward.data, (unsigned)websocket->outward.length);
  int sent = uv_try_write((uv_stream_t *)&websocket->tcp, &buffer, 1);
  if (sent > 0)
    buffer_consume(&websocket->outward, (size_t)sent);
  if (websocket->outward.length == 0)
    buffer_free(&websocket->outward);
}

static void flush(struct websocket *websocket) {
  CLEANUP_ERROR struct error *err = NULL;
  if (websocket->tls && websocket->plain.length > 0 && websocket->state >= WEBSOCKET_ASKING) {
    if (tls_write(websocket->tls, websocket->plain.data, websocket->plain.length, &err) != 0) {
      lose_later(websocket, &err);
      return;
    }
    buffer_free(&websocket->plain);
  }
  if (websocket->outward.length == 0 || websocket->writing > 0)
    return;
  write_some(websocket);
  if (websocket->outward.length > 0 && write_rest(websocket) != 0) {
    error_set_memory(&err);
    lose_later(websocket, &err);
  }
}

size_t websocket_queued(const struct websocket *websocket) {
  return websocket->plain.length + websocket->outward.length + websocket->writing;
}

int websocket_send(struct websocket *websocket, uint8_t head, const uint8_t *bytes, size_t length) {
  if (websocket->state != WEBSOCKET_OPEN || websocket->failure)
    return -1;
  size_t queued = websocket_queued(websocket);
  if (queued > WEBSOCKET_QUEUE_BYTES || length > WEBSOCKET_QUEUE_BYTES - queued ||
      frames_send(websocket->frames, head, bytes, length) != 0) {
    CLEANUP_ERROR struct error *err = NULL;
    error_set_detail(&err, REASON_SANDBOX_NOT_READY, "websocket: too much waits to be sent");
    lose_later(websocket, &err);
    return -1;
  }
  flush(websocket);
  websocket->blocked = websocket_queued(websocket) > 0;
  return 0;
}

/* --- in --- */

static void give_part(struct websocket *websocket, bool last) {
  size_t length = websocket->part_length;
  bool first = websocket->part_first;
  websocket->part_length = 0;
  websocket->part_first = last;
  websocket->events.received(websocket->events.context, part_bytes, length, first, last);
  if (is_over(websocket))
    frames_stop(websocket->frames);
}

/* The pieces of the frame reader are small: what belongs together is given together. */
static void on_frames_received(void *context, const uint8_t *bytes, size_t length, bool first, bool last) {
  struct websocket *websocket = context;
  (void)first;
  if (length > PART_BYTES - websocket->part_length)
    give_part(websocket, false);
  if (is_over(websocket))
    return;
  if (length > 0)
    memcpy(part_bytes + websocket->part_length, bytes, length);
  websocket->part_length += length;
  if (last)
    give_part(websocket, true);
}

static void on_frames_closed(void *context, unsigned code, const char *text, size_t length) {
  struct websocket *websocket = context;
  CLEANUP_ERROR struct error *err = NULL;
  (void)text;
  (void)length;
  if (websocket->part_length > 0)
    give_part(websocket, false);
  flush(websocket);
  error_set_detail(&err, REASON_SANDBOX_NOT_READY, "websocket: closed by the server with code %u", code);
  lose(websocket, err);
}

static int open_frames(struct websocket *websocket, struct error **err) {
  static const struct frames_events events = {.received = on_frames_received, .closed = on_frames_closed};
  struct buffer *output = websocket->tls ? &websocket->plain : &websocket->outward;
  websocket->frames = frames_new(output, &events, websocket);
  if (!websocket->frames)
    return error_set_memory(err);
  websocket->state = WEBSOCKET_OPEN;
  websocket->part_first = true;
  uv_timer_start(&websocket->timer, on_timer, websocket->silence, 0);
  handshake_free(&websocket->handshake);
  websocket->events.opened(websocket->events.context);
  return 0;
}

static int take_answer(struct websocket *websocket, const uint8_t **bytes, size_t *length, struct error **err) {
  size_t used;
  if (handshake_receive(&websocket->handshake, *bytes, *length, &used, err) != 0)
    return -1;
  *bytes += used;
  *length -= used;
  if (websocket->handshake.state == HANDSHAKE_OPEN)
    return open_frames(websocket, err);
  if (websocket->handshake.state == HANDSHAKE_REFUSED) {
    end(websocket);
    websocket->events.refused(websocket->events.context, &websocket->handshake.refusal);
  }
  return 0;
}

/* Returns 0, or -1 and *err. Afterwards it may be over. */
static int take_plain(struct websocket *websocket, const uint8_t *bytes, size_t length, struct error **err) {
  if (websocket->state == WEBSOCKET_ASKING && take_answer(websocket, &bytes, &length, err) != 0)
    return -1;
  if (websocket->state != WEBSOCKET_OPEN || length == 0)
    return 0;
  int result = frames_receive(websocket->frames, bytes, length, err);
  if (result == 0 && websocket->state == WEBSOCKET_OPEN && websocket->part_length > 0)
    give_part(websocket, false);
  websocket->part_length = 0;
  return result;
}

static void ask(struct websocket *websocket) {
  websocket->state = WEBSOCKET_ASKING;
  flush(websocket);
}

static int take_cipher(struct websocket *websocket, const uint8_t *bytes, size_t length, struct error **err) {
  tls_receive(websocket->tls, bytes, length);
  if (websocket->state == WEBSOCKET_SECURING) {
    int done = tls_handshake(websocket->tls, err);
    if (done < 0)
      return -1;
    if (done == 1)
      ask(websocket);
    else
      return 0;
  }
  while (!is_over(websocket)) {
    bool ended;
    ssize_t some = tls_read(websocket->tls, record_bytes, sizeof record_bytes, &ended, err);
    if (some < 0)
      return -1;
    if (ended)
      return error_set_detail(err, REASON_SANDBOX_NOT_READY, "websocket: the server ended TLS");
    if (some == 0)
      return 0;
    if (take_plain(websocket, record_bytes, (size_t)some, err) != 0)
      return -1;
  }
  return 0;
}

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer) {
  (void)handle;
  (void)suggested;
  *buffer = uv_buf_init((char *)read_bytes, sizeof read_bytes);
}

static void on_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer) {
  struct websocket *websocket = stream->data;
  CLEANUP_ERROR struct error *err = NULL;
  if (length == 0 || is_over(websocket))
    return;
  if (length < 0) {
    lose_for(websocket, length == UV_EOF ? "the server closed the connection" : uv_strerror((int)length));
    return;
  }
  websocket->heard_at = uv_now(websocket->loop);
  websocket->pinged = false;
  const uint8_t *bytes = (const uint8_t *)buffer->base;
  int result = websocket->tls ? take_cipher(websocket, bytes, (size_t)length, &err)
                              : take_plain(websocket, bytes, (size_t)length, &err);
  if (is_over(websocket))
    return;
  flush(websocket);
  if (result != 0)
    lose(websocket, err);
}

void websocket_pause(struct websocket *websocket, bool paused) {
  websocket->paused = paused;
  if (websocket->state != WEBSOCKET_OPEN)
    return;
  if (paused)
    uv_read_stop((uv_stream_t *)&websocket->tcp);
  else
    uv_read_start((uv_stream_t *)&websocket->tcp, on_room, on_read);
}

/* --- opening --- */

static void fail_opening(struct websocket *websocket, int status) {
  CLEANUP_ERROR struct error *err = NULL;
  error_set_detail(&err, REASON_SANDBOX_NOT_READY, "websocket: cannot connect: %s", uv_strerror(status));
  lose_later(websocket, &err);
}

void websocket_connected(struct websocket *websocket, int status) {
  CLEANUP_ERROR struct error *err = NULL;
  if (status == 0)
    status = uv_read_start((uv_stream_t *)&websocket->tcp, on_room, on_read);
  if (status < 0) {
    fail_opening(websocket, status);
    return;
  }
  uv_tcp_nodelay(&websocket->tcp, 1);
  uv_tcp_keepalive(&websocket->tcp, 1, KEEP_ALIVE_SECONDS);
  if (!websocket->tls) {
    ask(websocket);
    return;
  }
  websocket->state = WEBSOCKET_SECURING;
  if (tls_handshake(websocket->tls, &err) < 0)
    lose_later(websocket, &err);
  else
    flush(websocket);
}

static void keep_alive(struct websocket *websocket) {
  uint64_t quiet = uv_now(websocket->loop) - websocket->heard_at;
  if (websocket->paused || quiet < websocket->silence) {
    websocket->pinged = false;
    uint64_t left = websocket->paused ? websocket->silence : websocket->silence - quiet;
    uv_timer_start(&websocket->timer, on_timer, left, 0);
    return;
  }
  if (websocket->pinged) {
    lose_for(websocket, "the server does not answer pings");
    return;
  }
  websocket->pinged = true;
  frames_ping(websocket->frames);
  flush(websocket);
  uv_timer_start(&websocket->timer, on_timer, websocket->silence, 0);
}

static void on_timer(uv_timer_t *timer) {
  struct websocket *websocket = timer->data;
  CLEANUP_ERROR struct error *failure = websocket->failure;
  websocket->failure = NULL;
  if (failure)
    lose(websocket, failure);
  else if (websocket->state == WEBSOCKET_OPEN)
    keep_alive(websocket);
  else
    lose_for(websocket, "it did not open in time");
}

/* --- life --- */

static uint64_t milliseconds(int64_t nanoseconds) {
  return nanoseconds > 0 ? ((uint64_t)nanoseconds + CLOCK_MILLISECOND - 1) / CLOCK_MILLISECOND : 0;
}

static int prepare(struct websocket *websocket, const struct websocket_request *request, struct error **err) {
  const struct websocket_endpoint *endpoint = request->endpoint;
  struct buffer *output = endpoint->plain ? &websocket->outward : &websocket->plain;
  if (handshake_start(&websocket->handshake, request, output, err) != 0)
    return -1;
  if (endpoint->plain)
    return 0;
  websocket->tls = tls_new(endpoint, &websocket->outward, err);
  return websocket->tls ? 0 : -1;
}

struct websocket *websocket_open(uv_loop_t *loop, const struct websocket_request *request,
                                 const struct websocket_events *events) {
  struct websocket *websocket = memory_zero(sizeof *websocket);
  CLEANUP_ERROR struct error *err = NULL;
  if (!websocket)
    return NULL;
  websocket->loop = loop;
  websocket->events = *events;
  websocket->port = request->endpoint->port;
  websocket->silence = request->silence > 0 ? milliseconds(request->silence) : SILENCE;
  websocket->heard_at = uv_now(loop);
  buffer_init(&websocket->plain, 2 * WEBSOCKET_QUEUE_BYTES);
  buffer_init(&websocket->outward, 2 * WEBSOCKET_QUEUE_BYTES);
  uv_tcp_init(loop, &websocket->tcp);
  uv_timer_init(loop, &websocket->timer);
  websocket->tcp.data = websocket->timer.data = websocket;
  websocket->handles = 2;
  uv_timer_start(&websocket->timer, on_timer, milliseconds(request->timeout), 0);
  if (prepare(websocket, request, &err) != 0)
    lose_later(websocket, &err);
  else
    connect_start(websocket, request->endpoint->host);
  return websocket;
}

void websocket_release(struct websocket *websocket) {
  if (--websocket->handles > 0)
    return;
  connect_free(websocket);
  tls_free(websocket->tls);
  frames_free(websocket->frames);
  handshake_free(&websocket->handshake);
  buffer_free(&websocket->plain);
  buffer_free(&websocket->outward);
  error_free(&websocket->failure);
  memory_free(websocket);
}

static void on_closed(uv_handle_t *handle) {
  websocket_release(handle->data);
}

void websocket_close(struct websocket *websocket) {
  if (!websocket || websocket->state == WEBSOCKET_CLOSED)
    return;
  if (websocket->state == WEBSOCKET_OPEN) {
    frames_close(websocket->frames, FRAMES_CLOSE_NORMAL);
    flush(websocket);
    if (websocket->tls)
      tls_end(websocket->tls);
    flush(websocket);
  }
  websocket->state = WEBSOCKET_CLOSED;
  connect_stop(websocket);
  if (!uv_is_closing((uv_handle_t *)&websocket->tcp))
    uv_close((uv_handle_t *)&websocket->tcp, on_closed);
  if (!uv_is_closing((uv_handle_t *)&websocket->timer))
    uv_close((uv_handle_t *)&websocket->timer, on_closed);
}
