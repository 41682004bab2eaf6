/*
 * A websocket against a server in the same loop: with TLS and without, whole and broken, closed from within each of its
 * callbacks.
 */
#include "backend/websocket/websocket.h"
#include "base/clock.h"
#include "base/memory.h"
#include "tests/unit/websocket/check.h"
#include "tests/unit/websocket/server_double.h"
#include <signal.h>
#include <string.h>

enum close_in { NEVER, IN_OPENED, IN_RECEIVED, IN_LOST };

struct user {
  uv_loop_t *loop;
  struct websocket *websocket;
  enum close_in close_in;
  unsigned opened, drained, lost, refused;
  size_t received, messages;
  uint8_t first_byte;
  bool in_message;
  size_t wanted;     /* stop when so many bytes have come */
  size_t to_send;    /* bytes in all, in messages of 50,000 */
  enum reason reason;
  char detail[256], body[256];
  int status;
};

static struct identity authority, server_identity, client_identity, stranger;

static void finish(struct user *user) {
  uv_stop(user->loop);
}

static void close_if(struct user *user, enum close_in where) {
  if (user->close_in != where)
    return;
  websocket_close(user->websocket);
  user->websocket = NULL;
  finish(user);
}

static void send_some(struct user *user) {
  static uint8_t bytes[50000];
  while (user->to_send > 0 && websocket_queued(user->websocket) < 1 << 20) {
    size_t some = user->to_send < sizeof bytes ? user->to_send : sizeof bytes;
    assert_int_equal(websocket_send(user->websocket, 'h', bytes, some), 0);
    user->to_send -= some;
  }
}

static void on_opened(void *context) {
  struct user *user = context;
  user->opened++;
  close_if(user, IN_OPENED);
  if (user->websocket)
    send_some(user);
}

static void on_received(void *context, const uint8_t *bytes, size_t length, bool first, bool last) {
  struct user *user = context;
  assert_true(first != user->in_message);
  user->in_message = !last;
  user->messages += last;
  if (first && length > 0)
    user->first_byte = bytes[0];
  user->received += length;
  close_if(user, IN_RECEIVED);
  if (user->wanted > 0 && user->received >= user->wanted)
    finish(user);
}

static void on_drained(void *context) {
  struct user *user = context;
  user->drained++;
  send_some(user);
}

static void on_refused(void *context, const struct websocket_refusal *refusal) {
  struct user *user = context;
  user->refused++;
  user->status = refusal->status;
  snprintf(user->body, sizeof user->body, "%s", refusal->body);
  finish(user);
}

static void on_lost(void *context, struct error *err) {
  struct user *user = context;
  user->lost++;
  user->reason = error_reason(err);
  snprintf(user->detail, sizeof user->detail, "%s", error_detail(err));
  close_if(user, IN_LOST);
  finish(user);
}

static void open_with(struct user *user, uv_loop_t *loop, const struct websocket_endpoint *endpoint, int64_t timeout,
                      int64_t silence) {
  const struct websocket_request request = {
      .endpoint = endpoint, .target = "/exec", .protocol = "v5.channel.k8s.io", .timeout = timeout, .silence = silence};
  const struct websocket_events events = {.opened = on_opened,
                                          .received = on_received,
                                          .drained = on_drained,
                                          .refused = on_refused,
                                          .lost = on_lost,
                                          .context = user};
  user->loop = loop;
  user->websocket = websocket_open(loop, &request, &events);
  assert_non_null(user->websocket);
}

static struct websocket_endpoint endpoint_of(const struct server_double *server) {
  return (struct websocket_endpoint){.host = "127.0.0.1",
                                     .port = (uint16_t)server->port,
                                     .plain = !server->settings,
                                     .authorities = authority.certificate,
                                     .certificate = client_identity.certificate,
                                     .key = client_identity.key,
                                     .bearer = "secret"};
}

