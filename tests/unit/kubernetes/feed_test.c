#include "backend/kubernetes/feed.h"
#include "base/clock.h"
#include "tests/unit/kubernetes/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The changes a store told, one letter and a name each: "+a ~a -a". */
struct told {
  char text[1024];
};

static void changed(void *context, struct object *before, struct object *after) {
  struct told *told = context;
  size_t length = strlen(told->text);
  snprintf(told->text + length, sizeof told->text - length, "%s%c%s", length ? " " : "",
           !before ? '+'
           : after ? '~'
                   : '-',
           (after ? after : before)->name);
}

struct fixture {
  struct told told;
  struct store store;
  struct feed feed;
};

static void begin(struct fixture *fixture, enum object_kind kind) {
  *fixture = (struct fixture){0};
  store_init(&fixture->store, changed, &fixture->told);
  feed_init(&fixture->feed, &fixture->store, kind);
}

static void end(struct fixture *fixture) {
  store_free(&fixture->store);
}

/* A copy of exactly this length, so that a sanitizer sees a read behind the end. */
static enum feed_next page(struct fixture *fixture, const char *text, struct error **err) {
  size_t length = strlen(text);
  CLEANUP_MEMORY char *copy = memory_new(length);
  memcpy(copy, text, length);
  fixture->told.text[0] = 0;
  return feed_page(&fixture->feed, copy, length, err);
}

static enum feed_next line(struct fixture *fixture, const char *text, struct error **err) {
  fixture->told.text[0] = 0;
  return feed_line(&fixture->feed, text, strlen(text), err);
}

#define NODE(name, uid) "{\"metadata\":{\"name\":\"" name "\",\"uid\":\"" uid "\",\"resourceVersion\":\"7\"}}"
#define PAGE(version, next, items)                                                                                     \
  "{\"metadata\":{\"resourceVersion\":\"" version "\",\"continue\":\"" next "\"},\"items\":[" items "]}"
#define EVENT(type, object) "{\"type\":\"" type "\",\"object\":" object "}"

static void test_list_and_watch(void **state) {
  (void)state;
  struct fixture fixture;
  begin(&fixture, OBJECT_NODE);
  assert_int_equal(page(&fixture, PAGE("5", "token", NODE("a", "1") "," NODE("b", "2")), NULL), FEED_PAGE);
  assert_string_equal(fixture.feed.next_page, "token");
  assert_string_equal(fixture.told.text, "+a +b");
  assert_int_equal(page(&fixture, PAGE("5", "", NODE("c", "3")), NULL), FEED_WATCH);
  assert_string_equal(fixture.feed.version, "5");
  assert_string_equal(fixture.told.text, "+c");
  assert_int_equal(line(&fixture, EVENT("MODIFIED", NODE("a", "1")), NULL), FEED_WATCH);
  assert_string_equal(fixture.told.text, "~a");
  assert_string_equal(fixture.feed.version, "7");
  assert_int_equal(line(&fixture, EVENT("DELETED", NODE("b", "2")), NULL), FEED_WATCH);
  assert_string_equal(fixture.told.text, "-b");
  assert_int_equal(line(&fixture, EVENT("ADDED", NODE("a", "9")), NULL), FEED_WATCH);
  assert_string_equal(fixture.told.text, "-a +a");
  assert_int_equal(line(&fixture, EVENT("DELETED", NODE("a", "1")), NULL), FEED_WATCH);
  assert_string_equal(fixture.told.text, "");
  assert_int_equal(line(&fixture, EVENT("BOOKMARK", "{\"metadata\":{\"resourceVersion\":\"99\"}}"), NULL), FEED_WATCH);
  assert_string_equal(fixture.feed.version, "99");
  assert_string_equal(fixture.told.text, "");
  assert_int_equal(store_count(&fixture.store, OBJECT_NODE), 2);
  end(&fixture);
}

static void test_new_list_removes(void **state) {
  (void)state;
  struct fixture fixture;
  begin(&fixture, OBJECT_NODE);
  page(&fixture, PAGE("5", "", NODE("a", "1") "," NODE("b", "2")), NULL);
  assert_int_equal(line(&fixture, EVENT("ERROR", "{\"kind\":\"Status\",\"code\":410}"), NULL), FEED_LIST);
  /* Nothing is absent before the whole list is read. */
  assert_int_equal(page(&fixture, PAGE("8", "next", NODE("b", "2")), NULL), FEED_PAGE);
  assert_string_equal(fixture.told.text, "~b");
  assert_non_null(store_find(&fixture.store, OBJECT_NODE, "a"));
  assert_int_equal(page(&fixture, PAGE("8", "", NODE("c", "3")), NULL), FEED_WATCH);
  assert_string_equal(fixture.told.text, "+c -a");
  assert_null(store_find(&fixture.store, OBJECT_NODE, "a"));
  end(&fixture);
}

