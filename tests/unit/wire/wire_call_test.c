/* Calls between two wires: messages of every size around the boundaries, windows, ends and races. */
#include "base/memory.h"
#include "tests/unit/wire/pair.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above. */
#include <cmocka.h>

static uint8_t *pattern(size_t length, unsigned seed) {
  uint8_t *bytes = memory_new(length + 1);
  assert_non_null(bytes);
  for (size_t i = 0; i < length; i++)
    bytes[i] = (uint8_t)(i * 31 + (i >> 8) * 7 + seed);
  return bytes;
}

static void a_unary_call_goes_there_and_back(void **state) {
  (void)state;
  struct pair pair;
  struct record client, server;
  record_init(&client);
  record_init(&server);
  server.echo = server.finish = true;
  assert_int_equal(pair_open(&pair, NULL, NULL), 0);
  pair.accept = &server;
  client.call = wire_call_start(pair.client, "/sandbox.Test/Echo", &record_events, &client);
  assert_non_null(client.call);
  assert_int_equal(wire_call_send(client.call, (const uint8_t *)"hello", 5), 0);
  wire_call_half_close(client.call);
  assert_int_equal(wire_calls(pair.client), 1);
  pair_pump(&pair);
  assert_string_equal(pair.path, "/sandbox.Test/Echo");
  assert_string_equal(buffer_text(&server.bytes), "hello");
  assert_string_equal(buffer_text(&client.bytes), "hello");
  assert_int_equal(client.messages, 1);
  assert_int_equal(client.ended, 1);
  assert_int_equal(client.status, WIRE_OK);
  assert_int_equal(server.half_closed, 1);
  assert_int_equal(server.ended, 1);
  assert_int_equal(server.status, WIRE_OK);
  assert_int_equal(wire_calls(pair.client), 0);
  assert_int_equal(wire_calls(pair.server), 0);
  assert_false(wire_wants_transmit(pair.client));
  assert_false(wire_wants_transmit(pair.server));
  pair_close(&pair);
  record_free(&client);
  record_free(&server);
}

/* A whole unary call is one piece in each direction once the connection stands: that is one system call each. */
static void a_small_call_is_one_piece_each_way(void **state) {
  (void)state;
  struct pair pair;
  struct record client, server;
  record_init(&client);
  record_init(&server);
  server.echo = server.finish = true;
  assert_int_equal(pair_open(&pair, NULL, NULL), 0);
  pair.accept = &server;
  pair_pump(&pair);
  size_t before = pair.pieces;
  client.call = wire_call_start(pair.client, "/sandbox.Test/Echo", &record_events, &client);
  wire_call_send(client.call, (const uint8_t *)"hello", 5);
  wire_call_half_close(client.call);
  pair_pump(&pair);
  assert_int_equal(client.ended, 1);
  assert_int_equal(pair.pieces - before, 2);
  pair_close(&pair);
  record_free(&client);
  record_free(&server);
}

enum how { HOW_COPIED, HOW_OWNED, HOW_BLOCK };

static int send_how(struct wire_call *call, enum how how, const uint8_t *bytes, size_t length) {
  size_t offset = how == HOW_BLOCK ? WIRE_HEADROOM + 3 : 0;
  if (how == HOW_COPIED)
    return wire_call_send(call, bytes, length);
  uint8_t *block = memory_new(offset + length + 1);
  assert_non_null(block);
  memcpy(block + offset, bytes, length);
  return how == HOW_OWNED ? wire_call_send_owned(call, block, length)
                          : wire_call_send_block(call, block, offset, length);
}

/* Three messages of one size there and back, in pieces of at most `split` bytes. */
static void echo(size_t length, enum how how, size_t split, unsigned seed) {
  struct pair pair;
  struct record client, server;
  record_init(&client);
  record_init(&server);
  server.echo = server.finish = true;
  assert_int_equal(pair_open(&pair, NULL, NULL), 0);
  pair.accept = &server;
  pair.split = split;
  pair.seed = seed;
  client.call = wire_call_start(pair.client, "/sandbox.Test/Echo", &record_events, &client);
  struct buffer expected CLEANUP_BUFFER;
  buffer_init(&expected, 64 * 1024 * 1024);
  for (unsigned i = 0; i < 3; i++) {
    uint8_t *bytes = pattern(length, i);
    assert_int_equal(send_how(client.call, how, bytes, length), 0);
    assert_int_equal(buffer_append(&expected, bytes, length), 0);
    memory_free(bytes);
  }
  wire_call_half_close(client.call);
  pair_pump(&pair);
  assert_int_equal(client.ended, 1);
  assert_int_equal(client.status, WIRE_OK);
  assert_int_equal(client.messages, 3);
  assert_int_equal(client.bytes.length, expected.length);
  if (length > 0)
    assert_memory_equal(client.bytes.data, expected.data, expected.length);
  assert_int_equal(server.status, WIRE_OK);
  assert_int_equal(server.send_failures, 0);
  pair_close(&pair);
  record_free(&client);
  record_free(&server);
}