/* Runs until the user is finished, then closes both sides; nothing may be left in the loop. */
static void play(struct user *user, struct server_double *server, const struct websocket_endpoint *endpoint,
                 int64_t timeout, int64_t silence) {
  uv_loop_t *loop = server->listener.loop;
  open_with(user, loop, endpoint, timeout, silence);
  uv_run(loop, UV_RUN_DEFAULT);
  websocket_close(user->websocket);
  server_double_stop(server);
  assert_int_equal(uv_loop_close(loop), 0);
}

#define START(loop, server, identity, of)                                                                              \
  uv_loop_t loop;                                                                                                      \
  struct server_double server;                                                                                         \
  uv_loop_init(&loop);                                                                                                 \
  server_double_start(&server, &loop, identity, of)

static void echo(const struct identity *identity) {
  START(loop, server, identity, identity ? &authority : NULL);
  struct user user = {.to_send = 8 << 20, .wanted = (8 << 20) + 168};
  struct websocket_endpoint endpoint = endpoint_of(&server);
  server.echo = true;
  play(&user, &server, &endpoint, 5 * CLOCK_SECOND, 0);
  assert_int_equal(user.opened, 1);
  assert_int_equal(user.lost, 0);
  assert_int_equal(user.received, (8 << 20) + 168);
  assert_int_equal(user.messages, 168);
  assert_int_equal(user.first_byte, 'h');
}

static void test_echo_secured(void **state) {
  (void)state;
  echo(&server_identity);
}

static void test_echo_plain(void **state) {
  (void)state;
  echo(NULL);
}

static void test_bearer(void **state) {
  (void)state;
  START(loop, server, &server_identity, NULL);
  struct user user = {.close_in = IN_OPENED};
  struct websocket_endpoint endpoint = endpoint_of(&server);
  endpoint.certificate = endpoint.key = NULL;
  open_with(&user, &loop, &endpoint, CLOCK_SECOND, 0);
  uv_run(&loop, UV_RUN_DEFAULT);
  assert_non_null(strstr(buffer_text(&server.request), "Authorization: Bearer secret\r\n"));
  server_double_stop(&server);
  assert_int_equal(uv_loop_close(&loop), 0);
}

static void test_name_of_host(void **state) {
  (void)state;
  START(loop, server, &server_identity, NULL);
  struct user user = {.close_in = IN_OPENED};
  struct websocket_endpoint endpoint = endpoint_of(&server);
  endpoint.host = "localhost"; /* its first address may be another one */
  endpoint.server_name = "server.test";
  play(&user, &server, &endpoint, 5 * CLOCK_SECOND, 0);
  assert_int_equal(user.opened, 1);
}

static void lost_with(const struct identity *identity, const struct websocket_endpoint *changes, enum reason reason,
                      const char *detail) {
  START(loop, server, identity, NULL);
  struct user user = {0};
  struct websocket_endpoint endpoint = *changes;
  endpoint.host = "127.0.0.1";
  endpoint.port = (uint16_t)server.port;
  play(&user, &server, &endpoint, 5 * CLOCK_SECOND, 0);
  assert_int_equal(user.opened, 0);
  assert_int_equal(user.lost, 1);
  assert_int_equal(user.reason, reason);
  if (!strstr(user.detail, detail))
    fail_msg("'%s' does not say '%s'", user.detail, detail);
}

static void test_untrusted(void **state) {
  (void)state;
  struct identity expired = identity_new("server.test", &authority, -60);
  lost_with(&server_identity, &(struct websocket_endpoint){.authorities = stranger.certificate},
            REASON_SANDBOX_NOT_READY, "certificate: ");
  lost_with(&server_identity, &(struct websocket_endpoint){0}, REASON_SANDBOX_NOT_READY, "certificate: ");
  lost_with(&server_identity,
            &(struct websocket_endpoint){.authorities = authority.certificate, .server_name = "other.test"},
            REASON_SANDBOX_NOT_READY, "hostname mismatch");
  lost_with(&server_identity,
            &(struct websocket_endpoint){.authorities = authority.certificate, .server_name = "10.1.2.3"},
            REASON_SANDBOX_NOT_READY, "IP address mismatch");
  lost_with(&expired, &(struct websocket_endpoint){.authorities = authority.certificate}, REASON_SANDBOX_NOT_READY,
            "expired");
  identity_free(&expired);
}

