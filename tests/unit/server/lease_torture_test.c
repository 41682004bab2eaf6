/*
 * Every allocation of every handler fails once. Each time the call is answered, nothing crashes or leaks, no sandbox is
 * left that the service does not know, and the next call works.
 */
#include "tests/unit/server/check.h"
#include "tests/unit/server/fixture.h"
#include "tests/unit/server/torture.h"
#include <stdlib.h>
#include <string.h>

#define ID_SIZE (LIMIT_LEASE_ID_BYTES + 1)

/* Makes calls of Lease `id`; plays what the sandbox does; ends with every call answered. */
typedef void scenario(struct fixture *fixture, const char *id);

static struct session_work *work_now(enum session_work_kind kind) {
  struct session_work *work = session_double.works;
  return work && work->kind == kind ? work : NULL;
}

/* An answer, with or without success, frees the call. */
static void finish(struct call *call) {
  while (call->outcome == CALL_WAITING && call->sending)
    call_double_sent(call);
  assert_int_not_equal(call->outcome, CALL_WAITING);
  if (call->outcome == CALL_FAILED)
    assert_string_equal(reason_name(call->reason), "INTERNAL");
  torture_pause();
  call_double_free(call);
  torture_resume();
}

static void run_acquire(struct fixture *fixture, const char *id) {
  (void)id;
  fixture->backend.at_once = false;
  struct call *first = acquire(fixture, "coding", TTL_UNSET, "torture");
  struct call *second = acquire(fixture, "coding", TTL_UNSET, "torture");
  if (fixture->backend.pending)
    backend_double_bind(&fixture->backend);
  fixture->backend.at_once = true;
  while (fixture->backend.releasing)
    backend_double_released(&fixture->backend, REASON_NONE);
  finish(acquire(fixture, "coding", TTL_UNSET, "torture"));
  finish(first);
  finish(second);
}

static void run_refused_acquire(struct fixture *fixture, const char *id) {
  (void)id;
  fixture->backend.at_once = false;
  struct call *first = acquire(fixture, "coding", TTL_UNSET, "refused");
  struct call *second = acquire(fixture, "coding", TTL_UNSET, "refused");
  if (fixture->backend.pending)
    backend_double_refuse(&fixture->backend, REASON_INTERNAL);
  fixture->backend.at_once = true;
  finish(first);
  finish(second);
}

static void run_get(struct fixture *fixture, const char *id) {
  finish(get(fixture, id));
  struct call *call = get_as(fixture, "app", "stranger", id);
  assert_int_equal(call->outcome, CALL_FAILED);
  call_double_free(call);
}

static void run_list(struct fixture *fixture, const char *id) {
  (void)id;
  Sandbox__Lease__V1__ListLeasesRequest request = SANDBOX__LEASE__V1__LIST_LEASES_REQUEST__INIT;
  request._limit_case = SANDBOX__LEASE__V1__LIST_LEASES_REQUEST___LIMIT_LIMIT;
  request.limit = 1;
  finish(call_double_start(fixture->service, "app", "ann", "ListLeases", &request.base));
}

static void run_release(struct fixture *fixture, const char *id) {
  (void)id;
  struct call *call = acquire(fixture, "coding", TTL_UNSET, "released");
  if (call->outcome == CALL_REPLIED) {
    char released[ID_SIZE];
    acquired_id(call, released, NULL);
    finish(release(fixture, released));
    struct call *again = delete_lease(fixture, released);
    assert_int_not_equal(again->outcome, CALL_WAITING);
    call_double_free(again);
  }
  finish(call);
}

static void run_exec(struct fixture *fixture, const char *id) {
  Sandbox__Lease__V1__Command command = SANDBOX__LEASE__V1__COMMAND__INIT;
  command.command = "true";
  Sandbox__Lease__V1__ExecRequest request = SANDBOX__LEASE__V1__EXEC_REQUEST__INIT;
  request.lease_id = (char *)id;
  request.command = &command;
  struct call *call = call_double_start(fixture->service, "app", "ann", "Exec", &request.base);
  if (work_now(WORK_EXEC)) {
    session_double_output(session_double_exec(), 1, 0, "out", 3);
    session_double_output(session_double_exec(), 2, 0, "err", 3);
    session_double_exec_end(session_double_exec(), SESSION_ENDED_EXITED, 0);
  }
  finish(call);
}

static void run_stream(struct fixture *fixture, const char *id) {
  Sandbox__Lease__V1__Command command = SANDBOX__LEASE__V1__COMMAND__INIT;
  command.command = "cat";
  Sandbox__Lease__V1__StreamExecStart start = SANDBOX__LEASE__V1__STREAM_EXEC_START__INIT;
  start.lease_id = (char *)id;
  start.command = &command;
  start.stdin = 1;
  Sandbox__Lease__V1__StreamExecRequest request = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__INIT;
  request.request_case = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__REQUEST_START;
  request.start = &start;
  struct call *call = call_double_start(fixture->service, "app", "ann", "StreamExec", &request.base);
  if (work_now(WORK_EXEC)) {
    struct session_exec *exec = session_double_exec();
    exec->events->started(exec->work.context);
    session_double_output(exec, 1, 0, "out", 3);
    session_double_output(exec, 2, 0, "err", 3);
    request.request_case = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__REQUEST_STDIN;
    request.stdin = (ProtobufCBinaryData){.data = (uint8_t *)"in", .len = 2};
    if (call->receiving)
      call_double_message(call, &request.base);
    Sandbox__Lease__V1__StdinEnd end = SANDBOX__LEASE__V1__STDIN_END__INIT;
    request.request_case = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__REQUEST_STDIN_END;
    request.stdin_end = &end;
    if (call->receiving)
      call_double_message(call, &request.base);
    session_double_exec_end(exec, exec->work.cancelled ? SESSION_ENDED_CANCELLED : SESSION_ENDED_EXITED, 0);
  }
  finish(call);
}

