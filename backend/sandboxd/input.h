/*
 * Standard input of a command: bytes with offsets from the control plane, into a pipe as fast as the command reads.
 * Bytes that do not fit yet wait here; they are consumed on the call they came by only when they are in the pipe, so
 * the control plane is held back.
 */
#ifndef BACKEND_SANDBOXD_INPUT_H
#define BACKEND_SANDBOXD_INPUT_H

#include "backend/sandboxd/loop.h"
#include "base/buffer.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most bytes that wait: what the windows of several calls, one after the other, may have brought. */
#define INPUT_LIMIT (4 * 1048576)

struct input {
  struct loop *loop;
  struct loop_watch watch; /* the write end; descriptor -1: bytes are dropped */
  struct buffer queue;
  uint64_t taken; /* bytes of standard input that came, dropped ones included */
  bool ended;     /* no more will come: close when the queue is empty */
  void (*drained)(void *context);
  void *context;
};

/* descriptor: the write end, non-blocking, taken over; -1: none. drained: called from the loop when the queue has
 * become empty. */
void input_init(struct input *input, struct loop *loop, int descriptor, void (*drained)(void *context), void *context);
/* Drops what waits and closes the pipe; bytes that come later are dropped. */
void input_close(struct input *input);
/* Takes the bytes, less those that came before. Returns 0, or -1 and INVALID_REQUEST if some are missing in between,
 * INTERNAL if too many wait. */
int input_take(struct input *input, uint64_t offset, const uint8_t *bytes, size_t length, struct error **err);
/* The end of standard input. */
void input_end(struct input *input);
/* Nothing waits. */
bool input_idle(const struct input *input);

#endif
