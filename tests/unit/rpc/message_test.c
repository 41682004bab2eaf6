/*
 * Packing and unpacking, and the messages of one `bytes` field.
 */
#include "rpc/message.h"

#include "sandbox/lease/v1/lease.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <string.h>

#define BYTES(literal) (literal), (sizeof(literal) - 1)

static grpc_byte_buffer *buffer_of(const char *bytes, size_t length) {
  grpc_slice slice = grpc_slice_from_copied_buffer(bytes, length);
  grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
  grpc_slice_unref(slice);
  return buffer;
}

/* The same bytes, one slice for each. */
static grpc_byte_buffer *buffer_in_pieces(const char *bytes, size_t length) {
  grpc_slice slices[64];
  assert_true(length <= 64);
  for (size_t i = 0; i < length; i++)
    slices[i] = grpc_slice_from_copied_buffer(bytes + i, 1);
  grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(slices, length);
  for (size_t i = 0; i < length; i++)
    grpc_slice_unref(slices[i]);
  return buffer;
}

static void message_survives_the_way_there_and_back(void **state) {
  (void)state;
  Sandbox__Lease__V1__GetLeaseRequest request = SANDBOX__LEASE__V1__GET_LEASE_REQUEST__INIT;
  request.lease_id = (char *)"lease-1";
  grpc_byte_buffer *bytes = rpc_pack(&request.base);
  assert_non_null(bytes);
  struct error *err = NULL;
  ProtobufCMessage *message = rpc_unpack(&sandbox__lease__v1__get_lease_request__descriptor, bytes, &err);
  assert_non_null(message);
  assert_null(err);
  assert_string_equal(((Sandbox__Lease__V1__GetLeaseRequest *)message)->lease_id, "lease-1");
  protobuf_c_message_free_unpacked(message, NULL);
  grpc_byte_buffer_destroy(bytes);
}

static void message_in_pieces_is_read(void **state) {
  (void)state;
  grpc_byte_buffer *bytes = buffer_in_pieces(BYTES("\x0a\x07lease-1"));
  ProtobufCMessage *message = rpc_unpack(&sandbox__lease__v1__get_lease_request__descriptor, bytes, NULL);
  assert_non_null(message);
  assert_string_equal(((Sandbox__Lease__V1__GetLeaseRequest *)message)->lease_id, "lease-1");
  protobuf_c_message_free_unpacked(message, NULL);
  grpc_byte_buffer_destroy(bytes);
}

static void empty_message_is_read(void **state) {
  (void)state;
  grpc_byte_buffer *bytes = grpc_raw_byte_buffer_create(NULL, 0);
  ProtobufCMessage *message = rpc_unpack(&sandbox__lease__v1__get_lease_request__descriptor, bytes, NULL);
  assert_non_null(message);
  protobuf_c_message_free_unpacked(message, NULL);
  grpc_byte_buffer_destroy(bytes);
}

static void bad_messages_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *bytes;
    size_t length;
  } cases[] = {
      {BYTES("\x0a\x09lease-1")},      /* shorter than it says */
      {BYTES("\x0a\x02\xc3\x28")},     /* not UTF-8 */
      {BYTES("\x0a\x03\x61\x00\x62")}, /* a NUL inside */
      {BYTES("\xff\xff\xff\xff")},     /* no tag */
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    grpc_byte_buffer *bytes = buffer_of(cases[i].bytes, cases[i].length);
    struct error *err = NULL;
    assert_null(rpc_unpack(&sandbox__lease__v1__get_lease_request__descriptor, bytes, &err));
    assert_int_equal(error_reason(err), REASON_INVALID_REQUEST);
    error_free(&err);
    grpc_byte_buffer_destroy(bytes);
  }
}

static void compressed_message_is_refused(void **state) {
  (void)state;
  grpc_slice slice = grpc_slice_from_copied_buffer("\x0a\x01\x61", 3);
  grpc_byte_buffer *bytes = grpc_raw_compressed_byte_buffer_create(&slice, 1, GRPC_COMPRESS_GZIP);
  grpc_slice_unref(slice);
  struct error *err = NULL;
  assert_null(rpc_unpack(&sandbox__lease__v1__get_lease_request__descriptor, bytes, &err));
  assert_int_equal(error_reason(err), REASON_INVALID_REQUEST);
  error_free(&err);
  grpc_slice payload;
  assert_false(rpc_unpack_bytes(1, bytes, &payload));
  grpc_byte_buffer_destroy(bytes);
}