static void run_read(struct fixture *fixture, const char *id) {
  Sandbox__Lease__V1__ReadFileRequest request = SANDBOX__LEASE__V1__READ_FILE_REQUEST__INIT;
  request.lease_id = (char *)id;
  request.path = "x";
  struct call *call = call_double_start(fixture->service, "app", "ann", "ReadFile", &request.base);
  if (work_now(WORK_READ)) {
    struct session_read *read = session_double_read();
    read->events->info(read->work.context, 5, NULL);
    session_double_data(read, "hello", 5);
    session_double_read_end(read, read->work.cancelled ? REASON_ABORTED : REASON_NONE);
  }
  finish(call);
}

static void run_write(struct fixture *fixture, const char *id) {
  Sandbox__Lease__V1__WriteFileRequest request = SANDBOX__LEASE__V1__WRITE_FILE_REQUEST__INIT;
  request.lease_id = (char *)id;
  request.path = "x";
  request.content = (ProtobufCBinaryData){.data = (uint8_t *)"hello", .len = 5};
  struct call *call = call_double_start(fixture->service, "app", "ann", "WriteFile", &request.base);
  if (work_now(WORK_WRITE))
    session_double_write_end(session_double_write(), REASON_NONE);
  finish(call);
}

static void run_download(struct fixture *fixture, const char *id) {
  Sandbox__Lease__V1__DownloadFileRequest request = SANDBOX__LEASE__V1__DOWNLOAD_FILE_REQUEST__INIT;
  request.lease_id = (char *)id;
  request.path = "x";
  struct call *call = call_double_start(fixture->service, "app", "ann", "DownloadFile", &request.base);
  if (work_now(WORK_READ)) {
    struct session_read *read = session_double_read();
    read->events->info(read->work.context, 10, (const uint8_t *)"0123456789abcdef0123456789abcdef");
    session_double_data(read, "hello", 5);
    session_double_data(read, "hello", 5);
    session_double_read_end(read, read->work.cancelled ? REASON_ABORTED : REASON_NONE);
  }
  finish(call);
}

static void run_upload(struct fixture *fixture, const char *id) {
  Sandbox__Lease__V1__FileInfo file = SANDBOX__LEASE__V1__FILE_INFO__INIT;
  file.size_bytes = 5;
  file.sha256 = (ProtobufCBinaryData){.data = (uint8_t *)"0123456789abcdef0123456789abcdef", .len = 32};
  Sandbox__Lease__V1__UploadFileInfo info = SANDBOX__LEASE__V1__UPLOAD_FILE_INFO__INIT;
  info.lease_id = (char *)id;
  info.path = "x";
  info.file = &file;
  Sandbox__Lease__V1__UploadFileRequest request = SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__INIT;
  request.request_case = SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__REQUEST_INFO;
  request.info = &info;
  struct call *call = call_double_start(fixture->service, "app", "ann", "UploadFile", &request.base);
  if (work_now(WORK_WRITE)) {
    request.request_case = SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__REQUEST_DATA;
    request.data = (ProtobufCBinaryData){.data = (uint8_t *)"hello", .len = 5};
    call_double_message(call, &request.base);
    if (call->receiving)
      call_double_message(call, NULL);
    session_double_write_end(session_double_write(), session_double_write()->work.cancelled ? REASON_ABORTED : REASON_NONE);
  }
  finish(call);
}

static void torture(scenario *run) {
  bool reached = true;
  size_t n = 1;
  for (; reached; n++) {
    assert_true(n < 1000);
    struct fixture fixture;
    char id[ID_SIZE], other[ID_SIZE];
    fixture_open(&fixture);
    acquire_id(&fixture, "key", id);
    acquire_id(&fixture, "other", other);
    torture_begin(n);
    run(&fixture, id);
    reached = torture_end();
    assert_null(session_double.works);
    expect_reply(get(&fixture, id));
    /* Whatever the backend has bound can be found by its holder. */
    for (size_t i = 0; i < fixture.backend.count; i++)
      expect_reply(get(&fixture, fixture.backend.sandboxes[i].id));
    run(&fixture, id);
    fixture_close(&fixture);
  }
  assert_true(n > 2); /* something did fail */
}

#define TORTURE(name)                                                                                                  \
  static void test_##name(void **state) {                                                                              \
    (void)state;                                                                                                       \
    torture(run_##name);                                                                                               \
  }
TORTURE(acquire)
TORTURE(refused_acquire)
TORTURE(get)
TORTURE(list)
TORTURE(release)
TORTURE(exec)
TORTURE(stream)
TORTURE(read)
TORTURE(write)
TORTURE(download)
TORTURE(upload)

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_acquire), cmocka_unit_test(test_refused_acquire), cmocka_unit_test(test_get),
    cmocka_unit_test(test_list),    cmocka_unit_test(test_release),         cmocka_unit_test(test_exec),
    cmocka_unit_test(test_stream),  cmocka_unit_test(test_read),            cmocka_unit_test(test_write),
    cmocka_unit_test(test_download), cmocka_unit_test(test_upload),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
