/*
 * One request and its answer: what the connection says of it, the RPC it becomes, and what the RPC brought. Handlers
 * (gateway/handler.h) fill in what differs from route to route.
 *
 * An exchange lives until both sides have let go: the connection (answer written, or client gone) and the RPC (ended). A
 * client that is gone cancels the RPC at once.
 *
 * Thread: the loop's. gRPC's callbacks come on the queue's thread; they leave what they got in the exchange and post an
 * event.
 */
#ifndef GATEWAY_EXCHANGE_H
#define GATEWAY_EXCHANGE_H

#include "gateway/handler.h"
#include "gateway/http_head.h"
#include "gateway/json_body.h"
#include "gateway/loop.h"
#include "gateway/route.h"
#include "gateway/target.h"

#include <grpc/grpc.h>

struct exchange {
  struct loop *loop;
  h2o_linklist_t link;           /* loop->exchanges */
  struct connection *connection; /* NULL once the connection has let go */
  const struct handler *handler; /* NULL: no route */
  void *state;                   /* the handler's own, freed with memory_free after handler->close */

  struct http_head head;    /* points into `text` */
  struct target target;     /* so does this: the path is decoded, the query not yet */
  struct http_text lease_id; /* of the path; empty if the route has none */
  const char *allow;         /* of a 405 */
  bool without_body;        /* the answer to HEAD */
  char request_id[129];
  struct http_text request_id_text;

  struct holding held;  /* of loop->bodies until the body is whole, then of loop->answers */
  struct buffer body;   /* of the request, if it is JSON */
  struct buffer answer; /* the answer's body, or the piece of it that is being written */
  struct json_body json; /* what a long answer is made of */
  uint64_t json_length;  /* of that as JSON; 0 until it is known */
  uint64_t json_measured; /* of what was looked at so far */
  struct loop_event again_event;
  bool again; /* the event is under way */
  char answer_head[REPLY_HEAD_BYTES];
  bool answered;        /* an answer has begun */
  bool aborted;         /* by exchange_abort */
  struct error *refusal; /* becomes the answer if the caller's token is good */

  /* The RPC. `running`: `ended` has not been handled yet. */
  bool running;
  struct rpc_client_call *call;
  const struct exchange_method *method; /* of a unary call */
  /* Written on the queue's thread before the event is posted. */
  ProtobufCMessage *reply;
  size_t reply_bytes;
  struct error *failure;
  grpc_byte_buffer *received; /* NULL: there are no more */
  bool sent_ok;
  struct loop_event message_event, sent_event, ended_event;

  char text[]; /* the head as received */
};

/* The connection's side */
extern const struct connection_handler exchange_connection_handler;
/* Shutting down, and the time is up: the RPC is cancelled, and what comes of that is the answer. */
void exchange_abort(struct exchange *exchange);

/* Within gateway/exchange*.c: frees the exchange if nobody holds it any more. */
void exchange_settle(struct exchange *exchange);
/* Within gateway/exchange*.c: nobody needs the request's body any more. */
void exchange_drop_body(struct exchange *exchange);
/* Within gateway/exchange*.c: the client has taken a piece of the answer, or all of it is still there: it moves. */
void exchange_hold_answer(struct exchange *exchange);
/* Within gateway/exchange*.c: a piece of a long JSON body is written. */
void exchange_json_drained(struct exchange *exchange);

/* For handlers: the request. */

/* The id of the path as a string for a message; NULL and REASON_LEASE_NOT_FOUND if it can be none. */
const char *exchange_lease_id(struct exchange *exchange, struct error **err);
/* A field that came exactly once; data NULL otherwise. */
struct http_text exchange_field(const struct exchange *exchange, enum http_field field);

/* For handlers: the RPC. One for each exchange. */

struct exchange_method {
  const char *path; /* "/package.Service/Method" */
  const ProtobufCMessageDescriptor *reply;
  int64_t deadline_ms; /* 0: none; what ends the call is elsewhere */
  bool anonymous;      /* without the caller's token */
};

/* Starts a unary call; handler->answer gets the reply, a failure becomes the answer. 0, or -1 and *err. */
int exchange_call(struct exchange *exchange, const struct exchange_method *method, const ProtobufCMessage *request,
                  struct error **err);
/* Starts a stream: handler->message, sent and ended follow. 0, or -1 and *err. */
int exchange_stream(struct exchange *exchange, const struct exchange_method *method, const ProtobufCMessage *first,
                    bool half_close, struct error **err);
/* Of the running RPC, if it runs. */
void exchange_receive(struct exchange *exchange);
void exchange_send(struct exchange *exchange, grpc_byte_buffer *message); /* taken over */
void exchange_half_close(struct exchange *exchange);
void exchange_cancel(struct exchange *exchange);

/* For handlers: the answer. Nothing happens if the client is gone or an answer has begun. */

/* 200 or 201 with exchange->answer as JSON. */
void exchange_reply_json(struct exchange *exchange, int status);
/* 200 with exchange->json; what it points to stays valid until handler->close. Long bodies are made a piece in each turn of the
 * loop and as fast as the client takes them. */
void exchange_reply_long_json(struct exchange *exchange);
void exchange_reply_empty(struct exchange *exchange); /* 204 */
/* The head of a file; `more` of the body follows by exchange_write unless the length is 0. */
void exchange_reply_file(struct exchange *exchange, uint64_t length, const char *content_digest);
/* A piece of the body begun by exchange_reply_file; the bytes stay valid until handler->drained or close. */
void exchange_write(struct exchange *exchange, struct http_text piece, bool last);
/* Closes the connection in the middle of the answer, and cancels the RPC. */
void exchange_cut(struct exchange *exchange);
/* Answers with an error. */
void exchange_fail(struct exchange *exchange, const struct error *err);
/* Answers with an error found before the server was asked, but only to a caller whose token is good. Takes err over. */
void exchange_refuse(struct exchange *exchange, struct error *err);

#endif
