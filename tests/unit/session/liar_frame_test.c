/* An agent that breaks the rules of gRPC and HTTP/2 under a running command. */
#include "base/memory.h"
#include "base/message.h"
#include "tests/unit/session/check.h"
#include "tests/unit/session/liar.h"
#include <stdlib.h>
#include <string.h>

static void a_compressed_message(struct agent_call *call) {
  agent_started(call, 0);
  liar_frame(call->agent, DATA, 0, CALL, "\x01\x00\x00\x00\x01x", 6);
}

static void a_message_without_end(struct agent_call *call) {
  agent_started(call, 0);
  liar_frame(call->agent, DATA, 0, CALL, "\x00\xFF\xFF\xFF\xFFx", 6);
}

static void a_message_cut_short(struct agent_call *call) {
  agent_started(call, 0);
  liar_frame(call->agent, DATA, END_STREAM, CALL, "\x00\x00\x00\x00\x09x", 6);
}

static void no_status(struct agent_call *call) {
  agent_started(call, 0);
  liar_frame(call->agent, DATA, END_STREAM, CALL, "", 0);
}

static void data_on_a_stream_nobody_opened(struct agent_call *call) {
  agent_started(call, 0);
  liar_frame(call->agent, DATA, 0, 99, "x", 1);
}

static void an_even_stream(struct agent_call *call) {
  agent_started(call, 0);
  liar_frame(call->agent, HEADERS, END_HEADERS, 2, "\x88", 1);
}

static void a_push(struct agent_call *call) {
  agent_started(call, 0);
  liar_frame(call->agent, PUSH_PROMISE, END_HEADERS, CALL, "\x00\x00\x00\x02\x82", 5);
}

static void a_frame_that_is_too_large(struct agent_call *call) {
  agent_started(call, 0);
  liar_frame(call->agent, DATA, 0, CALL, liar_zeros, 262145);
}

static void a_window_that_overflows(struct agent_call *call) {
  agent_started(call, 0);
  for (int i = 0; i < 3; i++)
    liar_frame(call->agent, WINDOW_UPDATE, 0, 0, "\x7F\xFF\xFF\xFF", 4);
}

static void a_calls_window_that_overflows(struct agent_call *call) {
  agent_started(call, 0);
  for (int i = 0; i < 3; i++)
    liar_frame(call->agent, WINDOW_UPDATE, 0, CALL, "\x7F\xFF\xFF\xFF", 4);
}

static void an_empty_window_update(struct agent_call *call) {
  agent_started(call, 0);
  liar_frame(call->agent, WINDOW_UPDATE, 0, 0, "\x00\x00\x00\x00", 4);
}

static void bad_settings(struct agent_call *call) {
  agent_started(call, 0);
  liar_frame(call->agent, SETTINGS, 0, 0, "\x00\x04\xFF\xFF\xFF\xFF", 6);
}

static void settings_of_odd_length(struct agent_call *call) {
  agent_started(call, 0);
  liar_frame(call->agent, SETTINGS, 0, 0, "\x00\x04\xFF", 3);
}

static void headers_that_do_not_decode(struct agent_call *call) {
  agent_started(call, 0);
  liar_frame(call->agent, HEADERS, END_HEADERS | END_STREAM, CALL, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8);
}

static void a_goodbye(struct agent_call *call) {
  agent_started(call, 0);
  liar_frame(call->agent, GOAWAY, 0, 0, "\x00\x00\x00\x01\x00\x00\x00\x00", 8);
}

static void a_long_goodbye(struct agent_call *call) {
  agent_started(call, 0);
  memcpy(liar_zeros, "\x00\x00\x00\x01\x00\x00\x00\x0B", 8);
  liar_frame(call->agent, GOAWAY, 0, 0, liar_zeros, 262144);
  memset(liar_zeros, 0, 8);
}

static void plain_text(struct agent_call *call) {
  agent_started(call, 0);
  agent_double_flush(call->agent);
  agent_double_raw(call->agent, "HTTP/1.1 200 OK\r\n\r\nhello there, general", 40);
}

/* A header block with so many fields of so many bytes each. */
static void send_fields(struct agent_double *agent, unsigned flags, size_t count, size_t size) {
  uint8_t *block = malloc(1 + count * (size + 16)), *at = block;
  assert_non_null(block);
  *at++ = 0x88; /* :status 200 */
  for (size_t i = 0; i < count; i++) {
    *at++ = 0x10; /* a literal that is never indexed */
    *at++ = 1;
    *at++ = 'x';
    if (size < 127) {
      *at++ = (uint8_t)size;
    } else {
      *at++ = 127;
      size_t rest = size - 127;
      for (; rest >= 128; rest >>= 7)
        *at++ = (uint8_t)(rest | 128);
      *at++ = (uint8_t)rest;
    }
    memset(at, 'v', size);
    at += size;
  }
  liar_frame(agent, HEADERS, flags, CALL, block, (size_t)(at - block));
  free(block);
}

static void many_headers(struct agent_call *call) {
  send_fields(call->agent, END_HEADERS, 5000, 10);
}

static void long_headers(struct agent_call *call) {
  send_fields(call->agent, END_HEADERS, 3, 60000);
}

static void a_header_beyond_every_limit(struct agent_call *call) {
  send_fields(call->agent, END_HEADERS, 1, 200000);
}

