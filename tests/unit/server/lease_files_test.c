/*
 * Files over the doubles: whole ones, transfers, their places and time, flow control, and what each failure is called.
 */
#include "base/clock.h"
#include "tests/unit/server/check.h"
#include "tests/unit/server/fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_SIZE (LIMIT_LEASE_ID_BYTES + 1)

static const uint8_t digest[32] = "0123456789abcdef0123456789abcde";

static struct call *read_file(struct fixture *fixture, const char *id, const char *path) {
  Sandbox__Lease__V1__ReadFileRequest request = SANDBOX__LEASE__V1__READ_FILE_REQUEST__INIT;
  request.lease_id = (char *)id;
  request.path = (char *)path;
  return call_double_start(fixture->service, "app", "ann", "ReadFile", &request.base);
}

static struct call *write_file(struct fixture *fixture, const char *id, const char *path, const void *bytes, size_t length) {
  Sandbox__Lease__V1__WriteFileRequest request = SANDBOX__LEASE__V1__WRITE_FILE_REQUEST__INIT;
  request.lease_id = (char *)id;
  request.path = (char *)path;
  request.content = (ProtobufCBinaryData){.data = (uint8_t *)bytes, .len = length};
  return call_double_start(fixture->service, "app", "ann", "WriteFile", &request.base);
}

static struct call *download(struct fixture *fixture, const char *id, const char *path) {
  Sandbox__Lease__V1__DownloadFileRequest request = SANDBOX__LEASE__V1__DOWNLOAD_FILE_REQUEST__INIT;
  request.lease_id = (char *)id;
  request.path = (char *)path;
  return call_double_start(fixture->service, "app", "ann", "DownloadFile", &request.base);
}

static struct call *upload(struct fixture *fixture, const char *id, const char *path, int64_t size, size_t digest_length) {
  Sandbox__Lease__V1__FileInfo file = SANDBOX__LEASE__V1__FILE_INFO__INIT;
  file.size_bytes = size;
  file.sha256 = (ProtobufCBinaryData){.data = (uint8_t *)digest, .len = digest_length};
  Sandbox__Lease__V1__UploadFileInfo info = SANDBOX__LEASE__V1__UPLOAD_FILE_INFO__INIT;
  info.lease_id = (char *)id;
  info.path = (char *)path;
  info.file = &file;
  Sandbox__Lease__V1__UploadFileRequest request = SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__INIT;
  request.request_case = SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__REQUEST_INFO;
  request.info = &info;
  return call_double_start(fixture->service, "app", "ann", "UploadFile", &request.base);
}

static void upload_data(struct call *call, const void *bytes, size_t length) {
  Sandbox__Lease__V1__UploadFileRequest request = SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__INIT;
  request.request_case = SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__REQUEST_DATA;
  request.data = (ProtobufCBinaryData){.data = (uint8_t *)bytes, .len = length};
  call_double_message(call, &request.base);
}

static void expect_finished(struct call *call) {
  assert_int_equal(call->outcome, CALL_FINISHED);
  call_double_free(call);
}

/* --- whole files --- */

static void test_path_rules(void **state) {
  struct fixture *fixture = *state;
  const char *rule = "'path' must be a non-empty string";
  const char *blank[] = {"", " ", "\t\n"};
  for (size_t i = 0; i < COUNT_OF(blank); i++) {
    expect_failure(read_file(fixture, "", blank[i]), REASON_INVALID_REQUEST, rule);
    expect_failure(write_file(fixture, "", blank[i], "", 0), REASON_INVALID_REQUEST, rule);
    expect_failure(download(fixture, "", blank[i]), REASON_INVALID_REQUEST, rule);
    expect_failure(upload(fixture, "", blank[i], 0, 32), REASON_INVALID_REQUEST, rule);
  }
  expect_failure(read_file(fixture, "", "../x"), REASON_INVALID_PATH, NULL);
  expect_failure(write_file(fixture, "", "/etc/passwd", "", 0), REASON_INVALID_PATH, NULL);
  expect_failure(download(fixture, "", "a/../../b"), REASON_INVALID_PATH, NULL);
  expect_failure(upload(fixture, "", "..", 0, 32), REASON_INVALID_PATH, NULL);
  expect_failure(read_file(fixture, "", "x"), REASON_LEASE_NOT_FOUND, NULL);
  expect_failure(write_file(fixture, "", "x", "", 0), REASON_LEASE_NOT_FOUND, NULL);
  expect_failure(download(fixture, "", "x"), REASON_LEASE_NOT_FOUND, NULL);
  expect_failure(upload(fixture, "", "x", 0, 32), REASON_LEASE_NOT_FOUND, NULL);
}