static void test_bad_credentials(void **state) {
  (void)state;
  lost_with(&server_identity, &(struct websocket_endpoint){.authorities = "nothing"}, REASON_INTERNAL, "authorities");
  lost_with(&server_identity,
            &(struct websocket_endpoint){.authorities = authority.certificate, .certificate = authority.certificate},
            REASON_INTERNAL, "belong together");
  lost_with(&server_identity,
            &(struct websocket_endpoint){.authorities = authority.certificate,
                                         .certificate = client_identity.certificate,
                                         .key = stranger.key},
            REASON_INTERNAL, "key");
  lost_with(NULL, &(struct websocket_endpoint){.plain = true, .bearer = "a\r\nb"}, REASON_INTERNAL, "bearer");
}

static void test_refused(void **state) {
  (void)state;
  START(loop, server, &server_identity, NULL);
  struct user user = {0};
  struct websocket_endpoint endpoint = endpoint_of(&server);
  server.answer = "HTTP/1.1 403 Forbidden\r\nContent-Length: 5\r\n\r\nnever";
  play(&user, &server, &endpoint, 5 * CLOCK_SECOND, 0);
  assert_int_equal(user.refused, 1);
  assert_int_equal(user.lost, 0);
  assert_int_equal(user.status, 403);
  assert_string_equal(user.body, "never");
}

static void test_too_slow(void **state) {
  (void)state;
  START(loop, server, NULL, NULL);
  struct user user = {0};
  struct websocket_endpoint endpoint = endpoint_of(&server);
  server.silent = true;
  play(&user, &server, &endpoint, CLOCK_SECOND / 20, 0);
  assert_int_equal(user.lost, 1);
  assert_non_null(strstr(user.detail, "in time"));
}

static void test_nobody_there(void **state) {
  (void)state;
  START(loop, server, NULL, NULL);
  struct user user = {0};
  struct websocket_endpoint endpoint = endpoint_of(&server);
  uv_close((uv_handle_t *)&server.listener, NULL);
  uv_run(&loop, UV_RUN_DEFAULT);
  open_with(&user, &loop, &endpoint, CLOCK_SECOND, 0);
  assert_int_equal(user.lost, 0);
  uv_run(&loop, UV_RUN_DEFAULT);
  assert_int_equal(user.lost, 1);
  assert_non_null(strstr(user.detail, "refused"));
  websocket_close(user.websocket);
  uv_run(&loop, UV_RUN_DEFAULT);
  assert_int_equal(uv_loop_close(&loop), 0);
  buffer_free(&server.request);
}

static void test_pings(void **state) {
  (void)state;
  START(loop, server, NULL, NULL);
  struct user user = {0};
  struct websocket_endpoint endpoint = endpoint_of(&server);
  server.deaf = true;
  play(&user, &server, &endpoint, CLOCK_SECOND, CLOCK_SECOND / 20);
  assert_int_equal(user.lost, 1);
  assert_non_null(strstr(user.detail, "pings"));
}

static void on_enough(uv_timer_t *timer) {
  uv_stop(timer->loop);
  uv_close((uv_handle_t *)timer, NULL);
}

static void test_pings_answered(void **state) {
  (void)state;
  START(loop, server, &server_identity, NULL);
  struct user user = {0};
  uv_timer_t timer;
  struct websocket_endpoint endpoint = endpoint_of(&server);
  uv_timer_init(&loop, &timer);
  uv_timer_start(&timer, on_enough, 300, 0);
  play(&user, &server, &endpoint, CLOCK_SECOND, CLOCK_SECOND / 50);
  assert_int_equal(user.opened, 1);
  assert_int_equal(user.lost, 0);
}

