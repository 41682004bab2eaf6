/*
 * ListLeases over the doubles: pages, filters, cursors.
 */
#include "tests/unit/server/check.h"
#include "tests/unit/server/fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_SIZE (LIMIT_LEASE_ID_BYTES + 1)

/* limit 0: unset. */
static struct call *list_as(struct fixture *fixture, const char *subject, const char *pool, int64_t limit, const char *cursor) {
  Sandbox__Lease__V1__ListLeasesRequest request = SANDBOX__LEASE__V1__LIST_LEASES_REQUEST__INIT;
  if (pool) {
    request._pool_case = SANDBOX__LEASE__V1__LIST_LEASES_REQUEST___POOL_POOL;
    request.pool = (char *)pool;
  }
  if (limit != 0) {
    request._limit_case = SANDBOX__LEASE__V1__LIST_LEASES_REQUEST___LIMIT_LIMIT;
    request.limit = limit;
  }
  if (cursor) {
    request._cursor_case = SANDBOX__LEASE__V1__LIST_LEASES_REQUEST___CURSOR_CURSOR;
    request.cursor = (char *)cursor;
  }
  return call_double_start(fixture->service, "app", subject, "ListLeases", &request.base);
}

static struct call *list(struct fixture *fixture, const char *pool, int64_t limit, const char *cursor) {
  return list_as(fixture, "ann", pool, limit, cursor);
}

/* One page: its ids behind each other into `ids`, and the next cursor, which the caller frees, or NULL. */
static char *page(struct call *call, char (*ids)[ID_SIZE], size_t *count) {
  ProtobufCMessage *message = call_double_reply(call, &sandbox__lease__v1__list_leases_response__descriptor);
  const Sandbox__Lease__V1__ListLeasesResponse *reply = (const Sandbox__Lease__V1__ListLeasesResponse *)message;
  for (size_t i = 0; i < reply->n_leases; i++) {
    assert_int_equal(reply->leases[i]->status, SANDBOX__LEASE__V1__LEASE_STATUS__LEASE_STATUS_ACTIVE);
    memcpy(ids[i], reply->leases[i]->id, ID_SIZE);
  }
  *count = reply->n_leases;
  char *next = NULL;
  if (reply->_next_cursor_case == SANDBOX__LEASE__V1__LIST_LEASES_RESPONSE___NEXT_CURSOR_NEXT_CURSOR)
    next = strdup(reply->next_cursor);
  protobuf_c_message_free_unpacked(message, NULL);
  call_double_free(call);
  return next;
}

/* Acquires `count` Leases, by turns in both Pools. */
static void fill(struct fixture *fixture, char (*ids)[ID_SIZE], size_t count) {
  for (size_t i = 0; i < count; i++) {
    char key[24];
    snprintf(key, sizeof(key), "%zu", i);
    struct call *call = acquire(fixture, i % 2 ? "gvisor" : "coding", TTL_UNSET, key);
    acquired_id(call, ids[i], NULL);
    call_double_free(call);
  }
}

static void test_pages(void **state) {
  struct fixture *fixture = *state;
  char ids[120][ID_SIZE], found[LIMIT_LIST_MAX][ID_SIZE];
  size_t count;
  assert_null(page(list(fixture, NULL, 0, NULL), found, &count));
  assert_int_equal(count, 0);
  fill(fixture, ids, COUNT_OF(ids));
  expect_reply(acquire_as(fixture, "app", "bob", "coding", TTL_UNSET, "1"));

  const int64_t limits[] = {1, 7, 60, 100};
  for (size_t i = 0; i < COUNT_OF(limits); i++) {
    size_t seen = 0;
    char *cursor = NULL;
    do {
      char *next = page(list(fixture, NULL, limits[i], cursor), found, &count);
      free(cursor);
      cursor = next;
      for (size_t j = 0; j < count; j++)
        assert_string_equal(found[j], ids[seen++]);
      assert_true(count == (size_t)limits[i] || !cursor);
    } while (cursor);
    assert_int_equal(seen, COUNT_OF(ids));
  }

  char *cursor = page(list(fixture, NULL, 0, NULL), found, &count);
  assert_int_equal(count, LIMIT_LIST_DEFAULT);
  free(cursor);
  cursor = page(list(fixture, "gvisor", 40, NULL), found, &count);
  assert_int_equal(count, 40);
  assert_string_equal(found[39], ids[79]);
  char *end = page(list(fixture, "gvisor", 40, cursor), found, &count);
  assert_null(end);
  assert_int_equal(count, 20);
  assert_string_equal(found[19], ids[119]);
  free(cursor);
}