static void expect_content(struct call *call, const void *bytes, size_t length) {
  ProtobufCMessage *message = call_double_reply(call, &sandbox__lease__v1__read_file_response__descriptor);
  const Sandbox__Lease__V1__ReadFileResponse *reply = (const Sandbox__Lease__V1__ReadFileResponse *)message;
  assert_int_equal(reply->content.len, length);
  if (length > 0)
    assert_memory_equal(reply->content.data, bytes, length);
  protobuf_c_message_free_unpacked(message, NULL);
  call_double_free(call);
}

static void test_read(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  struct call *call = read_file(fixture, id, "/workspace/a//b");
  struct session_read *file = session_double_read();
  assert_string_equal(file->work.path, "a/b");
  assert_int_equal(file->work.size, LIMIT_FILE_BYTES);
  assert_false(file->work.wants_digest);
  file->events->info(file->work.context, 6, NULL);
  session_double_data(file, "abc", 3);
  session_double_data(file, "d\0f", 3);
  assert_int_equal(file->work.consumed, 6);
  session_double_read_end(file, REASON_NONE);
  expect_content(call, "abcd\0f", 6);

  call = read_file(fixture, id, "empty");
  file = session_double_read();
  file->events->info(file->work.context, 0, NULL);
  session_double_read_end(file, REASON_NONE);
  expect_content(call, "", 0);

  /* All of it before the session's start has returned. */
  session_double.give_at_once = true;
  expect_content(read_file(fixture, id, "x"), "hello", 5);
  session_double.give_at_once = false;
}

static void test_read_failures(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  const enum reason reasons[][2] = {{REASON_INVALID_PATH, REASON_FILE_READ_FAILED},
                                    {REASON_FILE_NOT_FOUND, REASON_FILE_READ_FAILED},
                                    {REASON_FILE_TRANSFER_FAILED, REASON_FILE_READ_FAILED},
                                    {REASON_INTERNAL, REASON_FILE_READ_FAILED},
                                    {REASON_TRANSFER_TOO_LARGE, REASON_OUTPUT_TOO_LARGE},
                                    {REASON_SANDBOX_NOT_READY, REASON_SANDBOX_NOT_READY},
                                    {REASON_ABORTED, REASON_ABORTED}};
  for (size_t i = 0; i < COUNT_OF(reasons); i++) {
    struct call *call = read_file(fixture, id, "x");
    session_double_read_end(session_double_read(), reasons[i][0]);
    expect_failure(call, reasons[i][1], NULL);
    session_double.fail_at_once = reasons[i][0];
    expect_failure(read_file(fixture, id, "x"), reasons[i][1], NULL);
    session_double.fail_at_once = REASON_NONE;
  }
  /* A sandbox that says too much, or gives more than it said. */
  struct call *call = read_file(fixture, id, "x");
  struct session_read *file = session_double_read();
  file->events->info(file->work.context, LIMIT_FILE_BYTES + 1, NULL);
  assert_true(file->work.cancelled);
  expect_failure(call, REASON_OUTPUT_TOO_LARGE, NULL);
  session_double_read_end(file, REASON_ABORTED);

  call = read_file(fixture, id, "x");
  file = session_double_read();
  call_double_cancel(call);
  assert_true(file->work.cancelled);
  expect_failure(call, REASON_ABORTED, NULL);
  session_double_data(file, "late", 4);
  assert_int_equal(file->work.consumed, 4);
  expect_reply(release(fixture, id));
}

