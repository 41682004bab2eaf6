/*
 * The connection as a protocol: framing, order, backpressure, timers and ends, fed in every way bytes can be split.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/limits.h"
#include "base/memory.h"
#include "tests/unit/gateway/connection_double.h"

#define HOST "Host: a\r\n"

static struct connection_double client;

static int setup(void **state) {
  (void)state;
  double_start(&client);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  double_end(&client);
  return 0;
}

static void restart(void) {
  double_end(&client);
  double_start(&client);
}

static void assert_story(const char *expected) { assert_string_equal(double_story(&client), expected); }
static void assert_written(const char *expected) { assert_string_equal(buffer_text(&client.written), expected); }

static char *filled(size_t length, char byte) {
  char *text = malloc(length + 1);
  assert_non_null(text);
  memset(text, byte, length);
  text[length] = '\0';
  return text;
}

/* Framing */

struct conversation {
  const char *bytes, *story, *body;
};

static const struct conversation conversations[] = {
    {"GET /a HTTP/1.1\r\n" HOST "\r\n", "head GET /a;whole;done;", "|"},
    {"POST /b HTTP/1.1\r\nhOST: a\r\ncontent-length: 5\r\n\r\nhello", "head POST /b;body 5;whole;done;", "hello|"},
    {"PUT /c HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\nA;x=\"y\"\r\n 0123456 8\r\n0\r\n\r\n",
     "head PUT /c;body 15;whole;done;", "hello 0123456 8|"},
    {"PUT /c HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n000;e\r\nTrailer: x\r\nOther: y\r\n\r\n",
     "head PUT /c;body 1;whole;done;", "\n|"},
    {"POST /d HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", "head POST /d;whole;done;", "|"},
    {"\r\nGET /e HTTP/1.1\r\n" HOST "\r\n", "head GET /e;whole;done;", "|"},
    {"POST /1 HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\noneGET /2 HTTP/1.1\r\n" HOST
     "\r\nPOST /3 HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nthree\r\n0\r\n\r\nGET /4 HTTP/1.1\r\n" HOST "\r\n",
     "head POST /1;body 3;whole;done;head GET /2;whole;done;head POST /3;body 5;whole;done;head GET /4;whole;done;",
     "one||three||"},
    {"GET /last HTTP/1.1\r\n" HOST "Connection: keep-alive, Close\r\n\r\nGET /never HTTP/1.1\r\n" HOST "\r\n",
     "head GET /last;whole;done;end;", "|"},
    {"GET /old HTTP/1.0\r\n\r\n", "head GET /old;whole;done;end;", "|"},
    {"GET /old HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\nGET /b HTTP/1.0\r\n\r\n",
     "head GET /old;whole;done;head GET /b;whole;done;end;", "||"},
};

static void assert_conversation(const struct conversation *conversation) {
  assert_story(conversation->story);
  assert_string_equal(buffer_text(&client.body), conversation->body);
}

/* The same conversation however the network cuts it. */
static void test_every_split(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof conversations / sizeof conversations[0]; i++) {
    const char *bytes = conversations[i].bytes;
    size_t length = strlen(bytes);
    for (size_t piece = 1; piece <= length; piece++) {
      restart();
      double_feed(&client, bytes, length, piece);
      assert_conversation(&conversations[i]);
    }
    for (size_t first = 0; first <= length; first++) {
      restart();
      double_feed(&client, bytes, first, CONNECTION_INPUT_BYTES);
      double_feed(&client, bytes + first, length - first, CONNECTION_INPUT_BYTES);
      assert_conversation(&conversations[i]);
    }
  }
}

/* Answers that come later change neither order nor content. */
static void test_every_split_with_late_answers(void **state) {
  (void)state;
  const struct conversation *conversation = &conversations[6];
  size_t length = strlen(conversation->bytes);
  for (size_t piece = 1; piece <= length; piece++) {
    restart();
    client.answer = client.write_at_once = false;
    assert_int_equal(double_feed(&client, conversation->bytes, length, piece), length);
    for (int answer = 0; answer < 4; answer++) {
      double_answer(&client);
      double_written(&client);
    }
    assert_conversation(conversation);
    assert_written("answer.answer.answer.answer.");
  }
}

struct refusal {
  const char *bytes, *story;
};