static void test_rules(void **state) {
  struct fixture *fixture = *state;
  const char *limit_rule = "limit must be an integer between 1 and 100";
  expect_failure(list(fixture, NULL, -1, NULL), REASON_INVALID_REQUEST, limit_rule);
  expect_failure(list(fixture, NULL, 101, NULL), REASON_INVALID_REQUEST, limit_rule);
  expect_failure(list(fixture, " ", 0, NULL), REASON_INVALID_REQUEST, "'pool' must be a non-empty string");
  expect_failure(list(fixture, NULL, 0, ""), REASON_INVALID_REQUEST, "'cursor' must be a non-empty string");
  expect_failure(list(fixture, "nowhere", 0, NULL), REASON_UNKNOWN_POOL, NULL);
  expect_failure(list(fixture, NULL, 0, "bm9uc2Vuc2U"), REASON_INVALID_CURSOR, NULL);
  char *huge = calloc(1, LIMIT_CURSOR_BYTES + 2);
  assert_non_null(huge);
  memset(huge, 'A', LIMIT_CURSOR_BYTES + 1);
  expect_failure(list(fixture, NULL, 0, huge), REASON_INVALID_CURSOR, NULL);
  free(huge);
}

/* A cursor goes on only the walk it came from. */
static void test_cursor_is_bound(void **state) {
  struct fixture *fixture = *state;
  char ids[6][ID_SIZE], found[LIMIT_LIST_MAX][ID_SIZE];
  size_t count;
  fill(fixture, ids, COUNT_OF(ids));
  char *cursor = page(list(fixture, NULL, 2, NULL), found, &count);
  assert_non_null(cursor);
  expect_failure(list(fixture, NULL, 3, cursor), REASON_INVALID_CURSOR, NULL);
  expect_failure(list(fixture, NULL, 0, cursor), REASON_INVALID_CURSOR, NULL);
  expect_failure(list(fixture, "coding", 2, cursor), REASON_INVALID_CURSOR, NULL);
  expect_failure(list_as(fixture, "bob", NULL, 2, cursor), REASON_INVALID_CURSOR, NULL);
  cursor[10] = cursor[10] == 'A' ? 'B' : 'A';
  expect_failure(list(fixture, NULL, 2, cursor), REASON_INVALID_CURSOR, NULL);
  free(cursor);
}

/* The position is the last Lease given. Others may come and go; when it goes, so does the cursor. */
static void test_cursor_expires_with_its_position(void **state) {
  struct fixture *fixture = *state;
  char ids[6][ID_SIZE], found[LIMIT_LIST_MAX][ID_SIZE];
  size_t count;
  fill(fixture, ids, COUNT_OF(ids));
  char *cursor = page(list(fixture, NULL, 2, NULL), found, &count);
  expect_reply(release(fixture, ids[0]));
  expect_reply(release(fixture, ids[2]));
  free(page(list(fixture, NULL, 2, cursor), found, &count));
  assert_int_equal(count, 2);
  assert_string_equal(found[0], ids[3]);
  assert_string_equal(found[1], ids[4]);
  expect_reply(release(fixture, ids[1]));
  expect_failure(list(fixture, NULL, 2, cursor), REASON_CURSOR_EXPIRED, NULL);
  free(cursor);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
    WITH_FIXTURE(test_pages),
    WITH_FIXTURE(test_rules),
    WITH_FIXTURE(test_cursor_is_bound),
    WITH_FIXTURE(test_cursor_expires_with_its_position),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