static void test_write(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  uint8_t *content = malloc(LIMIT_FILE_BYTES + 1);
  assert_non_null(content);
  for (size_t i = 0; i <= LIMIT_FILE_BYTES; i++)
    content[i] = (uint8_t)(i * 7);
  struct call *call = write_file(fixture, id, "new/x", content, LIMIT_FILE_BYTES);
  struct session_write *file = session_double_write();
  assert_true(file->work.make_parents);
  assert_false(file->work.has_digest);
  assert_int_equal(file->work.size, LIMIT_FILE_BYTES);
  assert_int_equal(file->work.input.length, LIMIT_FILE_BYTES);
  assert_memory_equal(file->work.input.data, content, LIMIT_FILE_BYTES);
  assert_true(file->work.finished);
  session_double_write_end(file, REASON_NONE);
  expect_reply(call);
  expect_failure(write_file(fixture, id, "x", content, LIMIT_FILE_BYTES + 1), REASON_INVALID_REQUEST,
                 "'content' must have at most 10485760 bytes");
  free(content);

  call = write_file(fixture, id, "x", "", 0);
  assert_true(session_double_write()->work.finished);
  session_double_write_end(session_double_write(), REASON_NONE);
  expect_reply(call);
}

static void test_write_failures(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  const enum reason reasons[][2] = {{REASON_INVALID_PATH, REASON_FILE_WRITE_FAILED},
                                    {REASON_FILE_TRANSFER_FAILED, REASON_FILE_WRITE_FAILED},
                                    {REASON_CONTENT_LENGTH_MISMATCH, REASON_FILE_WRITE_FAILED},
                                    {REASON_SANDBOX_NOT_READY, REASON_SANDBOX_NOT_READY}};
  for (size_t i = 0; i < COUNT_OF(reasons); i++) {
    struct call *call = write_file(fixture, id, "x", "abc", 3);
    session_double_write_end(session_double_write(), reasons[i][0]);
    expect_failure(call, reasons[i][1], NULL);
    session_double.fail_at_once = reasons[i][0];
    expect_failure(write_file(fixture, id, "x", "abc", 3), reasons[i][1], NULL);
    session_double.fail_at_once = REASON_NONE;
  }
  struct call *call = write_file(fixture, id, "x", "abc", 3);
  call_double_cancel(call);
  assert_true(session_double_write()->work.cancelled);
  expect_failure(call, REASON_ABORTED, NULL);
  session_double_write_end(session_double_write(), REASON_ABORTED);
}

/* --- downloads --- */

static void expect_info(const struct call *call, int64_t size) {
  ProtobufCMessage *message = call_double_sent_message(call, 0, &sandbox__lease__v1__download_file_response__descriptor);
  const Sandbox__Lease__V1__DownloadFileResponse *response = (const Sandbox__Lease__V1__DownloadFileResponse *)message;
  assert_int_equal(response->response_case, SANDBOX__LEASE__V1__DOWNLOAD_FILE_RESPONSE__RESPONSE_INFO);
  assert_int_equal(response->info->size_bytes, size);
  assert_int_equal(response->info->sha256.len, 32);
  protobuf_c_message_free_unpacked(message, NULL);
}

static void expect_data(const struct call *call, size_t n, const char *text) {
  ProtobufCMessage *message = call_double_sent_message(call, n, &sandbox__lease__v1__download_file_response__descriptor);
  const Sandbox__Lease__V1__DownloadFileResponse *response = (const Sandbox__Lease__V1__DownloadFileResponse *)message;
  assert_int_equal(response->response_case, SANDBOX__LEASE__V1__DOWNLOAD_FILE_RESPONSE__RESPONSE_DATA);
  assert_int_equal(response->data.len, strlen(text));
  assert_memory_equal(response->data.data, text, strlen(text));
  protobuf_c_message_free_unpacked(message, NULL);
}

