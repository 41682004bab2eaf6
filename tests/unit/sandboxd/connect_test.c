/* `sandboxd connect`: starts the sandboxd that stays, finds it again, and hands its descriptors over. */
#include "tests/unit/sandboxd/check.h"
#include "tests/unit/sandboxd/client.h"
#include "base/digest.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define GREETING "sandboxd: ready\n"

static struct daemon place; /* only its directories */
static char name[33];

struct bridge {
  pid_t pid;
  int input, output; /* of the program, our ends */
};

static struct bridge start_with(const char *const *more) {
  const char *arguments[16] = {client_program, "connect", "--workspace", place.workspace, "--name", name};
  struct bridge bridge;
  int in[2], out[2];
  for (int i = 6; *more; i++)
    arguments[i] = *more++;
  assert_int_equal(pipe2(in, O_CLOEXEC), 0);
  assert_int_equal(pipe2(out, O_CLOEXEC), 0);
  bridge.pid = fork();
  if (bridge.pid == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    execv(client_program, (char *const *)(uintptr_t)arguments);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  bridge.input = in[1];
  bridge.output = out[0];
  return bridge;
}

/* The greeting, and nothing behind it: what follows is sandboxd's. */
static void expect_greeting(const struct bridge *bridge) {
  char text[sizeof GREETING];
  for (size_t at = 0; at < sizeof text - 1;) {
    ssize_t some = read(bridge->output, text + at, sizeof text - 1 - at);
    assert_true(some > 0);
    at += (size_t)some;
  }
  assert_memory_equal(text, GREETING, sizeof GREETING - 1);
}

static int wait_for(pid_t pid) {
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return status;
}

static struct bridge bridge_to(struct client *client) {
  static const char *const none[] = {NULL};
  struct bridge bridge = start_with(none);
  expect_greeting(&bridge);
  client_open(client, bridge.output, bridge.input);
  return bridge;
}

static int begin(void **state) {
  (void)state;
  int listener = daemon_listen(&place);
  close(listener);
  snprintf(name, sizeof name, "test-%d-%lld", (int)getpid(), (long long)client_now());
  return 0;
}

/* Nothing of it may be left: a deadline that has come ends the sandboxd. */
static int end(void **state) {
  struct client client;
  (void)state;
  struct bridge bridge = bridge_to(&client);
  client_configure(&client, 1, 0, 0, NULL);
  wait_for(bridge.pid);
  client_close(&client);
  place.pid = 0;
  daemon_stop(&place);
  return 0;
}

static void runs_commands(void **state) {
  struct client client;
  struct run run;
  (void)state;
  struct bridge bridge = bridge_to(&client);
  client_configure(&client, 60000, 0, 0, NULL);
  run_start(&run, &client, "echo hello; exit 3", NULL);
  run_wait(&run);
  assert_int_equal(run.exit_code, 3);
  assert_string_equal(buffer_text(&run.output[0]), "hello\n");
  run_free(&run);
  client_close(&client);
  assert_int_equal(wait_for(bridge.pid), 0);
}

/* The sandboxd and its commands outlive what brought the connection, killed or not. */
static void survives(void **state) {
  uint8_t first[16], second[16];
  struct client client, again;
  struct run run, rest;
  (void)state;
  struct bridge bridge = bridge_to(&client);
  client_configure(&client, 60000, 0, 60000, first);
  run_start(&run, &client, "echo before; while [ ! -e $PWD/go ]; do sleep 0.01; done; echo after",
            &(struct run_options){.cwd = place.workspace});
  run_wait_for(&run, "before\n");
  kill(bridge.pid, SIGKILL);
  wait_for(bridge.pid);
  client_close(&client);
  bridge = bridge_to(&again);
  client_configure(&again, 60000, 0, 60000, second);
  assert_memory_equal(first, second, sizeof first);
  rest = run;
  run_attach(&rest, &again);
  char path[128];
  snprintf(path, sizeof path, "%s/go", place.workspace);
  close(open(path, O_CREAT | O_WRONLY, 0600));
  run_wait(&rest);
  assert_int_equal(rest.exit_code, 0);
  assert_non_null(strstr(buffer_text(&rest.output[0]), "after\n"));
  run_free(&rest);
  client_close(&again);
  assert_int_equal(wait_for(bridge.pid), 0);
}

/* Commands get neither the descriptors of a connection nor those of another one. */
static void gives_no_descriptor_away(void **state) {
  struct client client;
  struct run run;
  (void)state;
  struct bridge bridge = bridge_to(&client);
  client_configure(&client, 60000, 0, 0, NULL);
  run_start(&run, &client, "ls /proc/$$/fd | tr '\\n' ' '", NULL);
  run_wait(&run);
  assert_string_equal(buffer_text(&run.output[0]), "0 1 2 ");
  run_free(&run);
  client_close(&client);
  wait_for(bridge.pid);
}

static void ends_with_its_sandboxd(void **state) {
  struct client client;
  (void)state;
  struct bridge bridge = bridge_to(&client);
  client_configure(&client, 1, 0, 0, NULL);
  assert_int_equal(wait_for(bridge.pid), 0);
  client_close(&client);
}

static void program_digest(char text[static 65]) {
  static uint8_t bytes[65536];
  uint8_t sum[DIGEST_SIZE];
  struct digest digest;
  ssize_t some;
  int file = open(client_program, O_RDONLY);
  digest_start(&digest);
  while ((some = read(file, bytes, sizeof bytes)) > 0)
    digest_update(&digest, bytes, (size_t)some);
  close(file);
  digest_finish(&digest, sum);
  text_hex(sum, sizeof sum, text);
}

static void verifies_itself(void **state) {
  char digest[65];
  (void)state;
  program_digest(digest);
  struct bridge bridge = start_with((const char *const[]){"--digest", digest, NULL});
  expect_greeting(&bridge);
  close(bridge.input);
  close(bridge.output);
  assert_int_equal(wait_for(bridge.pid), 0);
  digest[5] = digest[5] == '0' ? '1' : '0';
  bridge = start_with((const char *const[]){"--digest", digest, NULL});
  char byte;
  assert_int_equal(read(bridge.output, &byte, 1), 0);
  assert_int_equal(WEXITSTATUS(wait_for(bridge.pid)), 3);
  close(bridge.input);
  close(bridge.output);
}

/* Many at once start one sandboxd. */
static void starts_one_only(void **state) {
  enum { MANY = 6 };
  struct bridge bridges[MANY];
  struct client clients[MANY];
  uint8_t instances[MANY][16];
  static const char *const none[] = {NULL};
  (void)state;
  for (int i = 0; i < MANY; i++)
    bridges[i] = start_with(none);
  for (int i = 0; i < MANY; i++) {
    expect_greeting(&bridges[i]);
    client_open(&clients[i], bridges[i].output, bridges[i].input);
    client_configure(&clients[i], 60000, 0, 0, instances[i]);
    assert_memory_equal(instances[0], instances[i], sizeof instances[0]);
  }
  for (int i = 0; i < MANY; i++) {
    client_close(&clients[i]);
    assert_int_equal(wait_for(bridges[i].pid), 0);
  }
}

static int reach(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  char space[64] = "";
  ssize_t length = readlink("/proc/self/ns/pid", space, sizeof space - 1);
  assert_true(length > 0);
  int written = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "sandboxd/1/%u/%.32s/%s",
                         (unsigned)geteuid(), space, name);
  int end_of_us = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(end_of_us, (struct sockaddr *)&address,
                           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)written)),
                   0);
  return end_of_us;
}

