/*
 * The backend's own questions to a real agent: a kept connection keeps an unbound one alive, and nothing else does.
 */
#include "backend/local/agent.h"

#include "base/clock.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ORPHAN = 200 /* milliseconds */ };

static const char *program;

struct daemon {
  uv_loop_t loop;
  char folder[64], path[80];
  bool answered, failed, exited;
  struct local_agent *agent;
  uv_process_t process;
};

static void on_exit_process(uv_process_t *process, int64_t status, int number) {
  (void)status;
  (void)number;
  ((struct daemon *)process->data)->exited = true;
  uv_close((uv_handle_t *)process, NULL);
}

static int listener_open(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  memcpy(address.sun_path, path, strlen(path) + 1);
  int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(descriptor, (struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(listen(descriptor, 8), 0);
  return descriptor;
}

static int setup(void **state) {
  struct daemon *daemon = calloc(1, sizeof *daemon);
  assert_non_null(daemon);
  assert_int_equal(uv_loop_init(&daemon->loop), 0);
  snprintf(daemon->folder, sizeof daemon->folder, "/tmp/agent-test-XXXXXX");
  assert_non_null(mkdtemp(daemon->folder));
  snprintf(daemon->path, sizeof daemon->path, "%s/agent", daemon->folder);
  int listener = listener_open(daemon->path);
  uv_stdio_container_t stdio[] = {{.flags = UV_IGNORE},
                                  {.flags = UV_IGNORE},
                                  {.flags = UV_INHERIT_FD, .data.fd = 2},
                                  {.flags = UV_INHERIT_FD, .data.fd = listener}};
  char *arguments[] = {(char *)program, "serve", "--listen-fd", "3", "--workspace", daemon->folder, NULL};
  uv_process_options_t options = {
    .file = program, .args = arguments, .stdio = stdio, .stdio_count = 4, .exit_cb = on_exit_process};
  daemon->process.data = daemon;
  assert_int_equal(uv_spawn(&daemon->loop, &daemon->process, &options), 0);
  close(listener);
  *state = daemon;
  return 0;
}

static int teardown(void **state) {
  struct daemon *daemon = *state;
  if (!daemon->exited)
    uv_process_kill(&daemon->process, SIGKILL);
  uv_run(&daemon->loop, UV_RUN_DEFAULT);
  assert_int_equal(uv_loop_close(&daemon->loop), 0);
  unlink(daemon->path);
  rmdir(daemon->folder);
  free(daemon);
  return 0;
}

static void on_answered(void *context, struct error *err) {
  struct daemon *daemon = context;
  daemon->answered = true;
  daemon->failed = err != NULL;
}

static void configure(struct daemon *daemon, struct local_agent *agent, uint64_t deadline) {
  daemon->answered = false;
  local_agent_configure(agent, deadline, ORPHAN, on_answered, daemon);
  assert_false(daemon->answered);
  while (!daemon->answered)
    uv_run(&daemon->loop, UV_RUN_ONCE);
}

static struct local_agent *ask(struct daemon *daemon, uint64_t deadline) {
  struct local_agent *agent = local_agent_new(&daemon->loop, daemon->path);
  assert_non_null(agent);
  configure(daemon, agent, deadline);
  assert_false(daemon->failed);
  return agent;
}

static void wake(uv_timer_t *timer) { (void)timer; }

static void run_for(struct daemon *daemon, uint64_t milliseconds) {
  uv_timer_t timer;
  uv_timer_init(&daemon->loop, &timer);
  uv_timer_start(&timer, wake, milliseconds, 0);
  while (uv_is_active((uv_handle_t *)&timer))
    uv_run(&daemon->loop, UV_RUN_ONCE);
  uv_close((uv_handle_t *)&timer, NULL);
  uv_run(&daemon->loop, UV_RUN_NOWAIT);
}

static void run_until_exit(struct daemon *daemon) {
  while (!daemon->exited)
    uv_run(&daemon->loop, UV_RUN_ONCE);
}

static void unbound_agent_ends_by_itself(void **state) {
  struct daemon *daemon = *state;
  local_agent_close(ask(daemon, 0));
  run_until_exit(daemon);
}

static void kept_agent_waits_until_it_is_let_go(void **state) {
  struct daemon *daemon = *state;
  struct local_agent *agent = ask(daemon, 0);
  run_for(daemon, 5 * ORPHAN);
  assert_false(daemon->exited);
  local_agent_close(agent);
  run_until_exit(daemon);
}

static void kept_agent_is_bound(void **state) {
  struct daemon *daemon = *state;
  struct local_agent *agent = ask(daemon, 0);
  int64_t begun = clock_boot();
  configure(daemon, agent, 4 * ORPHAN);
  assert_false(daemon->failed);
  local_agent_close(agent);
  run_until_exit(daemon);
  assert_true(clock_boot() - begun >= 4 * ORPHAN * CLOCK_MILLISECOND);
}

static void on_answered_configure(void *context, struct error *err) {
  struct daemon *daemon = context;
  assert_null(err);
  local_agent_configure(daemon->agent, 4 * ORPHAN, ORPHAN, on_answered, daemon);
}

/* As for an acquire that waits for this very sandbox. */
static void agent_is_bound_within_its_first_answer(void **state) {
  struct daemon *daemon = *state;
  daemon->agent = local_agent_new(&daemon->loop, daemon->path);
  local_agent_configure(daemon->agent, 0, ORPHAN, on_answered_configure, daemon);
  while (!daemon->answered)
    uv_run(&daemon->loop, UV_RUN_ONCE);
  assert_false(daemon->failed);
  local_agent_close(daemon->agent);
  run_until_exit(daemon);
}

static void end_of_a_kept_agent_is_told_to_the_next_asker(void **state) {
  struct daemon *daemon = *state;
  struct local_agent *agent = ask(daemon, 0);
  daemon->answered = false;
  uv_process_kill(&daemon->process, SIGKILL);
  run_until_exit(daemon);
  run_for(daemon, 20);
  assert_false(daemon->answered);
  configure(daemon, agent, 0);
  assert_true(daemon->failed);
  local_agent_close(agent);
}

static void agent_that_is_not_there_is_told(void **state) {
  struct daemon *daemon = *state;
  struct local_agent *agent = local_agent_new(&daemon->loop, "/nowhere/agent");
  configure(daemon, agent, 0);
  assert_true(daemon->failed);
  local_agent_close(agent);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
    TEST(unbound_agent_ends_by_itself),
    TEST(kept_agent_waits_until_it_is_let_go),
    TEST(kept_agent_is_bound),
    TEST(agent_is_bound_within_its_first_answer),
    TEST(end_of_a_kept_agent_is_told_to_the_next_asker),
    TEST(agent_that_is_not_there_is_told),
  };
  program = argc > 1 ? argv[1] : "";
  return cmocka_run_group_tests(tests, NULL, NULL);
}
