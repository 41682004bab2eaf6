/*
 * Client calls against a small server: unary and streaming, failures, cancellation, deadlines, no server at all.
 */
#include "rpc/client.h"
#include "tests/unit/rpc/peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct fixture {
  struct peer *peer;
  grpc_completion_queue *queue;
  struct rpc_client *client;
};

/* What one call told, in order: 'm' a message, 'n' no more messages, 's' sent, 'f' not sent, 'e' ended. */
struct record {
  struct rpc_client_call *call;
  char told[256];
  size_t count;
  size_t bytes;       /* of all messages */
  char first[64];     /* of the first message, as far as it fits */
  enum reason reason; /* of the end; REASON_NONE is success */
  bool receive_all;   /* asks again after each message */
  int echoes;         /* sends so many messages, each after the one before was sent and came back */
  int awaited;        /* of those two, what has not happened yet */
  bool ended;
};

static grpc_byte_buffer *text_buffer(const char *text) {
  grpc_slice slice = grpc_slice_from_copied_string(text);
  grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
  grpc_slice_unref(slice);
  return buffer;
}

static void tell(struct record *record, char what) {
  assert_false(record->ended);
  if (record->count < sizeof record->told - 1)
    record->told[record->count++] = what;
}

static void echo_next(struct record *record) {
  if (record->echoes == 0 || --record->awaited > 0)
    return;
  record->awaited = 2;
  if (--record->echoes > 0)
    rpc_client_send(record->call, text_buffer("again"));
  else
    rpc_client_half_close(record->call);
}

static void on_message(void *context, grpc_byte_buffer *message) {
  struct record *record = context;
  tell(record, message ? 'm' : 'n');
  if (!message)
    return;
  if (record->bytes == 0) {
    grpc_slice slice = message->data.raw.slice_buffer.slices[0];
    size_t length =
        GRPC_SLICE_LENGTH(slice) < sizeof record->first ? GRPC_SLICE_LENGTH(slice) : sizeof record->first - 1;
    memcpy(record->first, GRPC_SLICE_START_PTR(slice), length);
  }
  record->bytes += grpc_byte_buffer_length(message);
  echo_next(record);
  if (record->receive_all)
    rpc_client_receive(record->call);
}

static void on_sent(void *context, bool ok) {
  tell(context, ok ? 's' : 'f');
  echo_next(context);
}

static void on_ended(void *context, struct error *err) {
  struct record *record = context;
  tell(record, 'e');
  record->reason = err ? error_reason(err) : REASON_NONE;
  record->ended = true;
}

static const struct rpc_client_events EVENTS = {.message = on_message, .sent = on_sent, .ended = on_ended};

/* Runs the queue, on this thread, until the call has ended. */
static void run_to_end(struct fixture *fixture, struct record *record) {
  while (!record->ended) {
    grpc_event event = grpc_completion_queue_next(
        fixture->queue, gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(30, GPR_TIMESPAN)), NULL);
    assert_int_equal(event.type, GRPC_OP_COMPLETE);
    struct rpc_tag *tag = event.tag;
    tag->run(tag, event.success != 0);
  }
}

static int setup(void **state) {
  struct fixture *fixture = calloc(1, sizeof *fixture);
  assert_non_null(fixture);
  fixture->peer = peer_start();
  fixture->queue = grpc_completion_queue_create_for_next(NULL);
  struct rpc_client_options options = {.address = peer_address(fixture->peer)};
  struct error *err = NULL;
  fixture->client = rpc_client_new(&options, fixture->queue, &err);
  assert_non_null(fixture->client);
  *state = fixture;
  return 0;
}

static int teardown(void **state) {
  struct fixture *fixture = *state;
  rpc_client_free(fixture->client);
  if (fixture->peer) {
    peer_stop(fixture->peer);
    peer_free(fixture->peer);
  }
  grpc_completion_queue_shutdown(fixture->queue);
  rpc_queue_run(fixture->queue);
  grpc_completion_queue_destroy(fixture->queue);
  free(fixture);
  return 0;
}

static void unary(struct fixture *fixture, const char *method, const char *authorization, int64_t deadline_ms,
                  struct record *record) {
  struct error *err = NULL;
  record->call = rpc_client_unary(fixture->client, method, authorization, authorization ? strlen(authorization) : 0,
                                  deadline_ms, text_buffer("hello"), &EVENTS, record, &err);
  assert_non_null(record->call);
  assert_null(err);
}