static void say_bye(struct server_double *server) {
  server_double_send(server, "last words", 10);
  server_double_bye(server, 1000);
}

static void test_goodbye(void **state) {
  (void)state;
  START(loop, server, &server_identity, NULL);
  struct user user = {0};
  struct websocket_endpoint endpoint = endpoint_of(&server);
  server.opened = say_bye;
  play(&user, &server, &endpoint, CLOCK_SECOND, 0);
  assert_int_equal(user.received, 10);
  assert_int_equal(user.messages, 1);
  assert_int_equal(user.lost, 1);
  assert_non_null(strstr(user.detail, "code 1000"));
}

static void cut(struct server_double *server) {
  server_double_send(server, "half", 4);
  server_double_write(server, "\x82\x05wo", 4);
  server_double_cut(server);
}

static void test_cut(void **state) {
  (void)state;
  START(loop, server, &server_identity, NULL);
  struct user user = {0};
  struct websocket_endpoint endpoint = endpoint_of(&server);
  server.opened = cut;
  play(&user, &server, &endpoint, CLOCK_SECOND, 0);
  assert_int_equal(user.lost, 1);
  assert_int_equal(user.messages, 1);
}

static void lie(struct server_double *server) {
  server_double_write(server, "\xff\xff\xff\xff", 4);
}

static void test_garbage(void **state) {
  (void)state;
  START(loop, server, &server_identity, NULL);
  struct user user = {0};
  struct websocket_endpoint endpoint = endpoint_of(&server);
  server.opened = lie;
  play(&user, &server, &endpoint, CLOCK_SECOND, 0);
  assert_int_equal(user.lost, 1);
  assert_int_equal(user.reason, REASON_SANDBOX_NOT_READY);
}

static void say_much(struct server_double *server) {
  static char bytes[30000];
  for (int i = 0; i < 10; i++)
    server_double_send(server, bytes, sizeof bytes);
  server_double_bye(server, 1001);
}

static void test_closed_from_within(void **state) {
  (void)state;
  for (enum close_in where = IN_OPENED; where <= IN_LOST; where++) {
    START(loop, server, &server_identity, NULL);
    struct user user = {.close_in = where};
    struct websocket_endpoint endpoint = endpoint_of(&server);
    server.opened = say_much;
    play(&user, &server, &endpoint, CLOCK_SECOND, 0);
    assert_null(user.websocket);
    assert_int_equal(user.lost, where == IN_LOST);
  }
}

static void on_tick(uv_timer_t *timer) {
  struct user *user = timer->data;
  user->wanted = 300000;
  assert_int_equal(user->received, 0);
  websocket_pause(user->websocket, false);
  uv_close((uv_handle_t *)timer, NULL);
}

static void on_opened_paused(void *context) {
  struct user *user = context;
  user->opened++;
  websocket_pause(user->websocket, true);
}

static void say_later(uv_timer_t *timer) {
  say_much(timer->data);
  uv_close((uv_handle_t *)timer, NULL);
}

static void test_paused(void **state) {
  (void)state;
  START(loop, server, NULL, NULL);
  struct user user = {.loop = &loop};
  uv_timer_t tick, later;
  struct websocket_endpoint endpoint = endpoint_of(&server);
  const struct websocket_request request = {
      .endpoint = &endpoint, .target = "/", .protocol = "v5.channel.k8s.io", .timeout = CLOCK_SECOND,
      .silence = CLOCK_SECOND / 50};
  const struct websocket_events events = {
      .opened = on_opened_paused, .received = on_received, .drained = on_drained, .lost = on_lost, .context = &user};
  uv_timer_init(&loop, &tick);
  uv_timer_init(&loop, &later);
  tick.data = &user;
  later.data = &server;
  uv_timer_start(&later, say_later, 50, 0);
  uv_timer_start(&tick, on_tick, 200, 0);
  user.websocket = websocket_open(&loop, &request, &events);
  uv_run(&loop, UV_RUN_DEFAULT);
  assert_int_equal(user.received, 300000);
  websocket_close(user.websocket);
  server_double_stop(&server);
  assert_int_equal(uv_loop_close(&loop), 0);
}

