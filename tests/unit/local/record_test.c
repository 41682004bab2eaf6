/* Records: what is written is read again, and nothing that is cut short or changed is taken for one. */
#include "backend/local/record.h"
#include "base/clock.h"
#include "tests/unit/local/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/record_test.XXXXXX";
static char path[64];

static int make_folder(void **state) {
  (void)state;
  if (mkdtemp(folder) == NULL)
    return -1;
  snprintf(path, sizeof path, "%s/record", folder);
  return 0;
}

static int drop_folder(void **state) {
  (void)state;
  unlink(path);
  return rmdir(folder);
}

static struct local_record make_record(bool bound) {
  struct local_record record = {.pool = "coding",
                                .runtime = LOCAL_GVISOR,
                                .boot = "00000000-1111-2222-3333-444444444444",
                                .uid = 524288,
                                .monitor = {4194304, UINT64_C(1) << 60},
                                .first = {4194303, 7},
                                .bound = bound};
  assert_int_equal(local_cgroup_add(&record.cgroup, "/sys/fs/cgroup/memory/a \"b\"/0123456789abcdef"), 0);
  assert_int_equal(local_cgroup_add(&record.cgroup, "/sys/fs/cgroup/pids/a/0123456789abcdef"), 0);
  struct backend_sandbox *sandbox = &record.sandbox;
  snprintf(sandbox->id, sizeof sandbox->id, "lease-00112233445566778899aabbccddeeff");
  snprintf(sandbox->scope, sizeof sandbox->scope, "scope");
  snprintf(sandbox->consumer, sizeof sandbox->consumer, "consumer");
  snprintf(sandbox->idempotency, sizeof sandbox->idempotency, "key");
  sandbox->created_at = INT64_C(1796097789123456789);
  sandbox->expires_at = sandbox->created_at + 900 * CLOCK_SECOND;
  sandbox->last_used_at = sandbox->created_at + 5 * CLOCK_SECOND;
  sandbox->deadline = INT64_C(9007199254740993); /* no double holds it */
  return record;
}

static void what_is_written_is_read(void **state) {
  (void)state;
  CLEANUP_ERROR struct error *err = NULL;
  struct local_record record = make_record(true), again;
  assert_int_equal(local_record_write(path, &record, &err), 0);
  assert_int_equal(local_record_read(path, &again, &err), 0);
  assert_string_equal(again.pool, record.pool);
  assert_string_equal(again.sandbox.pool, record.pool);
  assert_string_equal(again.boot, record.boot);
  assert_int_equal(again.runtime, LOCAL_GVISOR);
  assert_int_equal(again.uid, record.uid);
  assert_int_equal(again.monitor.pid, record.monitor.pid);
  assert_int_equal(again.monitor.start, record.monitor.start);
  assert_int_equal(again.first.pid, record.first.pid);
  assert_int_equal(again.cgroup.count, 2);
  assert_string_equal(again.cgroup.paths[0], record.cgroup.paths[0]);
  assert_string_equal(again.cgroup.paths[1], record.cgroup.paths[1]);
  assert_true(again.bound);
  assert_string_equal(again.sandbox.id, record.sandbox.id);
  assert_string_equal(again.sandbox.idempotency, "key");
  assert_int_equal(again.sandbox.created_at, record.sandbox.created_at);
  assert_int_equal(again.sandbox.expires_at, record.sandbox.expires_at);
  assert_int_equal(again.sandbox.deadline, record.sandbox.deadline);
  assert_int_equal(again.sandbox.last_used_at, record.sandbox.last_used_at);
  local_record_free(&record);
  local_record_free(&again);
}

/* Writing the record anew is no use of the Lease. */
static void last_use_is_not_moved_by_writing(void **state) {
  (void)state;
  CLEANUP_ERROR struct error *err = NULL;
  struct local_record record = make_record(true), again;
  record.sandbox.last_used_at = record.sandbox.created_at;
  for (int i = 0; i < 3; i++) {
    assert_int_equal(local_record_write(path, &record, &err), 0);
    assert_int_equal(local_record_read(path, &again, &err), 0);
    assert_int_equal(again.sandbox.last_used_at, record.sandbox.created_at);
    local_record_free(&again);
  }
  local_record_free(&record);
}