#define REFUSED(name) name ";done;end;"

static const struct refusal refusals[] = {
    {"GET / HTTP/1.1\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"GET / HTTP/1.1\r\n" HOST HOST "\r\n", REFUSED("INVALID_REQUEST")},
    {"GET / HTTP/1.0\r\n" HOST HOST "\r\n", REFUSED("INVALID_REQUEST")},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", REFUSED("INVALID_REQUEST")},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 2\r\nContent-Length: 5\r\n\r\n{}", REFUSED("INVALID_REQUEST")},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 2, 2\r\n\r\n{}", REFUSED("INVALID_REQUEST")},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: -2\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: +2\r\n\r\n{}", REFUSED("INVALID_REQUEST")},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 0x2\r\n\r\n{}", REFUSED("INVALID_REQUEST")},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, chunked\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: identity\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: \x0b" "chunked\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"GET / HTTP/1.1\r\n" HOST "Content-Length : 2\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"GET / HTTP/1.1\r\n" HOST " folded\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"GET / HTTP/1.1\r\n" HOST "X: a\r\n\tb\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"GET / HTTP/1.1\r\n" HOST ": nameless\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"GET / HTTP/1.1\r\n" HOST "no colon\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"GET / HTTP/1.1\r\n" HOST "X: a\x01" "b\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"GET / HTTP/1.1\r\n" HOST "X: a\x7f" "b\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"GET / HTTP/1.1\r\n" HOST "X: a\rb\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"GET / HTTP/1.1\n" HOST "\r\n", REFUSED("INVALID_REQUEST")},
    {"GET / HTTP/1.1\r\nHost: a\n\r\n", REFUSED("INVALID_REQUEST")},
    {"GET / HTTP/1.1\r\n" HOST "\n", REFUSED("INVALID_REQUEST")},
    {"GET /\x01 HTTP/1.1\r\n" HOST "\r\n", REFUSED("INVALID_REQUEST")},
    {"GET / HTTP/1.2\r\n" HOST "\r\n", REFUSED("INVALID_REQUEST")},
    {"GET / HTTP/2.0\r\n" HOST "\r\n", REFUSED("INVALID_REQUEST")},
    {"GET / HTTP/0.9\r\n" HOST "\r\n", REFUSED("INVALID_REQUEST")},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"GET / http/1.1\r\n" HOST "\r\n", REFUSED("INVALID_REQUEST")},
    {"GET /\r\n\r\n", REFUSED("INVALID_REQUEST")},
    {"GET  HTTP/1.1\r\n" HOST "\r\n", REFUSED("INVALID_REQUEST")},
    {" / HTTP/1.1\r\n" HOST "\r\n", REFUSED("INVALID_REQUEST")},
    {"G@T / HTTP/1.1\r\n" HOST "\r\n", REFUSED("INVALID_REQUEST")},
    {"\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n", REFUSED("INVALID_REQUEST")},
    {"\x16\x03\x01\x02garbage\r\n\r\n", REFUSED("INVALID_REQUEST")},
};

static void test_ambiguous_requests_are_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
    size_t length = strlen(refusals[i].bytes);
    for (size_t piece = 1; piece <= length; piece++) {
      restart();
      double_feed(&client, refusals[i].bytes, length, piece);
      assert_story(refusals[i].story);
      assert_written("answer(close).");
    }
  }
}

static void test_nul_is_refused(void **state) {
  (void)state;
  static const char bytes[] = "GET /a\0b HTTP/1.1\r\n" HOST "\r\n";
  double_feed(&client, bytes, sizeof bytes - 1, CONNECTION_INPUT_BYTES);
  assert_story("INVALID_REQUEST;done;end;");
}

static const char *const malformed_bodies[] = {
    "ZZ\r\n", "\r\n", ";x\r\n", " 1\r\na\r\n", "1 \r\na\r\n", "-1\r\na\r\n", "0x1\r\na\r\n", "1\na\r\n", "1\r\rna\r\n",
    "1\r\nab\r\n", "1\r\na\n0\r\n\r\n", "1\r\na\r\r\n", "1;\x01\r\na\r\n", "1;a\nb\r\n", "1234567890abcdef\r\n", "0\r\nX: a\n\r\n",
    "0\r\nX: \x01\r\n\r\n",
};

