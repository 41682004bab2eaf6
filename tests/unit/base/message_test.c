#include "base/limits.h"
#include "base/memory.h"
#include "base/message.h"
#include "sample.pb-c.h"
#include "tests/unit/base/check.h"
#include <string.h>

static const ProtobufCMessageDescriptor *const sample = &sample__sample__descriptor;

struct verdict {
  const char *name;
  const char *bytes;
  size_t length;
  const char *field;   /* at fault, or NULL */
  const char *message; /* NULL: accepted */
};

static void check_verdict(const struct verdict *v) {
  struct error *err CLEANUP_ERROR = NULL;
  /* A copy of exactly this length, so that a sanitizer sees a read behind the end. */
  CLEANUP_MEMORY uint8_t *bytes = memory_new(v->length);
  memcpy(bytes, v->bytes, v->length);
  ProtobufCMessage *message = message_unpack(sample, bytes, v->length, &err);
  if (v->message == NULL) {
    if (message == NULL)
      fail_msg("%s: %s", v->name, error_message(err));
    protobuf_c_message_free_unpacked(message, NULL);
    return;
  }
  if (message != NULL)
    fail_msg("%s: accepted", v->name);
  assert_int_equal(error_reason(err), REASON_INVALID_REQUEST);
  assert_string_equal(error_message(err), v->message);
  if (v->field == NULL)
    assert_null(error_field(err));
  else
    assert_string_equal(error_field(err), v->field);
}

#define MALFORMED "Message is malformed"