static void messages_of_every_size_around_boundaries_arrive(void **state) {
  (void)state;
  static const size_t around[] = {0, 1024, 4096, 16384, 32768, 65535, 65536, 131072, 135168, 262144, 524288};
  for (size_t i = 0; i < sizeof around / sizeof around[0]; i++) {
    size_t low = around[i] > 40 ? around[i] - 40 : 0, high = around[i] + 24;
    for (size_t length = low; length <= high; length++)
      echo(length, (enum how)(length % 3), 0, 0);
  }
  for (size_t length = 0; length < 200; length++)
    for (int how = 0; how < 3; how++)
      echo(length, (enum how)how, 0, 0);
  echo(1024 * 1024, HOW_COPIED, 0, 0);
  echo(1024 * 1024, HOW_OWNED, 0, 0);
}

static void messages_arrive_however_the_bytes_are_split(void **state) {
  (void)state;
  for (size_t split = 1; split <= 16; split++)
    echo(3000, (enum how)(split % 3), split, 0);
  for (unsigned seed = 1; seed <= 40; seed++) {
    echo(seed * 997, (enum how)(seed % 3), 1 + seed * 13, seed);
    echo(seed * 4999, (enum how)(seed % 3), 70000, seed);
  }
}

/* A window smaller than one message, whatever the receiver has consumed: nothing may get stuck. */
static void messages_larger_than_the_window_come_through(void **state) {
  (void)state;
  struct wire_options options = {.message_limit = 100000, .call_window = 1, .calls_limit = 4, .output_limit = 65536};
  static const size_t lengths[] = {100000, 1, 0, 60000, 99999, 50001, 50000, 100000, 7, 100000};
  struct pair pair;
  struct record client, server;
  record_init(&client);
  record_init(&server);
  server.echo = server.finish = true;
  assert_int_equal(pair_open(&pair, &options, &options), 0);
  pair.accept = &server;
  client.call = wire_call_start(pair.client, "/sandbox.Test/Echo", &record_events, &client);
  size_t total = 0;
  for (size_t i = 0; i < 10; i++) {
    uint8_t *bytes = pattern(lengths[i], (unsigned)i);
    assert_int_equal(wire_call_send_owned(client.call, bytes, lengths[i]), 0);
    total += lengths[i];
  }
  wire_call_half_close(client.call);
  pair_pump(&pair);
  assert_int_equal(client.messages, 10);
  assert_int_equal(client.bytes.length, total);
  assert_int_equal(client.status, WIRE_OK);
  pair_close(&pair);
  record_free(&client);
  record_free(&server);
}

static void a_reader_that_stops_stops_the_writer(void **state) {
  (void)state;
  struct pair pair;
  struct record client, server;
  record_init(&client);
  record_init(&server);
  server.consume = false;
  assert_int_equal(pair_open(&pair, NULL, NULL), 0);
  pair.accept = &server;
  client.call = wire_call_start(pair.client, "/sandbox.Test/Sink", &record_events, &client);
  uint8_t *bytes = pattern(10000, 1);
  for (int i = 0; i < 300; i++)
    assert_int_equal(wire_call_send(client.call, bytes, 10000), 0);
  pair_pump(&pair);
  size_t window = 256 * 1024;
  assert_true(server.bytes.length <= window);
  assert_true(server.bytes.length > window - 10005 - 5 * 26);
  assert_int_equal(client.writable, 0);
  assert_true(wire_call_queued(client.call) > 64 * 1024);
  while (server.bytes.length < 3000000) {
    size_t had = server.bytes.length;
    wire_call_consume(server.call, had);
    pair_pump(&pair);
    assert_true(server.bytes.length > had);
  }
  assert_int_equal(client.writable, 1);
  assert_int_equal(wire_call_queued(client.call), 0);
  memory_free(bytes);
  pair_close(&pair);
  assert_int_equal(client.status, WIRE_UNAVAILABLE);
  assert_int_equal(server.status, WIRE_UNAVAILABLE);
  record_free(&client);
  record_free(&server);
}

