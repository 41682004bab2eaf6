/*
 * The plumbing from a client's side: what every kind of call gets, what is refused before a handler sees it, what a
 * handler is told, and how it all ends.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "rpc/client.h"
#include "sandbox/lease/v1/lease.pb-c.h"
#include "tests/unit/server/harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <stdlib.h>
#include <string.h>

struct fixture {
  struct harness *harness;
  grpc_completion_queue *queue;
  struct rpc_client *client;
  char *bearer;
};

/* What one call told. */
struct result {
  struct rpc_client_call *call;
  size_t messages, bytes;
  char id[256], pool[256]; /* of the last answer that is a GetLeaseResponse */
  char last[256];          /* of the last message, as text */
  enum reason reason;
  char message[256], field[64], detail[256];
  bool read_on; /* asks for the next message by itself */
  int sent;
  bool ended;
};

static grpc_byte_buffer *get_request(const char *id) {
  Sandbox__Lease__V1__GetLeaseRequest request = SANDBOX__LEASE__V1__GET_LEASE_REQUEST__INIT;
  request.lease_id = (char *)id;
  return rpc_pack(&request.base);
}

static grpc_byte_buffer *list_request(long limit, const char *pool) {
  Sandbox__Lease__V1__ListLeasesRequest request = SANDBOX__LEASE__V1__LIST_LEASES_REQUEST__INIT;
  request.limit = limit;
  request._limit_case = SANDBOX__LEASE__V1__LIST_LEASES_REQUEST___LIMIT_LIMIT;
  request.pool = (char *)pool;
  request._pool_case = SANDBOX__LEASE__V1__LIST_LEASES_REQUEST___POOL_POOL;
  return rpc_pack(&request.base);
}

static grpc_byte_buffer *text_buffer(const char *bytes, size_t length) {
  grpc_slice slice = grpc_slice_from_copied_buffer(bytes, length);
  grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
  grpc_slice_unref(slice);
  return buffer;
}

static void copy(char *out, size_t size, const char *text) {
  size_t length = strnlen(text, size - 1);
  memcpy(out, text, length);
  out[length] = '\0';
}

static void on_message(void *context, grpc_byte_buffer *message) {
  struct result *result = context;
  if (!message)
    return;
  result->messages++;
  result->bytes += grpc_byte_buffer_length(message);
  ProtobufCMessage *unpacked = rpc_unpack(&sandbox__lease__v1__get_lease_response__descriptor, message, NULL);
  if (unpacked) {
    const Sandbox__Lease__V1__Lease *lease = ((Sandbox__Lease__V1__GetLeaseResponse *)unpacked)->lease;
    copy(result->id, sizeof result->id, lease ? lease->id : "");
    copy(result->pool, sizeof result->pool, lease ? lease->pool : "");
    protobuf_c_message_free_unpacked(unpacked, NULL);
  }
  grpc_slice slice = message->data.raw.slice_buffer.slices[0];
  size_t length = GRPC_SLICE_LENGTH(slice) < sizeof result->last ? GRPC_SLICE_LENGTH(slice) : sizeof result->last - 1;
  memcpy(result->last, GRPC_SLICE_START_PTR(slice), length);
  result->last[length] = '\0';
  if (result->read_on)
    rpc_client_receive(result->call);
}

static void on_sent(void *context, bool ok) { ((struct result *)context)->sent += ok; }

static void on_ended(void *context, struct error *err) {
  struct result *result = context;
  result->ended = true;
  result->reason = err ? error_reason(err) : REASON_NONE;
  copy(result->message, sizeof result->message, err ? error_message(err) : "");
  copy(result->field, sizeof result->field, err && error_field(err) ? error_field(err) : "");
  copy(result->detail, sizeof result->detail, err ? error_detail(err) : "");
}

static const struct rpc_client_events EVENTS = {on_message, on_sent, on_ended};

static void run_once(struct fixture *fixture) {
  grpc_event event = grpc_completion_queue_next(
      fixture->queue, gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(20, GPR_TIMESPAN)), NULL);
  assert_int_equal(event.type, GRPC_OP_COMPLETE);
  struct rpc_tag *tag = event.tag;
  tag->run(tag, event.success != 0);
}

