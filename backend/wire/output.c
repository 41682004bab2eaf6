/*
 * Bytes out. Messages wait in their call's queue; nghttp2 asks for as many bytes as the windows allow and gets DATA
 * frames without copying (NGHTTP2_DATA_FLAG_NO_COPY). Small frames are gathered in wire->output, so that a call's
 * headers and first message leave in one piece; a large frame leaves from where its message lies, with its header
 * written right in front: there is either room from the start (WIRE_HEADROOM) or the part of the message that was sent
 * before.
 */
#include "backend/wire/wire_internal.h"
#include "base/memory.h"
#include <string.h>

/* Largest DATA frames. nghttp2 keeps a block as large as the largest that was ever sent, though it writes only a head
 * into it. A server is one in its process, and output is faster if one message of LIMIT_CHUNK_BYTES is one frame; of
 * clients there are thousands in theirs, and larger frames than these make nothing faster. */
#define SERVER_FRAME_LIMIT (132 * 1024)
#define CLIENT_FRAME_LIMIT (32 * 1024)
/* Kept free in wire->output for the head of a large frame. */
#define HEAD_ROOM (WIRE_FRAME_HEADER + WIRE_PREFIX)

static void free_message(struct wire_message *message) {
  memory_free(message->block);
  memory_free(message);
}

/* --- queue --- */

static int queue_message(struct wire_call *call, struct wire_message *message) {
  message->prefix[0] = 0;
  for (int i = 0; i < 4; i++)
    message->prefix[1 + i] = (uint8_t)(message->length >> (24 - 8 * i));
  if (call->wire->options.role == WIRE_SERVER && !call->answered) {
    if (wire_header_submit_answer(call) != 0)
      return -1;
    call->answered = true;
  }
  if (wire_output_resume(call) != 0)
    return -1;
  *call->queue_end = message;
  call->queue_end = &message->next;
  call->queued += WIRE_PREFIX + message->length;
  if (call->queued >= WIRE_LOW_WATER)
    call->was_high = true;
  return 0;
}

static struct wire_message *new_message(struct wire_call *call, size_t extra, size_t length) {
  if (call->closing || call->wire->broken || length > UINT32_MAX)
    return NULL;
  struct wire_message *message = memory_new(sizeof *message + extra);
  if (!message)
    return NULL;
  *message = (struct wire_message){.length = length};
  return message;
}

int wire_call_send(struct wire_call *call, const uint8_t *bytes, size_t length) {
  if (length > UINT32_MAX)
    return -1;
  struct wire_message *message = new_message(call, HEAD_ROOM + length, length);
  if (!message)
    return -1;
  message->payload = (uint8_t *)(message + 1) + HEAD_ROOM;
  message->room = HEAD_ROOM;
  if (length > 0)
    memcpy(message->payload, bytes, length);
  if (queue_message(call, message) == 0)
    return 0;
  free_message(message);
  return -1;
}

int wire_call_send_block(struct wire_call *call, uint8_t *block, size_t offset, size_t length) {
  struct wire_message *message = new_message(call, 0, length);
  if (!message) {
    memory_free(block);
    return -1;
  }
  message->block = block;
  message->payload = block + offset;
  message->room = offset;
  if (queue_message(call, message) == 0)
    return 0;
  free_message(message);
  return -1;
}

int wire_call_send_owned(struct wire_call *call, uint8_t *bytes, size_t length) {
  return wire_call_send_block(call, bytes, 0, length);
}

int wire_output_resume(struct wire_call *call) {
  if (!call->deferred)
    return 0;
  if (nghttp2_session_resume_data(call->wire->session, call->stream) != 0)
    return -1;
  call->deferred = false;
  return 0;
}

void wire_output_drop(struct wire_call *call) {
  struct wire *wire = call->wire;
  while (call->queue) {
    struct wire_message *message = call->queue;
    call->queue = message->next;
    if (message == wire->staged)
      wire->staged_owned = true;
    else
      free_message(message);
  }
  call->queue_end = &call->queue;
  call->queued = 0;
}

static void release_staged(struct wire *wire) {
  if (wire->staged_owned)
    free_message(wire->staged);
  wire->staged = NULL;
  wire->staged_owned = false;
}

