/*
 * Frames in both directions, without sockets: what is sent is read back, whatever pieces it comes in, and what a server
 * may not send is refused.
 */
#include "backend/websocket/frames.h"
#include "base/memory.h"
#include "tests/unit/websocket/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct story {
  struct frames *frames;
  struct buffer output, text; /* what goes out; what was told */
  size_t stop_after;          /* parts; 0: never */
  size_t parts;
};

static void on_received(void *context, const uint8_t *bytes, size_t length, bool first, bool last) {
  struct story *story = context;
  if (first)
    buffer_append_string(&story->text, "<");
  buffer_append(&story->text, bytes, length);
  if (last)
    buffer_append_string(&story->text, ">");
  if (++story->parts == story->stop_after)
    frames_stop(story->frames);
}

static void on_closed(void *context, unsigned code, const char *text, size_t length) {
  struct story *story = context;
  buffer_append_format(&story->text, "closed %u %.*s", code, (int)length, text);
}

static int start(struct story *story) {
  static const struct frames_events events = {.received = on_received, .closed = on_closed};
  *story = (struct story){0};
  buffer_init(&story->output, 1 << 20);
  buffer_init(&story->text, 1 << 20);
  story->frames = frames_new(&story->output, &events, story);
  return story->frames ? 0 : -1;
}

static void end(struct story *story) {
  frames_free(story->frames);
  buffer_free(&story->output);
  buffer_free(&story->text);
}

static int feed(struct story *story, const void *bytes, size_t length, size_t piece, struct error **err) {
  for (size_t at = 0; at < length; at += piece) {
    size_t some = length - at < piece ? length - at : piece;
    uint8_t *copy = malloc(some); /* not one of those that fail */
    memcpy(copy, (const uint8_t *)bytes + at, some);
    int result = frames_receive(story->frames, copy, some, err);
    free(copy);
    if (result != 0)
      return -1;
  }
  return 0;
}

struct story_case {
  const char *bytes;
  size_t length;
  const char *text; /* told; NULL: refused */
};

#define LONG "0123456789012345678901234567890123456789012345678901234567890123456789"
static const struct story_case cases[] = {
    {BYTES("\x82\x00"), "<>"},
    {BYTES("\x82\x03"
           "abc"),
     "<abc>"},
    {BYTES("\x82\x7e\x00\x8c" LONG LONG), "<" LONG LONG ">"},
    {BYTES("\x02\x01"
           "a\x00\x01"
           "b\x80\x01"
           "c"),
     "<abc>"},
    {BYTES("\x02\x01"
           "a\x89\x02hi\x8a\x00\x80\x01"
           "c"),
     "<ac>"},
    {BYTES("\x02\x00\x80\x00"), "<>"},
    {BYTES("\x88\x00"), "closed 1005 "},
    {BYTES("\x88\x05\x03\xe8"
           "bye\x82\x01x"),
     "closed 1000 bye"},
    {BYTES("\x81\x01x"), NULL},                     /* text */
    {BYTES("\x83\x01x"), NULL},                     /* reserved */
    {BYTES("\x8b\x00"), NULL},                      /* reserved control */
    {BYTES("\xc2\x01x"), NULL},                     /* reserved bit */
    {BYTES("\x80\x01x"), NULL},                     /* continues nothing */
    {BYTES("\x02\x01x\x82\x01y"), NULL},            /* begins within */
    {BYTES("\x82\x81\x01\x02\x03\x04x"), NULL},     /* masked */
    {BYTES("\x09\x00"), NULL},                      /* a ping in pieces */
    {BYTES("\x89\x7e\x00\x7e" LONG LONG), NULL},    /* a long ping */
    {BYTES("\x88\x01x"), NULL},                     /* half a code */
    {BYTES("\x88\x02\x00\x01"), NULL},              /* no code */
    {BYTES("\x82\x7e\x00\x05hello"), NULL},         /* a length that is not the shortest */
    {BYTES("\x82\x7f\x00\x00\x00\x00\x00\x00\x00\x05hello"), NULL},
    {BYTES("\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00hello"), NULL},
};

static void test_stories(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(cases); i++)
    for (size_t piece = 1; piece <= cases[i].length; piece++) {
      CLEANUP_ERROR struct error *err = NULL;
      struct story story;
      assert_int_equal(start(&story), 0);
      int result = feed(&story, cases[i].bytes, cases[i].length, piece, &err);
      if ((result == 0) != (cases[i].text != NULL))
        fail_msg("case %zu in pieces of %zu: %d %s", i, piece, result, error_detail(err));
      if (cases[i].text)
        assert_string_equal(buffer_text(&story.text), cases[i].text);
      end(&story);
    }
}

/* Undoes the mask of one short frame; returns its payload's length. */
static size_t unmask(const struct buffer *output, size_t at, uint8_t *first, uint8_t *payload) {
  const uint8_t *frame = output->data + at;
  size_t length = frame[1] & 0x7f;
  assert_true(output->length >= at + 6);
  assert_true(frame[1] & 0x80);
  *first = frame[0];
  size_t head = length == 126 ? 4 : 2;
  if (length == 126)
    length = (size_t)frame[2] << 8 | frame[3];
  assert_true(output->length >= at + head + 4 + length);
  for (size_t i = 0; i < length; i++)
    payload[i] = frame[head + 4 + i] ^ frame[head + i % 4];
  return length;
}

