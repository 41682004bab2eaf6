/*
 * Errors as gRPC carries them, there and back.
 */
#include "rpc/status.h"

#include "google/protobuf/any.pb-c.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <grpc/slice.h>
#include <string.h>

/* What the client reads when `details` came with a status of this code and text. */
static struct error *read_back(grpc_status_code code, const char *text, grpc_slice details) {
  grpc_metadata entries[2] = {
      {.key = grpc_slice_from_static_string("x-other"), .value = grpc_slice_from_static_string("1")},
      {.key = grpc_slice_from_static_string("grpc-status-details-bin"), .value = details},
  };
  grpc_metadata_array trailing = {.count = 2, .capacity = 2, .metadata = entries};
  struct error *err = NULL;
  int result = rpc_status_read(code, grpc_slice_from_static_string(text), &trailing, &err);
  assert_int_equal(result, -1);
  assert_non_null(err);
  return err;
}

static void every_reason_survives(void **state) {
  (void)state;
  for (int i = 1; i < REASON_COUNT; i++) {
    enum reason reason = (enum reason)i;
    struct error *err = NULL;
    error_set(&err, reason, NULL);
    grpc_slice details = rpc_status_details(err);
    struct error *read = read_back((grpc_status_code)reason_grpc_code(reason), reason_message(reason), details);
    assert_int_equal(error_reason(read), reason);
    assert_string_equal(error_message(read), reason_message(reason));
    assert_null(error_field(read));
    assert_int_equal(error_retry_after(read), 0);
    error_free(&read);
    error_free(&err);
    grpc_slice_unref(details);
  }
}

static void message_field_and_delay_survive(void **state) {
  (void)state;
  struct error *err = NULL;
  error_set_field(&err, REASON_INVALID_REQUEST, "command.cwd", "too long");
  error_set_retry_after(err, 61250);
  grpc_slice details = rpc_status_details(err);
  struct error *read = read_back(GRPC_STATUS_INVALID_ARGUMENT, "too long", details);
  assert_int_equal(error_reason(read), REASON_INVALID_REQUEST);
  assert_string_equal(error_message(read), "too long");
  assert_string_equal(error_field(read), "command.cwd");
  assert_int_equal(error_retry_after(read), 61250);
  error_free(&read);
  error_free(&err);
  grpc_slice_unref(details);
}

static void details_are_what_other_clients_expect(void **state) {
  (void)state;
  struct error *err = NULL;
  error_set(&err, REASON_LEASE_NOT_FOUND, NULL);
  grpc_slice details = rpc_status_details(err);
  Google__Rpc__Status *status =
      google__rpc__status__unpack(NULL, GRPC_SLICE_LENGTH(details), GRPC_SLICE_START_PTR(details));
  assert_non_null(status);
  assert_int_equal(status->code, GRPC_STATUS_NOT_FOUND);
  assert_string_equal(status->message, "Lease not found");
  assert_int_equal(status->n_details, 1);
  assert_string_equal(status->details[0]->type_url, "type.googleapis.com/google.rpc.ErrorInfo");
  Google__Rpc__ErrorInfo *info =
      google__rpc__error_info__unpack(NULL, status->details[0]->value.len, status->details[0]->value.data);
  assert_non_null(info);
  assert_string_equal(info->domain, "sandbox.lease.v1");
  assert_string_equal(info->reason, "LEASE_NOT_FOUND");
  google__rpc__error_info__free_unpacked(info, NULL);
  google__rpc__status__free_unpacked(status, NULL);
  error_free(&err);
  grpc_slice_unref(details);
}

static void detail_for_the_log_is_not_sent(void **state) {
  (void)state;
  struct error *err = NULL;
  error_set_detail(&err, REASON_INTERNAL, "secret detail");
  grpc_slice details = rpc_status_details(err);
  assert_null(memmem(GRPC_SLICE_START_PTR(details), GRPC_SLICE_LENGTH(details), "secret", 6));
  error_free(&err);
  grpc_slice_unref(details);
}

static void status_without_details_is_told_by_its_code(void **state) {
  (void)state;
  static const struct {
    grpc_status_code code;
    enum reason reason;
  } cases[] = {
      {GRPC_STATUS_UNAVAILABLE, REASON_SERVER_UNAVAILABLE}, {GRPC_STATUS_CANCELLED, REASON_ABORTED},
      {GRPC_STATUS_DEADLINE_EXCEEDED, REASON_ABORTED},      {GRPC_STATUS_UNKNOWN, REASON_INTERNAL},
      {GRPC_STATUS_RESOURCE_EXHAUSTED, REASON_INTERNAL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct error *err = NULL;
    assert_int_equal(rpc_status_read(cases[i].code, grpc_slice_from_static_string("it broke"), NULL, &err), -1);
    assert_int_equal(error_reason(err), cases[i].reason);
    assert_string_equal(error_message(err), reason_message(cases[i].reason));
    assert_non_null(strstr(error_detail(err), "it broke"));
    error_free(&err);
  }
  struct error *err = NULL;
  assert_int_equal(rpc_status_read(GRPC_STATUS_OK, grpc_empty_slice(), NULL, &err), 0);
  assert_null(err);
}

static grpc_slice details_of_domain(const char *domain, const char *reason) {
  Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
  info.domain = (char *)domain;
  info.reason = (char *)reason;
  uint8_t bytes[256];
  Google__Protobuf__Any any = GOOGLE__PROTOBUF__ANY__INIT;
  any.type_url = (char *)"type.googleapis.com/google.rpc.ErrorInfo";
  any.value = (ProtobufCBinaryData){.len = google__rpc__error_info__pack(&info, bytes), .data = bytes};
  Google__Protobuf__Any *details[] = {&any};
  Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
  status.n_details = 1;
  status.details = details;
  grpc_slice slice = grpc_slice_malloc(google__rpc__status__get_packed_size(&status));
  google__rpc__status__pack(&status, GRPC_SLICE_START_PTR(slice));
  return slice;
}

static void foreign_and_unknown_reasons_are_told_by_the_code(void **state) {
  (void)state;
  grpc_slice slices[] = {
      details_of_domain("example.com", "LEASE_NOT_FOUND"),
      details_of_domain("sandbox.lease.v1", "SOMETHING_NEW"),
      grpc_slice_from_copied_string("\xff\xff\xff not a message"),
      grpc_empty_slice(),
  };
  for (size_t i = 0; i < sizeof slices / sizeof slices[0]; i++) {
    struct error *read = read_back(GRPC_STATUS_UNAVAILABLE, "no", slices[i]);
    assert_int_equal(error_reason(read), REASON_SERVER_UNAVAILABLE);
    error_free(&read);
    grpc_slice_unref(slices[i]);
  }
}

int main(void) {
  grpc_init();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_reason_survives),
      cmocka_unit_test(message_field_and_delay_survive),
      cmocka_unit_test(details_are_what_other_clients_expect),
      cmocka_unit_test(detail_for_the_log_is_not_sent),
      cmocka_unit_test(status_without_details_is_told_by_its_code),
      cmocka_unit_test(foreign_and_unknown_reasons_are_told_by_the_code),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  grpc_shutdown();
  return failed;
}
