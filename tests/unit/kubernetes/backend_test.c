#include "backend/backend.h"
#include "base/clock.h"
#include "base/log.h"
#include "tests/unit/kubernetes/api_double.h"
#include "tests/unit/kubernetes/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char SCOPE[] = "1111111111111111111111111111111111111111";
static const char CONSUMER[] = "2222222222222222222222222222222222222222";
static const char KEY[] = "3333333333333333333333333333333333333333";
static const char UID[] = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", OTHER_UID[] = "ffffffff-ffff-6071-8293-a4b5c6d7e8f9";

/* A backend, and what it told. */
struct stage {
  uv_loop_t loop;
  struct config *config;
  struct backend *backend;
  bool started, stopped;
  unsigned bound, ended;
  enum backend_end end;
  struct backend_pending *pending;
  unsigned completed;
  bool replayed;
  enum reason reason; /* of the acquire, release or get that came to its end last */
  char id[LIMIT_LEASE_ID_BYTES + 1];
  char name[64]; /* of the Claim that was asked for last */
  char attempt[32];
};

static void on_bound(void *context, const struct backend_sandbox *sandbox) {
  struct stage *stage = context;
  stage->bound++;
  assert_string_equal(sandbox->scope, SCOPE);
}

static void on_ended(void *context, const char *id, enum backend_end end) {
  struct stage *stage = context;
  (void)id;
  stage->ended++;
  stage->end = end;
}

static void on_started(void *context, struct error *err) {
  ((struct stage *)context)->started = err == NULL;
}

static void on_stopped(void *context, struct error *err) {
  (void)err;
  ((struct stage *)context)->stopped = true;
}

static void on_acquired(void *context, const struct backend_sandbox *sandbox, bool replayed, struct error *err) {
  struct stage *stage = context;
  stage->completed++;
  stage->replayed = replayed;
  stage->reason = err ? error_reason(err) : REASON_NONE;
  assert_true((sandbox == NULL) == (err != NULL));
  if (sandbox)
    memcpy(stage->id, sandbox->id, sizeof stage->id);
}

static void on_done(void *context, struct error *err) {
  struct stage *stage = context;
  stage->completed++;
  stage->reason = err ? error_reason(err) : REASON_NONE;
}

static void spin(struct stage *stage) {
  for (int i = 0; i < 3; i++)
    uv_run(&stage->loop, UV_RUN_NOWAIT);
}

static void answer_list(const char *path, const char *items) {
  char page[4096];
  struct api_call *call = double_find("GET", path);
  assert_non_null(call);
  snprintf(page, sizeof page, "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[%s]}", items);
  double_answer(call, 200, "", page);
}

/* Claims found at the start. */
static void stage_begin(struct stage *stage, const char *claims) {
  *stage = (struct stage){0};
  log_set_level(LOG_ERROR);
  uv_loop_init(&stage->loop);
  stage->config = config_load(NULL, NULL);
  stage->backend = backend_kubernetes_new(&stage->loop, stage->config, NULL);
  assert_non_null(stage->backend);
  const struct backend_events events = {.bound = on_bound, .ended = on_ended, .context = stage};
  stage->backend->operations->start(stage->backend, &events, on_started, stage);
  spin(stage);
  answer_list("/nodes?", "");
  answer_list("/sandboxwarmpools?", "{\"metadata\":{\"name\":\"wp\",\"uid\":\"w\"}}");
  answer_list("/sandboxes?", "");
  answer_list("/pods?", "");
  assert_false(stage->started);
  answer_list("/sandboxclaims?", claims);
  assert_true(stage->started);
}

static void stage_end(struct stage *stage) {
  stage->backend->operations->stop(stage->backend, on_stopped, stage);
  for (struct api_call *call; (call = double_find("DELETE", "")) || (call = double_find("GET", "/sandboxclaims/")) ||
                              (call = double_find("POST", ""));)
    double_answer(call, 404, "NotFound", NULL);
  uv_run(&stage->loop, UV_RUN_DEFAULT);
  assert_true(stage->stopped);
  assert_int_equal(double_open(), 0);
  stage->backend->operations->free(stage->backend);
  uv_run(&stage->loop, UV_RUN_DEFAULT);
  assert_int_equal(uv_loop_close(&stage->loop), 0);
  config_free(stage->config);
}

