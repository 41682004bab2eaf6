/*
 * Standard input: see input.h.
 */
#include "backend/sandboxd/input.h"

#include <errno.h>
#include <unistd.h>

void input_close(struct input *input) {
  buffer_free(&input->queue);
  if (input->watch.descriptor < 0)
    return;
  loop_watch_set(input->loop, &input->watch, 0);
  close(input->watch.descriptor);
  input->watch.descriptor = -1;
}

/* Returns how many bytes went into the pipe; a broken pipe takes everything. */
static size_t input_write(struct input *input, const uint8_t *bytes, size_t length) {
  size_t done = 0;
  while (done < length) {
    ssize_t written = write(input->watch.descriptor, bytes + done, length - done);
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0 && errno == EAGAIN)
      return done;
    if (written < 0)
      return length; /* the reader is gone: EPIPE comes again for the next bytes */
    done += (size_t)written;
  }
  return done;
}

static void input_ready(void *context, uint32_t events) {
  struct input *input = context;
  if (events & EPOLLERR)
    input_close(input);
  else
    buffer_consume(&input->queue, input_write(input, input->queue.data, input->queue.length));
  if (input->queue.length)
    return;
  if (input->watch.descriptor >= 0)
    loop_watch_set(input->loop, &input->watch, 0);
  if (input->ended)
    input_close(input);
  input->drained(input->context);
}

void input_init(struct input *input, struct loop *loop, int descriptor, void (*drained)(void *context), void *context) {
  *input = (struct input){.loop = loop, .drained = drained, .context = context};
  input->watch = (struct loop_watch){.descriptor = descriptor, .ready = input_ready, .context = input};
  buffer_init(&input->queue, INPUT_LIMIT);
}

int input_take(struct input *input, uint64_t offset, const uint8_t *bytes, size_t length, struct error **err) {
  if (offset > input->taken)
    return error_set_field(err, REASON_INVALID_REQUEST, "offset", "bytes of standard input are missing");
  uint64_t known = input->taken - offset;
  if (known >= length)
    return 0;
  bytes += known;
  length -= (size_t)known;
  input->taken += length;
  if (input->watch.descriptor < 0 || input->ended)
    return 0;
  size_t written = input->queue.length ? 0 : input_write(input, bytes, length);
  if (written == length)
    return 0;
  if (buffer_append(&input->queue, bytes + written, length - written) ||
      loop_watch_set(input->loop, &input->watch, EPOLLOUT)) {
    input_close(input);
    return error_set_memory(err);
  }
  return 0;
}

void input_end(struct input *input) {
  input->ended = true;
  if (!input->queue.length)
    input_close(input);
}

bool input_idle(const struct input *input) { return !input->queue.length; }
