/*
 * One HTTP/1 connection as a protocol: where each request begins and ends, what may be written when, which timer runs,
 * when the connection closes. It does no I/O: bytes, ends of writes and timeouts are told to it, and it tells its socket
 * (struct connection_io) and the one who answers requests (struct connection_handler) what to do. Requests that were sent
 * ahead wait, bounded, and are handled in order, one at a time.
 *
 * An end of input while a complete request waits for its answer means that the client is gone: a client that closed its
 * socket looks exactly like one that only closed its sending side, and the work of the first must stop at once.
 *
 * Thread: the loop that owns the connection.
 */
#ifndef GATEWAY_CONNECTION_H
#define GATEWAY_CONNECTION_H

#include "base/buffer.h"
#include "base/error.h"
#include "gateway/http_chunked.h"
#include "gateway/http_head.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct connection;

enum connection_timer {
  CONNECTION_TIMER_NONE,
  CONNECTION_TIMER_IDLE,   /* no request has begun */
  CONNECTION_TIMER_HEAD,   /* one has, its head is not whole; not started anew by more bytes */
  CONNECTION_TIMER_BODY,   /* the body is awaited; started anew by more bytes if it is streamed */
  CONNECTION_TIMER_WRITE,  /* the client must take what is written */
  CONNECTION_TIMER_LINGER, /* all is written; what the client still sends is thrown away */
};

/* The socket. */
struct connection_io {
  /* Writes the pieces in order, then calls connection_written, later. The bytes stay valid until then, the array does
   * not. Never called while a write is under way. */
  void (*write)(struct connection *connection, const struct http_text *pieces, size_t count);
  /* Nothing will be written any more; reading goes on. */
  void (*end)(struct connection *connection);
  /* Closes. The connection calls nothing any more; its owner may free it, but not before the present call has returned. */
  void (*close)(struct connection *connection);
  /* Replaces the timer that runs, if any. connection_timeout is called when it is up. */
  void (*timer)(struct connection *connection, enum connection_timer timer);
  /* Whether to read from the socket. True at first. */
  void (*reading)(struct connection *connection, bool wanted);
};

enum connection_body {
  CONNECTION_BODY_WHOLE,
  CONNECTION_BODY_CUT,       /* the client ended its side too early */
  CONNECTION_BODY_LATE,      /* CONNECTION_TIMER_BODY was up */
  CONNECTION_BODY_MALFORMED, /* not the chunked coding */
};

/* Who answers. `request` is what `head` or `refused` returned. Each may answer at once by connection_respond. */
struct connection_handler {
  /* A request. `head` points into the `length` bytes at `bytes`, which are valid during the call. NULL: it cannot be served;
   * the connection is closed. */
  void *(*head)(struct connection *connection, const struct http_head *head, const char *bytes, size_t length);
  /* What came is no request. To be answered with err (freed by the caller), whole, at once; the connection then closes. */
  void *(*refused)(struct connection *connection, const struct error *err);
  /* If the body was accepted: its pieces, of at most CONNECTION_INPUT_BYTES each, then how it ended, once. */
  void (*body)(void *request, const char *bytes, size_t length);
  void (*body_ended)(void *request, enum connection_body how);
  /* What connection_respond was given, not as the last, is written. */
  void (*drained)(void *request);
  /* One of these two is the last call about a request: its answer is written, or the client is gone and the connection
   * must not be used any more. */
  void (*done)(void *request);
  void (*gone)(void *request);
};

/* Private to connection.c. */
struct connection {
  const struct connection_io *io;
  const struct connection_handler *handler;
  void *request;
  struct buffer pending; /* received, not used yet */
  size_t seen;           /* how much of `pending` is known to be an unfinished head */
  uint64_t body_left;    /* of a body with Content-Length; of what is thrown away at the end */
  struct http_chunked chunked;
  struct http_text waiting[3]; /* an answer that waits for "100 Continue" to be written */
  uint8_t waiting_count;
  uint8_t state, writing, timer;
  bool waiting_last;
  bool active; /* a request runs */
  bool is_chunked, expects_continue, keep_alive;
  bool accepted, streamed, paused; /* the body */
  bool last_answer;                /* the connection closes behind the answer */
  bool stopping, input_ended, input_wanted, taking, closed;
};

enum {
  CONNECTION_INPUT_BYTES = 65536, /* the most that connection_input takes at once */
};

/* Allocates nothing and starts the idle timer. */
void connection_init(struct connection *connection, const struct connection_io *io,
                     const struct connection_handler *handler);
/* Frees what the connection holds. Only after io->close was called, or before anything was received. */
void connection_free(struct connection *connection);

/* From the socket */

/* Bytes came: at most CONNECTION_INPUT_BYTES, and only while reading is wanted. */
void connection_input(struct connection *connection, const char *bytes, size_t length);
/* The client ended its side. */
void connection_input_ended(struct connection *connection);
/* The socket is broken. */
void connection_lost(struct connection *connection);
void connection_written(struct connection *connection);
void connection_timeout(struct connection *connection);
/* Shutting down: closes an idle connection now, another behind its next answer. */
void connection_stop(struct connection *connection);

/* From the one who answers */

/* Within `head` only: the body is wanted. streamed: its timer starts anew with each piece. Without this call the body is
 * thrown away. */
void connection_accept_body(struct connection *connection, bool streamed);
/* Holds back or goes on with an accepted body. */
void connection_pause_body(struct connection *connection, bool paused);
/* Whether the connection closes behind the answer; asked before the answer's head is made, and then stands. */
bool connection_will_close(struct connection *connection);
/* Writes a piece of the answer (at most three texts); `drained` or, for the last, `done` follows. The bytes stay valid until
 * then, or until `gone`. */
void connection_respond(struct connection *connection, const struct http_text *pieces, size_t count, bool last);
/* Closes at once in the middle of an answer. Neither `done` nor `gone` is called. */
void connection_cut(struct connection *connection);

#endif