static void test_seen_is_the_order_of_coming(void **state) {
  (void)state;
  struct fixture fixture;
  begin(&fixture, OBJECT_NODE);
  page(&fixture, PAGE("5", "", NODE("a", "1") "," NODE("b", "2")), NULL);
  line(&fixture, EVENT("ADDED", NODE("c", "3")), NULL);
  line(&fixture, EVENT("MODIFIED", NODE("a", "1")), NULL);
  line(&fixture, EVENT("ADDED", NODE("d", "4")), NULL);
  const struct object *a = store_find(&fixture.store, OBJECT_NODE, "a"),
                      *b = store_find(&fixture.store, OBJECT_NODE, "b");
  const struct object *c = store_find(&fixture.store, OBJECT_NODE, "c"),
                      *d = store_find(&fixture.store, OBJECT_NODE, "d");
  assert_int_equal(a->seen, b->seen);
  assert_true(b->seen < c->seen && c->seen < d->seen);
  page(&fixture, PAGE("9", "", NODE("d", "4") "," NODE("e", "5")), NULL);
  const struct object *e = store_find(&fixture.store, OBJECT_NODE, "e");
  d = store_find(&fixture.store, OBJECT_NODE, "d");
  assert_true(d->seen < e->seen);
  end(&fixture);
}

static void test_refused(void **state) {
  (void)state;
  static const char *const pages[] = {
      "", "[]", "{}", "{\"metadata\":{}}", "{\"metadata\":{\"resourceVersion\":7}}", "{\"metadata\":[]}", "nonsense"};
  static const char *const lines[] = {"",
                                      "{}",
                                      "{\"type\":\"ADDED\"}",
                                      "{\"type\":7,\"object\":{}}",
                                      "{\"type\":\"ADDED\",\"object\":{}}",
                                      EVENT("MELTED", NODE("a", "1")),
                                      EVENT("ERROR", "{\"code\":500}"),
                                      "{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"name\":[]}}}"};
  struct fixture fixture;
  begin(&fixture, OBJECT_NODE);
  for (size_t i = 0; i < COUNT_OF(pages); i++) {
    CLEANUP_ERROR struct error *err = NULL;
    assert_int_equal(page(&fixture, pages[i], &err), FEED_LIST);
    assert_non_null(err);
  }
  for (size_t i = 0; i < COUNT_OF(lines); i++) {
    CLEANUP_ERROR struct error *err = NULL;
    assert_int_equal(line(&fixture, lines[i], &err), FEED_LIST);
    assert_non_null(err);
  }
  /* One object that makes no sense does not spoil the others. */
  assert_int_equal(page(&fixture, PAGE("5", "", "{},7," NODE("a", "1")), NULL), FEED_WATCH);
  assert_string_equal(fixture.told.text, "+a");
  end(&fixture);
}

/* --- what is kept of each kind --- */

static const char claims[] =
    "{\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[{\"metadata\":{\"name\":\"lease-00112233445566778899\","
    "\"uid\":\"u1\","
    "\"deletionTimestamp\":\"2026-01-02T03:04:05Z\",\"labels\":{\"sandbox.geminixiang.dev/managed\":\"true\","
    "\"sandbox.geminixiang.dev/scope\":\"s\",\"sandbox.geminixiang.dev/consumer\":\"c\","
    "\"sandbox.geminixiang.dev/idempotency\":\"k\",\"sandbox.geminixiang.dev/pool\":\"p\"},\"annotations\":{"
    "\"sandbox.geminixiang.dev/pool-name\":\"coding\",\"sandbox.geminixiang.dev/"
    "created-at\":\"2026-01-02T03:04:05.5Z\","
    "\"sandbox.geminixiang.dev/expires-at\":\"2026-01-02T03:04:06.5Z\",\"sandbox.geminixiang.dev/attempt\":\"ab\","
    "\"agents.x-k8s.io/"
    "claim-first-ready-at\":\"x\"}},\"spec\":{\"warmPoolRef\":{\"name\":\"wp\"}},\"status\":{\"conditions\":["
    "{\"type\":\"Finished\",\"status\":\"True\"},{\"type\":\"Ready\",\"status\":\"False\",\"reason\":"
    "\"SandboxNotReady\","
    "\"message\":\"not yet\"}],\"sandbox\":{\"name\":\"wp-abc\"}}},"
    "{\"metadata\":{\"name\":\"bare\",\"uid\":\"u2\",\"labels\":{\"sandbox.geminixiang.dev/managed\":\"true\"}}}]}";

