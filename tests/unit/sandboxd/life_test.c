/* How long sandboxd lives, who may talk to it, and what garbage does to it. */
#include "tests/unit/sandboxd/check.h"
#include "tests/unit/sandboxd/client.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct daemon agent;

static int begin(void **state) {
  (void)state;
  daemon_start(&agent, NULL);
  return 0;
}

static int end(void **state) {
  (void)state;
  daemon_stop(&agent);
  return 0;
}

static void expect_exit(int milliseconds) {
  int status = daemon_wait(&agent, milliseconds);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

/* A command that writes its process id to a file and sleeps in a session of its own; returns the id. */
static pid_t start_sleeper(struct client *client, struct run *run) {
  run_start(run, client, "setsid sh -c 'echo $$; sleep 7002.1; true' & sleep 7002.1", NULL);
  run_wait_for(run, "\n");
  return (pid_t)strtol(buffer_text(&run->output[0]), NULL, 10);
}

static void expect_dead(pid_t pid) {
  assert_true(pid > 1);
  assert_int_equal(kill(pid, 0), -1);
  assert_int_equal(errno, ESRCH);
}

static void ends_at_its_deadline_with_everything(void **state) {
  struct client client;
  struct run run;
  (void)state;
  client_connect(&client, &agent);
  client_configure(&client, 60000, 0, 0, NULL);
  pid_t sleeper = start_sleeper(&client, &run);
  int64_t begun = client_now();
  client_configure(&client, 400, 0, 0, NULL); /* the deadline moves */
  expect_exit(2000);
  assert_in_range(client_now() - begun, 395, 1000);
  client_close(&client);
  run_free(&run);
  expect_dead(sleeper);
}

static void ends_at_its_deadline_though_nobody_is_connected(void **state) {
  struct client client;
  struct run run;
  (void)state;
  client_connect(&client, &agent);
  client_configure(&client, 500, 1, 60000, NULL);
  pid_t sleeper = start_sleeper(&client, &run);
  client_close(&client);
  run_free(&run);
  assert_int_equal(daemon_wait(&agent, 200), -1);
  expect_exit(1000);
  expect_dead(sleeper);
}

static void stays_bound_once_bound(void **state) {
  struct client client;
  (void)state;
  client_connect(&client, &agent);
  client_configure(&client, 500, 1, 0, NULL);
  client_configure(&client, 0, 1, 0, NULL);
  client_close(&client);
  assert_int_equal(daemon_wait(&agent, 200), -1);
  expect_exit(1000);
}

static void an_orphan_ends(void **state) {
  struct client client, other;
  struct run run;
  (void)state;
  client_connect(&client, &agent);
  client_configure(&client, 0, 300, 60000, NULL);
  pid_t sleeper = start_sleeper(&client, &run);
  assert_int_equal(daemon_wait(&agent, 500), -1);
  client_connect(&other, &agent);
  client_close(&client);
  run_free(&run);
  assert_int_equal(daemon_wait(&agent, 500), -1); /* one connection is left */
  client_configure(&other, 0, 300, 60000, NULL);
  client_close(&other);
  int64_t begun = client_now();
  expect_exit(2000);
  assert_true(client_now() - begun >= 250);
  expect_dead(sleeper);
}

static void knows_its_instance_and_protocol(void **state) {
  struct client client;
  uint8_t first[16], second[16];
  struct talk talk = {0};
  Sandbox__Agent__V1__ConfigureRequest request = SANDBOX__AGENT__V1__CONFIGURE_REQUEST__INIT;
  (void)state;
  client_connect(&client, &agent);
  talk_start(&talk, &client, "Run");
  client_until(&client, &talk.over);
  assert_true(talk_failed_for(&talk, "INVALID_REQUEST"));
  request.protocol = 2;
  talk_start(&talk, &client, "Configure");
  talk_send(&talk, &request.base);
  client_until(&client, &talk.over);
  assert_true(talk_failed_for(&talk, "INVALID_REQUEST"));
  talk_start(&talk, &client, "Configure");
  wire_call_half_close(talk.call);
  client_until(&client, &talk.over);
  assert_true(talk_failed_for(&talk, "INVALID_REQUEST"));
  client_configure(&client, 0, 0, 0, first);
  client_configure(&client, 0, 0, 0, second);
  assert_memory_equal(first, second, 16);
  talk_start(&talk, &client, "Format");
  client_until(&client, &talk.over);
  assert_int_equal(talk.status, WIRE_UNIMPLEMENTED);
  client_close(&client);
}

static void the_newest_connections_get_in(void **state) {
  struct client clients[20];
  (void)state;
  for (int i = 0; i < 20; i++) {
    client_connect(&clients[i], &agent);
    client_configure(&clients[i], 60000, 0, 0, NULL);
  }
  for (int i = 0; i < 20; i++) {
    if (i < 12)
      client_until(&clients[i], &clients[i].broken);
    client_for(&clients[i], 20);
    assert_int_equal(clients[i].broken, i < 12);
    client_close(&clients[i]);
  }
}

static void garbage_breaks_one_connection_only(void **state) {
  struct client client, other;
  struct run run;
  uint8_t garbage[4096];
  (void)state;
  client_connect(&client, &agent);
  client_configure(&client, 60000, 0, 0, NULL);
  for (int i = 0; i < 30; i++) {
    client_connect(&other, &agent);
    if (i & 1)
      client_configure(&other, 60000, 0, 0, NULL);
    assert_int_equal(getrandom(garbage, sizeof garbage, 0), sizeof garbage);
    assert_int_equal(write(other.output, garbage, sizeof garbage), sizeof garbage);
    client_step(&other, 50);
    client_step(&other, 50);
    client_close(&other);
  }
  for (int i = 0; i < 200; i++) { /* messages that are none */
    struct talk talk = {0};
    talk_start(&talk, &client, i % 3 ? i % 3 == 1 ? "Run" : "WriteFile" : "ReadFile");
    assert_int_equal(getrandom(garbage, 64, 0), 64);
    assert_int_equal(wire_call_send(talk.call, garbage, 1 + (size_t)i % 64), 0);
    wire_call_half_close(talk.call);
    client_until(&client, &talk.over);
    assert_int_not_equal(talk.status, WIRE_OK);
  }
  run_start(&run, &client, "echo alive", NULL);
  run_wait(&run);
  assert_string_equal(buffer_text(&run.output[0]), "alive\n");
  run_free(&run);
  client_close(&client);
}

static void ignores_signals_that_can_be_ignored(void **state) {
  const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGPIPE, SIGTSTP, SIGALRM, SIGCHLD, SIGRTMIN};
  struct client client;
  (void)state;
  client_connect(&client, &agent);
  client_configure(&client, 60000, 0, 0, NULL);
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
    kill(agent.pid, numbers[i]);
  client_configure(&client, 60000, 0, 0, NULL);
  client_close(&client);
}

