/* Reading the agent's messages: the hand-written way says what the generated one says, and nothing out of range. */
#include "backend/session/reply.h"
#include "base/limits.h"
#include "base/memory.h"
#include "base/message.h"
#include "sandbox/agent/v1/agent.pb-c.h"
#include "tests/unit/session/check.h"
#include <stdlib.h>
#include <string.h>

typedef void reading(const uint8_t *message, size_t length, struct reply *reply);

/* Reads from a block of exactly the message's size. */
static enum reply_kind read_exactly(reading *read, const void *message, size_t length, struct reply *reply) {
  uint8_t *copy = malloc(length ? length : 1);
  assert_non_null(copy);
  memcpy(copy, message, length);
  read(copy, length, reply);
  if (reply->kind == REPLY_OUTPUT || reply->kind == REPLY_DATA) {
    assert_true(reply->bytes >= copy && reply->bytes + reply->length <= copy + length);
    assert_in_range(reply->length, 1, LIMIT_CHUNK_BYTES);
    reply->bytes = (const uint8_t *)message + (reply->bytes - copy);
  }
  free(copy);
  return reply->kind;
}

static enum reply_kind read_run(const void *message, size_t length, struct reply *reply) {
  return read_exactly(reply_read_run, message, length, reply);
}

static enum reply_kind read_file(const void *message, size_t length, struct reply *reply) {
  return read_exactly(reply_read_file, message, length, reply);
}

static uint8_t *pack_output(unsigned stream, uint64_t offset, size_t length, size_t *packed_length) {
  static uint8_t bytes[LIMIT_CHUNK_BYTES + 1];
  Sandbox__Agent__V1__OutputChunk output = SANDBOX__AGENT__V1__OUTPUT_CHUNK__INIT;
  Sandbox__Agent__V1__RunResponse response = SANDBOX__AGENT__V1__RUN_RESPONSE__INIT;
  memset(bytes, 0x5A, sizeof bytes);
  output.stream = stream;
  output.offset = offset;
  output.data = (ProtobufCBinaryData){.data = bytes, .len = length};
  response.response_case = SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_OUTPUT;
  response.output = &output;
  return message_pack(&response.base, packed_length);
}

static void output_is_read_where_it_lies(void **state) {
  (void)state;
  static const size_t lengths[] = {1, 2, 100, 127, 128, 16383, 16384, LIMIT_CHUNK_BYTES - 1, LIMIT_CHUNK_BYTES};
  static const uint64_t offsets[] = {0, 1, 127, 128, UINT32_MAX, UINT64_MAX};
  for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
    for (size_t j = 0; j < sizeof offsets / sizeof offsets[0]; j++)
      for (unsigned stream = 1; stream <= 2; stream++) {
        size_t length;
        struct reply reply;
        CLEANUP_MEMORY uint8_t *packed = pack_output(stream, offsets[j], lengths[i], &length);
        assert_int_equal(read_run(packed, length, &reply), REPLY_OUTPUT);
        assert_int_equal(reply.stream, stream);
        assert_true(reply.offset == offsets[j]);
        assert_int_equal(reply.length, lengths[i]);
        assert_ptr_equal(reply.bytes, packed + length - lengths[i]);
      }
}

static void output_out_of_range_is_bad(void **state) {
  (void)state;
  static const struct {
    unsigned stream;
    size_t length;
  } cases[] = {{0, 1}, {3, 1}, {UINT32_MAX, 1}, {1, 0}, {1, LIMIT_CHUNK_BYTES + 1}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    size_t length;
    struct reply reply;
    CLEANUP_MEMORY uint8_t *packed = pack_output(cases[i].stream, 5, cases[i].length, &length);
    assert_int_equal(read_run(packed, length, &reply), REPLY_BAD);
  }
}

static void every_cut_and_every_changed_byte_is_read_safely(void **state) {
  (void)state;
  size_t length;
  struct reply reply;
  CLEANUP_MEMORY uint8_t *packed = pack_output(1, 1000, 40, &length);
  for (size_t i = 0; i < length; i++)
    assert_int_equal(read_run(packed, i, &reply), REPLY_BAD);
  for (size_t i = 0; i < length; i++)
    for (unsigned value = 0; value < 256; value++) {
      uint8_t kept = packed[i];
      packed[i] = (uint8_t)value;
      if (read_run(packed, length, &reply) == REPLY_OUTPUT)
        assert_in_range(reply.stream, 1, 2);
      read_file(packed, length, &reply);
      packed[i] = kept;
    }
}