static void test_download(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  struct call *call = download(fixture, id, "x");
  struct session_read *file = session_double_read();
  assert_true(file->work.wants_digest);
  assert_int_equal(file->work.size, LIMIT_TRANSFER_BYTES);
  file->events->info(file->work.context, 9, digest);
  expect_info(call, 9);
  session_double_data(file, "abc", 3);
  session_double_data(file, "def", 3);
  call_double_sent(call);
  expect_data(call, 1, "abcdef");
  session_double_data(file, "ghi", 3);
  assert_int_equal(file->work.consumed, 0);
  call_double_sent(call);
  assert_int_equal(file->work.consumed, 6);
  session_double_read_end(file, REASON_NONE);
  expect_waiting(call);
  expect_data(call, 2, "ghi");
  call_double_sent(call);
  expect_finished(call);

  /* An empty file; and one that is there before the session's start has returned. */
  call = download(fixture, id, "x");
  file = session_double_read();
  file->events->info(file->work.context, 0, digest);
  session_double_read_end(file, REASON_NONE);
  call_double_sent(call);
  assert_int_equal(call->sent_count, 1);
  expect_finished(call);
  session_double.give_at_once = true;
  call = download(fixture, id, "x");
  session_double.give_at_once = false;
  expect_info(call, 5);
  call_double_sent(call);
  expect_data(call, 1, "hello");
  call_double_sent(call);
  expect_finished(call);
}

static void test_download_failures(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  const enum reason reasons[][2] = {{REASON_INVALID_PATH, REASON_INVALID_PATH},
                                    {REASON_FILE_NOT_FOUND, REASON_FILE_NOT_FOUND},
                                    {REASON_TRANSFER_TOO_LARGE, REASON_TRANSFER_TOO_LARGE},
                                    {REASON_INTERNAL, REASON_FILE_TRANSFER_FAILED},
                                    {REASON_NONE, REASON_FILE_TRANSFER_FAILED}};
  for (size_t i = 0; i < COUNT_OF(reasons); i++) {
    struct call *call = download(fixture, id, "x");
    session_double_read_end(session_double_read(), reasons[i][0]);
    expect_failure(call, reasons[i][1], NULL);
    session_double.fail_at_once = reasons[i][0];
    if (reasons[i][0] != REASON_NONE)
      expect_failure(download(fixture, id, "x"), reasons[i][1], NULL);
    session_double.fail_at_once = REASON_NONE;
  }
  /* It fails in the middle, with data under way and waiting. */
  struct call *call = download(fixture, id, "x");
  struct session_read *file = session_double_read();
  file->events->info(file->work.context, 9, digest);
  session_double_data(file, "abc", 3);
  session_double_read_end(file, REASON_FILE_TRANSFER_FAILED);
  expect_failure(call, REASON_FILE_TRANSFER_FAILED, NULL);
  /* It lies about its size, or says it twice. */
  call = download(fixture, id, "x");
  file = session_double_read();
  file->events->info(file->work.context, LIMIT_TRANSFER_BYTES + 1, digest);
  assert_true(file->work.cancelled);
  expect_failure(call, REASON_FILE_TRANSFER_FAILED, NULL);
  session_double_read_end(file, REASON_ABORTED);
  /* The client goes away. */
  call = download(fixture, id, "x");
  file = session_double_read();
  file->events->info(file->work.context, 9, digest);
  session_double_data(file, "abc", 3);
  call_double_sent(call);
  session_double_data(file, "def", 3);
  call_double_cancel(call);
  assert_true(file->work.cancelled);
  assert_int_equal(file->work.consumed, 6);
  expect_failure(call, REASON_ABORTED, NULL);
  session_double_read_end(file, REASON_ABORTED);
}

/* --- uploads --- */