static void test_malformed_chunks(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof malformed_bodies / sizeof malformed_bodies[0]; i++) {
    for (size_t piece = 1; piece <= 64; piece += 63) {
      restart();
      double_feed_text(&client, "PUT /c HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
      double_story(&client);
      buffer_clear(&client.story);
      double_feed(&client, malformed_bodies[i], strlen(malformed_bodies[i]), piece);
      assert_non_null(strstr(double_story(&client), "malformed;done;end;"));
      assert_written("answer(close).");
    }
  }
}

static void feed_repeated(const char *text, size_t times) {
  for (size_t i = 0; i < times && client.reading && !client.ended && !client.closed; i++)
    double_feed_text(&client, text);
}

static void test_extensions_and_trailers_are_bounded(void **state) {
  (void)state;
  double_feed_text(&client, "PUT /c HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
  feed_repeated("1;extension\r\na\r\n", LIMIT_HEADER_BYTES);
  assert_non_null(strstr(double_story(&client), "malformed;"));
  restart();
  double_feed_text(&client, "PUT /c HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n");
  feed_repeated("Trailer: x\r\n", LIMIT_HEADER_BYTES);
  assert_string_equal(double_story(&client), "head PUT /c;malformed;done;end;");
}

/* Limits */

static void test_long_target(void **state) {
  (void)state;
  char *target = filled(LIMIT_HEADER_BYTES, 'a');
  double_feed_text(&client, "GET /");
  double_feed_text(&client, target);
  assert_story("URI_TOO_LONG;done;end;");
  free(target);
}

static void test_long_fields(void **state) {
  (void)state;
  char *value = filled(LIMIT_HEADER_BYTES, 'a');
  double_feed_text(&client, "GET / HTTP/1.1\r\n" HOST "X: ");
  double_feed_text(&client, value);
  assert_story("HEADERS_TOO_LARGE;done;end;");
  free(value);
}

/* The limit counts however the bytes come: a head that is whole in one read is no better. */
static void test_head_of_exactly_the_limit(void **state) {
  (void)state;
  for (int over = 0; over <= 1; over++)
    for (int split = 0; split <= 1; split++) {
      restart();
      static const char start[] = "GET / HTTP/1.1\r\n" HOST "X: ", end[] = "\r\n\r\n";
      size_t length = LIMIT_HEADER_BYTES + (size_t)over;
      char *head = filled(length, 'a');
      memcpy(head, start, sizeof start - 1);
      memcpy(head + length - 4, end, 4);
      double_feed(&client, head, length, split ? 1000 : CONNECTION_INPUT_BYTES);
      assert_story(over ? "HEADERS_TOO_LARGE;done;end;" : "head GET /;whole;done;");
      free(head);
    }
}

static void test_number_of_fields(void **state) {
  (void)state;
  for (size_t count = LIMIT_HEADER_COUNT; count <= LIMIT_HEADER_COUNT + 1; count++) {
    restart();
    double_feed_text(&client, "GET / HTTP/1.1\r\n" HOST);
    for (size_t i = 1; i < count; i++)
      double_feed_text(&client, "X: y\r\n");
    double_feed_text(&client, "\r\n");
    assert_story(count > LIMIT_HEADER_COUNT ? "HEADERS_TOO_LARGE;done;end;" : "head GET /;whole;done;");
  }
}

static void test_huge_content_length_is_a_length(void **state) {
  (void)state;
  client.accept = client.answer = false;
  double_feed_text(&client, "PUT / HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999999999\r\n\r\n");
  assert_story("head PUT /;");
  assert_true(client.connection.body_left == UINT64_MAX);
}

static void test_requests_sent_ahead_are_bounded(void **state) {
  (void)state;
  static const char request[] = "GET /ahead HTTP/1.1\r\n" HOST "\r\n";
  client.answer = client.write_at_once = false;
  size_t fed = 0;
  while (client.reading)
    fed += double_feed_text(&client, request);
  assert_in_range(fed, LIMIT_HEADER_BYTES, LIMIT_HEADER_BYTES + 2 * sizeof request);
  size_t answers = 0;
  while (client.connection.active) {
    double_answer(&client);
    double_written(&client);
    answers++;
  }
  assert_int_equal(answers, fed / (sizeof request - 1));
  assert_true(client.reading);
  assert_int_equal(client.timer, CONNECTION_TIMER_IDLE);
  assert_null(client.connection.pending.data);
}

/* Bodies */

static void test_body_held_back(void **state) {
  (void)state;
  client.stream = true;
  client.answer = false;
  double_feed_text(&client, "PUT / HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\n01");
  assert_int_equal(client.timer, CONNECTION_TIMER_BODY);
  connection_pause_body(&client.connection, true);
  assert_false(client.reading);
  assert_int_equal(client.timer, CONNECTION_TIMER_NONE);
  connection_pause_body(&client.connection, false);
  assert_true(client.reading);
  assert_int_equal(client.timer, CONNECTION_TIMER_BODY);
  double_feed_text(&client, "23456789");
  assert_string_equal(buffer_text(&client.body), "0123456789|");
  assert_story("head PUT /;body 10;whole;");
  assert_int_equal(client.timer, CONNECTION_TIMER_NONE);
}

static void test_streamed_body_restarts_its_timer(void **state) {
  (void)state;
  for (int streamed = 0; streamed <= 1; streamed++) {
    restart();
    client.stream = streamed;
    double_feed_text(&client, "PUT / HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\n");
    unsigned before = client.timers_set;
    double_feed_text(&client, "0");
    assert_int_equal(client.timers_set - before, streamed);
  }
}

static void test_late_body(void **state) {
  (void)state;
  double_feed_text(&client, "PUT / HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\n01");
  connection_timeout(&client.connection);
  assert_written("answer(close).");
  double_written(&client);
  assert_story("head PUT /;body 2;late;done;end;");
}

static void test_body_cut_short(void **state) {
  (void)state;
  double_feed_text(&client, "PUT / HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\n01");
  connection_input_ended(&client.connection);
  assert_false(client.reading);
  assert_written("answer(close).");
  double_written(&client);
  assert_story("head PUT /;body 2;cut;done;close;");
}

static void test_unwanted_body_is_thrown_away(void **state) {
  (void)state;
  client.accept = client.answer = false;
  double_feed_text(&client, "POST / HTTP/1.1\r\n" HOST "Content-Length: 4\r\n\r\n{}");
  double_feed_text(&client, "{}GET /next HTTP/1.1\r\n" HOST "\r\n");
  double_answer(&client);
  double_written(&client);
  assert_story("head POST /;done;head GET /next;");
  assert_written("answer.");
}

/* The client must be able to read an answer that came before it had sent everything. */
static void test_answer_before_the_body_is_whole(void **state) {
  (void)state;
  client.accept = false;
  double_feed_text(&client, "PUT / HTTP/1.1\r\n" HOST "Content-Length: 1000000\r\n\r\n0");
  assert_story("head PUT /;done;end;");
  assert_written("answer(close).");
  assert_int_equal(client.timer, CONNECTION_TIMER_LINGER);
  feed_repeated("0123456789", 1000);
  assert_story("");
  connection_input_ended(&client.connection);
  assert_story("close;");
}

static void test_rest_is_bounded(void **state) {
  (void)state;
  client.accept = false;
  char *rest = filled(CONNECTION_INPUT_BYTES, 'x');
  double_feed_text(&client, "PUT / HTTP/1.1\r\n" HOST "Content-Length: 1000000000000\r\n\r\n0");
  size_t fed = 0;
  while (!client.closed)
    fed += double_feed_text(&client, rest);
  assert_in_range(fed, LIMIT_TRANSFER_BYTES, LIMIT_TRANSFER_BYTES + 2 * LIMIT_JSON_BODY_BYTES);
  free(rest);
}

/* No body was announced: whoever goes on sending is cut soon. */
static void test_endless_head_is_cut(void **state) {
  (void)state;
  char *rest = filled(CONNECTION_INPUT_BYTES, 'x');
  size_t fed = 0;
  while (!client.closed)
    fed += double_feed_text(&client, rest);
  assert_in_range(fed, 2 * LIMIT_HEADER_BYTES, LIMIT_JSON_BODY_BYTES);
  assert_story("URI_TOO_LONG;done;end;close;");
  free(rest);
}

static void test_answer_to_a_held_back_body(void **state) {
  (void)state;
  client.stream = true;
  client.answer = client.write_at_once = false;
  double_feed_text(&client, "PUT / HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\n01");
  connection_pause_body(&client.connection, true);
  double_answer(&client);
  assert_true(client.reading);
  double_feed_text(&client, "23456789");
  double_written(&client);
  assert_story("head PUT /;body 2;done;end;");
}

static void test_continue(void **state) {
  (void)state;
  double_feed_text(&client, "PUT / HTTP/1.1\r\n" HOST "Content-Length: 2\r\nExpect: 100-Continue\r\n\r\n");
  assert_written("HTTP/1.1 100 Continue\r\n\r\n");
  double_feed_text(&client, "ok");
  assert_written("HTTP/1.1 100 Continue\r\n\r\nanswer.");
  assert_story("head PUT /;body 2;whole;done;");
}

static void test_answer_waits_for_continue(void **state) {
  (void)state;
  client.write_at_once = false;
  double_feed_text(&client, "PUT / HTTP/1.1\r\n" HOST "Content-Length: 2\r\nExpect: 100-continue\r\n\r\nok");
  assert_written("HTTP/1.1 100 Continue\r\n\r\n");
  double_written(&client);
  assert_written("HTTP/1.1 100 Continue\r\n\r\nanswer.");
  double_written(&client);
  assert_story("head PUT /;body 2;whole;done;");
}

static void test_no_continue_for_an_unwanted_body(void **state) {
  (void)state;
  client.accept = false;
  double_feed_text(&client, "PUT / HTTP/1.1\r\n" HOST "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  assert_written("answer(close).");
  assert_story("head PUT /;done;end;");
}

static void test_no_continue_for_an_old_client(void **state) {
  (void)state;
  double_feed_text(&client, "PUT / HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  assert_written("");
}

/* Ends */

static void test_gone_while_a_request_runs(void **state) {
  (void)state;
  client.answer = false;
  double_feed_text(&client, "GET / HTTP/1.1\r\n" HOST "\r\nGET /ahead HTTP/1.1\r\n" HOST "\r\n");
  connection_input_ended(&client.connection);
  assert_story("head GET /;whole;gone;close;");
}

static void test_lost_in_any_state(void **state) {
  (void)state;
  connection_lost(&client.connection);
  assert_story("close;");
  restart();
  double_feed_text(&client, "GET / HT");
  connection_lost(&client.connection);
  assert_story("close;");
  restart();
  client.answer = false;
  double_feed_text(&client, "PUT / HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\n0");
  connection_lost(&client.connection);
  assert_story("head PUT /;body 1;gone;close;");
  restart();
  client.write_at_once = false;
  double_feed_text(&client, "GET / HTTP/1.1\r\n" HOST "\r\n");
  connection_lost(&client.connection);
  assert_story("head GET /;whole;gone;close;");
}

static void test_end_of_input_lets_the_answer_out(void **state) {
  (void)state;
  client.write_at_once = false;
  double_feed_text(&client, "GET / HTTP/1.1\r\n" HOST "\r\n");
  connection_input_ended(&client.connection);
  double_written(&client);
  assert_story("head GET /;whole;done;close;");
}

static void test_end_of_input_between_requests(void **state) {
  (void)state;
  connection_input_ended(&client.connection);
  assert_story("close;");
  restart();
  double_feed_text(&client, "GET / HTT");
  connection_input_ended(&client.connection);
  assert_story("close;");
}

static void test_answer_in_parts(void **state) {
  (void)state;
  client.answer = client.write_at_once = false;
  double_feed_text(&client, "GET / HTTP/1.1\r\n" HOST "\r\n");
  const struct http_text part = HTTP_TEXT("part ");
  for (int i = 0; i < 3; i++) {
    connection_respond(&client.connection, &part, 1, false);
    assert_int_equal(client.timer, CONNECTION_TIMER_WRITE);
    double_written(&client);
    assert_int_equal(client.timer, CONNECTION_TIMER_NONE);
  }
  double_answer(&client);
  double_written(&client);
  assert_written("part part part answer.");
  assert_story("head GET /;whole;drained;drained;drained;done;");
}

static void test_cut(void **state) {
  (void)state;
  client.answer = client.write_at_once = false;
  double_feed_text(&client, "GET / HTTP/1.1\r\n" HOST "\r\n");
  const struct http_text part = HTTP_TEXT("part ");
  connection_respond(&client.connection, &part, 1, false);
  connection_cut(&client.connection);
  assert_story("head GET /;whole;close;");
}

/* Timers */

static void test_slow_head(void **state) {
  (void)state;
  assert_int_equal(client.timer, CONNECTION_TIMER_IDLE);
  double_feed_text(&client, "G");
  assert_int_equal(client.timer, CONNECTION_TIMER_HEAD);
  unsigned before = client.timers_set;
  double_feed_text(&client, "ET / HTTP/1.1\r\nX: ");
  assert_int_equal(client.timers_set, before);
  connection_timeout(&client.connection);
  double_written(&client);
  assert_story("REQUEST_TIMEOUT;done;end;");
}

static void test_idle(void **state) {
  (void)state;
  double_feed_text(&client, "GET / HTTP/1.1\r\n" HOST "\r\n");
  assert_int_equal(client.timer, CONNECTION_TIMER_IDLE);
  connection_timeout(&client.connection);
  assert_story("head GET /;whole;done;close;");
}

static void test_client_that_takes_nothing(void **state) {
  (void)state;
  client.write_at_once = false;
  double_feed_text(&client, "GET / HTTP/1.1\r\n" HOST "\r\n");
  assert_int_equal(client.timer, CONNECTION_TIMER_WRITE);
  connection_timeout(&client.connection);
  assert_story("head GET /;whole;gone;close;");
}

static void test_linger_ends(void **state) {
  (void)state;
  double_feed_text(&client, "GET / HTTP/1.0\r\n\r\n");
  assert_int_equal(client.timer, CONNECTION_TIMER_LINGER);
  connection_timeout(&client.connection);
  assert_story("head GET /;whole;done;end;close;");
}

/* Stopping */

static void test_stop(void **state) {
  (void)state;
  connection_stop(&client.connection);
  assert_story("close;");
  restart();
  client.answer = client.write_at_once = false;
  double_feed_text(&client, "GET / HTTP/1.1\r\n" HOST "\r\nGET /ahead HTTP/1.1\r\n" HOST "\r\n");
  connection_stop(&client.connection);
  double_answer(&client);
  assert_written("answer(close).");
  double_written(&client);
  assert_story("head GET /;whole;done;end;");
}

static void test_without_memory(void **state) {
  (void)state;
  double_feed_text(&client, "GET / HT");
  char more[] = "TP/1.1\r\n" HOST "X-Long: 0123456789012345678901234567890123456789012345678901234567890123456789\r\n";
  memory_fail_after(1, 1);
  connection_input(&client.connection, more, sizeof more - 1);
  memory_fail_after(0, 0);
  assert_true(client.closed);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(test_every_split),
      TEST(test_every_split_with_late_answers),
      TEST(test_ambiguous_requests_are_refused),
      TEST(test_nul_is_refused),
      TEST(test_malformed_chunks),
      TEST(test_extensions_and_trailers_are_bounded),
      TEST(test_long_target),
      TEST(test_long_fields),
      TEST(test_head_of_exactly_the_limit),
      TEST(test_number_of_fields),
      TEST(test_huge_content_length_is_a_length),
      TEST(test_requests_sent_ahead_are_bounded),
      TEST(test_body_held_back),
      TEST(test_streamed_body_restarts_its_timer),
      TEST(test_late_body),
      TEST(test_body_cut_short),
      TEST(test_unwanted_body_is_thrown_away),
      TEST(test_answer_before_the_body_is_whole),
      TEST(test_rest_is_bounded),
      TEST(test_endless_head_is_cut),
      TEST(test_answer_to_a_held_back_body),
      TEST(test_continue),
      TEST(test_answer_waits_for_continue),
      TEST(test_no_continue_for_an_unwanted_body),
      TEST(test_no_continue_for_an_old_client),
      TEST(test_gone_while_a_request_runs),
      TEST(test_lost_in_any_state),
      TEST(test_end_of_input_lets_the_answer_out),
      TEST(test_end_of_input_between_requests),
      TEST(test_answer_in_parts),
      TEST(test_cut),
      TEST(test_slow_head),
      TEST(test_idle),
      TEST(test_client_that_takes_nothing),
      TEST(test_linger_ends),
      TEST(test_stop),
      TEST(test_without_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
