/*
 * The transport through pods/exec against a server that says what a container may say: the right things, the wrong ones
 * and nothing; and its user, who lets go of it from within each callback.
 */
#include "backend/podexec/podexec.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/memory.h"
#include "tests/unit/websocket/check.h"
#include "tests/unit/websocket/server_double.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum let_go { NEVER, IN_CONNECTED, IN_RECEIVED, IN_LOST };

static struct {
  uv_loop_t loop;
  struct server_double server;
  struct transport *transport;
  enum let_go let_go;
  unsigned connected, failed, lost, drained, asked, cancelled, refused;
  enum reason reason;
  char detail[400];
  struct buffer received;
  size_t wanted; /* bytes to receive before the loop stops */
  /* The container's side. */
  size_t uploaded;
  struct digest digest;
  struct buffer stdin_bytes;
  const char *answer; /* once the program has come */
  bool grant_later, grant_error;
  podexec_granted *granted;
  void *granted_context;
} stage;

static uint8_t program_bytes[300000];
static struct podexec_program program = {.bytes = program_bytes, .length = sizeof program_bytes, .digest = "00"};

/* --- who we are --- */

static void grant(void) {
  struct podexec_endpoint endpoint = {
      .websocket = {.host = "127.0.0.1", .port = (uint16_t)stage.server.port, .plain = true}, .prefix = "/cluster"};
  CLEANUP_ERROR struct error *err = NULL;
  if (stage.grant_error)
    error_set_detail(&err, REASON_INTERNAL, "no token");
  stage.granted(stage.granted_context, stage.grant_error ? NULL : &endpoint, err);
}

static void on_grant(uv_timer_t *timer) {
  uv_close((uv_handle_t *)timer, NULL);
  if (stage.cancelled == 0)
    grant();
}

static uv_timer_t grant_timer;

static void *ask(void *context, podexec_granted *granted, void *granted_context) {
  (void)context;
  stage.asked++;
  stage.granted = granted;
  stage.granted_context = granted_context;
  if (stage.grant_later) {
    uv_timer_init(&stage.loop, &grant_timer);
    uv_timer_start(&grant_timer, on_grant, 10, 0);
  } else {
    grant();
  }
  return &stage;
}

static void cancel(void *context, void *asked) {
  (void)context;
  assert_ptr_equal(asked, &stage);
  stage.cancelled++;
}

static void refuse(void *context) {
  (void)context;
  stage.refused++;
}

static const struct podexec_access the_access = {.ask = ask, .cancel = cancel, .refused = refuse};

/* --- the user --- */

static void let_go_if(enum let_go where) {
  if (stage.let_go != where)
    return;
  stage.transport->operations->free(stage.transport);
  stage.transport = NULL;
  uv_stop(&stage.loop);
}

static void keep_error(const struct error *err) {
  stage.reason = error_reason(err);
  snprintf(stage.detail, sizeof stage.detail, "%s", error_detail(err));
}

static void on_connected(void *context, struct error *err) {
  (void)context;
  if (err) {
    stage.failed++;
    keep_error(err);
    uv_stop(&stage.loop);
    return;
  }
  stage.connected++;
  if (stage.wanted == 0)
    uv_stop(&stage.loop);
  let_go_if(IN_CONNECTED);
}

static void on_received(void *context, const uint8_t *bytes, size_t length) {
  (void)context;
  assert_int_equal(buffer_append(&stage.received, bytes, length), 0);
  if (stage.received.length >= stage.wanted)
    uv_stop(&stage.loop);
  let_go_if(IN_RECEIVED);
}

static void on_drained(void *context) {
  (void)context;
  stage.drained++;
}

static void on_lost(void *context, struct error *err) {
  (void)context;
  stage.lost++;
  keep_error(err);
  uv_stop(&stage.loop);
  let_go_if(IN_LOST);
}

static void connect_now(void) {
  static const struct transport_events events = {
      .connected = on_connected, .received = on_received, .drained = on_drained, .lost = on_lost};
  stage.transport->operations->connect(stage.transport, &events);
}

/* --- the container --- */

static void say(struct server_double *server, int channel, const char *text) {
  char message[8192];
  message[0] = (char)channel;
  memcpy(message + 1, text, strlen(text));
  server_double_send(server, message, strlen(text) + 1);
}

static void end_with(struct server_double *server, const char *status) {
  say(server, 3, status);
  server_double_bye(server, 1000);
}

static void want(struct server_double *server) {
  say(server, 1, "");
  say(server, 1, "some noise\nsandboxd: ");
  say(server, 1, "want\n");
}

static void on_message(struct server_double *server, const uint8_t *bytes, size_t length) {
  assert_true(length > 0);
  assert_int_equal(bytes[0], 0);
  size_t left = program.length - stage.uploaded;
  size_t some = length - 1 < left ? length - 1 : left;
  digest_update(&stage.digest, bytes + 1, some);
  stage.uploaded += some;
  buffer_append(&stage.stdin_bytes, bytes + 1 + some, length - 1 - some);
  if (some > 0 && stage.uploaded == program.length)
    say(server, 1, stage.answer);
}