/* Messages larger than the window, of which the receiver consumes none, half or all: what it holds stays bounded. */
static void large_messages_do_not_widen_the_window(void **state) {
  (void)state;
  struct wire_options options = {
      .message_limit = 300000, .call_window = 20000, .calls_limit = 4, .output_limit = 65536};
  for (size_t consumed = 0; consumed <= 2; consumed++) {
    struct pair pair;
    struct record client, server;
    record_init(&client);
    record_init(&server);
    server.consume = false;
    assert_int_equal(pair_open(&pair, &options, &options), 0);
    pair.accept = &server;
    client.call = wire_call_start(pair.client, "/sandbox.Test/Sink", &record_events, &client);
    for (unsigned i = 0; i < 8; i++)
      wire_call_send_owned(client.call, pattern(i % 2 ? 300000 : 4000, i), i % 2 ? 300000 : 4000);
    size_t held = 0, seen = 0;
    for (int round = 0; round < 200; round++) {
      pair_pump(&pair);
      held += server.bytes.length - seen;
      seen = server.bytes.length;
      assert_true(held <= 300000 + 20000);
      size_t done = (held * consumed + 1) / 2;
      wire_call_consume(server.call, done);
      held -= done;
    }
    assert_int_equal(server.messages, consumed == 0 ? 1 : 8);
    /* Behind it all the window is what it was. */
    wire_call_consume(server.call, held);
    pair_pump(&pair);
    wire_call_consume(server.call, SIZE_MAX);
    for (unsigned i = 0; i < 30; i++)
      wire_call_send_owned(client.call, pattern(1000, i), 1000);
    seen = server.bytes.length;
    pair_pump(&pair);
    if (consumed == 2)
      assert_true(server.bytes.length - seen <= 20000 && server.bytes.length - seen >= 9000);
    pair_close(&pair);
    record_free(&client);
    record_free(&server);
  }
}

static void a_call_can_be_given_a_wider_window(void **state) {
  (void)state;
  struct pair pair;
  struct record client, server;
  record_init(&client);
  record_init(&server);
  client.consume = false;
  assert_int_equal(pair_open(&pair, NULL, NULL), 0);
  pair.accept = &server;
  client.call = wire_call_start(pair.client, "/sandbox.Test/Source", &record_events, &client);
  wire_call_widen(client.call, 100000);
  pair_pump(&pair);
  for (unsigned i = 0; i < 100; i++)
    wire_call_send_owned(server.call, pattern(10000, i), 10000);
  pair_pump(&pair);
  assert_true(client.bytes.length <= 262144 + 100000);
  assert_true(client.bytes.length > 262144 + 100000 - 10005 - 5 * 36);
  pair_close(&pair);
  record_free(&client);
  record_free(&server);
}

static void memory_is_counted(void **state) {
  (void)state;
  struct pair pair;
  struct record client, server;
  record_init(&client);
  record_init(&server);
  server.consume = false;
  assert_int_equal(pair_open(&pair, NULL, NULL), 0);
  pair.accept = &server;
  pair_pump(&pair);
  size_t idle = wire_memory(pair.client);
  assert_in_range(idle, 4096, 48 * 1024);
  client.call = wire_call_start(pair.client, "/sandbox.Test/Sink", &record_events, &client);
  wire_call_send_owned(client.call, pattern(1000000, 0), 1000000);
  assert_in_range(wire_memory(pair.client), idle + 1000000, idle + 1010000);
  pair_pump(&pair);
  wire_call_cancel(client.call);
  pair_pump(&pair);
  assert_in_range(wire_memory(pair.client), 4096, idle + 160 * 1024);
  pair_close(&pair);
  record_free(&client);
  record_free(&server);
}

