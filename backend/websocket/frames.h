/*
 * WebSocket frames as a client sees them, without any I/O: bytes in, parts of messages out, and the other way round.
 * The layout of a frame is wslay's; what may follow what is here. It allocates nothing for what comes in: a message is
 * passed on in parts, and of all pings that wait for an answer only the last one gets it. Thread: one at a time.
 */
#ifndef BACKEND_WEBSOCKET_FRAMES_H
#define BACKEND_WEBSOCKET_FRAMES_H

#include "base/buffer.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct frames;

#define FRAMES_CONTROL_BYTES 125

enum { FRAMES_CLOSE_NORMAL = 1000, FRAMES_CLOSE_PROTOCOL = 1002, FRAMES_CLOSE_NO_CODE = 1005 };

struct frames_events {
  /* Part of a binary message, in the order sent. */
  void (*received)(void *context, const uint8_t *bytes, size_t length, bool first, bool last);
  /* The other side says goodbye; nothing is taken after it. text: valid for the call, hostile. */
  void (*closed)(void *context, unsigned code, const char *text, size_t length);
};

/* What goes out is appended to `output`, which must outlive it. NULL without memory. */
struct frames *frames_new(struct buffer *output, const struct frames_events *events, void *context);
void frames_free(struct frames *frames);

/* Returns 0, or -1 and *err (REASON_SANDBOX_NOT_READY): the other side broke the protocol, or `output` is full.
 * Callbacks may not call functions of this header but frames_send, frames_ping and frames_stop. */
int frames_receive(struct frames *frames, const uint8_t *bytes, size_t length, struct error **err);
/* From within a callback: takes nothing more of what came. */
void frames_stop(struct frames *frames);

/* One binary message of `head` and `bytes`. Returns 0, or -1 when `output` is full or a goodbye was said. */
int frames_send(struct frames *frames, uint8_t head, const uint8_t *bytes, size_t length);
int frames_ping(struct frames *frames);
/* Says goodbye, once. */
int frames_close(struct frames *frames, unsigned code);

#endif