static void set(const char *answer, void (*opened)(struct server_double *server)) {
  memset(&stage, 0, sizeof stage);
  uv_loop_init(&stage.loop);
  server_double_start(&stage.server, &stage.loop, NULL, NULL);
  stage.server.opened = opened;
  stage.server.message = on_message;
  stage.answer = answer;
  digest_start(&stage.digest);
  buffer_init(&stage.received, 1 << 20);
  buffer_init(&stage.stdin_bytes, 1 << 20);
  const struct podexec_options options = {
      .access = &the_access, .program = &program, .namespace_ = "ns", .pod = "pod-1", .container = "main"};
  stage.transport = transport_podexec_new(&stage.loop, &options);
  assert_non_null(stage.transport);
}

static void strike(void) {
  if (stage.transport)
    stage.transport->operations->free(stage.transport);
  uv_run(&stage.loop, UV_RUN_NOWAIT); /* what stopped the loop before it ran stops it no more */
  server_double_stop(&stage.server);
  assert_int_equal(uv_loop_close(&stage.loop), 0);
  buffer_free(&stage.received);
  buffer_free(&stage.stdin_bytes);
}

static void play(void) {
  connect_now();
  uv_run(&stage.loop, UV_RUN_DEFAULT);
}

/* --- cases --- */

static void test_brings_it_up(void **state) {
  uint8_t wanted[DIGEST_SIZE], found[DIGEST_SIZE];
  struct digest digest;
  (void)state;
  set("sandboxd: ready\nhello", want);
  stage.wanted = 5;
  play();
  assert_int_equal(stage.connected, 1);
  assert_string_equal(buffer_text(&stage.received), "hello");
  assert_non_null(strstr(buffer_text(&stage.server.request), "GET /cluster/api/v1/namespaces/ns/pods/pod-1/exec?"));
  assert_non_null(strstr(buffer_text(&stage.server.request), "&container=main&command=sh&command=-c&command="));
  digest_start(&digest);
  digest_update(&digest, program.bytes, program.length);
  digest_finish(&digest, wanted);
  digest_finish(&stage.digest, found);
  assert_int_equal(stage.uploaded, program.length);
  assert_memory_equal(wanted, found, sizeof wanted);
  static uint8_t bytes[200000];
  assert_int_equal(stage.transport->operations->write(stage.transport, bytes, sizeof bytes), 0);
  while (stage.stdin_bytes.length < sizeof bytes)
    uv_run(&stage.loop, UV_RUN_ONCE);
  assert_int_equal(stage.stdin_bytes.length, sizeof bytes);
  strike();
}

static void found_there(struct server_double *server) {
  say(server, 2, "words on standard error");
  say(server, 1, "sandboxd: ready\n");
}

static void test_finds_it(void **state) {
  (void)state;
  set(NULL, found_there);
  play();
  assert_int_equal(stage.connected, 1);
  assert_int_equal(stage.uploaded, 0);
  strike();
}

static void cannot(struct server_double *server) {
  say(server, 1, "sandboxd: none\n");
}

static void no_shell(struct server_double *server) {
  end_with(server, "{\"status\":\"Failure\",\"message\":\"exec: sh: not found\",\"reason\":\"InternalError\"}");
}

static void dies(struct server_double *server) {
  say(server, 2, "sh: it is\nbad");
  end_with(server, "{\"status\":\"Failure\",\"reason\":\"NonZeroExitCode\",\"details\":{\"causes\":["
                   "{\"reason\":\"ExitCode\",\"message\":\"126\"}]}}");
}

static void wants_twice(struct server_double *server) {
  say(server, 1, "sandboxd: want\nsandboxd: want\n");
}

static void talks_on(struct server_double *server) {
  char text[1025];
  memset(text, 'x', sizeof text - 1);
  text[1024] = '\0';
  for (int i = 0; i < 6; i++)
    say(server, 1, text);
}

static void wrong_channel(struct server_double *server) {
  say(server, 7, "x");
}

static void wrong_status(struct server_double *server) {
  end_with(server, "nonsense");
}

static void leaves(struct server_double *server) {
  server_double_cut(server);
}

static void test_failures(void **state) {
  static const struct {
    void (*opened)(struct server_double *server);
    const char *detail;
  } cases[] = {{no_shell, "exec: sh: not found"}, {dies, "code 126: sh: it is bad"},
               {wants_twice, "asks for"},       {talks_on, "should not"},          {wrong_channel, "not for us"},
               {wrong_status, "makes no sense"}, {leaves, "closed the connection"}};
  (void)state;
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    set(NULL, cases[i].opened);
    play();
    assert_int_equal(stage.failed, 1);
    assert_int_equal(stage.connected + stage.lost, 0);
    assert_int_equal(stage.reason, REASON_SANDBOX_NOT_READY);
    if (!strstr(stage.detail, cases[i].detail))
      fail_msg("'%s' does not say '%s'", stage.detail, cases[i].detail);
    strike();
  }
}