static void payload_is_not_copied(void **state) {
  (void)state;
  grpc_slice payload = grpc_slice_malloc_large(100000);
  memset(GRPC_SLICE_START_PTR(payload), 'x', 100000);
  const uint8_t *start = GRPC_SLICE_START_PTR(payload);
  grpc_byte_buffer *bytes = rpc_pack_bytes(2, payload);
  assert_int_equal(bytes->data.raw.slice_buffer.count, 2);
  assert_ptr_equal(GRPC_SLICE_START_PTR(bytes->data.raw.slice_buffer.slices[1]), start);

  ProtobufCMessage *message = rpc_unpack(&sandbox__lease__v1__upload_file_request__descriptor, bytes, NULL);
  assert_non_null(message);
  const Sandbox__Lease__V1__UploadFileRequest *upload = (const Sandbox__Lease__V1__UploadFileRequest *)message;
  assert_int_equal(upload->request_case, SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__REQUEST_DATA);
  assert_int_equal(upload->data.len, 100000);
  assert_int_equal(upload->data.data[99999], 'x');
  protobuf_c_message_free_unpacked(message, NULL);

  grpc_slice read;
  assert_true(rpc_unpack_bytes(2, bytes, &read));
  assert_int_equal(GRPC_SLICE_LENGTH(read), 100000);
  grpc_slice_unref(read);
  grpc_byte_buffer_destroy(bytes);

  Sandbox__Lease__V1__UploadFileRequest request = SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__INIT;
  uint8_t data[100] = {7};
  request.request_case = SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__REQUEST_DATA;
  request.data = (ProtobufCBinaryData){.len = sizeof data, .data = data};
  bytes = rpc_pack(&request.base);
  start = GRPC_SLICE_START_PTR(bytes->data.raw.slice_buffer.slices[0]);
  assert_true(rpc_unpack_bytes(2, bytes, &read));
  assert_ptr_equal(GRPC_SLICE_START_PTR(read), start + 2);
  grpc_slice_unref(read);
  grpc_byte_buffer_destroy(bytes);
}

static void empty_payload_is_present(void **state) {
  (void)state;
  grpc_byte_buffer *bytes = rpc_pack_bytes(2, grpc_empty_slice());
  assert_int_equal(grpc_byte_buffer_length(bytes), 2);
  grpc_slice read;
  assert_true(rpc_unpack_bytes(2, bytes, &read));
  assert_int_equal(GRPC_SLICE_LENGTH(read), 0);
  grpc_slice_unref(read);
  grpc_byte_buffer_destroy(bytes);
}

static void other_messages_are_not_payload(void **state) {
  (void)state;
  static const struct {
    const char *bytes;
    size_t length;
  } cases[] = {
      {BYTES("")},
      {BYTES("\x12")},
      {BYTES("\x0a\x01x")},                                        /* another field */
      {BYTES("\x10\x01")},                                         /* another wire type */
      {BYTES("\x12\x02x")},                                        /* shorter than it says */
      {BYTES("\x12\x01xy")},                                       /* something behind it */
      {BYTES("\x12\x01x\x12\x01y")},                               /* the field twice */
      {BYTES("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")}, /* a length without end */
      {BYTES("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x")},    /* 2^64 - 1 */
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    grpc_byte_buffer *whole = buffer_of(cases[i].bytes, cases[i].length);
    grpc_byte_buffer *pieces = buffer_in_pieces(cases[i].bytes, cases[i].length);
    grpc_slice read;
    assert_false(rpc_unpack_bytes(2, whole, &read));
    assert_false(rpc_unpack_bytes(2, pieces, &read));
    grpc_byte_buffer_destroy(whole);
    grpc_byte_buffer_destroy(pieces);
  }
}

int main(void) {
  grpc_init();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(message_survives_the_way_there_and_back),
      cmocka_unit_test(message_in_pieces_is_read),
      cmocka_unit_test(empty_message_is_read),
      cmocka_unit_test(bad_messages_are_refused),
      cmocka_unit_test(compressed_message_is_refused),
      cmocka_unit_test(payload_is_not_copied),
      cmocka_unit_test(empty_payload_is_present),
      cmocka_unit_test(other_messages_are_not_payload),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  grpc_shutdown();
  return failed;
}
