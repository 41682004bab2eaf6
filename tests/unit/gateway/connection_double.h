/*
 * A test double: a connection without a socket. Bytes are fed in, and everything the connection asks for is written down
 * as one line of text, in order. Requests are answered by a simple script.
 */
#ifndef TESTS_UNIT_GATEWAY_CONNECTION_DOUBLE_H
#define TESTS_UNIT_GATEWAY_CONNECTION_DOUBLE_H

#include "gateway/connection.h"

struct connection_double {
  struct connection connection;
  struct buffer story;   /* "head GET /a;body 5;whole;done;": what the handler was told (body pieces are summed up) */
  struct buffer body;    /* every body, each followed by '|' */
  struct buffer written; /* what went to the client */
  enum connection_timer timer;
  bool accept, stream;   /* what the script does with bodies */
  bool answer;           /* whether it answers, as soon as the body has ended, or at once if the body is not accepted */
  bool write_at_once;    /* writes are done as soon as they are asked for, after the call that asked */
  bool reading, writing, ended, closed;
  size_t body_bytes;     /* since the last thing in the story */
  unsigned timers_set;
};

void double_start(struct connection_double *client);
void double_end(struct connection_double *client);
/* Feeds in pieces of at most `piece` bytes; what cannot be fed because reading is not wanted is not fed. Returns how
 * many bytes were fed. */
size_t double_feed(struct connection_double *client, const char *bytes, size_t length, size_t piece);
size_t double_feed_text(struct connection_double *client, const char *text);
/* Answers the running request. */
void double_answer(struct connection_double *client);
/* The write that is under way is done. */
void double_written(struct connection_double *client);
/* The story since the last call. */
const char *double_story(struct connection_double *client);

#endif
