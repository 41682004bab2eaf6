/*
 * The guard: frames in every split, what goes on, what waits, what is refused.
 */
#include "base/clock.h"
#include "server/guard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

enum { DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS };
enum { ACK = 1 };

struct fixture {
  struct guard guard;
  struct guard_budget own, all;
  int64_t now;
  uint8_t bytes[1 << 20];
  size_t length;
};

static int setup(void **state) {
  static struct fixture fixture;
  memset(&fixture, 0, sizeof fixture);
  guard_budget_init(&fixture.own, GUARD_RESETS_PER_SECOND, GUARD_RESETS_AT_ONCE);
  guard_budget_init(&fixture.all, GUARD_ALL_RESETS_PER_SECOND, GUARD_ALL_RESETS_AT_ONCE);
  guard_init(&fixture.guard, &fixture.own, &fixture.all);
  fixture.now = 100 * CLOCK_SECOND;
  *state = &fixture;
  return 0;
}

static void add(struct fixture *fixture, const void *bytes, size_t length) {
  assert_true(fixture->length + length <= sizeof fixture->bytes);
  memcpy(fixture->bytes + fixture->length, bytes, length);
  fixture->length += length;
}

static void add_preface(struct fixture *fixture) { add(fixture, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24); }

static void add_frame(struct fixture *fixture, uint8_t type, uint8_t flags, size_t payload) {
  const uint8_t head[9] = {(uint8_t)(payload >> 16), (uint8_t)(payload >> 8), (uint8_t)payload, type, flags, 0, 0, 0,
                           1};
  static const uint8_t content[1 << 17] = {RST_STREAM, RST_STREAM, RST_STREAM, RST_STREAM};
  add(fixture, head, sizeof head);
  add(fixture, content, payload);
}

static void server_settings(struct fixture *fixture) {
  static const uint8_t settings[9] = {0, 0, 0, SETTINGS, 0, 0, 0, 0, 0};
  guard_server(&fixture->guard, settings, sizeof settings, fixture->now);
}

/* Opens as a client of gRPC does. */
static void open_connection(struct fixture *fixture) {
  server_settings(fixture);
  add_preface(fixture);
  add_frame(fixture, SETTINGS, 0, 18);
  add_frame(fixture, SETTINGS, ACK, 0);
}

/* Gives what was added in pieces of `piece` bytes, as long as it passes. */
static enum guard_verdict feed(struct fixture *fixture, size_t piece, size_t *passed) {
  enum guard_verdict verdict = GUARD_PASS;
  *passed = 0;
  while (verdict == GUARD_PASS && *passed < fixture->length) {
    size_t length = fixture->length - *passed < piece ? fixture->length - *passed : piece, more = 0;
    verdict = guard_client(&fixture->guard, fixture->bytes + *passed, length, fixture->now, &more);
    assert_true(more <= length);
    assert_true(verdict != GUARD_PASS || more == length);
    *passed += more;
  }
  return verdict;
}

/* Gives the rest at once. */
static enum guard_verdict go_on(struct fixture *fixture, size_t at, size_t *passed) {
  return guard_client(&fixture->guard, fixture->bytes + at, fixture->length - at, fixture->now, passed);
}

static void calls_pass_in_every_split(void **state) {
  for (size_t piece = 1; piece < 80; piece++) {
    setup(state);
    struct fixture *fixture = *state;
    open_connection(fixture);
    for (int i = 0; i < 500; i++) {
      add_frame(fixture, HEADERS, 4, 40);
      add_frame(fixture, DATA, 1, 12 + (size_t)i);
    }
    add_frame(fixture, DATA, 0, 1 << 16);
    size_t passed;
    assert_int_equal(feed(fixture, piece, &passed), GUARD_PASS);
    assert_int_equal(passed, fixture->length);
    assert_true(fixture->guard.settings_known);
    assert_int_equal(guard_wait(&fixture->guard, fixture->now), 0);
  }
}