static void test_sent(void **state) {
  struct story story;
  uint8_t first, payload[70000];
  (void)state;
  assert_int_equal(start(&story), 0);
  assert_int_equal(frames_send(story.frames, 7, (const uint8_t *)"hello", 5), 0);
  assert_int_equal(unmask(&story.output, 0, &first, payload), 6);
  assert_int_equal(first, 0x82);
  assert_memory_equal(payload, "\x07hello", 6);
  buffer_clear(&story.output);
  assert_int_equal(frames_send(story.frames, 0, NULL, 0), 0);
  assert_int_equal(unmask(&story.output, 0, &first, payload), 1);
  buffer_clear(&story.output);
  static uint8_t large[60000];
  memset(large, 'z', sizeof large);
  assert_int_equal(frames_send(story.frames, 1, large, sizeof large), 0);
  assert_int_equal(unmask(&story.output, 0, &first, payload), sizeof large + 1);
  assert_memory_equal(payload + 1, large, sizeof large);
  buffer_clear(&story.output);
  assert_int_equal(frames_ping(story.frames), 0);
  assert_int_equal(unmask(&story.output, 0, &first, payload), 0);
  assert_int_equal(first, 0x89);
  end(&story);
}

/* Of many pings in one piece only the last one is answered. */
static void test_pings(void **state) {
  struct story story;
  uint8_t first, payload[128];
  (void)state;
  assert_int_equal(start(&story), 0);
  assert_int_equal(feed(&story, BYTES("\x89\x01"
                                      "a\x89\x01"
                                      "b\x89\x02"
                                      "cd"),
                        100, NULL),
                   0);
  assert_int_equal(unmask(&story.output, 0, &first, payload), 2);
  assert_int_equal(first, 0x8a);
  assert_memory_equal(payload, "cd", 2);
  assert_int_equal(story.output.length, 8);
  end(&story);
}

static void test_goodbye(void **state) {
  struct story story;
  uint8_t first, payload[128];
  (void)state;
  assert_int_equal(start(&story), 0);
  assert_int_equal(frames_close(story.frames, FRAMES_CLOSE_NORMAL), 0);
  assert_int_equal(unmask(&story.output, 0, &first, payload), 2);
  assert_int_equal(first, 0x88);
  assert_memory_equal(payload, "\x03\xe8", 2);
  size_t length = story.output.length;
  assert_int_equal(frames_send(story.frames, 0, (const uint8_t *)"x", 1), -1);
  assert_int_equal(frames_close(story.frames, FRAMES_CLOSE_NORMAL), 0);
  assert_int_equal(feed(&story, BYTES("\x89\x01"
                                      "a\x88\x02\x03\xe8"),
                        100, NULL),
                   0);
  assert_int_equal(story.output.length, length);
  assert_string_equal(buffer_text(&story.text), "closed 1000 ");
  end(&story);
}

static void test_stopped(void **state) {
  struct story story;
  (void)state;
  assert_int_equal(start(&story), 0);
  story.stop_after = 1;
  assert_int_equal(feed(&story, BYTES("\x82\x01"
                                      "a\x82\x01"
                                      "b\x89\x00"),
                        100, NULL),
                   0);
  assert_string_equal(buffer_text(&story.text), "<a>");
  assert_int_equal(story.output.length, 0);
  end(&story);
}

/* A full output refuses a frame whole, and a pong that has no room is an error. */
static void test_full(void **state) {
  struct story story;
  (void)state;
  assert_int_equal(start(&story), 0);
  story.output.limit = 40;
  static const uint8_t bytes[100];
  assert_int_equal(frames_send(story.frames, 0, bytes, sizeof bytes), -1);
  assert_int_equal(story.output.length, 0);
  assert_int_equal(frames_send(story.frames, 0, bytes, 20), 0);
  CLEANUP_ERROR struct error *err = NULL;
  assert_int_equal(feed(&story, BYTES("\x89\x05xxxxx"), 100, &err), -1);
  assert_int_equal(error_reason(err), REASON_SANDBOX_NOT_READY);
  end(&story);
}

static void test_no_memory(void **state) {
  (void)state;
  for (size_t n = 1;; n++) {
    struct story story;
    memory_fail_after(n, 0);
    int result = start(&story);
    if (result == 0)
      result = frames_send(story.frames, 0, (const uint8_t *)LONG, sizeof LONG);
    if (result == 0)
      result = feed(&story, BYTES("\x89\x01x"), 10, NULL);
    memory_fail_after(0, 0);
    end(&story);
    if (result == 0) {
      assert_true(n > 2);
      return;
    }
    assert_true(n < 20);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_stories), cmocka_unit_test(test_sent),    cmocka_unit_test(test_pings),
      cmocka_unit_test(test_goodbye), cmocka_unit_test(test_stopped), cmocka_unit_test(test_full),
      cmocka_unit_test(test_no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
