/*
 * sandboxd when memory runs out: one allocation after the other fails in a process of its own, while a client talks to
 * it. Whatever fails, no answer is wrong, nothing crashes or leaks, and the next conversation is served.
 */
#include "backend/sandboxd/agent.h"

#include "base/memory.h"
#include "tests/unit/sandboxd/check.h"
#include "tests/unit/sandboxd/client.h"
#include "tests/unit/sandboxd/tree.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUIET 30 /* so many allocations in a row that nobody missed mean that the first conversation has no more */

static char top[64];

/* The program's place: serves until its deadline, with the n-th allocation failing. */
static void serve(int listener, size_t failing) {
  static struct agent agent;
  struct crew_options crew = {.environment = environ, .oom_score = -1};
  struct agent_options options = {
      .workspace = top, .crew = &crew, .listener = listener, .input = -1, .output = -1, .walk = failing & 1};
  getrlimit(RLIMIT_NOFILE, &crew.files);
  signal(SIGPIPE, SIG_IGN);
  if (agent_init(&agent, &options, NULL))
    exit(40);
  memory_fail_after(failing, 0);
  int result = agent_run(&agent, NULL);
  memory_fail_after(0, 0);
  exit(result ? 41 : 0);
}

/* Moves bytes until the call is over or the connection broke. Returns whether the call succeeded. */
static bool finish(struct talk *talk) {
  int64_t limit = client_now() + 10000;
  while (!talk->over && !talk->client->broken) {
    client_step(talk->client, 50);
    if (client_now() > limit)
      fail_msg("nothing happened for too long");
  }
  return talk->over && talk->status == WIRE_OK;
}

static bool converse_command(struct client *client) {
  struct run run;
  run_start(&run, client, "cat; echo error >&2; exit 3", &(struct run_options){.input = true});
  run_stdin(&run, 0, "hello", 5);
  run_stdin_end(&run);
  bool good = finish(&run.talk);
  if (good) {
    assert_true(run.ended);
    assert_int_equal(run.exit_code, 3);
    assert_string_equal(buffer_text(&run.output[0]), "hello");
    assert_string_equal(buffer_text(&run.output[1]), "error\n");
  }
  buffer_free(&run.output[0]);
  buffer_free(&run.output[1]);
  return good;
}

static bool converse_files(struct client *client) {
  static uint8_t bytes[700000];
  struct file_write write;
  struct file_read read;
  file_write_start(&write, client, "d/file", sizeof bytes, NULL, true);
  for (size_t at = 0; at < sizeof bytes; at += 100000)
    file_write_data(&write, bytes + at, 100000);
  if (write.talk.call)
    wire_call_half_close(write.talk.call);
  if (!finish(&write.talk))
    return false;
  file_read_start(&read, client, "d/file", sizeof bytes, true);
  bool good = finish(&read.talk);
  if (good) {
    assert_int_equal(read.data.length, sizeof bytes);
    assert_memory_equal(read.data.data, bytes, sizeof bytes);
  }
  file_read_free(&read);
  return good;
}

static void configure_message(struct talk *talk, const uint8_t *bytes, size_t length) {
  (void)talk;
  (void)bytes;
  assert_true(length > 0);
}

static bool converse_configure(struct client *client, uint64_t deadline) {
  struct talk talk = {.message = configure_message};
  Sandbox__Agent__V1__ConfigureRequest request = SANDBOX__AGENT__V1__CONFIGURE_REQUEST__INIT;
  request.protocol = 1;
  request.deadline_milliseconds = deadline;
  talk_start(&talk, client, "Configure");
  talk_send(&talk, &request.base);
  return finish(&talk);
}

/* Returns whether all of it succeeded. Every call has ended when the connection is closed. */
static bool converse(const struct daemon *agent) {
  struct client client;
  client_connect(&client, agent);
  bool good = converse_configure(&client, 60000) && converse_command(&client) && converse_files(&client);
  client_close(&client);
  return good;
}

static void expect_orderly_end(struct daemon *agent) {
  struct client client;
  int status = -1;
  for (int i = 0; i < 2 && status < 0; i++) { /* the failing allocation may be one of these */
    client_connect(&client, agent);
    converse_configure(&client, 1);
    status = daemon_wait(agent, client.broken ? 500 : 5000);
    client_close(&client);
  }
  if (status)
    fail_msg("it ended with wait status %d", status);
}

/* Returns whether the failure was noticed in the first conversation. */
static bool survive(size_t failing) {
  struct daemon agent = {0};
  struct daemon *place = &agent;
  int listener = daemon_listen(place);
  place->pid = fork();
  if (place->pid == 0)
    serve(listener, failing);
  close(listener);
  bool first = !converse(&agent);
  int failures = first + !converse(&agent);
  expect_orderly_end(&agent);
  daemon_stop(&agent);
  if (failures > 1)
    fail_msg("allocation %zu spoilt %d conversations", failing, failures);
  return first;
}

static void each_allocation_may_fail(void **state) {
  size_t quiet = 0, spoilt = 0;
  (void)state;
  for (size_t failing = 1; quiet < QUIET; failing++) {
    bool noticed = survive(failing);
    spoilt += noticed;
    quiet = noticed ? 0 : quiet + 1;
  }
  assert_true(spoilt > 40);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_allocation_may_fail)};
  signal(SIGPIPE, SIG_IGN);
  snprintf(top, sizeof top, "/tmp/sandboxd-torture-XXXXXX");
  if (!mkdtemp(top))
    return 1;
  int result = cmocka_run_group_tests(tests, NULL, NULL);
  tree_remove(top);
  return result;
}