/* So many at once; then each reset waits, whatever the splits. */
static void resets_over_the_budget_wait(void **state) {
  for (size_t piece = 1; piece < 80; piece += 7) {
    setup(state);
    struct fixture *fixture = *state;
    open_connection(fixture);
    size_t start = fixture->length;
    for (int i = 0; i < GUARD_RESETS_AT_ONCE + 500; i++) {
      add_frame(fixture, HEADERS, 4, 20);
      add_frame(fixture, RST_STREAM, 0, 4);
    }
    size_t passed;
    assert_int_equal(feed(fixture, piece, &passed), GUARD_WAIT);
    /* All that went before the reset too many, and 8 bytes of its head. */
    assert_int_equal(passed, start + GUARD_RESETS_AT_ONCE * (29 + 13) + 29 + 8);
    int64_t wait = guard_wait(&fixture->guard, fixture->now);
    assert_int_equal(wait, CLOCK_SECOND / GUARD_RESETS_PER_SECOND);
    fixture->now += wait;
    size_t more;
    assert_int_equal(go_on(fixture, passed, &more), GUARD_WAIT);
    assert_int_equal(more, 29 + 13);
    passed += more;
    fixture->now += CLOCK_SECOND;
    assert_int_equal(go_on(fixture, passed, &more), GUARD_PASS);
  }
}

static void resets_of_the_server_count(void **state) {
  struct fixture *fixture = *state;
  server_settings(fixture);
  for (int i = 0; i < GUARD_RESETS_AT_ONCE; i++)
    guard_server(&fixture->guard, (const uint8_t *)"\0\0\4\3\0\0\0\0\1\0\0\0\1", 13, fixture->now);
  assert_int_equal(guard_wait(&fixture->guard, fixture->now), CLOCK_SECOND / GUARD_RESETS_PER_SECOND);
}

static void all_connections_share_a_budget(void **state) {
  struct fixture *fixture = *state;
  struct guard others[10];
  struct guard_budget budgets[10];
  unsigned resets = 0;
  for (size_t i = 0; i < 10; i++) {
    guard_budget_init(&budgets[i], GUARD_RESETS_PER_SECOND, GUARD_RESETS_AT_ONCE);
    guard_init(&others[i], &budgets[i], &fixture->all);
    for (; guard_wait(&others[i], fixture->now) == 0; resets++)
      guard_server(&others[i], (const uint8_t *)"\0\0\4\3\0\0\0\0\1\0\0\0\1", 13, fixture->now);
  }
  assert_int_equal(resets, GUARD_ALL_RESETS_AT_ONCE);
  assert_int_equal(guard_wait(&fixture->guard, fixture->now), CLOCK_SECOND / GUARD_ALL_RESETS_PER_SECOND);
}

static void calls_before_the_acknowledgement_are_few(void **state) {
  struct fixture *fixture = *state;
  server_settings(fixture);
  add_preface(fixture);
  add_frame(fixture, SETTINGS, 0, 0);
  for (int i = 0; i < GUARD_EARLY_CALLS; i++)
    add_frame(fixture, HEADERS, 5, 20);
  size_t passed;
  assert_int_equal(feed(fixture, 1000, &passed), GUARD_PASS);
  fixture->length = 0;
  add_frame(fixture, HEADERS, 5, 20);
  assert_int_equal(feed(fixture, 1000, &passed), GUARD_REFUSE);
}

static void acknowledgement_of_nothing_is_refused(void **state) {
  struct fixture *fixture = *state;
  add_preface(fixture);
  add_frame(fixture, SETTINGS, 0, 6);
  add_frame(fixture, SETTINGS, ACK, 0);
  size_t passed;
  assert_int_equal(feed(fixture, 1000, &passed), GUARD_REFUSE);
  /* The server's own acknowledgement is not its settings. */
  setup(state);
  guard_server(&fixture->guard, (const uint8_t *)"\0\0\0\4\1\0\0\0\0", 9, fixture->now);
  add_preface(fixture);
  add_frame(fixture, SETTINGS, ACK, 0);
  assert_int_equal(feed(fixture, 1000, &passed), GUARD_REFUSE);
}

static void other_protocols_are_refused(void **state) {
  static const char *const texts[] = {"GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\rx", "\x16\x03\x01", "x"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    setup(state);
    struct fixture *fixture = *state;
    add(fixture, texts[i], strlen(texts[i]));
    size_t passed;
    assert_int_equal(feed(fixture, i % 2 ? 1 : 1000, &passed), GUARD_REFUSE);
  }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, setup)
  const struct CMUnitTest tests[] = {
      TEST(calls_pass_in_every_split),
      TEST(resets_over_the_budget_wait),
      TEST(resets_of_the_server_count),
      TEST(all_connections_share_a_budget),
      TEST(calls_before_the_acknowledgement_are_few),
      TEST(acknowledgement_of_nothing_is_refused),
      TEST(other_protocols_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
