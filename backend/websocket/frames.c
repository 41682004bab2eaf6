/*
 * WebSocket frames: see frames.h.
 */
#include "backend/websocket/frames.h"

#include "base/digest.h"
#include "base/memory.h"
#include <string.h>
#include <wslay/wslay.h>

struct frames {
  wslay_frame_context_ptr wire;
  struct buffer *output;
  struct frames_events events;
  void *context;
  const uint8_t *input; /* what is being received, and not yet taken */
  size_t input_length;
  uint64_t left;    /* bytes of the current frame that are still to come */
  bool in_frame;    /* and whether there is one */
  bool in_message;  /* a message has begun and not ended */
  bool farewell;    /* we said goodbye */
  bool stopped;     /* nothing more is taken */
  bool has_pong;    /* to be sent once everything at hand was taken */
  uint8_t control[FRAMES_CONTROL_BYTES];
  size_t control_length;
  uint8_t pong[FRAMES_CONTROL_BYTES];
  size_t pong_length;
};

static int broken(struct error **err, const char *what) {
  return error_set_detail(err, REASON_SANDBOX_NOT_READY, "websocket: %s", what);
}

/* --- wslay's view --- */

static ssize_t on_pull(uint8_t *bytes, size_t length, int flags, void *context) {
  struct frames *frames = context;
  size_t some = frames->input_length < length ? frames->input_length : length;
  (void)flags;
  if (some == 0)
    return -1;
  memcpy(bytes, frames->input, some);
  frames->input += some;
  frames->input_length -= some;
  return (ssize_t)some;
}

static ssize_t on_push(const uint8_t *bytes, size_t length, int flags, void *context) {
  struct frames *frames = context;
  (void)flags;
  return buffer_append(frames->output, bytes, length) == 0 ? (ssize_t)length : -1;
}

static int on_mask(uint8_t *bytes, size_t length, void *context) {
  (void)context;
  random_bytes(bytes, length);
  return 0;
}

struct frames *frames_new(struct buffer *output, const struct frames_events *events, void *context) {
  static const struct wslay_frame_callbacks callbacks = {
      .send_callback = on_push, .recv_callback = on_pull, .genmask_callback = on_mask};
  struct frames *frames = memory_zero(sizeof *frames);
  if (!frames)
    return NULL;
  frames->output = output;
  frames->events = *events;
  frames->context = context;
  if (wslay_frame_context_init(&frames->wire, &callbacks, frames) == 0)
    return frames;
  memory_free(frames);
  return NULL;
}

void frames_free(struct frames *frames) {
  if (!frames)
    return;
  wslay_frame_context_free(frames->wire);
  memory_free(frames);
}

/* --- out --- */

/* A frame goes out whole or not at all: the buffer is asked for the room first. */
static int send_frame(struct frames *frames, uint8_t opcode, const uint8_t *head, size_t head_length,
                      const uint8_t *bytes, size_t length) {
  struct wslay_frame_iocb frame = {
      .fin = 1, .opcode = opcode, .payload_length = head_length + length, .mask = 1, .data = head,
      .data_length = head_length};
  if (frames->farewell || length > SIZE_MAX / 2 || !buffer_reserve(frames->output, 14 + head_length + length))
    return -1;
  if (head_length > 0 && wslay_frame_send(frames->wire, &frame) != (ssize_t)head_length)
    return -1;
  if (length == 0 && head_length > 0)
    return 0;
  frame.data = bytes;
  frame.data_length = length;
  return wslay_frame_send(frames->wire, &frame) == (ssize_t)length ? 0 : -1;
}

int frames_send(struct frames *frames, uint8_t head, const uint8_t *bytes, size_t length) {
  return send_frame(frames, WSLAY_BINARY_FRAME, &head, 1, bytes, length);
}

int frames_ping(struct frames *frames) {
  return send_frame(frames, WSLAY_PING, NULL, 0, NULL, 0);
}

int frames_close(struct frames *frames, unsigned code) {
  const uint8_t body[2] = {(uint8_t)(code >> 8), (uint8_t)code};
  if (frames->farewell)
    return 0;
  int result = send_frame(frames, WSLAY_CONNECTION_CLOSE, NULL, 0, body, code == FRAMES_CLOSE_NO_CODE ? 0 : 2);
  frames->farewell = true;
  return result;
}