static void headers_without_end(struct agent_call *call) {
  send_fields(call->agent, 0, 1, 10);
  for (int i = 0; i < 1000; i++)
    liar_frame(call->agent, CONTINUATION, 0, CALL, "\x10\x01xy\x01", 5);
}

static void trailers_without_end(struct agent_call *call) {
  agent_started(call, 0);
  for (int i = 0; i < 100; i++)
    liar_frame(call->agent, HEADERS, END_HEADERS, CALL, "\x10\x01x\x01y", 5);
}

static void endless_interim_answers(struct agent_call *call) {
  for (int i = 0; i < 5000; i++) /* :status 100 */
    liar_frame(call->agent, HEADERS, END_HEADERS, CALL, "\x08\x03\x31\x30\x30", 5);
}

static void not_found_by_http(struct agent_call *call) {
  liar_frame(call->agent, HEADERS, END_HEADERS, CALL, "\x8D", 1); /* :status 404 */
}

static void a_web_page(struct agent_call *call) {
  liar_frame(call->agent, HEADERS, END_HEADERS, CALL, "\x88\x0F\x10\x09text/html", 13);
  liar_frame(call->agent, DATA, 0, CALL, "<html>", 6);
}

static const struct lie lies[] = {
    {"a compressed message", a_compressed_message, SESSION_ENDED_LOST, true},
    {"a message without end", a_message_without_end, SESSION_ENDED_LOST, true},
    {"a message cut short", a_message_cut_short, SESSION_ENDED_LOST, true},
    {"no status", no_status, SESSION_ENDED_LOST, true},
    {"data on a stream nobody opened", data_on_a_stream_nobody_opened, SESSION_ENDED_LOST, false},
    {"an even stream", an_even_stream, SESSION_ENDED_LOST, false},
    {"a push", a_push, SESSION_ENDED_LOST, false},
    {"a frame that is too large", a_frame_that_is_too_large, SESSION_ENDED_LOST, false},
    {"a window that overflows", a_window_that_overflows, SESSION_ENDED_LOST, false},
    {"a call's window that overflows", a_calls_window_that_overflows, SESSION_ENDED_LOST, true},
    {"an empty window update", an_empty_window_update, SESSION_ENDED_LOST, false},
    {"bad settings", bad_settings, SESSION_ENDED_LOST, false},
    {"settings of odd length", settings_of_odd_length, SESSION_ENDED_LOST, false},
    {"headers that do not decode", headers_that_do_not_decode, SESSION_ENDED_LOST, false},
    {"a goodbye", a_goodbye, SESSION_ENDED_LOST, false},
    {"a long goodbye", a_long_goodbye, SESSION_ENDED_LOST, false},
    {"plain text", plain_text, SESSION_ENDED_LOST, false},
    {"many headers", many_headers, 0, true},
    {"long headers", long_headers, 0, true},
    {"a header beyond every limit", a_header_beyond_every_limit, 0, false},
    {"headers without end", headers_without_end, 0, false},
    {"trailers without end", trailers_without_end, SESSION_ENDED_LOST, true},
    {"endless interim answers", endless_interim_answers, 0, true},
    {"not found by HTTP", not_found_by_http, 0, true},
    {"a web page", a_web_page, 0, true},
};

static void bad_frames_hurt_one_command_or_one_connection(void **state) {
  (void)state;
  liar_tell_each(lies, sizeof lies / sizeof lies[0]);
}

/* One message of output, whatever the window allows. */
static void send_output_raw(struct agent_call *call, uint64_t offset) {
  Sandbox__Agent__V1__OutputChunk output = SANDBOX__AGENT__V1__OUTPUT_CHUNK__INIT;
  Sandbox__Agent__V1__RunResponse response = SANDBOX__AGENT__V1__RUN_RESPONSE__INIT;
  output.stream = 1;
  output.offset = offset;
  output.data = (ProtobufCBinaryData){.data = liar_zeros, .len = 100000};
  response.response_case = SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_OUTPUT;
  response.output = &output;
  size_t length;
  CLEANUP_MEMORY uint8_t *packed = message_pack(&response.base, &length);
  assert_non_null(packed);
  CLEANUP_MEMORY uint8_t *framed = memory_new(5 + length);
  assert_non_null(framed);
  memcpy(framed, (const uint8_t[]){0, 0, (uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length}, 5);
  memcpy(framed + 5, packed, length);
  liar_frame(call->agent, DATA, 0, CALL, framed, 5 + length);
}

/* Of a command whose user takes nothing. */
static void more_than_the_window_ends_the_command(void **state) {
  (void)state;
  struct stage stage;
  stage_set(&stage, NULL);
  stage_open(&stage);
  struct user_run run = {.hold = true};
  stage_run(&stage, &run, "x");
  struct agent_call *call = stage_call(&stage, "Run", 1);
  agent_started(call, 0);
  for (uint64_t i = 0; i < 50; i++)
    send_output_raw(call, i * 100000);
  run_until(&stage.loop, &run.ended);
  assert_int_equal(run.end.ended_by, SESSION_ENDED_LOST);
  assert_in_range(run.out[0].length, 200000, 256 * 1024 + LIMIT_CHUNK_BYTES);
  liar_expect_service(&stage);
  assert_int_equal(stage.agent.connects, 1);
  user_run_free(&run);
  stage_clear(&stage);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bad_frames_hurt_one_command_or_one_connection),
      cmocka_unit_test(more_than_the_window_ends_the_command),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