void wire_output_free(struct wire *wire) {
  release_staged(wire);
}

/* --- what nghttp2 asks --- */

static ssize_t frame_limit(nghttp2_session *session, uint8_t type, int32_t stream, int32_t connection_window,
                           int32_t stream_window, uint32_t max_frame_size, void *context) {
  (void)type;
  (void)max_frame_size; /* nghttp2 applies it, and the windows, on top */
  (void)connection_window;
  (void)stream_window;
  (void)session;
  struct wire_call *call = wire_call_find(context, stream);
  if (!call || !call->queue)
    return 1;
  size_t left = WIRE_PREFIX + call->queue->length - call->queue->sent;
  size_t most = call->wire->options.role == WIRE_SERVER ? SERVER_FRAME_LIMIT : CLIENT_FRAME_LIMIT;
  return (ssize_t)(left < most ? left : most);
}

static ssize_t next_frame(nghttp2_session *session, int32_t stream, uint8_t *buffer, size_t length, uint32_t *flags,
                          nghttp2_data_source *source, void *context) {
  (void)session;
  (void)buffer;
  (void)source;
  struct wire_call *call = wire_call_find(context, stream);
  if (!call)
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  struct wire_message *message = call->queue;
  if (!message && !call->closing) {
    call->deferred = true;
    return NGHTTP2_ERR_DEFERRED;
  }
  size_t left = message ? WIRE_PREFIX + message->length - message->sent : 0;
  if (left > length)
    left = length;
  if (call->closing && left == call->queued) {
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (call->wire->options.role == WIRE_SERVER) {
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      if (wire_header_submit_trailers(call) != 0)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
  }
  *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  return (ssize_t)left;
}

/* Writes the frame's head and `length` bytes of the message, from what was sent on, to `out`. */
static size_t copy_frame(const struct wire_message *message, const uint8_t *frame_header, size_t length, uint8_t *out) {
  memcpy(out, frame_header, WIRE_FRAME_HEADER);
  size_t position = WIRE_FRAME_HEADER, sent = message->sent;
  size_t prefix = sent < WIRE_PREFIX ? WIRE_PREFIX - sent : 0;
  if (prefix > length)
    prefix = length;
  memcpy(out + position, message->prefix + (sent < WIRE_PREFIX ? sent : 0), prefix);
  position += prefix;
  if (length > prefix)
    memcpy(out + position, message->payload + (sent + prefix - WIRE_PREFIX), length - prefix);
  return position + length - prefix;
}

/* Points wire->next at the frame where its message lies. */
static void stage_frame(struct wire *wire, struct wire_message *message, const uint8_t *frame_header, size_t length) {
  size_t prefix = message->sent < WIRE_PREFIX ? WIRE_PREFIX - message->sent : 0;
  size_t head = WIRE_FRAME_HEADER + prefix;
  size_t start = message->sent + prefix - WIRE_PREFIX; /* in the payload */
  uint8_t *payload = message->payload + start;
  if (message->room + start >= head) {
    copy_frame(message, frame_header, prefix, payload - head);
    wire->next = payload - head;
    wire->next_length = head + length - prefix;
  } else {
    wire->output_length += copy_frame(message, frame_header, prefix, wire->output + wire->output_length);
    wire->next = payload;
    wire->next_length = length - prefix;
  }
  wire->staged = message;
}

static void count_sent(struct wire_call *call, struct wire_message *message, size_t length) {
  struct wire *wire = call->wire;
  message->sent += length;
  call->queued -= length;
  if (message->sent == WIRE_PREFIX + message->length) {
    call->queue = message->next;
    if (!call->queue)
      call->queue_end = &call->queue;
    if (wire->staged == message)
      wire->staged_owned = true;
    else
      free_message(message);
  }
  if (!call->was_high || call->queued >= WIRE_LOW_WATER)
    return;
  call->was_high = false;
  if (call->writable_due)
    return;
  call->writable_due = true;
  wire->writable_due++;
}

/* There is room for two heads in wire->output: gather and this function itself see to it. */
static int send_frame(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *frame_header, size_t length,
                      nghttp2_data_source *source, void *context) {
  (void)session;
  (void)source;
  struct wire *wire = context;
  struct wire_call *call = wire_call_find(wire, frame->hd.stream_id);
  if (!call)
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  struct wire_message *message = call->queue;
  if (!message) { /* the empty frame that only ends the stream */
    memcpy(wire->output + wire->output_length, frame_header, WIRE_FRAME_HEADER);
    wire->output_length += WIRE_FRAME_HEADER;
  } else if (length <= WIRE_PREFIX || WIRE_FRAME_HEADER + length <= WIRE_OUTPUT - HEAD_ROOM - wire->output_length) {
    wire->output_length += copy_frame(message, frame_header, length, wire->output + wire->output_length);
    count_sent(call, message, length);
  } else {
    stage_frame(wire, message, frame_header, length);
    count_sent(call, message, length);
  }
  return wire->next || wire->output_length > WIRE_OUTPUT - 2 * HEAD_ROOM ? NGHTTP2_ERR_PAUSE : 0;
}

const nghttp2_data_provider wire_output_provider = {.read_callback = next_frame};

void wire_output_set_callbacks(nghttp2_session_callbacks *callbacks) {
  nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, frame_limit);
  nghttp2_session_callbacks_set_send_data_callback(callbacks, send_frame);
}