static void forms_no_serialiser_writes_are_bad(void **state) {
  (void)state;
  static const struct {
    const char *bytes;
    size_t length;
  } cases[] = {
      {"", 0},
      {"\x12", 1},
      {"\x12\x00", 2},
      {"\x12\x05\x1a\x01x\x08\x01", 7},                                          /* fields in another order */
      {"\x12\x08\x08\x01\x1a\x01x\x1a\x01y", 10},                                /* data twice */
      {"\x12\x07\x08\x01\x08\x01\x1a\x01x", 9},                                  /* stream twice */
      {"\x12\x05\x08\x01\x1a\x01x\x12\x05\x08\x01\x1a\x01x", 14},                /* output twice */
      {"\x12\x0f\x08\x81\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x1a\x01x", 17}, /* a number of eleven bytes */
      {"\x12\x06\x08\x01\x1a\x02x", 7},
      {"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x08\x01\x1a\x01x", 16},
      {"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x08\x01\x1a\x01x", 16},
      {"\x22\x00", 2}, /* a field nobody knows, alone */
      {"\x13\x14", 2},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct reply reply;
    assert_int_equal(read_run(cases[i].bytes, cases[i].length, &reply), REPLY_BAD);
  }
}

static enum reply_kind read_end(int by, int exit_code, int signal, struct reply *reply) {
  Sandbox__Agent__V1__RunEnd end = SANDBOX__AGENT__V1__RUN_END__INIT;
  Sandbox__Agent__V1__RunResponse response = SANDBOX__AGENT__V1__RUN_RESPONSE__INIT;
  end.ended_by = (Sandbox__Agent__V1__RunEndedBy)by;
  end.exit_code = exit_code;
  end.signal = signal;
  end.stdout_bytes = 11;
  end.stderr_bytes = UINT64_MAX;
  response.response_case = SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_END;
  response.end = &end;
  size_t length;
  CLEANUP_MEMORY uint8_t *packed = message_pack(&response.base, &length);
  return read_run(packed, length, reply);
}