static void acquire(struct stage *stage) {
  const struct backend_acquire order = {
      .pool = "coding", .scope = SCOPE, .consumer = CONSUMER, .idempotency = KEY, .ttl = 600 * CLOCK_SECOND};
  stage->pending = stage->backend->operations->acquire(stage->backend, &order, on_acquired, stage);
}

/* The open POST; notes the name and attempt it has. */
static struct api_call *posted(struct stage *stage) {
  struct api_call *call = double_find("POST", "/sandboxclaims");
  if (!call)
    return NULL;
  sscanf(strstr(double_body(call), "\"name\":\""), "\"name\":\"%63[^\"]", stage->name);
  sscanf(strstr(double_body(call), "attempt\":\""), "attempt\":\"%31[^\"]", stage->attempt);
  return call;
}

/* The JSON of a Claim. extra goes into its metadata. */
static const char *claim(const char *name, const char *uid, const char *attempt, const char *extra,
                         const char *status) {
  static char text[2048];
  char created[CLOCK_TEXT_SIZE], expires[CLOCK_TEXT_SIZE];
  clock_format(clock_wall(), created);
  clock_format(clock_wall() + 600 * CLOCK_SECOND, expires);
  snprintf(
      text, sizeof text,
      "{\"metadata\":{\"name\":\"%s\",\"uid\":\"%s\",\"resourceVersion\":\"5\",%s\"labels\":{"
      "\"sandbox.geminixiang.dev/managed\":\"true\",\"sandbox.geminixiang.dev/scope\":\"%s\","
      "\"sandbox.geminixiang.dev/consumer\":\"%s\",\"sandbox.geminixiang.dev/idempotency\":\"%s\"},\"annotations\":{"
      "\"sandbox.geminixiang.dev/pool-name\":\"coding\",\"sandbox.geminixiang.dev/created-at\":\"%s\","
      "\"sandbox.geminixiang.dev/expires-at\":\"%s\",\"sandbox.geminixiang.dev/attempt\":\"%s\","
      "\"agents.x-k8s.io/claim-first-ready-at\":\"%s\"}},\"spec\":{\"warmPoolRef\":{\"name\":\"wp\"}},\"status\":{%s}}",
      name, uid, extra, SCOPE, CONSUMER, KEY, created, expires, attempt, strstr(status, "Ready") ? "then" : "", status);
  return text;
}

/* The API server makes the Claim that was asked for. */
static void created(struct stage *stage) {
  struct api_call *call = posted(stage);
  assert_non_null(call);
  double_answer(call, 201, "", claim(stage->name, UID, stage->attempt, "", ""));
}

static void event(const char *watch, const char *type, const char *object) {
  char text[4096];
  struct api_call *call = double_find("WATCH", watch);
  assert_non_null(call);
  snprintf(text, sizeof text, "{\"type\":\"%s\",\"object\":%s}", type, object);
  double_line(call, text);
}

#define BOUND "\"sandbox\":{\"name\":\"sb\"},\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]"

static void sandbox_of(const char *name, const char *uid) {
  char text[1024];
  snprintf(text, sizeof text,
           "{\"metadata\":{\"name\":\"sb\",\"uid\":\"su\",\"ownerReferences\":[{\"kind\":\"SandboxClaim\","
           "\"controller\":true,"
           "\"name\":\"%s\",\"uid\":\"%s\"}]},\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}",
           name, uid);
  event("/sandboxes?", "ADDED", text);
}

#define POD(uid, runtime, phase)                                                                                       \
  "{\"metadata\":{\"name\":\"sb\",\"uid\":\"" uid "\",\"ownerReferences\":[{\"kind\":\"Sandbox\",\"controller\":true," \
  "\"name\":\"sb\",\"uid\":\"su\"}]},\"spec\":{\"nodeName\":\"n\",\"runtimeClassName\":\"" runtime                     \
  "\",\"containers\":["                                                                                                \
  "{\"name\":\"shell\"}]},\"status\":{\"phase\":\"" phase                                                              \
  "\",\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}"