static void test_upload_rules(void **state) {
  struct fixture *fixture = *state;
  expect_failure(upload(fixture, "", "x", -1, 32), REASON_INVALID_REQUEST,
                 "'file' must say the size and digest of the content");
  expect_failure(upload(fixture, "", "x", LIMIT_TRANSFER_BYTES + 1, 0), REASON_TRANSFER_TOO_LARGE, NULL);
  expect_failure(upload(fixture, "", "x", LIMIT_TRANSFER_BYTES, 31), REASON_INVALID_CONTENT_DIGEST, NULL);
  expect_failure(upload(fixture, "", "x", LIMIT_TRANSFER_BYTES, 0), REASON_INVALID_CONTENT_DIGEST, NULL);
  Sandbox__Lease__V1__UploadFileRequest request = SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__INIT;
  expect_failure(call_double_start(fixture->service, "app", "ann", "UploadFile", &request.base), REASON_INVALID_REQUEST,
                 "The first message must be 'info'");
}

static void test_upload(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  struct call *call = upload(fixture, id, "x", 6, 32);
  struct session_write *file = session_double_write();
  assert_false(file->work.make_parents);
  assert_true(file->work.has_digest);
  assert_memory_equal(file->work.digest, digest, 32);
  assert_int_equal(file->work.size, 6);
  upload_data(call, "abc", 3);
  upload_data(call, "", 0);
  file->work.full = true;
  upload_data(call, "def", 3);
  assert_false(call->receiving);
  session_double_wanted(&file->work);
  assert_false(file->work.finished);
  call_double_message(call, NULL);
  assert_true(file->work.finished);
  expect_waiting(call);
  assert_memory_equal(file->work.input.data, "abcdef", 6);
  session_double_write_end(file, REASON_NONE);
  expect_reply(call);
}

static void test_upload_failures(void **state) {
  struct fixture *fixture = *state;
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  /* Too few bytes, too many. */
  for (int i = 0; i < 2; i++) {
    struct call *call = upload(fixture, id, "x", 3, 32);
    struct session_write *file = session_double_write();
    upload_data(call, i == 0 ? "ab" : "abcd", i == 0 ? 2 : 4);
    if (i == 0)
      call_double_message(call, NULL);
    assert_true(file->work.cancelled);
    assert_false(file->work.finished);
    expect_failure(call, REASON_CONTENT_LENGTH_MISMATCH, NULL);
    session_double_write_end(file, REASON_ABORTED);
  }
  /* A second `info`. */
  struct call *call = upload(fixture, id, "x", 3, 32);
  Sandbox__Lease__V1__UploadFileInfo info = SANDBOX__LEASE__V1__UPLOAD_FILE_INFO__INIT;
  Sandbox__Lease__V1__UploadFileRequest request = SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__INIT;
  request.request_case = SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__REQUEST_INFO;
  request.info = &info;
  call_double_message(call, &request.base);
  assert_true(session_double_write()->work.cancelled);
  expect_failure(call, REASON_INVALID_REQUEST, "'info' must be the first message and no other");
  session_double_write_end(session_double_write(), REASON_ABORTED);
  /* The sandbox refuses while the client still sends, at the end, and at once. */
  const enum reason reasons[] = {REASON_INVALID_PATH, REASON_CONTENT_DIGEST_MISMATCH, REASON_FILE_TRANSFER_FAILED};
  for (size_t i = 0; i < COUNT_OF(reasons); i++) {
    call = upload(fixture, id, "x", 3, 32);
    upload_data(call, "ab", 2);
    session_double_write_end(session_double_write(), reasons[i]);
    expect_failure(call, reasons[i], NULL);
    session_double.fail_at_once = reasons[i];
    expect_failure(upload(fixture, id, "x", 3, 32), reasons[i], NULL);
    session_double.fail_at_once = REASON_NONE;
  }
}

/* --- places and time --- */