static const struct verdict verdicts[] = {
    {"empty", BYTES(""), NULL, NULL},
    {"zero", BYTES("\x08\x00"), NULL, NULL},
    {"ten-byte varint", BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), NULL, NULL},
    {"padded varint", BYTES("\x08\x81\x80\x00"), NULL, NULL},
    {"padded length", BYTES("\x6a\x81\x80\x80\x80\x00z"), NULL, NULL},
    {"unknown fields",
     BYTES("\xa0\x06\x01\xa1\x06"
           "12345678\xa2\x06\x01x\xa5\x06"
           "1234"),
     NULL, NULL},
    {"highest number", BYTES("\xf8\xff\xff\xff\x0f\x01"), NULL, NULL},
    {"scalar twice", BYTES("\x08\x01\x08\x02"), NULL, NULL},
    {"text twice", BYTES("\x6a\x01x\x6a\x01y"), NULL, NULL},
    {"bool of any number", BYTES("\x58\x82\x01"), NULL, NULL},
    {"choice changes", BYTES("\xf2\x01\x01x\x80\x02\x05\xfa\x01\x02\x18\x07\x8a\x02\x01y\xf2\x01\x01z"), NULL, NULL},
    {"packed", BYTES("\xa2\x01\x03\x01\x96\x01"), NULL, NULL},
    {"packed and not", BYTES("\xa2\x01\x01\x01\xa0\x01\x05"), NULL, NULL},
    {"packed where it need not be", BYTES("\xd2\x01\x02\x01\x02"), NULL, NULL},
    {"packed empty", BYTES("\xa2\x01\x00"), NULL, NULL},
    {"packed flags", BYTES("\xba\x01\x02\x00\x01"), NULL, NULL},
    {"packed fixed",
     BYTES("\xaa\x01\x08"
           "12345678\xb2\x01\x08"
           "12345678"),
     NULL, NULL},
    {"map", BYTES("\xda\x01\x06\x0a\x01k\x12\x01v\xda\x01\x00"), NULL, NULL},
    {"nested",
     BYTES("\x7a\x05\x0a\x03"
           "abc"),
     NULL, NULL},

    {"key cut short", BYTES("\x88"), NULL, MALFORMED},
    {"key of six bytes", BYTES("\x88\x80\x80\x80\x80\x00\x00"), NULL, MALFORMED},
    {"key over 32 bits", BYTES("\x88\x80\x80\x80\x10\x00"), NULL, MALFORMED},
    {"number zero", BYTES("\x00\x00"), NULL, MALFORMED},
    {"varint without end", BYTES("\x08\xff"), "int32_value", "'int32_value' is malformed"},
    {"varint missing", BYTES("\x08"), "int32_value", "'int32_value' is malformed"},
    {"varint of eleven bytes", BYTES("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00"), "int32_value",
     "'int32_value' is malformed"},
    {"varint over 64 bits", BYTES("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02"), "int32_value",
     "'int32_value' is malformed"},
    {"fixed32 cut short",
     BYTES("\x3d"
           "123"),
     "fixed32_value", "'fixed32_value' is malformed"},
    {"fixed64 cut short",
     BYTES("\x41"
           "1234567"),
     "fixed64_value", "'fixed64_value' is malformed"},
    {"text cut short", BYTES("\x6a\x03xy"), "text", "'text' is malformed"},
    {"length of 2^32 - 1", BYTES("\x6a\xff\xff\xff\xff\x0fx"), "text", "'text' is malformed"},
    {"length over 32 bits", BYTES("\x6a\x81\x80\x80\x80\x10x"), "text", "'text' is malformed"},
    {"length of six bytes", BYTES("\x6a\x81\x80\x80\x80\x80\x00x"), "text", "'text' is malformed"},
    {"length missing", BYTES("\x6a"), "text", "'text' is malformed"},
    {"group starts", BYTES("\x0b"), "int32_value", "'int32_value' is malformed"},
    {"group ends", BYTES("\x0c"), "int32_value", "'int32_value' is malformed"},
    {"unknown group", BYTES("\xa3\x06\xa4\x06"), NULL, MALFORMED},
    {"wire type 6", BYTES("\x0e"), "int32_value", "'int32_value' is malformed"},
    {"wire type 7", BYTES("\xa7\x06"), NULL, MALFORMED},
    {"unknown cut short", BYTES("\xa2\x06\x02x"), NULL, MALFORMED},
    {"number as text", BYTES("\x0a\x01x"), "int32_value", "'int32_value' has the wrong type"},
    {"text as number", BYTES("\x68\x01"), "text", "'text' has the wrong type"},
    {"bool as text", BYTES("\x5a\x01x"), "bool_value", "'bool_value' has the wrong type"},
    {"bool as fixed32",
     BYTES("\x5d"
           "1234"),
     "bool_value", "'bool_value' has the wrong type"},
    {"double as fixed32",
     BYTES("\x55"
           "1234"),
     "double_value", "'double_value' has the wrong type"},
    {"message as number", BYTES("\x78\x01"), "inner", "'inner' has the wrong type"},
    {"repeated as fixed32",
     BYTES("\xa5\x01"
           "1234"),
     "numbers", "'numbers' has the wrong type"},
    {"repeated texts as number", BYTES("\xc0\x01\x01"), "texts", "'texts' has the wrong type"},
    {"text not UTF-8", BYTES("\x6a\x01\xff"), "text", "'text' must be valid UTF-8 without U+0000"},
    {"text with NUL", BYTES("\x6a\x02x\0"), "text", "'text' must be valid UTF-8 without U+0000"},
    {"optional text", BYTES("\x82\x01\x01\xff"), "optional_text", "'optional_text' must be valid UTF-8 without U+0000"},
    {"repeated text", BYTES("\xc2\x01\x01\xff"), "texts", "'texts' must be valid UTF-8 without U+0000"},
    {"choice text", BYTES("\xf2\x01\x01\xff"), "choice_text", "'choice_text' must be valid UTF-8 without U+0000"},
    {"map key", BYTES("\xda\x01\x03\x0a\x01\0"), "labels.key", "'labels.key' must be valid UTF-8 without U+0000"},
    {"map value", BYTES("\xda\x01\x03\x12\x01\xff"), "labels.value",
     "'labels.value' must be valid UTF-8 without U+0000"},
    {"nested text", BYTES("\xe2\x01\x05\x12\x03\x0a\x01\xff"), "table.value.name",
     "'table.value.name' must be valid UTF-8 without U+0000"},
    {"nested cut short", BYTES("\x7a\x02\x0a\x01"), "inner.name", "'inner.name' is malformed"},
    {"nested key", BYTES("\x7a\x01\x80"), NULL, MALFORMED},
    {"message twice", BYTES("\x7a\x00\x7a\x00"), "inner", "'inner' stands twice"},
    {"choice message twice", BYTES("\xfa\x01\x00\xfa\x01\x00"), "choice_inner", "'choice_inner' stands twice"},
    {"map value twice", BYTES("\xe2\x01\x04\x12\x00\x12\x00"), "table.value", "'table.value' stands twice"},
    {"packed cut short", BYTES("\xa2\x01\x01\x80"), "numbers", "'numbers' is malformed"},
    {"packed of eleven bytes", BYTES("\xa2\x01\x0b\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00"), "numbers",
     "'numbers' is malformed"},
    {"packed fixed, not whole",
     BYTES("\xaa\x01\x05"
           "12345"),
     "fixed_numbers", "'fixed_numbers' is malformed"},
    {"packed fixed64, not whole",
     BYTES("\xb2\x01\x04"
           "1234"),
     "long_numbers", "'long_numbers' is malformed"},
    {"packed flag of 2", BYTES("\xba\x01\x01\x02"), "flags", "'flags' is malformed"},
    {"packed flag of two bytes", BYTES("\xba\x01\x02\x81\x00"), "flags", "'flags' is malformed"},
};