static void stream(struct fixture *fixture, const char *method, bool request, bool half_close, struct record *record) {
  struct error *err = NULL;
  record->call = rpc_client_start(fixture->client, method, NULL, 0, 0, request ? text_buffer("hello") : NULL,
                                  half_close, &EVENTS, record, &err);
  assert_non_null(record->call);
  assert_null(err);
}

static void unary_call_answers(void **state) {
  struct record record = {.reason = REASON_INTERNAL};
  unary(*state, "/test/Echo", NULL, 10000, &record);
  run_to_end(*state, &record);
  assert_string_equal(record.told, "me");
  assert_string_equal(record.first, "hello");
  assert_int_equal(record.reason, REASON_NONE);
  rpc_client_call_release(record.call);
}

static void unary_call_may_be_released_at_once(void **state) {
  struct record record = {.reason = REASON_INTERNAL};
  unary(*state, "/test/Echo", NULL, 10000, &record);
  rpc_client_call_release(record.call);
  run_to_end(*state, &record);
  assert_string_equal(record.told, "me");
}

static void authorization_is_sent_whole(void **state) {
  struct record record = {.count = 0};
  unary(*state, "/test/Token", "Bearer v1.abc.def", 10000, &record);
  run_to_end(*state, &record);
  assert_string_equal(record.first, "Bearer v1.abc.def");
  rpc_client_call_release(record.call);
}

static void authorization_that_no_header_can_carry_is_unauthorized(void **state) {
  struct fixture *fixture = *state;
  struct record record = {.count = 0};
  struct error *err = NULL;
  assert_null(
      rpc_client_unary(fixture->client, "/test/Token", "Bearer \n", 8, 0, text_buffer("x"), &EVENTS, &record, &err));
  assert_int_equal(error_reason(err), REASON_UNAUTHORIZED);
  error_free(&err);
  assert_null(rpc_client_start(fixture->client, "/test/Token", "\xc3\xa4", 2, 0, NULL, false, &EVENTS, &record, &err));
  assert_int_equal(error_reason(err), REASON_UNAUTHORIZED);
  error_free(&err);
  assert_int_equal(record.count, 0);
}

static void failure_keeps_its_reason(void **state) {
  struct record record = {.count = 0};
  unary(*state, "/test/Fail", NULL, 10000, &record);
  run_to_end(*state, &record);
  assert_string_equal(record.told, "e");
  assert_int_equal(record.reason, REASON_LEASE_NOT_FOUND);
  rpc_client_call_release(record.call);

  struct record streamed = {.receive_all = true};
  stream(*state, "/test/Fail", true, true, &streamed);
  rpc_client_receive(streamed.call);
  run_to_end(*state, &streamed);
  assert_string_equal(streamed.told, "ne");
  assert_int_equal(streamed.reason, REASON_LEASE_NOT_FOUND);
  rpc_client_call_release(streamed.call);
}

static void deadline_ends_a_call(void **state) {
  struct record record = {.count = 0};
  unary(*state, "/test/Never", NULL, 100, &record);
  run_to_end(*state, &record);
  assert_string_equal(record.told, "e");
  assert_int_equal(record.reason, REASON_ABORTED);
  rpc_client_call_release(record.call);
}

static void cancel_ends_a_call_on_both_sides(void **state) {
  struct fixture *fixture = *state;
  struct record record = {.count = 0};
  stream(fixture, "/test/Never", true, false, &record);
  rpc_client_receive(record.call);
  rpc_client_cancel(record.call);
  rpc_client_cancel(record.call);
  run_to_end(fixture, &record);
  assert_int_equal(record.reason, REASON_ABORTED);
  rpc_client_cancel(record.call);
  rpc_client_receive(record.call);
  rpc_client_send(record.call, text_buffer("too late"));
  rpc_client_half_close(record.call);
  rpc_client_call_release(record.call);

  struct record after = {.count = 0};
  unary(fixture, "/test/Never", NULL, 200, &after);
  run_to_end(fixture, &after);
  rpc_client_call_release(after.call);
  peer_stop(fixture->peer);
  /* The first may have been cancelled before it reached the server. */
  assert_in_range(peer_cancelled(fixture->peer), 1, 2);
  peer_free(fixture->peer);
  fixture->peer = NULL;
}

