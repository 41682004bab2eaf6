/*
 * The channels of pods/exec and the status at the end, good and hostile.
 */
#include "backend/podexec/channels.h"
#include "tests/unit/websocket/check.h"
#include <string.h>

struct story {
  struct buffer text;
};

static void on_output(void *context, int channel, const uint8_t *bytes, size_t length) {
  struct story *story = context;
  buffer_append_format(&story->text, "%d:%.*s ", channel, (int)length, (const char *)bytes);
}

static const struct channels_events events = {.output = on_output};

static int give(struct channels *channels, struct story *story, const char *bytes, size_t length, bool first, bool last,
                struct error **err) {
  return channels_receive(channels, (const uint8_t *)bytes, length, first, last, &events, story, err);
}

static void test_streams(void **state) {
  struct channels channels;
  struct story story;
  (void)state;
  channels_init(&channels);
  buffer_init(&story.text, 1000);
  assert_int_equal(give(&channels, &story, BYTES("\1out"), true, true, NULL), 0);
  assert_int_equal(give(&channels, &story, BYTES("\2err"), true, false, NULL), 0);
  assert_int_equal(give(&channels, &story, BYTES("more"), false, true, NULL), 0);
  assert_int_equal(give(&channels, &story, "", 0, true, false, NULL), 0);
  assert_int_equal(give(&channels, &story, BYTES("\1late"), false, true, NULL), 0);
  assert_int_equal(give(&channels, &story, BYTES("\1"), true, true, NULL), 0);
  assert_int_equal(give(&channels, &story, "", 0, true, true, NULL), 0);
  assert_int_equal(give(&channels, &story, BYTES("\0"), true, true, NULL), 0);
  assert_int_equal(give(&channels, &story, BYTES("\xff\1"), true, true, NULL), 0);
  assert_string_equal(buffer_text(&story.text), "1:out 2:err 2:more 1:late ");
  buffer_free(&story.text);
  channels_free(&channels);
}

static void test_not_for_us(void **state) {
  static const char *const bad[] = {"\4x", "\5x", "\xfex"};
  (void)state;
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    struct channels channels;
    CLEANUP_ERROR struct error *err = NULL;
    channels_init(&channels);
    assert_int_equal(give(&channels, NULL, bad[i], 2, true, true, &err), -1);
    assert_int_equal(error_reason(err), REASON_SANDBOX_NOT_READY);
    channels_free(&channels);
  }
}

static void test_long_status(void **state) {
  struct channels channels;
  static char bytes[1000];
  int result = 0, times = 0;
  (void)state;
  channels_init(&channels);
  bytes[0] = 3;
  for (; result == 0; times++)
    result = give(&channels, NULL, bytes, sizeof bytes, times == 0, false, NULL);
  assert_true(times < 20);
  assert_true(channels.status.length <= CHANNELS_STATUS_BYTES);
  channels_free(&channels);
}

struct status_case {
  const char *text;
  int result;
  struct channels_end end;
};

static const struct status_case statuses[] = {
    {"", 0, {.told = false}},
    {"{\"metadata\":{},\"status\":\"Success\"}", 0, {.told = true, .exited = true}},
    {"{\"status\":\"Failure\",\"message\":\"command terminated\",\"reason\":\"NonZeroExitCode\",\"details\":"
     "{\"causes\":[{\"reason\":\"Other\",\"message\":\"5\"},{\"reason\":\"ExitCode\",\"message\":\"137\"}]}}",
     0,
     {.told = true, .exited = true, .exit_code = 137}},
    {"{\"status\":\"Failure\",\"message\":\"no \\u0007 sh\",\"reason\":\"InternalError\"}",
     0,
     {.told = true, .message = "no   sh"}},
    {"{\"status\":\"Failure\",\"message\":\"m\","
     "\"details\":{\"causes\":[{\"reason\":\"ExitCode\",\"message\":\"256\"}]}}",
     0,
     {.told = true, .message = "m"}},
    {"{\"status\":\"Failure\",\"message\":\"m\","
     "\"details\":{\"causes\":[{\"reason\":\"ExitCode\",\"message\":\"1x\"}]}}",
     0,
     {.told = true, .message = "m"}},
    {"{\"status\":\"Failure\",\"message\":\"m\",\"details\":{\"causes\":[{\"reason\":\"ExitCode\"}, 7, null]}}",
     0,
     {.told = true, .message = "m"}},
    {"{\"status\":\"Failure\",\"details\":{\"causes\":{\"reason\":\"ExitCode\",\"message\":\"1\"}}}",
     0,
     {.told = true}},
    {"{\"status\":\"Failure\",\"details\":[]}", 0, {.told = true}},
    {"{\"status\":7}", -1, {0}},
    {"{}", -1, {0}},
    {"[]", -1, {0}},
    {"{\"status\":\"Succ", -1, {0}},
    {"garbage", -1, {0}},
};

static void test_statuses(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(statuses); i++) {
    struct channels channels;
    struct channels_end end;
    CLEANUP_ERROR struct error *err = NULL;
    channels_init(&channels);
    assert_int_equal(give(&channels, NULL, "\3", 1, true, false, NULL), 0);
    assert_int_equal(give(&channels, NULL, statuses[i].text, strlen(statuses[i].text), false, true, NULL), 0);
    if (channels_end_read(&channels, &end, &err) != statuses[i].result)
      fail_msg("%s: %s", statuses[i].text, error_detail(err));
    if (statuses[i].result == 0) {
      assert_int_equal(end.told, statuses[i].end.told);
      assert_int_equal(end.exited, statuses[i].end.exited);
      assert_int_equal(end.exit_code, statuses[i].end.exited ? statuses[i].end.exit_code : end.exit_code);
      assert_string_equal(end.message, statuses[i].end.message);
    }
    channels_free(&channels);
  }
}

static void test_message(void **state) {
  char message[16];
  (void)state;
  channels_status_message(BYTES("{\"message\":\"pods \\\"x\\\" not found, and more\"}"), message, sizeof message);
  assert_true(strlen(message) < sizeof message);
  assert_memory_equal(message, "pods", 4);
  channels_status_message(BYTES("{\"message\":\"\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\"}"),
                          message, sizeof message);
  assert_string_equal(message, "\xc3\xa4\xc3\xa4");
  channels_status_message(BYTES("no JSON"), message, sizeof message);
  assert_string_equal(message, "");
  channels_status_message("", 0, message, sizeof message);
  assert_string_equal(message, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_streams),  cmocka_unit_test(test_not_for_us), cmocka_unit_test(test_long_status),
      cmocka_unit_test(test_statuses), cmocka_unit_test(test_message),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