/* --- in --- */

void frames_stop(struct frames *frames) {
  frames->stopped = true;
}

static int begin_frame(struct frames *frames, const struct wslay_frame_iocb *frame, struct error **err) {
  if (frame->rsv != 0)
    return broken(err, "a frame with reserved bits");
  if (frame->mask != 0)
    return broken(err, "a masked frame from the server");
  if (wslay_is_ctrl_frame(frame->opcode)) {
    if (frame->opcode > WSLAY_PONG)
      return broken(err, "a control frame of an unknown kind");
    if (!frame->fin || frame->payload_length > FRAMES_CONTROL_BYTES)
      return broken(err, "a control frame that is too long or in pieces");
    frames->control_length = 0;
  } else if (frame->opcode == WSLAY_TEXT_FRAME || frame->opcode > WSLAY_BINARY_FRAME) {
    return broken(err, "a message that is not binary");
  } else if ((frame->opcode == WSLAY_CONTINUATION_FRAME) != frames->in_message) {
    return broken(err, "a message that is not continued as it should be");
  }
  frames->in_frame = true;
  frames->left = frame->payload_length;
  return 0;
}

static int take_close(struct frames *frames, struct error **err) {
  const uint8_t *body = frames->control;
  size_t length = frames->control_length;
  unsigned code = length >= 2 ? (unsigned)body[0] << 8 | body[1] : FRAMES_CLOSE_NO_CODE;
  if (length == 1 || code < 1000 || code > 4999)
    return broken(err, "a goodbye without a valid code");
  frames->stopped = true;
  frames_close(frames, code); /* an answer: the other side may be gone already */
  size_t skip = length >= 2 ? 2 : 0;
  frames->events.closed(frames->context, code, (const char *)body + skip, length - skip);
  return 0;
}

static int take_control(struct frames *frames, const struct wslay_frame_iocb *frame, struct error **err) {
  if (frame->data_length > 0)
    memcpy(frames->control + frames->control_length, frame->data, frame->data_length);
  frames->control_length += frame->data_length;
  if (frames->in_frame)
    return 0;
  if (frame->opcode == WSLAY_CONNECTION_CLOSE)
    return take_close(frames, err);
  if (frame->opcode == WSLAY_PING) {
    memcpy(frames->pong, frames->control, frames->control_length);
    frames->pong_length = frames->control_length;
    frames->has_pong = true;
  }
  return 0;
}

static void take_data(struct frames *frames, const struct wslay_frame_iocb *frame) {
  bool first = !frames->in_message;
  bool last = frame->fin && !frames->in_frame;
  frames->in_message = !last;
  if (first || last || frame->data_length > 0)
    frames->events.received(frames->context, frame->data, frame->data_length, first, last);
}

static int take_piece(struct frames *frames, const struct wslay_frame_iocb *frame, struct error **err) {
  if (!frames->in_frame && begin_frame(frames, frame, err) != 0)
    return -1;
  if (frame->data_length > frames->left)
    return broken(err, "a frame longer than it says");
  frames->left -= frame->data_length;
  frames->in_frame = frames->left > 0;
  if (wslay_is_ctrl_frame(frame->opcode))
    return take_control(frames, frame, err);
  take_data(frames, frame);
  return 0;
}

static int answer_ping(struct frames *frames, struct error **err) {
  if (!frames->has_pong || frames->stopped)
    return 0;
  frames->has_pong = false;
  if (frames->farewell || send_frame(frames, WSLAY_PONG, NULL, 0, frames->pong, frames->pong_length) == 0)
    return 0;
  return broken(err, "too much waits to be sent");
}

int frames_receive(struct frames *frames, const uint8_t *bytes, size_t length, struct error **err) {
  frames->input = bytes;
  frames->input_length = length;
  while (!frames->stopped) {
    struct wslay_frame_iocb frame = {0};
    ssize_t taken = wslay_frame_recv(frames->wire, &frame);
    if (taken == WSLAY_ERR_WANT_READ)
      break;
    if (taken < 0)
      return broken(err, "a frame that is none");
    if (take_piece(frames, &frame, err) != 0)
      return -1;
  }
  return answer_ping(frames, err);
}