static void finish(struct fixture *fixture, struct result *result) {
  while (!result->ended)
    run_once(fixture);
  rpc_client_call_release(result->call);
}

/* Waits until another thread has counted so far; the counters have no event of their own. */
static void await(atomic_int *counter, int count) {
  for (int i = 0; i < 10000 && atomic_load(counter) < count; i++)
    gpr_sleep_until(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(1, GPR_TIMESPAN)));
  assert_true(atomic_load(counter) >= count);
}

static void start(struct fixture *fixture, struct result *result, const char *method, const char *bearer,
                  int64_t deadline_ms, grpc_byte_buffer *request) {
  result->call = rpc_client_unary(fixture->client, method, bearer, bearer ? strlen(bearer) : 0, deadline_ms, request,
                                  &EVENTS, result, NULL);
  assert_non_null(result->call);
}

static struct result unary(struct fixture *fixture, const char *method, const char *bearer, grpc_byte_buffer *request) {
  struct result result = {.ended = false};
  start(fixture, &result, method, bearer, 15000, request);
  finish(fixture, &result);
  return result;
}

static void stream(struct fixture *fixture, struct result *result, const char *method, grpc_byte_buffer *request,
                   bool half_close) {
  result->call = rpc_client_start(fixture->client, method, fixture->bearer, strlen(fixture->bearer), 15000, request,
                                  half_close, &EVENTS, result, NULL);
  assert_non_null(result->call);
}

static void client_open(struct fixture *fixture) {
  struct rpc_client_options options = {.address = harness_address(fixture->harness)};
  fixture->client = rpc_client_new(&options, fixture->queue, NULL);
  assert_non_null(fixture->client);
}

static int setup(void **state) {
  struct fixture *fixture = calloc(1, sizeof *fixture);
  fixture->harness = harness_start(2);
  fixture->queue = grpc_completion_queue_create_for_next(NULL);
  fixture->bearer = harness_bearer("user");
  client_open(fixture);
  *state = fixture;
  return 0;
}

static int teardown(void **state) {
  struct fixture *fixture = *state;
  rpc_client_free(fixture->client);
  if (fixture->harness)
    harness_free(fixture->harness);
  grpc_completion_queue_shutdown(fixture->queue);
  rpc_queue_run(fixture->queue);
  grpc_completion_queue_destroy(fixture->queue);
  memory_free(fixture->bearer);
  free(fixture);
  return 0;
}

/* Unary */

static void unary_answers(void **state) {
  struct fixture *fixture = *state;
  struct result result = unary(fixture, "/test.Plumbing/Unary", fixture->bearer, get_request("hello"));
  assert_int_equal(result.reason, REASON_NONE);
  assert_string_equal(result.id, "hello");
  assert_string_equal(result.pool, "app/user");
}

static void unary_answers_later(void **state) {
  struct fixture *fixture = *state;
  struct result result = unary(fixture, "/test.Plumbing/Unary", fixture->bearer, get_request("later"));
  assert_int_equal(result.reason, REASON_NONE);
  assert_string_equal(result.id, "later");
}

static void open_method_needs_no_token(void **state) {
  struct result result = unary(*state, "/test.Plumbing/Open", NULL, get_request("hello"));
  assert_int_equal(result.reason, REASON_NONE);
  assert_string_equal(result.pool, "/");
}

static void many_calls_at_once_are_all_answered(void **state) {
  struct fixture *fixture = *state;
  enum { COUNT = 2000 };
  struct result *results = calloc(COUNT, sizeof *results);
  for (int i = 0; i < COUNT; i++)
    start(fixture, &results[i], "/test.Plumbing/Unary", fixture->bearer, 15000, get_request(i % 3 ? "now" : "later"));
  for (int i = 0; i < COUNT; i++) {
    finish(fixture, &results[i]);
    assert_int_equal(results[i].reason, REASON_NONE);
    assert_string_equal(results[i].id, i % 3 ? "now" : "later");
  }
  free(results);
}

/* Refused */

static void failure_of_a_handler_arrives_whole(void **state) {
  struct fixture *fixture = *state;
  struct result result = unary(fixture, "/test.Plumbing/Unary", fixture->bearer, get_request("fail"));
  assert_int_equal(result.reason, REASON_LEASE_NOT_FOUND);
  assert_string_equal(result.message, "Lease not found");
  assert_int_equal(result.messages, 0);
}

