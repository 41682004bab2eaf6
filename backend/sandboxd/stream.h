/*
 * One output stream of a command: the pipe it writes to, the spool, and the chunks that go out on a call. What the main
 * process wrote before it ended counts; what others still write afterwards does not, and is left in the pipe.
 */
#ifndef BACKEND_SANDBOXD_STREAM_H
#define BACKEND_SANDBOXD_STREAM_H

#include "backend/sandboxd/loop.h"
#include "backend/sandboxd/spool.h"
#include "backend/wire/wire.h"
#include <stdbool.h>
#include <stdint.h>

struct stream {
  struct loop *loop;
  uint32_t number; /* 1 stdout, 2 stderr */
  struct loop_watch watch; /* the read end; descriptor -1: gone */
  struct spool spool;
  uint64_t limit;    /* most bytes that count; 0: no limit */
  uint64_t boundary; /* once the main process ended: offset where the stream ends */
  bool bounded;
  bool done;         /* no more will be read */
  bool widened;      /* the pipe was made larger */
};

enum stream_result {
  STREAM_IDLE,    /* as far as it goes for now */
  STREAM_OVER,    /* the stream has just become done */
  STREAM_EXCEEDED /* more than `limit` bytes came: done, cut at the limit */
};

/* descriptor: a non-blocking read end, taken over. ready: called when there may be something to read. */
void stream_init(struct stream *stream, struct loop *loop, uint32_t number, int descriptor, uint64_t limit,
                 void (*ready)(void *context, uint32_t events), void *context);
void stream_free(struct stream *stream);
/* Begins to watch a fresh stream. Returns 0, or -1. */
int stream_watch(struct stream *stream);
/* Reads once and sends what the call takes; call NULL: keeps it. Then watches the pipe, or does not, as there is room.
 * Returns -1 without memory, or what became of it. */
int stream_pump(struct stream *stream, struct wire_call *call, enum stream_result *result);
/* The main process ended: what is in the pipe now is the last that counts. */
void stream_bound(struct stream *stream);
/* Everything that counts was read and sent. */
bool stream_complete(const struct stream *stream);
/* Gives the read end away: -1 if it is gone. */
int stream_take_pipe(struct stream *stream);

#endif