/* From nothing to a Lease. */
static void acquire_whole(struct stage *stage) {
  acquire(stage);
  created(stage);
  event("/sandboxclaims?", "ADDED", claim(stage->name, UID, stage->attempt, "", ""));
  event("/sandboxclaims?", "MODIFIED", claim(stage->name, UID, stage->attempt, "", BOUND));
  sandbox_of(stage->name, UID);
  assert_int_equal(stage->completed, 0);
  event("/pods?", "ADDED", POD("pu", "runc", "Running"));
  assert_int_equal(stage->completed, 1);
  assert_int_equal(stage->reason, REASON_NONE);
}

static void test_acquire_and_release(void **state) {
  (void)state;
  struct stage stage;
  stage_begin(&stage, "");
  assert_true(stage.backend->operations->ready(stage.backend, NULL));
  acquire_whole(&stage);
  assert_false(stage.replayed);
  assert_int_equal(stage.bound, 1);
  assert_memory_equal(stage.id, stage.name, 26);
  assert_string_equal(stage.id + 26, "0a1b2c3d4e5f");
  unsigned bound, warm;
  stage.backend->operations->count(stage.backend, "coding", &bound, &warm);
  assert_int_equal(bound, 1);
  stage.backend->operations->release(stage.backend, stage.id, on_done, &stage);
  struct api_call *call = double_find("DELETE", stage.name);
  assert_non_null(strstr(double_body(call), UID));
  assert_non_null(strstr(double_body(call), "Foreground"));
  double_answer(call, 200, "", "{}");
  assert_int_equal(stage.completed, 2);
  assert_int_equal(stage.reason, REASON_NONE);
  /* The order stands before the cache has heard of it: the key is free, under another name. */
  char before[64];
  memcpy(before, stage.name, sizeof before);
  acquire(&stage);
  assert_non_null(posted(&stage));
  assert_string_not_equal(stage.name, before);
  event("/sandboxclaims?", "MODIFIED",
        claim(before, UID, "", "\"deletionTimestamp\":\"2026-01-01T00:00:00Z\",", BOUND));
  assert_int_equal(stage.ended, 1);
  assert_int_equal(stage.end, BACKEND_END_RELEASED);
  event("/sandboxclaims?", "DELETED", claim(before, UID, "", "", BOUND));
  assert_int_equal(stage.ended, 1);
  double_answer(posted(&stage), 500, "InternalError", "");
  assert_int_equal(stage.reason, REASON_SERVER_UNAVAILABLE);
  stage_end(&stage);
}

static void test_cancel_while_creating(void **state) {
  (void)state;
  struct stage stage;
  stage_begin(&stage, "");
  acquire(&stage);
  struct api_call *call = posted(&stage);
  stage.backend->operations->cancel(stage.backend, stage.pending);
  assert_int_equal(stage.completed, 1);
  assert_int_equal(stage.reason, REASON_ABORTED);
  double_answer(call, 201, "", claim(stage.name, UID, stage.attempt, "", ""));
  assert_non_null(strstr(double_body(double_find("DELETE", stage.name)), UID));
  double_answer(double_find("DELETE", stage.name), 200, "", "{}");
  stage_end(&stage);
}

static void test_cancel_while_waiting(void **state) {
  (void)state;
  struct stage stage;
  stage_begin(&stage, "");
  acquire(&stage);
  created(&stage);
  stage.backend->operations->cancel(stage.backend, stage.pending);
  assert_int_equal(stage.reason, REASON_ABORTED);
  assert_non_null(double_find("DELETE", stage.name));
  stage_end(&stage);
}

/* No answer: whether a Claim came about is not known. */
static void test_lost_answer(void **state) {
  (void)state;
  for (int mine = 0; mine < 2; mine++) {
    struct stage stage;
    stage_begin(&stage, "");
    acquire(&stage);
    double_answer(posted(&stage), 0, "", NULL);
    assert_int_equal(stage.completed, 1);
    assert_int_equal(stage.reason, REASON_SERVER_UNAVAILABLE);
    struct api_call *call = double_find("GET", stage.name);
    assert_non_null(call);
    double_answer(call, 200, "", claim(stage.name, UID, mine ? stage.attempt : "another", "", ""));
    assert_int_equal(double_find("DELETE", stage.name) != NULL, mine);
    stage_end(&stage);
  }
}