static void test_places(void **state) {
  struct fixture *fixture = *state;
  char ids[5][ID_SIZE];
  struct call *calls[10];
  size_t count = 0;
  for (size_t i = 0; i < COUNT_OF(ids); i++) {
    char key[2] = {(char)('0' + i), 0};
    acquire_id(fixture, key, ids[i]);
  }
  for (size_t i = 0; i < 4; i++) {
    calls[count++] = download(fixture, ids[i], "x");
    calls[count++] = upload(fixture, ids[i], "x", 3, 32);
    struct call *refused = i < 3 ? download(fixture, ids[i], "x") : upload(fixture, ids[4], "x", 3, 32);
    assert_true(refused->retry_after > 0);
    expect_failure(refused, REASON_TRANSFER_LIMIT_REACHED, NULL);
  }
  /* Whole files take no place. */
  struct call *whole = read_file(fixture, ids[0], "x");
  expect_waiting(whole);
  session_double_read_end(session_double_read(), REASON_FILE_NOT_FOUND);
  expect_failure(whole, REASON_FILE_READ_FAILED, NULL);
  /* Each end gives a place back: success, cancellation (once the session has let go), the Lease's end. */
  session_double_write_end(session_double_write(), REASON_NONE);
  expect_reply(calls[7]);
  calls[7] = download(fixture, ids[4], "x");
  expect_waiting(calls[7]);
  call_double_cancel(calls[7]);
  expect_failure(calls[7], REASON_ABORTED, NULL);
  expect_failure(download(fixture, ids[4], "x"), REASON_TRANSFER_LIMIT_REACHED, NULL);
  session_double_read_end(session_double_read(), REASON_ABORTED);
  expect_reply(release(fixture, ids[0]));
  expect_failure(calls[0], REASON_ABORTED, NULL);
  expect_failure(calls[1], REASON_ABORTED, NULL);
  calls[0] = download(fixture, ids[4], "x");
  calls[1] = download(fixture, ids[4], "x");
  calls[7] = download(fixture, ids[3], "x");
  expect_waiting(calls[0]);
  expect_waiting(calls[1]);
  expect_waiting(calls[7]);
  for (size_t i = 0; i < COUNT_OF(ids); i++)
    if (i > 0)
      expect_reply(release(fixture, ids[i]));
  for (size_t i = 0; i < count; i++)
    expect_failure(calls[i], REASON_ABORTED, NULL);
}

static void test_time_limit(void **state) {
  struct fixture *fixture = calloc(1, sizeof(*fixture));
  assert_non_null(fixture);
  *state = fixture;
  setenv("SANDBOX_FILE_TRANSFER_TIMEOUT", "1s", 1);
  fixture_open(fixture);
  unsetenv("SANDBOX_FILE_TRANSFER_TIMEOUT");
  char id[ID_SIZE];
  acquire_id(fixture, "key", id);
  int64_t begun = clock_boot();
  struct call *first = download(fixture, id, "x");
  struct session_read *read = session_double_read();
  struct call *second = upload(fixture, id, "x", 3, 32);
  while (second->outcome == CALL_WAITING)
    uv_run(&fixture->loop, UV_RUN_ONCE);
  assert_true(clock_boot() - begun >= CLOCK_SECOND);
  assert_true(read->work.cancelled);
  assert_true(session_double_write()->work.cancelled);
  expect_failure(first, REASON_ABORTED, NULL);
  expect_failure(second, REASON_ABORTED, NULL);
  session_double_write_end(session_double_write(), REASON_ABORTED);
  session_double_read_end(read, REASON_ABORTED);
  expect_waiting(first = download(fixture, id, "x"));
  session_double_read_end(session_double_read(), REASON_FILE_NOT_FOUND);
  expect_failure(first, REASON_FILE_NOT_FOUND, NULL);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
#define OWN_FIXTURE(test) cmocka_unit_test_teardown(test, fixture_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
    WITH_FIXTURE(test_path_rules),
    WITH_FIXTURE(test_read),
    WITH_FIXTURE(test_read_failures),
    WITH_FIXTURE(test_write),
    WITH_FIXTURE(test_write_failures),
    WITH_FIXTURE(test_download),
    WITH_FIXTURE(test_download_failures),
    WITH_FIXTURE(test_upload_rules),
    WITH_FIXTURE(test_upload),
    WITH_FIXTURE(test_upload_failures),
    WITH_FIXTURE(test_places),
    OWN_FIXTURE(test_time_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