/* --- what the user asks --- */

static void tell_writable(struct wire *wire) {
  while (wire->writable_due > 0) {
    struct wire_call *call = wire->calls;
    while (call && !call->writable_due)
      call = call->next;
    if (!call)
      return;
    call->writable_due = false;
    wire->writable_due--;
    if (call->events && call->events->writable && !call->closing)
      call->events->writable(call, call->context);
  }
}

/* Fills output and next. Returns 0, or nghttp2's code. */
static int gather(struct wire *wire) {
  while (!wire->next && wire->output_length <= WIRE_OUTPUT - 2 * HEAD_ROOM) {
    const uint8_t *bytes;
    ssize_t length = nghttp2_session_mem_send(wire->session, &bytes);
    if (length < 0)
      return (int)length;
    if (length == 0 && !wire->next)
      return 0;
    if (length == 0)
      continue;
    if ((size_t)length <= WIRE_OUTPUT - HEAD_ROOM - wire->output_length) {
      memcpy(wire->output + wire->output_length, bytes, (size_t)length);
      wire->output_length += (size_t)length;
    } else {
      wire->next = bytes; /* nghttp2's until the next gather */
      wire->next_length = (size_t)length;
    }
  }
  return 0;
}

static int fail(struct wire *wire, int code, struct error **err) {
  wire->broken = true;
  if (code == NGHTTP2_ERR_NOMEM)
    return error_set_memory(err);
  return error_set_detail(err, REASON_SANDBOX_NOT_READY, "HTTP/2: %s",
                          wire->failure[0] ? wire->failure : nghttp2_strerror(code));
}

/* What was returned last has been written. */
static void drop_taken(struct wire *wire) {
  if (wire->output_taken)
    wire->output_length = 0;
  wire->output_taken = false;
  if (!wire->next_taken)
    return;
  wire->next_taken = false;
  wire->next = NULL;
  wire->next_length = 0;
  release_staged(wire);
}

long wire_transmit(struct wire *wire, const uint8_t **bytes, struct error **err) {
  if (wire->broken)
    return error_set_detail(err, REASON_SANDBOX_NOT_READY, "the connection failed before");
  drop_taken(wire);
  if (wire->output_length == 0 && !wire->next) {
    tell_writable(wire);
    int code = gather(wire);
    wire_call_reap(wire);
    if (code != 0)
      return fail(wire, code, err);
  }
  if (wire->output_length > 0) {
    wire->output_taken = true;
    *bytes = wire->output;
    return (long)wire->output_length;
  }
  if (!wire->next && wire->said_goodbye)
    return fail(wire, NGHTTP2_ERR_PROTO, err);
  if (!wire->next)
    return 0;
  wire->next_taken = true;
  *bytes = wire->next;
  return (long)wire->next_length;
}

bool wire_wants_transmit(const struct wire *wire) {
  if (wire->broken)
    return false;
  return (wire->output_length > 0 && !wire->output_taken) || (wire->next && !wire->next_taken) || wire->ended ||
         wire->writable_due > 0 || nghttp2_session_want_write(wire->session) != 0;
}