static void test_name_is_taken(void **state) {
  (void)state;
  struct stage stage;
  char first[64];
  stage_begin(&stage, "");
  /* By one that is on its way out: the next generation. */
  acquire(&stage);
  double_answer(posted(&stage), 409, "AlreadyExists", NULL);
  memcpy(first, stage.name, sizeof first);
  double_answer(double_find("GET", first), 200, "",
                claim(first, OTHER_UID, "x", "\"deletionTimestamp\":\"2026-01-01T00:00:00Z\",", ""));
  assert_non_null(posted(&stage));
  assert_string_not_equal(stage.name, first);
  /* By one that stands: that is the Lease, and its sandbox is waited for. */
  double_answer(posted(&stage), 409, "AlreadyExists", NULL);
  double_answer(double_find("GET", stage.name), 200, "", claim(stage.name, UID, "x", "", ""));
  assert_int_equal(stage.completed, 0);
  event("/sandboxclaims?", "ADDED", claim(stage.name, UID, "x", "", BOUND));
  sandbox_of(stage.name, UID);
  event("/pods?", "ADDED", POD("pu", "runc", "Running"));
  assert_int_equal(stage.completed, 1);
  assert_true(stage.replayed);
  stage_end(&stage);
}

/* The answer to our own first try got lost, and the second finds what it made. */
static void test_name_is_taken_by_ourselves(void **state) {
  (void)state;
  struct stage stage;
  stage_begin(&stage, "");
  acquire(&stage);
  double_answer(posted(&stage), 409, "AlreadyExists", NULL);
  double_answer(double_find("GET", stage.name), 200, "", claim(stage.name, UID, stage.attempt, "", ""));
  event("/sandboxclaims?", "ADDED", claim(stage.name, UID, stage.attempt, "", BOUND));
  sandbox_of(stage.name, UID);
  event("/pods?", "ADDED", POD("pu", "runc", "Running"));
  assert_int_equal(stage.completed, 1);
  assert_false(stage.replayed);
  stage_end(&stage);
}

/* Another process made one of the same key, under another generation, just before. */
static void test_the_later_gives_way(void **state) {
  (void)state;
  struct stage stage;
  stage_begin(&stage, "");
  acquire(&stage);
  created(&stage);
  event("/sandboxclaims?", "ADDED", claim("lease-99999999999999999999", OTHER_UID, "x", "", BOUND));
  assert_null(double_find("DELETE", stage.name));
  event("/sandboxclaims?", "ADDED", claim(stage.name, UID, stage.attempt, "", ""));
  assert_non_null(double_find("DELETE", stage.name));
  sandbox_of("lease-99999999999999999999", OTHER_UID);
  event("/pods?", "ADDED", POD("pu", "runc", "Running"));
  assert_int_equal(stage.completed, 1);
  assert_true(stage.replayed);
  assert_string_equal(stage.id, "lease-99999999999999999999ffffffffffff");
  stage_end(&stage);
}

/* One that came later does not concern us. */
static void test_the_earlier_stays(void **state) {
  (void)state;
  struct stage stage;
  stage_begin(&stage, "");
  acquire(&stage);
  created(&stage);
  event("/sandboxclaims?", "ADDED", claim(stage.name, UID, stage.attempt, "", BOUND));
  event("/sandboxclaims?", "ADDED", claim("lease-99999999999999999999", OTHER_UID, "x", "", ""));
  sandbox_of(stage.name, UID);
  event("/pods?", "ADDED", POD("pu", "runc", "Running"));
  assert_int_equal(stage.completed, 1);
  assert_false(stage.replayed);
  stage_end(&stage);
}