static void test_verdicts(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(verdicts); i++)
    check_verdict(&verdicts[i]);
}

/* `levels` messages inside each other, Sample in Inner in Sample. */
static size_t nest(uint8_t *bytes, unsigned levels) {
  size_t length = 0;
  for (unsigned i = 0; i + 1 < levels; i++) {
    /* From inside out: a level alternates between Sample.inner (15) and Inner.sample (2); the outermost is Sample. */
    bool from_sample = (levels - 2 - i) % 2 == 0;
    memmove(bytes + 2, bytes, length);
    bytes[0] = from_sample ? 0x7a : 0x12;
    bytes[1] = (uint8_t)length;
    length += 2;
  }
  return length;
}

static void test_depth(void **state) {
  (void)state;
  uint8_t bytes[100];
  struct error *err CLEANUP_ERROR = NULL;
  assert_int_equal(message_check(sample, bytes, nest(bytes, LIMIT_MESSAGE_DEPTH), &err), 0);
  assert_int_equal(message_check(sample, bytes, nest(bytes, LIMIT_MESSAGE_DEPTH + 1), &err), -1);
  assert_string_equal(error_message(err), "'inner.sample.inner.sample.inner.sample.inner.sample' is nested too deeply");
}

static void test_number_of_fields(void **state) {
  (void)state;
  static uint8_t bytes[3 * (LIMIT_MESSAGE_FIELDS + 1)];
  struct error *err CLEANUP_ERROR = NULL;
  const size_t most = LIMIT_MESSAGE_FIELDS;
  for (size_t i = 0; i <= most; i++)
    memcpy(bytes + 2 * i, "\x08\x01", 2);
  assert_int_equal(message_check(sample, bytes, 2 * most, &err), 0);
  assert_int_equal(message_check(sample, bytes, 2 * (most + 1), &err), -1);
  assert_string_equal(error_message(err), "'int32_value' makes the message hold too many fields");
  error_free(&err);
  for (size_t i = 0; i <= most; i++)
    memcpy(bytes + 3 * i, "\xa0\x06\x01", 3);
  assert_int_equal(message_check(sample, bytes, 3 * (most + 1), &err), -1);
  assert_string_equal(error_message(err), "Message holds too many fields");
  error_free(&err);
  /* Packed: the field itself counts, and every element. */
  memset(bytes, 0, sizeof bytes);
  size_t elements = most - 1;
  memcpy(bytes, (uint8_t[]){0xa2, 0x01, (uint8_t)(0x80 | (elements & 0x7f)), (uint8_t)(elements >> 7)}, 4);
  assert_int_equal(message_check(sample, bytes, 4 + elements, &err), 0);
  elements++;
  memcpy(bytes, (uint8_t[]){0xa2, 0x01, (uint8_t)(0x80 | (elements & 0x7f)), (uint8_t)(elements >> 7)}, 4);
  assert_int_equal(message_check(sample, bytes, 4 + elements, &err), -1);
  assert_string_equal(error_field(err), "numbers");
}