static void check_is_asked_before_the_handler(void **state) {
  struct fixture *fixture = *state;
  struct result result = unary(fixture, "/test.Plumbing/Unary", fixture->bearer, get_request(""));
  assert_int_equal(result.reason, REASON_INVALID_REQUEST);
  assert_string_equal(result.field, "lease_id");
  assert_string_equal(result.message, "'lease_id' must be a non-empty string");
  assert_int_equal(harness_service(fixture->harness)->handled, 0);
}

static void bad_tokens_are_refused_first(void **state) {
  struct fixture *fixture = *state;
  char *expired = token_mint("app", "user", "secret", clock_wall() / CLOCK_SECOND - 10, NULL);
  char *stranger = token_mint("stranger", "user", "secret", clock_wall() / CLOCK_SECOND + 60, NULL);
  char *forged = token_mint("app", "user", "other", clock_wall() / CLOCK_SECOND + 60, NULL);
  char bearers[3][1024];
  snprintf(bearers[0], sizeof bearers[0], "Bearer %s", expired);
  snprintf(bearers[1], sizeof bearers[1], "Bearer %s", stranger);
  snprintf(bearers[2], sizeof bearers[2], "Bearer %s", forged);
  const char *cases[] = {NULL, "", "Bearer", "Bearer ", fixture->bearer + 7, bearers[0], bearers[1], bearers[2]};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    /* The message is undecodable too: the token counts first. */
    struct result result = unary(fixture, "/test.Plumbing/Unary", cases[i], text_buffer("\xff\xff", 2));
    assert_int_equal(result.reason, REASON_UNAUTHORIZED);
    assert_string_equal(result.message, "Invalid or expired subject token");
  }
  assert_int_equal(harness_service(fixture->harness)->handled, 0);
  memory_free(expired);
  memory_free(stranger);
  memory_free(forged);
}

static void unknown_method_is_told(void **state) {
  struct fixture *fixture = *state;
  static const char *const methods[] = {"/test.Plumbing/Nothing", "/test.Plumbing/Unar", "/test.Plumbing/Unaryy", "/",
                                        ""};
  for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
    struct result result = unary(fixture, methods[i], fixture->bearer, get_request("x"));
    if (methods[i][0] == '/')
      assert_int_equal(result.reason, REASON_NOT_FOUND);
    else
      assert_int_not_equal(result.reason, REASON_NONE);
  }
}

static void undecodable_request_is_refused(void **state) {
  struct fixture *fixture = *state;
  static const struct {
    const char *bytes;
    size_t length;
  } cases[] = {{"\xff\xff\xff", 3}, {"\x0a\x05x", 3}, {"\x0a\x02\xc3\x28", 4}, {"\x0a\x02\x00\x61", 4}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct result result =
        unary(fixture, "/test.Plumbing/Unary", fixture->bearer, text_buffer(cases[i].bytes, cases[i].length));
    assert_int_equal(result.reason, REASON_INVALID_REQUEST);
  }
  assert_int_equal(harness_service(fixture->harness)->handled, 0);
}

static void call_without_a_message_is_refused(void **state) {
  struct fixture *fixture = *state;
  struct result result = {.read_on = true};
  stream(fixture, &result, "/test.Plumbing/Unary", NULL, true);
  rpc_client_receive(result.call);
  finish(fixture, &result);
  assert_int_equal(result.reason, REASON_INVALID_REQUEST);
}

static void oversized_message_is_refused(void **state) {
  struct fixture *fixture = *state;
  size_t length = 12 << 20;
  char *bytes = calloc(1, length);
  struct result result = unary(fixture, "/test.Plumbing/Unary", fixture->bearer, text_buffer(bytes, length));
  free(bytes);
  assert_int_not_equal(result.reason, REASON_NONE);
  assert_int_equal(harness_service(fixture->harness)->handled, 0);
  result = unary(fixture, "/test.Plumbing/Unary", fixture->bearer, get_request("hello"));
  assert_string_equal(result.id, "hello");
}

/* Cancelled */