static void consuming_more_than_was_received_opens_nothing(void **state) {
  (void)state;
  struct pair pair;
  struct record client, server;
  record_init(&client);
  record_init(&server);
  server.consume = false;
  struct wire_options options = {.message_limit = 1000, .call_window = 20000, .calls_limit = 4, .output_limit = 65536};
  assert_int_equal(pair_open(&pair, &options, &options), 0);
  pair.accept = &server;
  client.call = wire_call_start(pair.client, "/sandbox.Test/Sink", &record_events, &client);
  uint8_t bytes[1000] = {0};
  wire_call_send(client.call, bytes, sizeof bytes);
  pair_pump(&pair);
  wire_call_consume(server.call, SIZE_MAX);
  wire_call_consume(server.call, SIZE_MAX);
  for (int i = 0; i < 100; i++)
    wire_call_send(client.call, bytes, sizeof bytes);
  pair_pump(&pair);
  assert_true(server.bytes.length <= 1000 + 20000);
  pair_close(&pair);
  record_free(&client);
  record_free(&server);
}

static void resets_may_be_as_many_as_calls(void **state) {
  (void)state;
  struct pair pair;
  assert_int_equal(pair_open(&pair, NULL, NULL), 0);
  for (int i = 0; i < 5000; i++) {
    struct record client, server;
    record_init(&client);
    record_init(&server);
    pair.accept = &server;
    client.call = wire_call_start(pair.client, "/sandbox.Test/Sink", &record_events, &client);
    assert_non_null(client.call);
    pair_pump(&pair);
    wire_call_cancel(client.call);
    pair_pump(&pair);
    assert_int_equal(client.status, WIRE_CANCELLED);
    assert_int_equal(server.status, WIRE_CANCELLED);
    record_free(&client);
    record_free(&server);
  }
  assert_int_equal(pair.server_result, 0);
  pair_close(&pair);
}

static void unconfirmed_bytes_are_at_least_those_not_consumed(void **state) {
  (void)state;
  struct pair pair;
  struct record client, server;
  record_init(&client);
  record_init(&server);
  server.consume = false;
  struct wire_options options = {.message_limit = 1000, .call_window = 20000, .calls_limit = 4, .output_limit = 65536};
  assert_int_equal(pair_open(&pair, &options, &options), 0);
  pair.accept = &server;
  client.call = wire_call_start(pair.client, "/sandbox.Test/Sink", &record_events, &client);
  pair_pump(&pair); /* the other side has told its window */
  assert_int_equal(wire_call_unconfirmed(client.call), 0);
  uint8_t bytes[1000] = {0};
  for (int i = 0; i < 15; i++)
    wire_call_send(client.call, bytes, sizeof bytes);
  assert_int_equal(wire_call_unconfirmed(client.call), 0); /* all is still queued */
  pair_pump(&pair);
  assert_true(wire_call_unconfirmed(client.call) >= 15000);
  wire_call_consume(server.call, 12000);
  pair_pump(&pair);
  assert_in_range(wire_call_unconfirmed(client.call), 3000, 3000 + 15 * 5);
  pair_close(&pair);
  record_free(&client);
  record_free(&server);
}

static void statuses_and_texts_arrive(void **state) {
  (void)state;
  static const char *const texts[] = {"", "plain", "100% of \xC3\xA4\xE2\x82\xAC", "line\nbreak", "%41 stays"};
  for (size_t with_message = 0; with_message < 2; with_message++) {
    for (int status = 1; status <= 16; status++) {
      struct pair pair;
      struct record client, server;
      record_init(&client);
      record_init(&server);
      assert_int_equal(pair_open(&pair, NULL, NULL), 0);
      pair.accept = &server;
      client.call = wire_call_start(pair.client, "/sandbox.Test/Fail", &record_events, &client);
      pair_pump(&pair);
      assert_non_null(server.call);
      if (with_message)
        assert_int_equal(wire_call_send(server.call, (const uint8_t *)"x", 1), 0);
      const char *text = texts[(size_t)status % 5];
      wire_call_finish(server.call, status, text);
      assert_int_equal(wire_call_send(server.call, (const uint8_t *)"y", 1), -1);
      wire_call_finish(server.call, 0, "again");
      pair_pump(&pair);
      assert_int_equal(client.status, status);
      assert_string_equal(client.text, strchr(text, '\n') ? "line break" : text);
      assert_int_equal(client.messages, with_message);
      assert_int_equal(client.ended, 1);
      assert_int_equal(server.ended, 1);
      assert_int_equal(server.status, WIRE_OK);
      pair_close(&pair);
      record_free(&client);
      record_free(&server);
    }
  }
}