static void test_too_large(void **state) {
  (void)state;
  struct error *err CLEANUP_ERROR = NULL;
  assert_int_equal(message_check(sample, (const uint8_t *)"", (size_t)INT32_MAX + 1, &err), -1);
  assert_string_equal(error_message(err), "Message is too large");
  assert_int_equal(message_check(sample, NULL, 0, NULL), 0);
}

static Sample__Sample *full_sample(void) {
  static Sample__Inner inner = SAMPLE__INNER__INIT;
  static Sample__Inner *inners[] = {&inner, &inner};
  static char *texts[] = {(char *)"one", (char *)"two"};
  static int32_t numbers[] = {1, -1, 300};
  static Sample__Sample__LabelsEntry label = SAMPLE__SAMPLE__LABELS_ENTRY__INIT;
  static Sample__Sample__LabelsEntry *labels[] = {&label, &label};
  static Sample__Sample message = SAMPLE__SAMPLE__INIT;
  inner.name = (char *)"name";
  label.key = (char *)"key";
  label.value = (char *)"value";
  message.int32_value = -5;
  message.double_value = 2.5;
  message.text = (char *)"\xe2\x82\xac";
  message.data = (ProtobufCBinaryData){3, (uint8_t *)"\xff\0x"};
  message.inner = &inner;
  message.optional_text = (char *)"";
  message.n_numbers = COUNT_OF(numbers);
  message.numbers = numbers;
  message.n_texts = COUNT_OF(texts);
  message.texts = texts;
  message.n_inners = COUNT_OF(inners);
  message.inners = inners;
  message.n_labels = COUNT_OF(labels);
  message.labels = labels;
  message.choice_case = SAMPLE__SAMPLE__CHOICE_CHOICE_INNER;
  message.choice_inner = &inner;
  return &message;
}

static void test_round_trip(void **state) {
  (void)state;
  size_t length = 0, again_length = 0;
  struct error *err CLEANUP_ERROR = NULL;
  CLEANUP_MEMORY uint8_t *bytes = message_pack(&full_sample()->base, &length);
  assert_non_null(bytes);
  ProtobufCMessage *message = message_unpack(sample, bytes, length, &err);
  assert_non_null(message);
  assert_string_equal(((Sample__Sample *)message)->labels[1]->value, "value");
  CLEANUP_MEMORY uint8_t *again = message_pack(message, &again_length);
  assert_int_equal(again_length, length);
  assert_memory_equal(again, bytes, length);
  protobuf_c_message_free_unpacked(message, NULL);
  Sample__Sample empty = SAMPLE__SAMPLE__INIT;
  CLEANUP_MEMORY uint8_t *nothing = message_pack(&empty.base, &length);
  assert_non_null(nothing);
  assert_int_equal(length, 0);
}

/* Whatever the check lets pass, unpack takes. Bytes of a real message, damaged in a reproducible way. */
static void test_what_passes_unpacks(void **state) {
  (void)state;
  size_t length = 0;
  CLEANUP_MEMORY uint8_t *bytes = message_pack(&full_sample()->base, &length);
  CLEANUP_MEMORY uint8_t *damaged = memory_new(length);
  uint64_t random = 88172645463325252u;
  unsigned passed = 0;
  for (int round = 0; round < 200000; round++) {
    memcpy(damaged, bytes, length);
    for (int change = 0; change < 1 + round % 4; change++) {
      random ^= random << 13, random ^= random >> 7, random ^= random << 17;
      damaged[random % length] = (uint8_t)(random >> 40);
    }
    if (message_check(sample, damaged, length, NULL) != 0)
      continue;
    passed++;
    ProtobufCMessage *message = protobuf_c_message_unpack(sample, NULL, length, damaged);
    if (message == NULL)
      fail_msg("round %d: checked, but not unpacked", round);
    protobuf_c_message_free_unpacked(message, NULL);
  }
  assert_in_range(passed, 1000, 199000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_verdicts),  cmocka_unit_test(test_depth),      cmocka_unit_test(test_number_of_fields),
      cmocka_unit_test(test_too_large), cmocka_unit_test(test_round_trip), cmocka_unit_test(test_what_passes_unpacks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