static void server_stream_is_read_whole(void **state) {
  struct record record = {.receive_all = true};
  stream(*state, "/test/Many", true, true, &record);
  rpc_client_receive(record.call);
  run_to_end(*state, &record);
  assert_int_equal(record.bytes, 1000000);
  assert_int_equal(record.count, 102);
  assert_string_equal(record.told + 100, "ne");
  assert_int_equal(record.reason, REASON_NONE);
  rpc_client_call_release(record.call);
}

static void client_stream_is_sent_whole(void **state) {
  struct fixture *fixture = *state;
  struct record record = {.receive_all = true};
  stream(fixture, "/test/Count", true, false, &record);
  rpc_client_receive(record.call);
  for (int i = 0; i < 20; i++) {
    rpc_client_send(record.call, text_buffer("one"));
    while (record.count == (size_t)i) {
      grpc_event event = grpc_completion_queue_next(fixture->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
      struct rpc_tag *tag = event.tag;
      tag->run(tag, event.success != 0);
    }
  }
  rpc_client_half_close(record.call);
  run_to_end(fixture, &record);
  assert_string_equal(record.told, "ssssssssssssssssssssmne");
  assert_int_equal(record.first[0], 21);
  rpc_client_call_release(record.call);
}

/* The first message and the half-close are both held until the call has begun. */
static void what_is_sent_at_once_is_held_back(void **state) {
  struct fixture *fixture = *state;
  struct record record = {.receive_all = true};
  stream(fixture, "/test/Count", true, false, &record);
  rpc_client_send(record.call, text_buffer("two"));
  rpc_client_receive(record.call);
  while (record.count == 0) {
    grpc_event event = grpc_completion_queue_next(fixture->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    struct rpc_tag *tag = event.tag;
    tag->run(tag, event.success != 0);
  }
  rpc_client_half_close(record.call);
  run_to_end(fixture, &record);
  assert_string_equal(record.told, "smne");
  assert_int_equal(record.first[0], 2);
  rpc_client_call_release(record.call);

  struct record closed = {.receive_all = true};
  stream(fixture, "/test/Count", true, false, &closed);
  rpc_client_half_close(closed.call);
  rpc_client_receive(closed.call);
  run_to_end(fixture, &closed);
  assert_string_equal(closed.told, "mne");
  assert_int_equal(closed.first[0], 1);
  rpc_client_call_release(closed.call);
}

static void bidirectional_stream_goes_both_ways(void **state) {
  struct record record = {.receive_all = true, .echoes = 50, .awaited = 1};
  stream(*state, "/test/Echo", true, false, &record);
  rpc_client_receive(record.call);
  run_to_end(*state, &record);
  size_t messages = 0;
  for (size_t i = 0; i < record.count; i++)
    messages += record.told[i] == 'm';
  assert_int_equal(messages, 50);
  assert_int_equal(record.told[record.count - 1], 'e');
  assert_int_equal(record.reason, REASON_NONE);
  rpc_client_call_release(record.call);
}

static void no_server_is_unavailable(void **state) {
  struct fixture *fixture = *state;
  struct rpc_client_options options = {.address = "unix:/nonexistent/socket"};
  struct error *err = NULL;
  struct rpc_client *client = rpc_client_new(&options, fixture->queue, &err);
  assert_non_null(client);
  struct record record = {.count = 0};
  record.call = rpc_client_unary(client, "/test/Echo", NULL, 0, 10000, text_buffer("x"), &EVENTS, &record, &err);
  assert_non_null(record.call);
  run_to_end(fixture, &record);
  assert_int_equal(record.reason, REASON_SERVER_UNAVAILABLE);
  rpc_client_call_release(record.call);

  struct record streamed = {.receive_all = true};
  streamed.call =
      rpc_client_start(client, "/test/Echo", NULL, 0, 10000, text_buffer("x"), false, &EVENTS, &streamed, &err);
  assert_non_null(streamed.call);
  rpc_client_send(streamed.call, text_buffer("y"));
  rpc_client_receive(streamed.call);
  run_to_end(fixture, &streamed);
  assert_int_equal(streamed.reason, REASON_SERVER_UNAVAILABLE);
  assert_non_null(strchr(streamed.told, 'f'));
  assert_non_null(strchr(streamed.told, 'n'));
  rpc_client_call_release(streamed.call);
  rpc_client_free(client);
}

static void half_a_certificate_is_refused(void **state) {
  struct fixture *fixture = *state;
  const struct rpc_client_options cases[] = {
      {.address = "unix:/x", .ca = "ca", .certificate = "c"},
      {.address = "unix:/x", .ca = "ca", .key = "k"},
      {.address = "unix:/x", .certificate = "c", .key = "k"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct error *err = NULL;
    assert_null(rpc_client_new(&cases[i], fixture->queue, &err));
    assert_non_null(err);
    error_free(&err);
  }
}

static void *queue_thread(void *queue) {
  rpc_queue_run(queue);
  return NULL;
}

struct finish {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int left;
};

static void finish_message(void *context, grpc_byte_buffer *message) {
  (void)context;
  (void)message;
}

static void finish_ended(void *context, struct error *err) {
  (void)err;
  struct finish *finish = context;
  pthread_mutex_lock(&finish->mutex);
  finish->left--;
  pthread_cond_signal(&finish->changed);
  pthread_mutex_unlock(&finish->mutex);
}

/* Calls started, written, cancelled and released on one thread while another runs the queue. */
static void calls_may_be_used_from_another_thread(void **state) {
  struct fixture *fixture = *state;
  grpc_completion_queue *queue = grpc_completion_queue_create_for_next(NULL);
  struct rpc_client_options options = {.address = peer_address(fixture->peer)};
  struct rpc_client *client = rpc_client_new(&options, queue, NULL);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, queue_thread, queue), 0);
  static const struct rpc_client_events quiet = {finish_message, NULL, finish_ended};
  struct finish finish = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 200};
  for (int i = 0; i < 100; i++) {
    struct rpc_client_call *call =
        rpc_client_unary(client, "/test/Echo", NULL, 0, 30000, text_buffer("x"), &quiet, &finish, NULL);
    struct rpc_client_call *streamed =
        rpc_client_start(client, "/test/Echo", NULL, 0, 30000, text_buffer("x"), false, &quiet, &finish, NULL);
    assert_non_null(call);
    assert_non_null(streamed);
    rpc_client_call_release(call);
    rpc_client_receive(streamed);
    if (i % 2)
      rpc_client_half_close(streamed);
    else
      rpc_client_cancel(streamed);
    rpc_client_call_release(streamed);
  }
  pthread_mutex_lock(&finish.mutex);
  while (finish.left > 0)
    pthread_cond_wait(&finish.changed, &finish.mutex);
  pthread_mutex_unlock(&finish.mutex);
  rpc_client_free(client);
  grpc_completion_queue_shutdown(queue);
  pthread_join(thread, NULL);
  grpc_completion_queue_destroy(queue);
}

