#define _GNU_SOURCE /* pipe2 */
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "tests/unit/base/check.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

/* What was logged goes through a pipe; each test reads it back. */
static int log_pipe[2];
static int saved_stderr;

static int redirect(void **state) {
  (void)state;
  saved_stderr = dup(STDERR_FILENO);
  return pipe2(log_pipe, O_NONBLOCK | O_CLOEXEC) != 0 || dup2(log_pipe[1], STDERR_FILENO) < 0;
}

static int restore(void **state) {
  (void)state;
  dup2(saved_stderr, STDERR_FILENO);
  close(saved_stderr);
  close(log_pipe[0]);
  close(log_pipe[1]);
  return 0;
}

static size_t read_log(char *text, size_t size) {
  ssize_t length = read(log_pipe[0], text, size - 1);
  text[length > 0 ? length : 0] = '\0';
  return length > 0 ? (size_t)length : 0;
}

/* Checks the time in front and returns what follows it. */
static const char *behind_time(const char *line) {
  int64_t wall = 0;
  assert_memory_equal(line, "{\"time\":\"", 9);
  assert_int_equal(clock_parse(line + 9, 30, &wall), 0);
  assert_true(clock_wall() - wall < 60 * CLOCK_SECOND);
  return line + 9 + 30;
}

static void test_line(void **state) {
  (void)state;
  char line[8192], id[] = "lease-1";
  struct error *err CLEANUP_ERROR = NULL;
  error_set_detail(&err, REASON_POOL_EXHAUSTED, "no node");
  errno = 42;
  log_write(LOG_INFO, "lease_acquired", LOG_TEXT("lease", id), LOG_NUMBER("count", 12U), LOG_REASON(err),
            LOG_DETAIL(err), LOG_NUMBER("lowest", INT64_MIN));
  assert_int_equal(errno, 42);
  read_log(line, sizeof line);
  assert_string_equal(behind_time(line),
                      "\",\"level\":\"info\",\"event\":\"lease_acquired\",\"lease\":\"lease-1\",\"count\":12,"
                      "\"reason\":\"POOL_EXHAUSTED\",\"detail\":\"no node\",\"lowest\":-9223372036854775808}\n");
}

static void test_text_is_escaped_and_repaired(void **state) {
  (void)state;
  char line[8192];
  log_write(LOG_ERROR, "odd", LOG_TEXT("text", "a\"b\\c\nd\x01\xff\xe2\x80"), LOG_TEXT("none", (const char *)NULL));
  read_log(line, sizeof line);
  assert_string_equal(
      behind_time(line),
      "\",\"level\":\"error\",\"event\":\"odd\",\"text\":\"a\\\"b\\\\c\\nd\\u0001\xef\xbf\xbd\xef\xbf\xbd\","
      "\"none\":\"\"}\n");
}

static void test_levels(void **state) {
  (void)state;
  char line[8192];
  log_write(LOG_DEBUG, "unseen", LOG_NUMBER("n", 1));
  assert_int_equal(read_log(line, sizeof line), 0);
  log_set_level(LOG_ERROR);
  log_write(LOG_WARNING, "unseen", LOG_NUMBER("n", 1));
  assert_int_equal(read_log(line, sizeof line), 0);
  log_set_level(LOG_DEBUG);
  log_write_fields(LOG_DEBUG, "seen", NULL, 0);
  read_log(line, sizeof line);
  assert_string_equal(behind_time(line), "\",\"level\":\"debug\",\"event\":\"seen\"}\n");
  log_set_level(LOG_INFO);
  enum log_level level = LOG_DEBUG;
  assert_int_equal(log_parse_level("warning", &level), 0);
  assert_int_equal(level, LOG_WARNING);
  assert_int_equal(log_parse_level("Warning", &level), -1);
  assert_int_equal(log_parse_level("", &level), -1);
}