/* Guests that hand over nothing, or the wrong thing, take no place of those who do. */
static void bears_bad_guests(void **state) {
  enum { MANY = 20 };
  struct client client, other;
  int guests[MANY];
  (void)state;
  struct bridge bridge = bridge_to(&client);
  client_configure(&client, 60000, 0, 0, NULL);
  for (int i = 0; i < MANY; i++)
    guests[i] = reach();
  assert_int_equal(send(guests[MANY - 1], "x", 1, MSG_NOSIGNAL), 1);
  char byte;
  assert_int_equal(recv(guests[MANY - 1], &byte, 1, 0), 0); /* dismissed */
  assert_int_equal(recv(guests[0], &byte, 1, 0), 0);        /* too many */
  struct bridge another = bridge_to(&other);
  client_configure(&other, 60000, 0, 0, NULL);
  client_configure(&client, 60000, 0, 0, NULL);
  for (int i = 0; i < MANY; i++)
    close(guests[i]);
  client_close(&client);
  client_close(&other);
  wait_for(bridge.pid);
  wait_for(another.pid);
}

int main(int count, char **texts) {
  assert_int_equal(count, 2);
  client_program = texts[1];
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(runs_commands, begin, end),
      cmocka_unit_test_setup_teardown(survives, begin, end),
      cmocka_unit_test_setup_teardown(gives_no_descriptor_away, begin, end),
      cmocka_unit_test_setup_teardown(ends_with_its_sandboxd, begin, end),
      cmocka_unit_test_setup_teardown(verifies_itself, begin, end),
      cmocka_unit_test_setup_teardown(starts_one_only, begin, end),
      cmocka_unit_test_setup_teardown(bears_bad_guests, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
