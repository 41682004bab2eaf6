/*
 * What the files of backend/wire/ share: the connection and call structs, and who does what.
 *
 *   wire.c     the connection: its life, bytes in, callbacks of nghttp2
 *   output.c   bytes out: queued messages, DATA frames, what wire_transmit returns
 *   call.c     a call's life and the functions of its user
 *   receive.c  received message bytes: gRPC framing and the flow-control window
 *   header.c   header blocks: gRPC's request, answer and status fields
 */
#ifndef BACKEND_WIRE_WIRE_INTERNAL_H
#define BACKEND_WIRE_WIRE_INTERNAL_H

#include "backend/wire/wire.h"
#include <nghttp2/nghttp2.h>

#define WIRE_FRAME_HEADER 9
#define WIRE_PREFIX 5              /* gRPC: compressed flag and length of a message */
#define WIRE_LOW_WATER (64 * 1024) /* see `writable` */
#define WIRE_OUTPUT 4096           /* small frames are gathered up to so many bytes */
#define WIRE_HEADER_LIMIT 8192     /* names, values and 32 bytes for each field of one call */
#define WIRE_PATH_SIZE 128         /* longest path of a call, NUL included */
#define WIRE_TEXT_LIMIT 1024       /* bytes of a status text */

/* One queued message. `sent` counts bytes of prefix and payload together. */
struct wire_message {
  struct wire_message *next;
  uint8_t *block; /* memory_free'd with the message; NULL when the payload lies behind this struct */
  uint8_t *payload;
  size_t room;   /* bytes in front of the payload that may be overwritten */
  size_t length; /* of the payload */
  size_t sent;
  uint8_t prefix[WIRE_PREFIX];
};

struct wire_call {
  struct wire *wire;
  struct wire_call *next, **link;        /* in wire->calls or wire->ended; *link points to this call */
  const struct wire_call_events *events; /* NULL: not accepted */
  void *context;
  int32_t stream;

  /* Received. */
  uint8_t prefix[WIRE_PREFIX];
  size_t prefix_length;
  uint8_t *assembly; /* a message that came in pieces; kept for the next one */
  size_t assembly_capacity, assembly_length;
  size_t message_length; /* of the message whose prefix is complete */
  size_t unconsumed;     /* bytes of delivered messages */
  size_t credit;         /* consumed bytes that the other side was not yet told of */
  size_t widen;          /* asked for by wire_call_widen while the stream was not open */
  size_t advance;        /* bytes it was told of before they were consumed, for a message larger than the window */
  bool receiving;        /* within wire_receive_data, which announces at its end */
  size_t header_bytes;
  int http_status; /* client: 0 until it came */
  bool grpc;       /* content-type is right */
  bool post;       /* server: method is right */
  int peer_status; /* client: grpc-status, -1 until it came */
  char *path;      /* server, until `opened` */

  /* To send. */
  struct wire_message *queue, **queue_end;
  size_t queued;
  bool answered; /* server: the answer's headers are submitted */
  bool deferred; /* nghttp2 waits for wire_output_resume */
  bool closing;  /* half-closed or finished: nothing may be queued any more */
  bool was_high; /* queued passed the low-water mark */
  bool writable_due;

  bool over;  /* in wire->ended; nghttp2 knows it no more */
  int status; /* the end's, or the one to send */
  char *text; /* NULL is "" */
};

struct wire {
  nghttp2_session *session;
  struct wire_options options;
  const struct wire_events *events;
  void *context;
  struct wire_call *calls; /* open ones */
  struct wire_call *ended; /* over, `ended` not yet called */
  size_t call_count;       /* both lists */
  size_t writable_due;     /* calls with the flag */
  size_t pings;            /* sent and not answered */
  size_t memory;       /* nghttp2's */
  bool broken;
  bool said_goodbye; /* a GOAWAY of ours was sent: nghttp2 met a protocol error */
  char failure[96];  /* what was wrong, for the log */

  /* Output: first `output`, then `next`. */
  size_t output_length;
  bool output_taken; /* `output` was returned by wire_transmit */
  const uint8_t *next;
  size_t next_length;
  bool next_taken;
  struct wire_message *staged; /* `next` lies in it; owned if `staged_owned`, else at the head of its call's queue */
  bool staged_owned;
  uint8_t output[WIRE_OUTPUT];
};

/* --- call.c --- */

struct wire_call *wire_call_new(struct wire *wire);
/* The call is over: nghttp2 forgets it, `ended` will come. Does not reset the stream. text may be NULL. */
void wire_call_end(struct wire_call *call, int status, const char *text);
/* The other side did wrong: resets the stream and ends the call. Stream error codes are nghttp2's. */
void wire_call_fail(struct wire_call *call, uint32_t error_code, int status, const char *text);
/* Calls `ended` for and frees every call that is over. Not from within nghttp2. */
void wire_call_reap(struct wire *wire);
struct wire_call *wire_call_find(struct wire *wire, int32_t stream);

/* --- output.c --- */

void wire_output_set_callbacks(nghttp2_session_callbacks *callbacks);
extern const nghttp2_data_provider wire_output_provider;
/* There is something new for nghttp2 to ask for. Returns 0, or -1 without memory. */
int wire_output_resume(struct wire_call *call);
/* Frees what the call has queued, except the part that must still leave. */
void wire_output_drop(struct wire_call *call);
void wire_output_free(struct wire *wire);

/* --- receive.c --- */

/* Bytes of DATA frames. */
void wire_receive_data(struct wire_call *call, const uint8_t *bytes, size_t length);
/* The stream is open now: its window becomes as wide as was asked for. */
void wire_receive_widen(struct wire_call *call);
/* The other side has sent END_STREAM: is there no message half received? */
bool wire_receive_complete(const struct wire_call *call);

/* --- header.c --- */

/* One received field. Returns 0, or -1 if the call's headers became too long. */
int wire_header_take(struct wire_call *call, nghttp2_rcbuf *name, nghttp2_rcbuf *value);
int wire_header_submit_request(struct wire_call *call, const char *path);
/* Answer headers with messages behind them, the status behind those messages, or a status alone. Return nghttp2's
 * codes. */
int wire_header_submit_answer(struct wire_call *call);
int wire_header_submit_trailers(struct wire_call *call);
int wire_header_submit_status(struct wire_call *call, const char *http_status);
/* Client: headers without END_STREAM came; ends the call if they are not gRPC's. */
void wire_header_check_answer(struct wire_call *call);
/* Client: the end of the stream as status and text, by gRPC's rules; ends the call. */
void wire_header_end_call(struct wire_call *call);

#endif