static void ends_are_in_range(void **state) {
  (void)state;
  struct reply reply;
  for (int by = 1; by <= 6; by++) {
    assert_int_equal(read_end(by, 255, 64, &reply), REPLY_END);
    assert_int_equal(reply.ended_by, by);
    assert_int_equal(reply.exit_code, 255);
    assert_int_equal(reply.signal, 64);
    assert_true(reply.stdout_bytes == 11 && reply.stderr_bytes == UINT64_MAX);
  }
  static const int bad[][3] = {{0, 0, 0},  {7, 0, 0},  {-1, 0, 0}, {1, 256, 0},       {1, -1, 0},
                               {2, 0, 65}, {2, 0, -1}, {1, 0, 65}, {1, INT32_MIN, 0}, {INT32_MAX, 0, 0}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
    assert_int_equal(read_end(bad[i][0], bad[i][1], bad[i][2], &reply), REPLY_BAD);
}

static void started_is_read(void **state) {
  (void)state;
  struct reply reply;
  assert_int_equal(read_run("\x0a\x00", 2, &reply), REPLY_STARTED);
  assert_int_equal(reply.offset, 0);
  assert_int_equal(read_run("\x0a\x03\x08\x80\x01", 5, &reply), REPLY_STARTED);
  assert_int_equal(reply.offset, 128);
  /* Of a oneof the last counts. */
  assert_int_equal(read_run("\x12\x05\x08\x01\x1a\x01x\x0a\x00", 9, &reply), REPLY_STARTED);
  /* However large a message without payload is made by fields that nobody knows, it is not looked at. */
  uint8_t large[5000] = {0x0A, 0x00, 0x7A, 0x80, 0x20};
  assert_int_equal(read_run(large, 5 + 4096, &reply), REPLY_BAD);
}

static void files_are_read(void **state) {
  (void)state;
  struct reply reply;
  assert_int_equal(read_file("\x12\x03"
                             "abc",
                             5, &reply),
                   REPLY_DATA);
  assert_int_equal(reply.length, 3);
  assert_int_equal(read_file("\x12\x00", 2, &reply), REPLY_BAD);
  assert_int_equal(read_file("\x12\x03"
                             "ab",
                             4, &reply),
                   REPLY_BAD);
  assert_int_equal(read_file("\x0a\x02\x08\x05", 4, &reply), REPLY_INFO);
  assert_int_equal(reply.size, 5);
  assert_int_equal(reply.length, 0);
  uint8_t with_digest[38] = {0x0A, 36, 0x08, 0x05, 0x12, 32, 1, 2, 3};
  assert_int_equal(read_file(with_digest, 38, &reply), REPLY_INFO);
  assert_int_equal(reply.length, 32);
  assert_memory_equal(reply.digest, with_digest + 6, 32);
  uint8_t short_digest[37] = {0x0A, 35, 0x08, 0x05, 0x12, 31};
  assert_int_equal(read_file(short_digest, 37, &reply), REPLY_BAD);
  assert_int_equal(read_file("", 0, &reply), REPLY_BAD);
  size_t length = LIMIT_CHUNK_BYTES + 1;
  uint8_t *large = calloc(1, length + 4);
  assert_non_null(large);
  size_t head = reply_write_data_head(large, length);
  assert_int_equal(head, 4);
  assert_int_equal(read_file(large, head + length, &reply), REPLY_BAD);
  free(large);
  assert_true(reply_is_write_response((const uint8_t *)"", 0));
  assert_false(reply_is_write_response((const uint8_t *)"\xFF", 1));
}

static void heads_make_the_message_that_the_generated_code_reads(void **state) {
  (void)state;
  static const size_t lengths[] = {1, 127, 128, 16383, 16384, 65536};
  static const uint64_t offsets[] = {0, 1, 127, 128, UINT64_MAX};
  uint8_t *message = calloc(1, REPLY_HEAD_MOST + LIMIT_CHUNK_BYTES);
  assert_non_null(message);
  for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
    for (size_t j = 0; j < sizeof offsets / sizeof offsets[0]; j++) {
      size_t head = reply_write_stdin_head(message, offsets[j], lengths[i]);
      assert_in_range(head, 1, REPLY_HEAD_MOST);
      memset(message + head, 0x33, lengths[i]);
      Sandbox__Agent__V1__RunRequest *request = (void *)message_unpack(&sandbox__agent__v1__run_request__descriptor,
                                                                       message, head + lengths[i], NULL);
      assert_non_null(request);
      assert_int_equal(request->request_case, SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_STDIN);
      assert_true(request->stdin->offset == offsets[j]);
      assert_int_equal(request->stdin->data.len, lengths[i]);
      assert_int_equal(request->stdin->data.data[lengths[i] - 1], 0x33);
      protobuf_c_message_free_unpacked(&request->base, NULL);
      head = reply_write_data_head(message, lengths[i]);
      Sandbox__Agent__V1__WriteFileRequest *write = (void *)message_unpack(
          &sandbox__agent__v1__write_file_request__descriptor, message, head + lengths[i], NULL);
      assert_non_null(write);
      assert_int_equal(write->data.len, lengths[i]);
      protobuf_c_message_free_unpacked(&write->base, NULL);
    }
  free(message);
}

static void reasons_are_the_first_word(void **state) {
  (void)state;
  assert_int_equal(reply_reason("FILE_NOT_FOUND there is none"), REASON_FILE_NOT_FOUND);
  assert_int_equal(reply_reason("FILE_NOT_FOUND"), REASON_FILE_NOT_FOUND);
  assert_int_equal(reply_reason("FILE_NOT_FOUNDX"), REASON_NONE);
  assert_int_equal(reply_reason(" FILE_NOT_FOUND"), REASON_NONE);
  assert_int_equal(reply_reason("file_not_found"), REASON_NONE);
  assert_int_equal(reply_reason(""), REASON_NONE);
  char text[1025];
  memset(text, 'A', sizeof text);
  text[1024] = '\0';
  assert_int_equal(reply_reason(text), REASON_NONE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(output_is_read_where_it_lies),
      cmocka_unit_test(output_out_of_range_is_bad),
      cmocka_unit_test(every_cut_and_every_changed_byte_is_read_safely),
      cmocka_unit_test(forms_no_serialiser_writes_are_bad),
      cmocka_unit_test(ends_are_in_range),
      cmocka_unit_test(started_is_read),
      cmocka_unit_test(files_are_read),
      cmocka_unit_test(heads_make_the_message_that_the_generated_code_reads),
      cmocka_unit_test(reasons_are_the_first_word),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