static void test_claim(void **state) {
  (void)state;
  struct fixture fixture;
  begin(&fixture, OBJECT_CLAIM);
  assert_int_equal(page(&fixture, claims, NULL), FEED_WATCH);
  const struct object *claim = store_find(&fixture.store, OBJECT_CLAIM, "lease-00112233445566778899");
  assert_non_null(claim);
  assert_true(claim->claim.managed && claim->deleting && !claim->claim.ready && claim->claim.was_ready);
  assert_string_equal(claim->uid, "u1");
  assert_string_equal(claim->claim.scope, "s");
  assert_string_equal(claim->claim.consumer, "c");
  assert_string_equal(claim->claim.idempotency, "k");
  assert_string_equal(claim->claim.pool, "coding");
  assert_string_equal(claim->claim.attempt, "ab");
  assert_string_equal(claim->claim.warm_pool, "wp");
  assert_string_equal(claim->claim.sandbox, "wp-abc");
  assert_string_equal(claim->claim.reason, "SandboxNotReady");
  assert_string_equal(claim->claim.message, "not yet");
  assert_int_equal(claim->claim.created_at, 1767323045 * CLOCK_SECOND + CLOCK_SECOND / 2);
  assert_int_equal(claim->claim.expires_at - claim->claim.created_at, CLOCK_SECOND);
  assert_ptr_equal(store_next_of_key(&fixture.store, "k", NULL), claim);
  assert_null(store_next_of_key(&fixture.store, "k", claim));
  claim = store_find(&fixture.store, OBJECT_CLAIM, "bare");
  assert_false(claim->claim.managed);
  assert_string_equal(claim->claim.reason, "");
  end(&fixture);
}

static void test_sandbox(void **state) {
  (void)state;
  struct fixture fixture;
  begin(&fixture, OBJECT_SANDBOX);
  assert_int_equal(
      page(&fixture,
           "{\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[{\"metadata\":{\"name\":\"a\",\"uid\":\"u\","
           "\"generation\":2,"
           "\"annotations\":{\"agents.x-k8s.io/"
           "pod-name\":\"pod\"},\"ownerReferences\":[{\"kind\":\"Other\",\"name\":\"no\"},"
           "{\"kind\":\"SandboxClaim\",\"name\":\"lease-1\",\"uid\":\"cu\",\"controller\":true}]},\"status\":{"
           "\"conditions\":["
           "{\"type\":\"Ready\",\"status\":\"True\",\"observedGeneration\":2}]}},"
           "{\"metadata\":{\"name\":\"b\",\"uid\":\"v\",\"generation\":3,\"ownerReferences\":[{\"kind\":"
           "\"SandboxWarmPool\","
           "\"name\":\"wp\",\"uid\":\"w\",\"controller\":true}]},\"spec\":{\"operatingMode\":\"Suspended\"},\"status\":"
           "{\"conditions\":[{\"type\":\"Ready\","
           "\"status\":\"True\",\"observedGeneration\":2}]}}]}",
           NULL),
      FEED_WATCH);
  const struct object *a = store_find(&fixture.store, OBJECT_SANDBOX, "a"),
                      *b = store_find(&fixture.store, OBJECT_SANDBOX, "b");
  assert_string_equal(a->sandbox.claim, "lease-1");
  assert_string_equal(a->sandbox.claim_uid, "cu");
  assert_string_equal(a->sandbox.pod, "pod");
  assert_true(a->sandbox.ready);
  assert_string_equal(b->sandbox.claim, "");
  assert_string_equal(b->sandbox.warm_pool, "wp");
  assert_string_equal(b->sandbox.pod, "b");
  assert_false(b->sandbox.ready); /* it shall not run */
  end(&fixture);
}