static void refused_with(const char *answer, enum reason reason, unsigned refused, const char *detail) {
  set(NULL, NULL);
  stage.server.answer = answer;
  play();
  assert_int_equal(stage.failed, 1);
  assert_int_equal(stage.reason, reason);
  assert_int_equal(stage.refused, refused);
  assert_non_null(strstr(stage.detail, detail));
  strike();
}

/* Its place is taken here: HTTP/2 answers, and the container hears nothing more. */
static void test_none(void **state) {
  (void)state;
  set(NULL, cannot);
  stage.wanted = 9; /* a frame's head */
  play();
  assert_int_equal(stage.connected, 1);
  assert_int_equal(stage.received.data[3], 4); /* SETTINGS */
  static const char garbage[] = "this is no HTTP/2 at all, whatever it may be";
  assert_int_equal(stage.transport->operations->write(stage.transport, (const uint8_t *)garbage, sizeof garbage), 0);
  uv_run(&stage.loop, UV_RUN_DEFAULT);
  assert_int_equal(stage.lost, 1);
  connect_now();
  assert_int_equal(stage.connected, 2); /* without asking the container again */
  assert_int_equal(stage.asked, 1);
  strike();
}

static void test_refused(void **state) {
  (void)state;
  refused_with("HTTP/1.1 404 Not Found\r\nContent-Length: 34\r\n\r\n{\"message\":\"pods \\\"x\\\" not found\"}",
               REASON_LEASE_NOT_FOUND, 0, "404: pods \"x\" not found");
  refused_with("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", REASON_SANDBOX_NOT_READY, 1, "401");
  refused_with("HTTP/1.1 500 E\r\n\r\n", REASON_SANDBOX_NOT_READY, 0, "500");
}

static void test_credentials(void **state) {
  (void)state;
  set(NULL, found_there);
  stage.grant_later = true;
  play();
  assert_int_equal(stage.connected, 1);
  strike();
  for (int later = 0; later < 2; later++) {
    set(NULL, NULL);
    stage.grant_later = later == 1;
    stage.grant_error = true;
    play();
    assert_int_equal(stage.failed, 1);
    assert_non_null(strstr(stage.detail, "no token"));
    strike();
  }
  set(NULL, NULL);
  stage.grant_later = true;
  connect_now();
  stage.transport->operations->disconnect(stage.transport);
  assert_int_equal(stage.cancelled, 1);
  uv_run(&stage.loop, UV_RUN_NOWAIT);
  strike();
}

static void joins_and_talks(struct server_double *server) {
  say(server, 1, "sandboxd: ready\nhello");
  say(server, 1, "world");
  server_double_bye(server, 1001);
}

static void test_let_go(void **state) {
  (void)state;
  for (enum let_go where = IN_CONNECTED; where <= IN_LOST; where++) {
    set(NULL, joins_and_talks);
    stage.wanted = 1000;
    stage.let_go = where;
    play();
    assert_null(stage.transport);
    assert_int_equal(stage.connected, 1);
    assert_int_equal(stage.lost, where == IN_LOST);
    strike();
  }
}

static void test_again(void **state) {
  (void)state;
  set(NULL, joins_and_talks);
  stage.wanted = 1000;
  play();
  assert_int_equal(stage.lost, 1);
  assert_int_equal(stage.transport->operations->write(stage.transport, program_bytes, 1), -1);
  stage.transport->operations->disconnect(stage.transport);
  stage.transport->operations->disconnect(stage.transport);
  strike();
}

static void test_no_memory(void **state) {
  (void)state;
  for (size_t n = 1;; n++) {
    set(NULL, found_there);
    memory_fail_after(n, 0);
    connect_now();
    memory_fail_after(0, 0);
    if (stage.failed == 0)
      uv_run(&stage.loop, UV_RUN_DEFAULT);
    assert_int_equal(stage.connected + stage.failed, 1);
    bool connected = stage.connected;
    strike();
    assert_true(n < 40);
    if (connected)
      return;
  }
}

int main(void) {
  signal(SIGPIPE, SIG_IGN);
  for (size_t i = 0; i < sizeof program_bytes; i++)
    program_bytes[i] = (uint8_t)(i * 7 + i / 251);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_brings_it_up), cmocka_unit_test(test_finds_it),    cmocka_unit_test(test_failures),
      cmocka_unit_test(test_none),         cmocka_unit_test(test_refused),     cmocka_unit_test(test_credentials),
      cmocka_unit_test(test_let_go),
      cmocka_unit_test(test_again),        cmocka_unit_test(test_no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