static void a_long_text_is_cut_at_a_character(void **state) {
  (void)state;
  char text[2001];
  for (size_t i = 0; i < 2000; i += 4)
    memcpy(text + i, "\xF0\x9F\x98\x80", 4);
  text[2000] = '\0';
  memmove(text + 1, text, 1999);
  text[0] = 'a';
  struct pair pair;
  struct record client, server;
  record_init(&client);
  record_init(&server);
  assert_int_equal(pair_open(&pair, NULL, NULL), 0);
  pair.accept = &server;
  client.call = wire_call_start(pair.client, "/sandbox.Test/Fail", &record_events, &client);
  pair_pump(&pair);
  wire_call_finish(server.call, WIRE_INTERNAL, text);
  pair_pump(&pair);
  assert_int_equal(client.status, WIRE_INTERNAL);
  size_t length = strlen(client.text);
  assert_true(length <= 1024 && length > 1016);
  assert_memory_equal(client.text, text, 1021);
  pair_close(&pair);
  record_free(&client);
  record_free(&server);
}

static void an_unknown_path_is_unimplemented(void **state) {
  (void)state;
  struct pair pair;
  struct record client;
  record_init(&client);
  assert_int_equal(pair_open(&pair, NULL, NULL), 0);
  client.call = wire_call_start(pair.client, "/nobody", &record_events, &client);
  pair_pump(&pair);
  assert_int_equal(client.status, WIRE_UNIMPLEMENTED);
  char path[400];
  memset(path, 'a', sizeof path);
  path[0] = '/';
  path[399] = '\0';
  client.call = wire_call_start(pair.client, path, &record_events, &client);
  pair_pump(&pair);
  assert_int_equal(client.ended, 2);
  assert_int_equal(client.status, WIRE_UNIMPLEMENTED);
  assert_int_equal(pair.opened, 1);
  pair_close(&pair);
  record_free(&client);
}

/* The client, or the server, cancels after so many steps of the conversation, with bytes queued both ways. */
static void cancel_after(size_t steps, bool client_cancels, bool half_close) {
  struct pair pair;
  struct record client, server;
  record_init(&client);
  record_init(&server);
  server.echo = server.finish = true;
  assert_int_equal(pair_open(&pair, NULL, NULL), 0);
  pair.accept = &server;
  pair.split = 5000;
  client.call = wire_call_start(pair.client, "/sandbox.Test/Echo", &record_events, &client);
  for (unsigned i = 0; i < 6; i++)
    wire_call_send_owned(client.call, pattern(90000, i), 90000);
  if (half_close)
    wire_call_half_close(client.call);
  bool from_client = true;
  for (size_t i = 0; i < steps; i++, from_client = !from_client)
    pair_step(&pair, from_client);
  bool cancelled = client_cancels ? client.call != NULL : server.call != NULL;
  if (client_cancels && client.call)
    wire_call_cancel(client.call);
  if (!client_cancels && server.call)
    wire_call_cancel(server.call);
  size_t client_messages = client.messages, server_messages = server.messages;
  pair_pump(&pair);
  assert_int_equal(pair.client_result, 0);
  assert_int_equal(pair.server_result, 0);
  if (cancelled) {
    assert_int_equal(client.ended, 1);
    assert_int_equal(client.status, WIRE_CANCELLED);
    if (client_cancels)
      assert_int_equal(client.messages, client_messages);
    else
      assert_int_equal(server.messages, server_messages);
    if (pair.opened > 0) {
      assert_int_equal(server.ended, 1);
      assert_int_equal(server.status, server.status == WIRE_OK ? WIRE_OK : WIRE_CANCELLED);
    }
    assert_int_equal(wire_calls(pair.client), 0);
    assert_int_equal(wire_calls(pair.server), 0);
  }
  /* The connection is as good as before. */
  struct record next;
  record_init(&next);
  record_free(&server);
  record_init(&server);
  server.echo = server.finish = true;
  next.call = wire_call_start(pair.client, "/sandbox.Test/Echo", &record_events, &next);
  wire_call_send_owned(next.call, pattern(200000, 9), 200000);
  wire_call_half_close(next.call);
  pair_pump(&pair);
  assert_int_equal(next.status, WIRE_OK);
  assert_int_equal(next.bytes.length, 200000);
  pair_close(&pair);
  record_free(&client);
  record_free(&server);
  record_free(&next);
}