static void test_pod(void **state) {
  (void)state;
  struct fixture fixture;
  begin(&fixture, OBJECT_POD);
  assert_int_equal(
      page(&fixture,
           "{\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[{\"metadata\":{\"name\":\"a\",\"uid\":\"u\","
           "\"ownerReferences\":["
           "{\"kind\":\"Sandbox\",\"name\":\"sb\",\"uid\":\"su\",\"controller\":true}]},\"spec\":{\"nodeName\":\"n\","
           "\"runtimeClassName\":\"gvisor\",\"containers\":[{\"name\":\"shell\"},{\"name\":\"proxy\"}]},\"status\":{"
           "\"phase\":\"Running\",\"podIP\":\"10.0.0.7\",\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"},"
           "{\"type\":\"PodScheduled\",\"status\":\"True\"}],\"containerStatuses\":[{\"state\":{\"running\":{}},"
           "\"lastState\":{\"terminated\":{\"reason\":\"OOMKilled\"}}}]}},"
           "{\"metadata\":{\"name\":\"b\",\"uid\":\"v\"},\"status\":{\"phase\":\"Pending\",\"conditions\":[{"
           "\"type\":\"PodScheduled\",\"status\":\"False\",\"reason\":\"Unschedulable\",\"message\":\"0/1 nodes\"}]}},"
           "{\"metadata\":{\"name\":\"c\",\"uid\":\"w\"},\"status\":{\"phase\":\"Pending\",\"containerStatuses\":[{"
           "\"state\":{"
           "\"waiting\":{\"reason\":\"ImagePullBackOff\",\"message\":\"no such image\"}}}]}}]}",
           NULL),
      FEED_WATCH);
  const struct object *a = store_find(&fixture.store, OBJECT_POD, "a"),
                      *b = store_find(&fixture.store, OBJECT_POD, "b");
  const struct object *c = store_find(&fixture.store, OBJECT_POD, "c");
  assert_string_equal(a->pod.sandbox, "sb");
  assert_string_equal(a->pod.sandbox_uid, "su");
  assert_string_equal(a->pod.node, "n");
  assert_string_equal(a->pod.address, "10.0.0.7");
  assert_string_equal(a->pod.runtime, "gvisor");
  assert_string_equal(a->pod.reason, "OOMKilled");
  assert_true(a->pod.ready && a->pod.phase == POD_RUNNING);
  assert_true(object_has_container(a, "") && object_has_container(a, "shell") && object_has_container(a, "proxy"));
  assert_false(object_has_container(a, "she") || object_has_container(a, "shell/proxy") ||
               object_has_container(a, "xshell"));
  assert_true(b->pod.unschedulable && b->pod.phase == POD_PENDING && !b->pod.ready);
  assert_string_equal(b->pod.message, "0/1 nodes");
  assert_false(object_has_container(b, ""));
  assert_string_equal(c->pod.waiting, "ImagePullBackOff");
  assert_string_equal(c->pod.message, "no such image");
  end(&fixture);
}

static void test_memory(void **state) {
  (void)state;
  TORTURE(struct fixture fixture; begin(&fixture, OBJECT_CLAIM); CLEANUP_ERROR struct error *err = NULL;
          enum feed_next next = feed_page(&fixture.feed, claims, strlen(claims), &err);
          if (next == FEED_WATCH) next = feed_line(&fixture.feed, EVENT("ADDED", NODE("x", "y")),
                                                   strlen(EVENT("ADDED", NODE("x", "y"))), &err),
          if (torture_failed) assert_int_equal(next, FEED_LIST);
          else assert_int_equal(next, FEED_WATCH); assert_int_equal(err == NULL, next == FEED_WATCH); end(&fixture));
}

static void test_many(void **state) {
  (void)state;
  struct fixture fixture;
  char text[2048];
  begin(&fixture, OBJECT_CLAIM);
  for (int i = 0; i < 500; i++) {
    snprintf(
        text, sizeof text,
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"lease-%020x\",\"uid\":\"0a1b2c3d-4e5f-6071-8293-%"
        "012x\","
        "\"resourceVersion\":\"1\",\"labels\":{\"sandbox.geminixiang.dev/managed\":\"true\","
        "\"sandbox.geminixiang.dev/scope\":\"%040x\",\"sandbox.geminixiang.dev/consumer\":\"%040x\","
        "\"sandbox.geminixiang.dev/idempotency\":\"%040x\"},\"annotations\":{"
        "\"sandbox.geminixiang.dev/pool-name\":\"coding\",\"sandbox.geminixiang.dev/"
        "created-at\":\"2026-01-02T03:04:05Z\","
        "\"sandbox.geminixiang.dev/expires-at\":\"2026-01-02T03:19:05Z\",\"sandbox.geminixiang.dev/attempt\":"
        "\"0123456789abcdef\"}},\"spec\":{\"warmPoolRef\":{\"name\":\"coding\"}},\"status\":{\"sandbox\":{\"name\":"
        "\"coding-%05x\"}}}}",
        i, i, i, i, i, i);
    assert_int_equal(line(&fixture, text, NULL), FEED_WATCH);
  }
  assert_int_equal(store_count(&fixture.store, OBJECT_CLAIM), 500);
  assert_true(store_size(&fixture.store) / 500 <= 1024); /* the sandbox and the Pod need the other half of 2 KiB */
  size_t walked = 0;
  for (const struct object *object = NULL; (object = store_next(&fixture.store, OBJECT_CLAIM, object));)
    walked++;
  assert_int_equal(walked, 500);
  end(&fixture);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_list_and_watch),
      cmocka_unit_test(test_new_list_removes),
      cmocka_unit_test(test_seen_is_the_order_of_coming),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_claim),
      cmocka_unit_test(test_sandbox),
      cmocka_unit_test(test_pod),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_many),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