static void an_unbound_one_has_no_lease(void **state) {
  (void)state;
  CLEANUP_ERROR struct error *err = NULL;
  struct local_record record = make_record(false), again;
  record.first = (struct local_process){0, 0};
  assert_int_equal(local_record_write(path, &record, &err), 0);
  assert_int_equal(local_record_read(path, &again, &err), 0);
  assert_false(again.bound);
  assert_string_equal(again.sandbox.id, "");
  local_record_free(&record);
  local_record_free(&again);
}

static size_t read_text(char text[static 8192]) {
  FILE *file = fopen(path, "re");
  assert_non_null(file);
  size_t length = fread(text, 1, 8191, file);
  fclose(file);
  text[length] = '\0';
  return length;
}

static void write_good(char text[static 8192], size_t *length) {
  CLEANUP_ERROR struct error *err = NULL;
  struct local_record record = make_record(true);
  assert_int_equal(local_record_write(path, &record, &err), 0);
  local_record_free(&record);
  *length = read_text(text);
}

static void one_cut_short_is_refused_wherever(void **state) {
  (void)state;
  char text[8192];
  size_t length;
  write_good(text, &length);
  for (size_t cut = 0; cut < length - 1; cut++) { /* all but the newline at the end */
    CLEANUP_ERROR struct error *err = NULL;
    struct local_record record;
    assert_int_equal(local_record_parse(text, cut, &record, &err), -1);
  }
}

static void one_changed_never_crashes(void **state) {
  (void)state;
  char text[8192];
  size_t length;
  write_good(text, &length);
  for (size_t i = 0; i < length; i++)
    for (const char *other = "\"{0-9x"; *other != '\0'; other++) {
      CLEANUP_ERROR struct error *err = NULL;
      struct local_record record;
      char kept = text[i];
      text[i] = *other;
      if (local_record_parse(text, length, &record, &err) == 0)
        local_record_free(&record);
      text[i] = kept;
    }
}

static void foreign_values_are_refused(void **state) {
  (void)state;
  static const char *const swaps[][2] = {
      {"\"format\":2", "\"format\":1"},
      {"\"format\":2", "\"format\":3"},
      {"\"gvisor\"", "\"docker\""},
      {"/sys/fs/cgroup/pids", "/etc/passwd.d/pids"},
      {"/sys/fs/cgroup/pids/a", "/sys/fs/cgroup/../.."},
      {"\"uid\":524288", "\"uid\":-1"},
      {"\"pid\":4194303", "\"pid\":0"},
      {"\"pid\":4194303", "\"pid\":99999999999"},
      {"\"deadline\":\"", "\"deadline\":\"-"},
      {"\"deadline\":\"", "\"deadline\":\"9999999999"},
  };
  char text[8192], changed[8192];
  size_t length;
  write_good(text, &length);
  for (size_t i = 0; i < COUNT_OF(swaps); i++) {
    CLEANUP_ERROR struct error *err = NULL;
    struct local_record record;
    char *at = strstr(text, swaps[i][0]);
    if (at == NULL)
      fail_msg("%s is not in %s", swaps[i][0], text);
    int made =
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, swaps[i][1], at + strlen(swaps[i][0]));
    if (local_record_parse(changed, (size_t)made, &record, &err) == 0)
      fail_msg("%s was taken", swaps[i][1]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_written_is_read),         cmocka_unit_test(last_use_is_not_moved_by_writing),
    cmocka_unit_test(an_unbound_one_has_no_lease),     cmocka_unit_test(one_cut_short_is_refused_wherever),
    cmocka_unit_test(one_changed_never_crashes),       cmocka_unit_test(foreign_values_are_refused),
  };
  return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
