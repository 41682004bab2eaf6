/* The event loop: order, stopping within a batch, timers and tasks. */
#include "backend/sandboxd/loop.h"

#include "base/clock.h"
#include "tests/unit/sandboxd/check.h"
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct loop loop;
static char trace[64];

static int begin(void **state) {
  (void)state;
  trace[0] = 0;
  return loop_init(&loop, NULL);
}

static int end(void **state) {
  (void)state;
  loop_free(&loop);
  return 0;
}

static void note(const char *what) { strncat(trace, what, sizeof trace - strlen(trace) - 1); }

static void note_timer(void *context) {
  note(context);
  if (!strcmp(context, "z"))
    loop_stop(&loop);
}

static void fires_timers_in_order_and_never_a_stopped_one(void **state) {
  char names[][2] = {"c", "a", "b", "x", "z"};
  const int64_t after[] = {30, 10, 20, 15, 40};
  struct loop_timer timers[5];
  int64_t now = clock_boot();
  (void)state;
  for (int i = 0; i < 5; i++) {
    timers[i] = (struct loop_timer){.fired = note_timer, .context = names[i]};
    loop_timer_set(&loop, &timers[i], now + after[i] * CLOCK_MILLISECOND);
  }
  loop_timer_stop(&loop, &timers[3]);
  loop_timer_set(&loop, &timers[1], now + 35 * CLOCK_MILLISECOND);
  assert_int_equal(loop_run(&loop, NULL), 0);
  assert_string_equal(trace, "bcaz");
  assert_true(clock_boot() >= now + 40 * CLOCK_MILLISECOND);
}

static void fires_a_timer_that_is_already_due(void **state) {
  char name[] = "z";
  struct loop_timer timer = {.fired = note_timer, .context = name};
  (void)state;
  loop_timer_set(&loop, &timer, -5);
  assert_int_equal(loop_run(&loop, NULL), 0);
  assert_string_equal(trace, "z");
}

/* Many, set, moved and stopped in no order: they fire by time, and those of one time in the order they were set. */
struct numbered {
  struct loop_timer timer;
  unsigned set; /* the how manieth */
};

static int64_t fired_at;
static unsigned fired_set, fired;

static void note_numbered(void *context) {
  const struct numbered *numbered = context;
  assert_true(numbered->timer.at > fired_at || (numbered->timer.at == fired_at && numbered->set > fired_set));
  fired_at = numbered->timer.at;
  fired_set = numbered->set;
  fired++;
}

static void fires_many_timers_in_order(void **state) {
  static struct numbered timers[500];
  unsigned seed = 1;
  (void)state;
  fired_at = -1000;
  fired = 0;
  for (unsigned i = 0; i < 500; i++)
    timers[i].timer = (struct loop_timer){.fired = note_numbered, .context = &timers[i]};
  for (unsigned round = 1; round <= 3000; round++) {
    struct numbered *one = &timers[rand_r(&seed) % 500];
    one->set = round;
    loop_timer_set(&loop, &one->timer, rand_r(&seed) % 300 - (round % 3 ? 0 : 500));
  }
  for (unsigned i = 0; i < 500; i++)
    if (i % 5 == 0 || !timers[i].set)
      loop_timer_stop(&loop, &timers[i].timer);
  unsigned expected = 0;
  for (unsigned i = 0; i < 500; i++)
    expected += timers[i].timer.armed;
  char name[] = "z";
  struct loop_timer last = {.fired = note_timer, .context = name};
  loop_timer_set(&loop, &last, 301);
  assert_int_equal(loop_run(&loop, NULL), 0);
  assert_int_equal(fired, expected);
  assert_in_range(fired, 380, 400);
}

struct pair {
  struct loop_watch watch, *other;
};

static void stop_the_other(void *context, uint32_t events) {
  struct pair *pair = context;
  (void)events;
  note("e");
  loop_watch_set(&loop, pair->other, 0);
  loop_watch_set(&loop, &pair->watch, 0);
  loop_stop(&loop);
}

static void delivers_nothing_to_a_watch_stopped_in_the_same_round(void **state) {
  struct pair first, second;
  (void)state;
  first.watch = (struct loop_watch){.descriptor = eventfd(1, 0), .ready = stop_the_other, .context = &first};
  second.watch = (struct loop_watch){.descriptor = eventfd(1, 0), .ready = stop_the_other, .context = &second};
  first.other = &second.watch;
  second.other = &first.watch;
  assert_int_equal(loop_watch_set(&loop, &first.watch, EPOLLIN), 0);
  assert_int_equal(loop_watch_set(&loop, &second.watch, EPOLLIN), 0);
  assert_int_equal(loop_run(&loop, NULL), 0);
  assert_string_equal(trace, "e");
  close(first.watch.descriptor);
  close(second.watch.descriptor);
}

static struct loop_task again, never;

static void run_again(void *context) {
  int *count = context;
  note("t");
  loop_task_cancel(&loop, &never);
  if (++*count == 3)
    loop_stop(&loop);
  else
    loop_task_queue(&loop, &again);
}

static void runs_a_task_once_for_each_round(void **state) {
  int count = 0;
  uint64_t round = loop.round;
  (void)state;
  again = (struct loop_task){.run = run_again, .context = &count};
  never = (struct loop_task){.run = run_again, .context = &count};
  loop_task_queue(&loop, &again);
  loop_task_queue(&loop, &again);
  loop_task_queue(&loop, &never);
  assert_int_equal(loop_run(&loop, NULL), 0);
  assert_string_equal(trace, "ttt");
  assert_int_equal(loop.round - round, 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(fires_timers_in_order_and_never_a_stopped_one),
      TEST(fires_a_timer_that_is_already_due),
      TEST(fires_many_timers_in_order),
      TEST(delivers_nothing_to_a_watch_stopped_in_the_same_round),
      TEST(runs_a_task_once_for_each_round),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