static void a_reset_at_any_moment_ends_one_call_only(void **state) {
  (void)state;
  for (size_t steps = 0; steps < 40; steps++)
    for (int variant = 0; variant < 4; variant++)
      cancel_after(steps, variant & 1, variant & 2);
}

static void cancelling_inside_a_message_is_the_last_of_it(void **state) {
  (void)state;
  struct pair pair;
  struct record client, server;
  record_init(&client);
  record_init(&server);
  server.cancel = true;
  assert_int_equal(pair_open(&pair, NULL, NULL), 0);
  pair.accept = &server;
  client.call = wire_call_start(pair.client, "/sandbox.Test/Echo", &record_events, &client);
  for (int i = 0; i < 5; i++)
    wire_call_send(client.call, (const uint8_t *)"abc", 3);
  pair_pump(&pair);
  assert_int_equal(server.messages, 1);
  assert_int_equal(server.ended, 1);
  assert_int_equal(client.status, WIRE_CANCELLED);
  pair_close(&pair);
  record_free(&client);
  record_free(&server);
}

/* Cancel after finish, finish after cancel, half close twice: nothing is told twice. */
static void ends_that_cross_are_told_once(void **state) {
  (void)state;
  for (int variant = 0; variant < 8; variant++) {
    struct pair pair;
    struct record client, server;
    record_init(&client);
    record_init(&server);
    assert_int_equal(pair_open(&pair, NULL, NULL), 0);
    pair.accept = &server;
    client.call = wire_call_start(pair.client, "/sandbox.Test/Race", &record_events, &client);
    pair_pump(&pair);
    if (variant & 1)
      wire_call_send_owned(server.call, pattern(100000, 0), 100000);
    wire_call_finish(server.call, WIRE_OK, "");
    if (variant & 2)
      wire_call_cancel(server.call);
    if (variant & 4) {
      wire_call_half_close(client.call);
      wire_call_half_close(client.call);
      wire_call_cancel(client.call);
      wire_call_cancel(client.call);
    }
    pair_pump(&pair);
    assert_int_equal(client.ended, 1);
    assert_int_equal(server.ended, 1);
    assert_int_equal(wire_calls(pair.client), 0);
    assert_int_equal(wire_calls(pair.server), 0);
    assert_int_equal(pair.client_result, 0);
    assert_int_equal(pair.server_result, 0);
    pair_close(&pair);
    record_free(&client);
    record_free(&server);
  }
}

static void a_server_may_end_before_the_client_has_sent_all(void **state) {
  (void)state;
  struct pair pair;
  struct record client, server;
  record_init(&client);
  record_init(&server);
  server.consume = false;
  assert_int_equal(pair_open(&pair, NULL, NULL), 0);
  pair.accept = &server;
  client.call = wire_call_start(pair.client, "/sandbox.Test/Early", &record_events, &client);
  for (unsigned i = 0; i < 20; i++)
    wire_call_send_owned(client.call, pattern(100000, i), 100000);
  pair_pump(&pair);
  wire_call_finish(server.call, WIRE_RESOURCE_EXHAUSTED, "enough");
  pair_pump(&pair);
  assert_int_equal(client.status, WIRE_RESOURCE_EXHAUSTED);
  assert_string_equal(client.text, "enough");
  assert_int_equal(server.status, WIRE_OK);
  assert_int_equal(wire_calls(pair.server), 0);
  pair_close(&pair);
  record_free(&client);
  record_free(&server);
}

static void calls_are_limited_on_both_sides(void **state) {
  (void)state;
  struct wire_options many = {.message_limit = 1000, .call_window = 1000, .calls_limit = 8, .output_limit = 65536};
  struct wire_options few = many;
  few.calls_limit = 3;
  struct pair pair;
  struct record client[8], server;
  record_init(&server);
  assert_int_equal(pair_open(&pair, &many, &few), 0);
  pair.accept = &server;
  /* Before the server's settings are known: the calls beyond its limit are refused. */
  for (int i = 0; i < 8; i++) {
    record_init(&client[i]);
    client[i].call = wire_call_start(pair.client, "/sandbox.Test/Hang", &record_events, &client[i]);
    assert_non_null(client[i].call);
  }
  struct record none;
  record_init(&none);
  assert_null(wire_call_start(pair.client, "/sandbox.Test/Hang", &record_events, &none));
  pair_pump(&pair);
  assert_int_equal(wire_calls(pair.server), 3);
  unsigned refused = 0;
  for (int i = 0; i < 8; i++)
    refused += client[i].ended == 1 && client[i].status == WIRE_UNAVAILABLE;
  assert_int_equal(refused, 5);
  pair_close(&pair);
  for (int i = 0; i < 8; i++)
    record_free(&client[i]);
  record_free(&server);
  record_free(&none);
}