static void cancel_reaches_the_handler(void **state) {
  struct fixture *fixture = *state;
  struct plumbing_service *service = harness_service(fixture->harness);
  struct result result = {.ended = false};
  start(fixture, &result, "/test.Plumbing/Unary", fixture->bearer, 0, get_request("wait"));
  await(&service->waiting, 1);
  assert_int_equal(service->deadline, -1);
  rpc_client_cancel(result.call);
  finish(fixture, &result);
  assert_int_equal(result.reason, REASON_ABORTED);
  await(&service->cancelled, 1);
}

static void deadline_reaches_the_handler(void **state) {
  struct fixture *fixture = *state;
  struct plumbing_service *service = harness_service(fixture->harness);
  struct result result = {.ended = false};
  start(fixture, &result, "/test.Plumbing/Unary", fixture->bearer, 400, get_request("wait"));
  await(&service->waiting, 1);
  assert_in_range(service->deadline, 50, 400);
  finish(fixture, &result);
  assert_int_equal(result.reason, REASON_ABORTED);
  await(&service->cancelled, 1);
}

static void client_that_vanishes_cancels(void **state) {
  struct fixture *fixture = *state;
  struct plumbing_service *service = harness_service(fixture->harness);
  struct result result = {.ended = false};
  start(fixture, &result, "/test.Plumbing/Unary", fixture->bearer, 0, get_request("wait"));
  await(&service->waiting, 1);
  rpc_client_free(fixture->client); /* drops the connection with the call on it */
  rpc_client_cancel(result.call);
  finish(fixture, &result);
  await(&service->cancelled, 1);
  client_open(fixture);
}

static void watching_after_the_cancel_tells_it(void **state) {
  struct fixture *fixture = *state;
  struct plumbing_service *service = harness_service(fixture->harness);
  struct result result = {.ended = false};
  start(fixture, &result, "/test.Plumbing/Unary", fixture->bearer, 0, get_request("late"));
  await(&service->waiting, 1);
  rpc_client_cancel(result.call);
  finish(fixture, &result);
  await(&service->cancelled, 1);
}

static void handler_is_told_that_its_answer_arrived(void **state) {
  struct fixture *fixture = *state;
  struct plumbing_service *service = harness_service(fixture->harness);
  struct result result = unary(fixture, "/test.Plumbing/Unary", fixture->bearer, get_request("closed"));
  assert_int_equal(result.reason, REASON_NONE);
  await(&service->delivered, 1);
  assert_int_equal(service->undelivered, 0);
  assert_int_equal(service->cancelled, 0);
}

/* The client goes while the loop is busy: the handler answers without knowing, and is told. */
static void handler_is_told_that_its_answer_was_in_vain(void **state) {
  struct fixture *fixture = *state;
  struct plumbing_service *service = harness_service(fixture->harness);
  struct result result = {.ended = false};
  start(fixture, &result, "/test.Plumbing/Unary", fixture->bearer, 0, get_request("blind"));
  await(&service->waiting, 1);
  rpc_client_cancel(result.call);
  finish(fixture, &result);
  gpr_sleep_until(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(500, GPR_TIMESPAN)));
  service->released = true;
  await(&service->undelivered, 1);
  assert_int_equal(service->delivered, 0);
  assert_int_equal(service->cancelled, 0);
}

static void calls_cancelled_at_any_moment_leave_nothing(void **state) {
  struct fixture *fixture = *state;
  struct plumbing_service *service = harness_service(fixture->harness);
  enum { COUNT = 300 };
  struct result *results = calloc(COUNT, sizeof *results);
  static const char *const ids[] = {"now", "later", "wait"};
  for (int i = 0; i < COUNT; i++) {
    start(fixture, &results[i], "/test.Plumbing/Unary", fixture->bearer, 0, get_request(ids[i % 3]));
    if (i % 7 == 0 && i > 10)
      rpc_client_cancel(results[i - 10].call);
  }
  for (int i = 0; i < COUNT; i++) {
    rpc_client_cancel(results[i].call);
    finish(fixture, &results[i]);
  }
  free(results);
  for (int i = 0; i < 5000 && atomic_load(&service->waiting) > 0; i++)
    gpr_sleep_until(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(1, GPR_TIMESPAN)));
  assert_int_equal(service->waiting, 0);
}

/* Streams */

