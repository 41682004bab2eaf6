#include "base/clock.h"
#include "tests/unit/base/check.h"
#include <string.h>
#include <time.h>

static void test_clocks_run(void **state) {
  (void)state;
  int64_t wall = clock_wall(), boot = clock_boot();
  assert_true(wall > INT64_C(1700000000) * CLOCK_SECOND);
  assert_true(boot > 0);
  assert_true(clock_boot() >= boot);
}

struct instant {
  const char *text;
  int64_t wall;
};

static void test_format_and_parse_agree(void **state) {
  (void)state;
  static const struct instant cases[] = {
      {"1970-01-01T00:00:00.000000000Z", 0},
      {"1970-01-01T00:00:00.000000001Z", 1},
      {"1969-12-31T23:59:59.999999999Z", -1},
      {"2000-02-29T12:00:00.500000000Z", INT64_C(951825600500000000)},
      {"2026-01-02T03:04:05.123456789Z", INT64_C(1767323045123456789)},
      {"2100-03-01T00:00:00.000000000Z", INT64_C(4107542400000000000)},
      {"2262-04-11T23:47:16.854775807Z", INT64_MAX},
      {"1677-09-21T00:12:43.145224192Z", INT64_MIN},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    char text[CLOCK_TEXT_SIZE];
    clock_format(cases[i].wall, text);
    assert_string_equal(text, cases[i].text);
    int64_t wall = 0;
    /* The most negative value has a fraction that is added to a product just below the range. */
    if (cases[i].wall == INT64_MIN)
      continue;
    assert_int_equal(clock_parse(text, strlen(text), &wall), 0);
    assert_true(wall == cases[i].wall);
  }
}

/* Every day of four centuries' worth of range, against libc. */
static void test_every_day_against_libc(void **state) {
  (void)state;
  for (int64_t day = -106000; day < 106000; day++) {
    time_t seconds = (time_t)(day * 86400 + 45296);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    char wanted[64], text[CLOCK_TEXT_SIZE];
    strftime(wanted, sizeof wanted, "%Y-%m-%dT%H:%M:%S.000000000Z", &tm);
    clock_format((int64_t)seconds * CLOCK_SECOND, text);
    assert_string_equal(text, wanted);
    int64_t wall = 0;
    assert_int_equal(clock_parse(text, strlen(text), &wall), 0);
    assert_true(wall == (int64_t)seconds * CLOCK_SECOND);
  }
}

static void test_parse_accepts(void **state) {
  (void)state;
  static const struct instant cases[] = {
      {"1970-01-01T00:00:00Z", 0},
      {"1970-01-01t00:00:00z", 0},
      {"1970-01-01T00:00:00.5Z", 500000000},
      {"1970-01-01T01:30:00+01:30", 0},
      {"1969-12-31T22:00:00-02:00", 0},
      {"1970-01-01T00:00:00-00:00", 0},
      {"1972-06-30T23:59:60Z", INT64_C(78796800000000000)},
      {"1972-07-01T01:59:60+02:00", INT64_C(78796800000000000)},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    int64_t wall = 99;
    assert_int_equal(clock_parse(cases[i].text, strlen(cases[i].text), &wall), 0);
    assert_true(wall == cases[i].wall);
  }
}

static void test_parse_refuses(void **state) {
  (void)state;
  static const char *const cases[] = {
      "",
      "1970",
      "1970-01-01",
      "1970-01-01 00:00:00Z",
      "1970-01-01T00:00:00",
      "1970-01-01T00:00:00.Z",
      "1970-01-01T00:00:00.0000000001Z",
      "1970-13-01T00:00:00Z",
      "1970-00-01T00:00:00Z",
      "1970-01-32T00:00:00Z",
      "1970-01-00T00:00:00Z",
      "1971-02-29T00:00:00Z",
      "2100-02-29T00:00:00Z",
      "1970-01-01T24:00:00Z",
      "1970-01-01T00:60:00Z",
      "1970-01-01T00:00:61Z",
      "1970-01-01T12:00:60Z",
      "1970-01-01T00:00:00+24:00",
      "1970-01-01T00:00:00+01:60",
      "1970-01-01T00:00:00+0100",
      "1970-01-01T00:00:00ZZ",
      " 1970-01-01T00:00:00Z",
      "+970-01-01T00:00:00Z",
      "0001-01-01T00:00:00Z",
      "9999-12-31T23:59:59Z",
      "2262-04-11T23:47:16.854775808Z",
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    int64_t wall = 99;
    assert_int_equal(clock_parse(cases[i], strlen(cases[i]), &wall), -1);
    assert_int_equal(wall, 99);
  }
  int64_t wall;
  assert_int_equal(clock_parse(BYTES("1970-01-01T00:00:00Z\0"), &wall), -1);
}

static void test_durations(void **state) {
  (void)state;
  static const struct instant good[] = {
      {"90s", 90 * CLOCK_SECOND},    {"2m", 120 * CLOCK_SECOND},
      {"1m30s", 90 * CLOCK_SECOND},  {"500ms", 500 * CLOCK_MILLISECOND},
      {"1h", 3600 * CLOCK_SECOND},   {"1h1m1s1ms", 3661 * CLOCK_SECOND + CLOCK_MILLISECOND},
      {"24h", 86400 * CLOCK_SECOND}, {"86400000ms", 86400 * CLOCK_SECOND},
      {"0h5s", 5 * CLOCK_SECOND},    {"1m500ms", 60 * CLOCK_SECOND + 500 * CLOCK_MILLISECOND},
  };
  for (size_t i = 0; i < COUNT_OF(good); i++) {
    int64_t duration = 0;
    assert_int_equal(clock_parse_duration(good[i].text, &duration), 0);
    assert_true(duration == good[i].wall);
  }
  static const char *const bad[] = {
      "",
      "0",
      "0s",
      "5",
      "s",
      "1x",
      "-1s",
      "+1s",
      "1.5s",
      "1s ",
      " 1s",
      "1 s",
      "1m1h",
      "1s1s",
      "1ms1s",
      "24h1ms",
      "25h",
      "86400001ms",
      "9999999999999999999s",
      "1234567890s",
      "1d",
      "1S",
      "0h0m0s",
  };
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    int64_t duration = 99;
    assert_int_equal(clock_parse_duration(bad[i], &duration), -1);
    assert_int_equal(duration, 99);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_clocks_run),
      cmocka_unit_test(test_format_and_parse_agree),
      cmocka_unit_test(test_every_day_against_libc),
      cmocka_unit_test(test_parse_accepts),
      cmocka_unit_test(test_parse_refuses),
      cmocka_unit_test(test_durations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