static void test_too_much_to_send(void **state) {
  (void)state;
  START(loop, server, NULL, NULL);
  struct user user = {0};
  struct websocket_endpoint endpoint = endpoint_of(&server);
  static uint8_t bytes[1 << 20];
  open_with(&user, &loop, &endpoint, CLOCK_SECOND, 0);
  assert_int_equal(websocket_send(user.websocket, 0, bytes, 1), -1); /* not open yet */
  while (user.opened == 0)
    uv_run(&loop, UV_RUN_ONCE);
  uv_read_stop((uv_stream_t *)&server.peer);
  int sent = 0;
  while (websocket_send(user.websocket, 0, bytes, sizeof bytes) == 0)
    assert_true(++sent < 64);
  assert_true(websocket_queued(user.websocket) <= WEBSOCKET_QUEUE_BYTES + 1024);
  assert_int_equal(user.lost, 0);
  uv_run(&loop, UV_RUN_DEFAULT);
  assert_int_equal(user.lost, 1);
  websocket_close(user.websocket);
  server_double_stop(&server);
  assert_int_equal(uv_loop_close(&loop), 0);
}

static void test_no_memory(void **state) {
  (void)state;
  for (size_t n = 1;; n++) {
    START(loop, server, &server_identity, NULL);
    struct user user = {.close_in = IN_OPENED, .loop = &loop};
    struct websocket_endpoint endpoint = endpoint_of(&server);
    const struct websocket_request request = {
        .endpoint = &endpoint, .target = "/", .protocol = "v5.channel.k8s.io", .timeout = CLOCK_SECOND};
    const struct websocket_events events = {
        .opened = on_opened, .received = on_received, .drained = on_drained, .lost = on_lost, .context = &user};
    memory_fail_after(n, 0);
    user.websocket = websocket_open(&loop, &request, &events);
    memory_fail_after(0, 0);
    if (user.websocket)
      uv_run(&loop, UV_RUN_DEFAULT);
    bool opened = user.opened > 0;
    websocket_close(user.websocket);
    server_double_stop(&server);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_true(n < 30);
    if (opened)
      return;
    assert_true(!request.endpoint || user.lost == 1 || n == 1);
  }
}

static int make_identities(void **state) {
  (void)state;
  authority = identity_new("authority.test", NULL, 3600);
  stranger = identity_new("stranger.test", NULL, 3600);
  server_identity = identity_new("server.test", &authority, 3600);
  client_identity = identity_new("client.test", &authority, 3600);
  return 0;
}

static int free_identities(void **state) {
  (void)state;
  identity_free(&authority);
  identity_free(&stranger);
  identity_free(&server_identity);
  identity_free(&client_identity);
  return 0;
}

int main(void) {
  signal(SIGPIPE, SIG_IGN);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_echo_secured),      cmocka_unit_test(test_echo_plain),
      cmocka_unit_test(test_bearer),            cmocka_unit_test(test_name_of_host),
      cmocka_unit_test(test_untrusted),         cmocka_unit_test(test_bad_credentials),
      cmocka_unit_test(test_refused),           cmocka_unit_test(test_too_slow),
      cmocka_unit_test(test_nobody_there),      cmocka_unit_test(test_pings),
      cmocka_unit_test(test_pings_answered),    cmocka_unit_test(test_goodbye),
      cmocka_unit_test(test_cut),               cmocka_unit_test(test_garbage),
      cmocka_unit_test(test_closed_from_within), cmocka_unit_test(test_paused),
      cmocka_unit_test(test_too_much_to_send),  cmocka_unit_test(test_no_memory),
  };
  return cmocka_run_group_tests(tests, make_identities, free_identities);
}