static void serves_one_connection_on_standard_input_and_output(void **state) {
  int to[2], from[2];
  struct client client;
  struct run run;
  (void)state;
  daemon_stop(&agent);
  assert_int_equal(pipe2(to, O_CLOEXEC), 0);
  assert_int_equal(pipe2(from, O_CLOEXEC), 0);
  agent.pid = fork();
  if (agent.pid == 0) {
    dup2(to[0], 0);
    dup2(from[1], 1);
    execl(client_program, "sandboxd", "serve", "--stdio", "--workspace", "/tmp", (char *)NULL);
    _exit(126);
  }
  close(to[0]);
  close(from[1]);
  client_open(&client, from[0], to[1]);
  client_configure(&client, 60000, 0, 60000, NULL);
  pid_t sleeper = start_sleeper(&client, &run);
  client_close(&client);
  run_free(&run);
  expect_exit(2000);
  expect_dead(sleeper);
}

static void dies_of_sigkill_with_its_supervisors(void **state) {
  struct client client;
  struct run run;
  (void)state;
  client_connect(&client, &agent);
  client_configure(&client, 60000, 0, 60000, NULL);
  pid_t sleeper = start_sleeper(&client, &run);
  kill(agent.pid, SIGKILL);
  for (int i = 0; i < 200 && !kill(sleeper, 0); i++)
    usleep(5000);
  expect_dead(sleeper);
  client_close(&client);
  run_free(&run);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(int count, char **arguments) {
  const struct CMUnitTest tests[] = {
      TEST(ends_at_its_deadline_with_everything),
      TEST(ends_at_its_deadline_though_nobody_is_connected),
      TEST(stays_bound_once_bound),
      TEST(an_orphan_ends),
      TEST(knows_its_instance_and_protocol),
      TEST(the_newest_connections_get_in),
      TEST(garbage_breaks_one_connection_only),
      TEST(ignores_signals_that_can_be_ignored),
      TEST(serves_one_connection_on_standard_input_and_output),
      TEST(dies_of_sigkill_with_its_supervisors),
  };
  client_program = count > 1 ? arguments[1] : "";
  signal(SIGPIPE, SIG_IGN);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