static void test_long_text_is_cut_between_characters(void **state) {
  (void)state;
  static char text[20000];
  for (size_t i = 0; i + 3 < sizeof text; i += 3)
    memcpy(text + i, "\xe2\x82\xac", 3);
  char line[8192];
  log_write(LOG_INFO, "long", LOG_TEXT("text", text), LOG_NUMBER("after", 1), LOG_TEXT("more", text));
  size_t length = read_log(line, sizeof line);
  assert_in_range(length, 3000, 4096);
  assert_true(text_valid(line, length));
  assert_null(strstr(line, "\xef\xbf\xbd"));
  assert_non_null(strstr(line, ",\"after\":1"));
  assert_string_equal(line + length - strlen("\"truncated\":true}\n"), "\"truncated\":true}\n");
}

/* Fields that find no room any more are left out whole: the line stays JSON. */
static void test_many_fields(void **state) {
  (void)state;
  static char text[3990];
  for (size_t kept = 0; kept < 20; kept++) {
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1 - kept * 3] = '\0';
    char line[8192];
    log_write(LOG_INFO, "many", LOG_TEXT("text", text), LOG_NUMBER("a", -1), LOG_TEXT("b", "yyyy"),
              LOG_NUMBER("c", INT64_MIN), LOG_TEXT("d_long_name_that_finds_no_room_at_all_in_a_line", "z"),
              LOG_NUMBER("e", 100000));
    size_t length = read_log(line, sizeof line);
    assert_in_range(length, 3900, 4096);
    assert_int_equal(line[length - 1], '\n');
    assert_int_equal(line[length - 2], '}');
    struct json *json CLEANUP_JSON = json_parse(line, length, NULL);
    bool present = false, truncated = false;
    assert_non_null(json);
    assert_int_equal(json_get_boolean(json, "truncated", &present, &truncated, NULL), 0);
    assert_true(present && truncated);
  }
}

static void test_needs_no_memory(void **state) {
  (void)state;
  char line[8192];
  memory_fail_after(1, 1);
  log_write(LOG_INFO, "no_memory", LOG_TEXT("text", "\xff\"x"));
  assert_int_equal(memory_fail_after(0, 0), 0);
  assert_true(read_log(line, sizeof line) > 0);
  assert_non_null(strstr(line, "\"text\":\"\xef\xbf\xbd\\\"x\"}\n"));
}

static void test_closed_stderr_is_no_harm(void **state) {
  (void)state;
  int copy = dup(STDERR_FILENO);
  close(STDERR_FILENO);
  log_write(LOG_INFO, "nowhere", LOG_NUMBER("n", 1));
  assert_int_equal(dup2(copy, STDERR_FILENO), STDERR_FILENO);
  close(copy);
}

enum { THREADS = 4, LINES = 100 };

static void *write_lines(void *context) {
  for (int i = 0; i < LINES; i++)
    log_write(LOG_INFO, "line", LOG_TEXT("from", (const char *)context), LOG_NUMBER("n", i));
  return NULL;
}

static void test_lines_of_threads_stay_whole(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  static char names[THREADS][2];
  for (int i = 0; i < THREADS; i++) {
    names[i][0] = (char)('a' + i);
    assert_int_equal(pthread_create(&threads[i], NULL, write_lines, names[i]), 0);
  }
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  static char text[65536];
  size_t length = read_log(text, sizeof text);
  int lines = 0;
  for (char *line = text; line < text + length; lines++) {
    char *end = strchr(line, '\n');
    assert_non_null(end);
    assert_memory_equal(line, "{\"time\"", 7);
    assert_int_equal(end[-1], '}');
    line = end + 1;
  }
  assert_int_equal(lines, THREADS * LINES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_line, redirect, restore),
      cmocka_unit_test_setup_teardown(test_text_is_escaped_and_repaired, redirect, restore),
      cmocka_unit_test_setup_teardown(test_levels, redirect, restore),
      cmocka_unit_test_setup_teardown(test_long_text_is_cut_between_characters, redirect, restore),
      cmocka_unit_test_setup_teardown(test_many_fields, redirect, restore),
      cmocka_unit_test_setup_teardown(test_needs_no_memory, redirect, restore),
      cmocka_unit_test_setup_teardown(test_closed_stderr_is_no_harm, redirect, restore),
      cmocka_unit_test_setup_teardown(test_lines_of_threads_stay_whole, redirect, restore),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