static void pings_are_answered(void **state) {
  (void)state;
  struct pair pair;
  assert_int_equal(pair_open(&pair, NULL, NULL), 0);
  assert_int_equal(wire_ping(pair.client), 0);
  assert_true(wire_wants_transmit(pair.client));
  pair_pump(&pair);
  assert_int_equal(pair.pongs, 1);
  assert_int_equal(wire_ping(pair.server), 0);
  pair_pump(&pair);
  assert_int_equal(pair.pongs, 2);
  pair_close(&pair);
}

/* A slow call does not hold up another one. */
static void calls_do_not_wait_for_each_other(void **state) {
  (void)state;
  struct wire_options options = {
      .message_limit = 131072, .call_window = 262144, .calls_limit = 64, .output_limit = 65536};
  struct pair pair;
  struct record stuck[40], server_stuck[40], client, server;
  assert_int_equal(pair_open(&pair, &options, &options), 0);
  for (int i = 0; i < 40; i++) {
    record_init(&stuck[i]);
    record_init(&server_stuck[i]);
    server_stuck[i].consume = false;
    pair.accept = &server_stuck[i];
    stuck[i].call = wire_call_start(pair.client, "/sandbox.Test/Stuck", &record_events, &stuck[i]);
    for (int j = 0; j < 4; j++)
      wire_call_send_owned(stuck[i].call, pattern(100000, 0), 100000);
    pair_pump(&pair);
    assert_true(server_stuck[i].bytes.length >= 200000);
  }
  record_init(&client);
  record_init(&server);
  server.echo = server.finish = true;
  pair.accept = &server;
  client.call = wire_call_start(pair.client, "/sandbox.Test/Echo", &record_events, &client);
  wire_call_send_owned(client.call, pattern(131072, 1), 131072);
  wire_call_half_close(client.call);
  pair_pump(&pair);
  assert_int_equal(client.status, WIRE_OK);
  assert_int_equal(client.bytes.length, 131072);
  pair_close(&pair);
  for (int i = 0; i < 40; i++) {
    assert_int_equal(stuck[i].ended, 1);
    record_free(&stuck[i]);
    record_free(&server_stuck[i]);
  }
  record_free(&client);
  record_free(&server);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_unary_call_goes_there_and_back),
      cmocka_unit_test(a_small_call_is_one_piece_each_way),
      cmocka_unit_test(messages_of_every_size_around_boundaries_arrive),
      cmocka_unit_test(messages_arrive_however_the_bytes_are_split),
      cmocka_unit_test(messages_larger_than_the_window_come_through),
      cmocka_unit_test(a_reader_that_stops_stops_the_writer),
      cmocka_unit_test(large_messages_do_not_widen_the_window),
      cmocka_unit_test(a_call_can_be_given_a_wider_window),
      cmocka_unit_test(memory_is_counted),
      cmocka_unit_test(consuming_more_than_was_received_opens_nothing),
      cmocka_unit_test(resets_may_be_as_many_as_calls),
      cmocka_unit_test(unconfirmed_bytes_are_at_least_those_not_consumed),
      cmocka_unit_test(statuses_and_texts_arrive),
      cmocka_unit_test(a_long_text_is_cut_at_a_character),
      cmocka_unit_test(an_unknown_path_is_unimplemented),
      cmocka_unit_test(a_reset_at_any_moment_ends_one_call_only),
      cmocka_unit_test(cancelling_inside_a_message_is_the_last_of_it),
      cmocka_unit_test(ends_that_cross_are_told_once),
      cmocka_unit_test(a_server_may_end_before_the_client_has_sent_all),
      cmocka_unit_test(calls_are_limited_on_both_sides),
      cmocka_unit_test(pings_are_answered),
      cmocka_unit_test(calls_do_not_wait_for_each_other),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