static void server_stream_arrives_whole(void **state) {
  struct fixture *fixture = *state;
  struct result result = {.read_on = true};
  stream(fixture, &result, "/test.Plumbing/ServerStream", list_request(50, ""), true);
  rpc_client_receive(result.call);
  finish(fixture, &result);
  assert_int_equal(result.reason, REASON_NONE);
  assert_int_equal(result.messages, 50);
  assert_int_equal(result.bytes, 50 * 100004);
}

static void server_stream_without_messages_ends(void **state) {
  struct fixture *fixture = *state;
  struct result result = {.read_on = true};
  stream(fixture, &result, "/test.Plumbing/ServerStream", list_request(0, ""), true);
  rpc_client_receive(result.call);
  finish(fixture, &result);
  assert_int_equal(result.reason, REASON_NONE);
  assert_int_equal(result.messages, 0);
}

/* gRPC core hands no message to a client any more once it has asked for the status and a failing one has come, though
 * the message came before (chttp2's maybe_complete_recv_message drops what is stored then). So how many this client
 * sees depends on how fast it reads; that the server sends all of them is front_test's case, frame by frame. */
static void server_stream_fails_after_its_messages(void **state) {
  struct fixture *fixture = *state;
  static const char *const pools[] = {"fail", "eager"};
  for (size_t i = 0; i < 2; i++) {
    struct result result = {.read_on = true};
    stream(fixture, &result, "/test.Plumbing/ServerStream", list_request(20, pools[i]), true);
    rpc_client_receive(result.call);
    finish(fixture, &result);
    assert_int_equal(result.reason, REASON_OUTPUT_TOO_LARGE);
    assert_true(result.messages <= 20);
    assert_int_equal(result.bytes, result.messages * 100004);
  }
}

static void client_that_does_not_read_holds_the_server_back(void **state) {
  struct fixture *fixture = *state;
  struct plumbing_service *service = harness_service(fixture->harness);
  struct result result = {.read_on = false};
  stream(fixture, &result, "/test.Plumbing/ServerStream", list_request(100000, ""), true);
  await(&service->handled, 1);
  rpc_client_receive(result.call);
  while (result.messages < 1)
    run_once(fixture);
  rpc_client_cancel(result.call);
  finish(fixture, &result);
  assert_int_equal(result.messages, 1);
  await(&service->cancelled, 1);
}

static void client_stream_is_counted(void **state) {
  struct fixture *fixture = *state;
  struct result result = {.read_on = true};
  stream(fixture, &result, "/test.Plumbing/ClientStream", get_request("x"), false);
  rpc_client_receive(result.call);
  for (int i = 0; i < 30; i++) {
    rpc_client_send(result.call, text_buffer("anything", 8));
    while (result.sent <= i)
      run_once(fixture);
  }
  rpc_client_half_close(result.call);
  finish(fixture, &result);
  assert_int_equal(result.reason, REASON_NONE);
  assert_string_equal(result.id, "31");
}

static void broken_client_stream_is_no_half_close(void **state) {
  struct fixture *fixture = *state;
  struct plumbing_service *service = harness_service(fixture->harness);
  for (int i = 0; i < 20; i++) {
    struct result result = {.ended = false};
    stream(fixture, &result, "/test.Plumbing/ClientStream", get_request("x"), false);
    await(&service->handled, i + 1);
    rpc_client_cancel(result.call);
    finish(fixture, &result);
    await(&service->cancelled, i + 1);
  }
  assert_int_equal(service->half_closed, 0);
}

static void bidirectional_stream_echoes(void **state) {
  struct fixture *fixture = *state;
  struct result result = {.read_on = true};
  stream(fixture, &result, "/test.Plumbing/Bidirectional", get_request("x"), false);
  rpc_client_receive(result.call);
  for (int i = 0; i < 30; i++) {
    rpc_client_send(result.call, text_buffer("anything", 8));
    while (result.sent <= i || result.messages < (size_t)i + 2)
      run_once(fixture);
    assert_string_equal(result.last, "anything");
  }
  rpc_client_half_close(result.call);
  finish(fixture, &result);
  assert_int_equal(result.reason, REASON_NONE);
  assert_int_equal(result.messages, 31);
}