static void test_failure_deletes(void **state) {
  (void)state;
  struct stage stage;
  stage_begin(&stage, "");
  acquire(&stage);
  created(&stage);
  event("/sandboxclaims?", "ADDED", claim(stage.name, UID, stage.attempt, "", BOUND));
  sandbox_of(stage.name, UID);
  event("/pods?", "ADDED", POD("pu", "kata", "Running"));
  assert_int_equal(stage.reason, REASON_RUNTIME_CLASS_MISMATCH);
  assert_int_equal(stage.bound, 0);
  /* A deletion that fails is tried again by the sweep. */
  double_answer(double_find("DELETE", stage.name), 503, "", NULL);
  assert_null(double_find("DELETE", stage.name));
  stage.backend->operations->sweep(stage.backend);
  assert_non_null(double_find("DELETE", stage.name));
  stage_end(&stage);
}

static void test_given_back(void **state) {
  (void)state;
  struct stage stage;
  char first[64];
  stage_begin(&stage, "");
  event("/nodes?", "ADDED",
        "{\"metadata\":{\"name\":\"n\",\"uid\":\"nu\"},\"spec\":{\"unschedulable\":true},\"status\":{"
        "\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}");
  acquire(&stage);
  created(&stage);
  memcpy(first, stage.name, sizeof first);
  event("/sandboxclaims?", "ADDED", claim(stage.name, UID, stage.attempt, "", BOUND));
  sandbox_of(stage.name, UID);
  event("/pods?", "ADDED", POD("pu", "runc", "Running"));
  assert_int_equal(stage.completed, 0);
  assert_non_null(double_find("DELETE", first));
  assert_non_null(posted(&stage));
  assert_string_not_equal(stage.name, first);
  stage.backend->operations->cancel(stage.backend, stage.pending);
  double_answer(posted(&stage), 403, "Forbidden", NULL);
  stage_end(&stage);
}

static void test_lost(void **state) {
  (void)state;
  struct stage stage;
  stage_begin(&stage, "");
  acquire_whole(&stage);
  event("/pods?", "MODIFIED", POD("pu", "runc", "Failed"));
  assert_int_equal(stage.ended, 1);
  assert_int_equal(stage.end, BACKEND_END_LOST);
  assert_non_null(double_find("DELETE", stage.name));
  event("/pods?", "DELETED", POD("pu", "runc", "Failed"));
  assert_int_equal(stage.ended, 1);
  stage_end(&stage);
}

static void test_found_at_the_start(void **state) {
  (void)state;
  struct stage stage;
  stage_begin(&stage, claim("lease-00112233445566778899aabbccddeeff", UID, "", "", BOUND));
  assert_int_equal(stage.bound, 1);
  acquire(&stage);
  assert_int_equal(stage.completed, 1);
  assert_true(stage.replayed);
  assert_string_equal(stage.id, "lease-00112233445566778899aabbccddeeff");
  /* One that nobody handed out is none. */
  stage_end(&stage);
  stage_begin(&stage, claim("lease-00112233445566778899", UID, "", "", ""));
  assert_int_equal(stage.bound, 0);
  stage_end(&stage);
}

static void on_found(void *context, const struct backend_sandbox *found, struct error *err) {
  struct stage *stage = context;
  stage->completed++;
  stage->reason = err ? error_reason(err) : REASON_NONE;
  snprintf(stage->id, sizeof stage->id, "%s", found ? found->id : "");
}

static void test_lookup(void **state) {
  (void)state;
  struct stage stage;
  stage_begin(&stage, "");
  const char *id = "lease-001122334455667788990a1b2c3d4e5f";
  stage.backend->operations->get(stage.backend, id, on_found, &stage);
  double_answer(double_find("GET", "/lease-00112233445566778899"), 200, "",
                claim("lease-00112233445566778899", UID, "", "", ""));
  assert_string_equal(stage.id, id);
  /* The name has passed to another Claim, and the reference platform has none. */
  stage.backend->operations->get(stage.backend, id, on_found, &stage);
  double_answer(double_find("GET", "/lease-00112233445566778899"), 200, "",
                claim("lease-00112233445566778899", OTHER_UID, "", "", ""));
  double_answer(double_find("GET", id), 404, "NotFound", NULL);
  assert_int_equal(stage.completed, 2);
  assert_string_equal(stage.id, "");
  assert_int_equal(stage.reason, REASON_NONE);
  /* No answer is no absence. */
  stage.backend->operations->get(stage.backend, id, on_found, &stage);
  double_answer(double_find("GET", "/lease-00112233445566778899"), 0, "", NULL);
  assert_int_equal(stage.reason, REASON_SERVER_UNAVAILABLE);
  /* Too many at once: the cache's word. */
  for (int i = 0; i < 200; i++)
    stage.backend->operations->get(stage.backend, id, on_found, &stage);
  assert_true(stage.completed > 90 && stage.completed < 150);
  stage_end(&stage);
}