int main(void) {
  grpc_init();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(unary_call_answers, setup, teardown),
      cmocka_unit_test_setup_teardown(unary_call_may_be_released_at_once, setup, teardown),
      cmocka_unit_test_setup_teardown(authorization_is_sent_whole, setup, teardown),
      cmocka_unit_test_setup_teardown(authorization_that_no_header_can_carry_is_unauthorized, setup, teardown),
      cmocka_unit_test_setup_teardown(failure_keeps_its_reason, setup, teardown),
      cmocka_unit_test_setup_teardown(deadline_ends_a_call, setup, teardown),
      cmocka_unit_test_setup_teardown(cancel_ends_a_call_on_both_sides, setup, teardown),
      cmocka_unit_test_setup_teardown(server_stream_is_read_whole, setup, teardown),
      cmocka_unit_test_setup_teardown(client_stream_is_sent_whole, setup, teardown),
      cmocka_unit_test_setup_teardown(what_is_sent_at_once_is_held_back, setup, teardown),
      cmocka_unit_test_setup_teardown(bidirectional_stream_goes_both_ways, setup, teardown),
      cmocka_unit_test_setup_teardown(no_server_is_unavailable, setup, teardown),
      cmocka_unit_test_setup_teardown(half_a_certificate_is_refused, setup, teardown),
      cmocka_unit_test_setup_teardown(calls_may_be_used_from_another_thread, setup, teardown),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  grpc_shutdown();
  return failed;
}
