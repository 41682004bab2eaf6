/*
 * Output streams: see stream.h.
 */
#include "backend/sandboxd/stream.h"

#include "backend/sandboxd/reply.h"
#include "base/limits.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define STREAM_READ (256 * 1024)     /* most bytes read at once */
#define STREAM_PIPE (512 * 1024)     /* what the pipe of a busy stream is widened to, where the kernel allows */
/* Most sent bytes that are kept: more than the control plane's window and our queue, and less than a spool, so that
 * there is room to go on. */
#define STREAM_KEEP (LIMIT_SPOOL_BYTES / 4 * 3)
#define STREAM_BUSY (48 * 1024)      /* so many bytes in the pipe make a stream a busy one */

void stream_init(struct stream *stream, struct loop *loop, uint32_t number, int descriptor, uint64_t limit,
                 void (*ready)(void *context, uint32_t events), void *context) {
  *stream = (struct stream){.loop = loop, .number = number, .limit = limit};
  stream->watch = (struct loop_watch){.descriptor = descriptor, .ready = ready, .context = context};
}

int stream_watch(struct stream *stream) { return loop_watch_set(stream->loop, &stream->watch, EPOLLIN); }

int stream_take_pipe(struct stream *stream) {
  int descriptor = stream->watch.descriptor;
  if (descriptor >= 0)
    loop_watch_set(stream->loop, &stream->watch, 0);
  stream->watch.descriptor = -1;
  return descriptor;
}

void stream_free(struct stream *stream) {
  int descriptor = stream_take_pipe(stream);
  if (descriptor >= 0)
    close(descriptor);
  spool_free(&stream->spool);
}

static size_t stream_available(const struct stream *stream) {
  int available = 0;
  return ioctl(stream->watch.descriptor, FIONREAD, &available) || available < 0 ? 0 : (size_t)available;
}

void stream_bound(struct stream *stream) {
  if (stream->done || stream->bounded)
    return;
  stream->bounded = true;
  stream->boundary = stream->spool.end + stream_available(stream);
  stream->done = stream->boundary == stream->spool.end;
}

bool stream_complete(const struct stream *stream) { return stream->done && !spool_unsent(&stream->spool); }

static bool stream_may_send(const struct stream *stream, struct wire_call *call) {
  return call && spool_unsent(&stream->spool) && wire_call_queued(call) < REPLY_HIGH_WATER;
}

static int stream_send(struct stream *stream, struct wire_call *call) {
  while (stream_may_send(stream, call)) {
    size_t length = spool_unsent(&stream->spool);
    if (reply_output(call, stream->number, &stream->spool, length < LIMIT_CHUNK_BYTES ? length : LIMIT_CHUNK_BYTES))
      return -1;
  }
  if (!call)
    return 0;
  /* What has not arrived for certain is kept, in case the connection breaks. */
  size_t keep = wire_call_queued(call) + wire_call_unconfirmed(call);
  spool_forget(&stream->spool, keep < STREAM_KEEP ? keep : STREAM_KEEP);
  return 0;
}

/* With a call, no more is read than can be sent; without one, as much as can be kept. */
static bool stream_wants(const struct stream *stream, struct wire_call *call) {
  if (stream->done || !spool_room(&stream->spool))
    return false;
  return !call || (!spool_unsent(&stream->spool) && wire_call_queued(call) < REPLY_HIGH_WATER);
}

static void stream_widen(struct stream *stream, size_t available) {
  if (stream->widened || available < STREAM_BUSY)
    return;
  stream->widened = true;
  fcntl(stream->watch.descriptor, F_SETPIPE_SZ, STREAM_PIPE);
}

static int stream_read(struct stream *stream) {
  size_t available = stream_available(stream);
  size_t most = STREAM_READ;
  if (stream->bounded && stream->boundary - stream->spool.end < most)
    most = (size_t)(stream->boundary - stream->spool.end);
  stream_widen(stream, available);
  ssize_t length = spool_fill(&stream->spool, stream->watch.descriptor, available, most);
  if (length < 0 && errno == ENOMEM)
    return -1;
  if (length < 0 && errno != EAGAIN)
    length = 0;
  /* A command can read from its own pipe, so that what was there a moment ago is not. */
  stream->done = length == 0 || (stream->bounded && (length < 0 || stream->spool.end == stream->boundary));
  return 0;
}

int stream_pump(struct stream *stream, struct wire_call *call, enum stream_result *result) {
  bool was_done = stream->done;
  *result = STREAM_IDLE;
  if (stream_send(stream, call))
    return -1;
  if (stream_wants(stream, call)) {
    if (stream_read(stream))
      return -1;
    if (stream->limit && stream->spool.end > stream->limit) {
      spool_cut(&stream->spool, stream->limit);
      stream->done = true;
      *result = STREAM_EXCEEDED;
    } else if (stream->done && !was_done) {
      *result = STREAM_OVER;
    }
    if (stream_send(stream, call))
      return -1;
  }
  if (stream->watch.descriptor < 0)
    return 0;
  return loop_watch_set(stream->loop, &stream->watch, stream_wants(stream, call) ? EPOLLIN : 0);
}