static void first_message_of_a_stream_is_checked(void **state) {
  struct fixture *fixture = *state;
  struct result result = {.read_on = true};
  stream(fixture, &result, "/test.Plumbing/Bidirectional", get_request(""), false);
  rpc_client_receive(result.call);
  finish(fixture, &result);
  assert_int_equal(result.reason, REASON_INVALID_REQUEST);
  assert_string_equal(result.field, "lease_id");
}

/* Stopping */

static void stop_lets_calls_end(void **state) {
  struct fixture *fixture = *state;
  struct result result = {.ended = false};
  start(fixture, &result, "/test.Plumbing/Unary", fixture->bearer, 0, get_request("later"));
  await(&harness_service(fixture->harness)->handled, 1);
  harness_stop(fixture->harness, 5000);
  finish(fixture, &result);
  assert_int_equal(result.reason, REASON_NONE);
  result = unary(fixture, "/test.Plumbing/Unary", fixture->bearer, get_request("hello"));
  assert_int_equal(result.reason, REASON_SERVER_UNAVAILABLE);
}

static void stop_aborts_what_does_not_end(void **state) {
  struct fixture *fixture = *state;
  struct plumbing_service *service = harness_service(fixture->harness);
  struct result results[4] = {[1] = {.read_on = true}};
  start(fixture, &results[0], "/test.Plumbing/Unary", fixture->bearer, 0, get_request("wait"));
  stream(fixture, &results[1], "/test.Plumbing/Bidirectional", get_request("x"), false);
  rpc_client_receive(results[1].call);
  stream(fixture, &results[2], "/test.Plumbing/ServerStream", list_request(100000, ""), true);
  start(fixture, &results[3], "/test.Plumbing/Unary", fixture->bearer, 0, get_request("ignore"));
  await(&service->handled, 4);
  int64_t begun = clock_boot();
  harness_stop(fixture->harness, 200);
  finish(fixture, &results[0]);
  finish(fixture, &results[1]);
  assert_int_equal(results[0].reason, REASON_ABORTED);
  assert_int_equal(results[1].reason, REASON_ABORTED);
  finish(fixture, &results[3]);
  assert_string_equal(results[3].id, "later");
  assert_int_equal(service->cancelled, 4);
  /* The one that does not read cannot hold up the end. */
  harness_free(fixture->harness);
  fixture->harness = NULL;
  assert_true(clock_boot() - begun < 5 * CLOCK_SECOND);
  rpc_client_cancel(results[2].call);
  finish(fixture, &results[2]);
  assert_int_not_equal(results[2].reason, REASON_NONE);
}

static void server_that_was_never_called_stops(void **state) {
  struct fixture *fixture = *state;
  harness_stop(fixture->harness, 0);
}

int main(void) {
  grpc_init();
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(unary_answers),
      TEST(unary_answers_later),
      TEST(open_method_needs_no_token),
      TEST(many_calls_at_once_are_all_answered),
      TEST(failure_of_a_handler_arrives_whole),
      TEST(check_is_asked_before_the_handler),
      TEST(bad_tokens_are_refused_first),
      TEST(unknown_method_is_told),
      TEST(undecodable_request_is_refused),
      TEST(call_without_a_message_is_refused),
      TEST(oversized_message_is_refused),
      TEST(cancel_reaches_the_handler),
      TEST(deadline_reaches_the_handler),
      TEST(client_that_vanishes_cancels),
      TEST(watching_after_the_cancel_tells_it),
      TEST(handler_is_told_that_its_answer_arrived),
      TEST(handler_is_told_that_its_answer_was_in_vain),
      TEST(calls_cancelled_at_any_moment_leave_nothing),
      TEST(server_stream_arrives_whole),
      TEST(server_stream_without_messages_ends),
      TEST(server_stream_fails_after_its_messages),
      TEST(client_that_does_not_read_holds_the_server_back),
      TEST(client_stream_is_counted),
      TEST(broken_client_stream_is_no_half_close),
      TEST(bidirectional_stream_echoes),
      TEST(first_message_of_a_stream_is_checked),
      TEST(stop_lets_calls_end),
      TEST(stop_aborts_what_does_not_end),
      TEST(server_that_was_never_called_stops),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  grpc_shutdown();
  return failed;
}