static void test_no_warm_pool(void **state) {
  (void)state;
  struct stage stage;
  stage_begin(&stage, "");
  event("/sandboxwarmpools?", "DELETED", "{\"metadata\":{\"name\":\"wp\",\"uid\":\"w\"}}");
  assert_false(stage.backend->operations->ready(stage.backend, NULL));
  acquire(&stage);
  assert_int_equal(stage.reason, REASON_SANDBOX_START_FAILED);
  assert_null(posted(&stage));
  stage_end(&stage);
}

static void test_stop_waits_for_deletions(void **state) {
  (void)state;
  struct stage stage;
  stage_begin(&stage, "");
  acquire(&stage);
  created(&stage);
  stage.backend->operations->stop(stage.backend, on_stopped, &stage);
  assert_int_equal(stage.reason, REASON_ABORTED);
  spin(&stage);
  assert_false(stage.stopped);
  double_answer(double_find("DELETE", stage.name), 200, "", "{}");
  spin(&stage);
  assert_true(stage.stopped);
  stage.backend->operations->free(stage.backend);
  uv_run(&stage.loop, UV_RUN_DEFAULT);
  assert_int_equal(uv_loop_close(&stage.loop), 0);
  config_free(stage.config);
}

/* Whatever allocation fails, an acquire completes, or waits, and nothing is lost or freed twice. */
static void test_memory(void **state) {
  (void)state;
  for (size_t n = 1;; n++) {
    struct stage stage;
    stage_begin(&stage, "");
    memory_fail_after(n, 0);
    acquire(&stage);
    struct api_call *call = posted(&stage);
    if (call)
      double_answer(call, 201, "", claim(stage.name, UID, stage.attempt, "", ""));
    if (double_find("WATCH", "/sandboxclaims?"))
      event("/sandboxclaims?", "ADDED", claim(stage.name, UID, stage.attempt, "", BOUND));
    if (double_find("WATCH", "/sandboxes?"))
      sandbox_of(stage.name, UID);
    if (double_find("WATCH", "/pods?"))
      event("/pods?", "ADDED", POD("pu", "runc", "Running"));
    bool failed = memory_fail_after(0, 0) >= n;
    assert_true(stage.completed <= 1);
    assert_true(failed || (stage.completed == 1 && stage.reason == REASON_NONE));
    stage_end(&stage);
    if (!failed)
      break;
  }
}

int main(void) {
  setenv("SANDBOX_K8S_SANDBOXD", "/proc/self/exe", 1);
  setenv("SANDBOX_METADATA_SECRET", "secret", 1);
  setenv("SANDBOX_K8S_POOLS", "{\"coding\":{\"warmPoolName\":\"wp\",\"runtimeClassName\":\"runc\"}}", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_acquire_and_release),
      cmocka_unit_test(test_cancel_while_creating),
      cmocka_unit_test(test_cancel_while_waiting),
      cmocka_unit_test(test_lost_answer),
      cmocka_unit_test(test_name_is_taken),
      cmocka_unit_test(test_name_is_taken_by_ourselves),
      cmocka_unit_test(test_the_later_gives_way),
      cmocka_unit_test(test_the_earlier_stays),
      cmocka_unit_test(test_failure_deletes),
      cmocka_unit_test(test_given_back),
      cmocka_unit_test(test_lost),
      cmocka_unit_test(test_found_at_the_start),
      cmocka_unit_test(test_lookup),
      cmocka_unit_test(test_no_warm_pool),
      cmocka_unit_test(test_stop_waits_for_deletions),
      cmocka_unit_test(test_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
