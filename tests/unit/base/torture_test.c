/*
 * Every allocation of every function of base/ fails once, alone and with all after it. Each time the function must say
 * so (or do without), leak nothing, and work again afterwards. AddressSanitizer sees the leaks too; without it the
 * heap's own count does.
 */
#include "base/buffer.h"
#include "base/config.h"
#include "base/cursor.h"
#include "base/error.h"
#include "base/identity.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/message.h"
#include "base/text.h"
#include "sample.pb-c.h"
#include "tests/unit/base/check.h"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Does its work with memory that may fail. Returns 0 if all of it was done, or -1 and maybe *err. */
typedef int scenario(struct error **err);

static struct key_ring *ring; /* made before anything fails */
static struct digest_key metadata_key;
static struct cursor_key cursor_key;
static char *token;
static char *cursor_text;
static uint8_t *packed;
static size_t packed_length;
static char config_path[] = "/tmp/torture_test.XXXXXX";

static const char secrets[] = "{\"acme\":\"top-secret\",\"beta\":[\"new\",\"old\"],\"gamma\\u0000\\u0001\":\"x\"}";
static const char good_secrets[] = "{\"acme\":\"top-secret\",\"beta\":[\"new\",\"old\"]}";
static const char document[] = "{\"a\\u0000b\":[1,2.5,null,true,{\"x\":\"\\u0001\"}],\"long\":"
                               "\"0123456789012345678901234567890123456789012345678901234567890123456789\",\"n\":-7}";

static int buffers(struct error **err) {
  struct buffer buffer CLEANUP_BUFFER;
  buffer_init(&buffer, 100000);
  for (int i = 0; i < 50; i++)
    if (buffer_append_format(&buffer, "%d %s", i, "0123456789") != 0 || buffer_append_byte(&buffer, 'x') != 0 ||
        buffer_reserve(&buffer, 100) == NULL)
      return error_set_memory(err);
  CLEANUP_MEMORY char *text = buffer_take(&buffer);
  assert_string_equal(text + strlen(text) - 14, "49 0123456789x");
  return 0;
}

static int blocks(struct error **err) {
  CLEANUP_MEMORY void *one = memory_new(10);
  CLEANUP_MEMORY void *two = memory_array(3, 4);
  CLEANUP_MEMORY char *three = memory_string("text");
  if (one == NULL || two == NULL || three == NULL)
    return error_set_memory(err);
  char *longer = memory_resize(three, 5000);
  if (longer == NULL)
    return error_set_memory(err);
  three = longer;
  assert_string_equal(three, "text");
  return 0;
}

/* Errors never fail; without memory they say less. */
static int errors(struct error **err) {
  (void)err;
  struct error *one CLEANUP_ERROR = NULL, *two CLEANUP_ERROR = NULL, *three CLEANUP_ERROR = NULL;
  error_set_field(&one, REASON_INVALID_REQUEST, "field", "message");
  error_context(&one, "in %s", "context");
  error_set_detail(&two, REASON_POOL_EXHAUSTED, "detail");
  error_context(&two, "more");
  error_set_errno(&three, 2, "opening");
  error_context(&three, "more");
  assert_int_equal(error_reason(one), REASON_INVALID_REQUEST);
  assert_int_equal(error_reason(two), REASON_POOL_EXHAUSTED);
  assert_int_equal(error_reason(three), REASON_INTERNAL);
  return 0;
}

static int encodings(struct error **err) {
  struct buffer out CLEANUP_BUFFER;
  struct buffer back CLEANUP_BUFFER;
  buffer_init(&out, 100000);
  buffer_init(&back, 100000);
  const size_t length = sizeof document - 1;
  if (text_base64(&out, document, length) != 0 || text_unbase64(&back, buffer_text(&out), out.length) != 0)
    return error_set_memory(err);
  buffer_free(&out);
  buffer_free(&back);
  if (text_base64url(&out, document, length) != 0 || text_unbase64url(&back, buffer_text(&out), out.length) != 0)
    return error_set_memory(err);
  assert_int_equal(back.length, length);
  buffer_free(&out);
  if (text_repair(&out,
                  "a\xff"
                  "b\xe2\x82",
                  5) != 0 ||
      json_write_string(&out, document, length) != 0)
    return error_set_memory(err);
  return 0;
}

static int parse_json(struct error **err) {
  struct json *json CLEANUP_JSON = json_parse(document, sizeof document - 1, err);
  if (json == NULL)
    return -1;
  struct buffer out CLEANUP_BUFFER;
  buffer_init(&out, 100000);
  if (json_write_value(&out, json) != 0)
    return error_set_memory(err);
  assert_string_equal(buffer_text(&out), document);
  return 0;
}

static int refuse_json(struct error **err) {
  (void)err;
  struct error *cause CLEANUP_ERROR = NULL;
  struct json *json CLEANUP_JSON = json_parse(document, sizeof document - 2, &cause);
  assert_null(json);
  return error_reason(cause) == REASON_INVALID_JSON ? 0 : -1;
}

static int key_rings(struct error **err) {
  struct key_ring *made = key_ring_parse(good_secrets, sizeof good_secrets - 1, err);
  key_ring_free(made);
  return made != NULL ? 0 : -1;
}

static int bad_key_rings(struct error **err) {
  (void)err;
  struct error *cause CLEANUP_ERROR = NULL;
  assert_null(key_ring_parse(secrets, sizeof secrets - 1, &cause));
  assert_int_equal(error_reason(cause), REASON_INTERNAL);
  return 0;
}

static int verify_token(struct error **err) {
  struct identity identity;
  if (token_verify(ring, token, strlen(token), 900, &identity, err) != 0)
    return -1;
  assert_string_equal(identity.consumer, "acme");
  return 0;
}

static int refuse_token(struct error **err) {
  (void)err;
  struct identity identity;
  struct error *cause CLEANUP_ERROR = NULL;
  assert_int_equal(token_verify(ring, token, strlen(token), 5000, &identity, &cause), -1);
  return error_reason(cause) == REASON_UNAUTHORIZED ? 0 : -1;
}

static int mint_token(struct error **err) {
  CLEANUP_MEMORY char *made = token_mint("acme", "subject", "top-secret", 1000, err);
  if (made == NULL)
    return -1;
  assert_string_equal(made, token);
  return 0;
}

static int labels(struct error **err) {
  char label[LABEL_SIZE];
  return label_make(&metadata_key, (const char *const[]){"scope", "acme", "subject"}, 3, label) == 0
             ? 0
             : error_set_memory(err);
}

static int cursors(struct error **err) {
  struct cursor cursor = {.pool = "coding", .limit = 3};
  CLEANUP_MEMORY char *sealed = cursor_seal(&cursor_key, &cursor, err);
  if (sealed == NULL)
    return -1;
  return cursor_open(&cursor_key, cursor_text, strlen(cursor_text), &cursor, err);
}

static void cleanup_config(struct config **config) {
  config_free(*config);
}

static int configure(struct error **err) {
  __attribute__((cleanup(cleanup_config))) struct config *config = config_load(config_path, err);
  const char *text;
  int64_t number;
  bool yes;
  int index;
  if (config == NULL || config_text(config, "TT_TEXT", NULL, &text, err) != 0 ||
      config_optional(config, "TT_OBJECT", &text, err) != 0 ||
      config_integer(config, "TT_NUMBER", 1, 0, 9, &number, err) != 0 ||
      config_boolean(config, "TT_YES", false, &yes, err) != 0 ||
      config_duration(config, "TT_TIME", 1, 1, INT64_MAX, &number, err) != 0 ||
      config_choice(config, "TT_TEXT", NULL, (const char *const[]){"x", "y", NULL}, &index, err) != 0 ||
      config_text(config, "TT_SECRET", NULL, &text, err) != 0)
    return -1;
  assert_string_equal(text, "from a file");
  return 0;
}

static int misconfigure(struct error **err) {
  __attribute__((cleanup(cleanup_config))) struct config *config = config_load(NULL, err);
  struct error *cause CLEANUP_ERROR = NULL;
  const char *text;
  int index;
  if (config == NULL)
    return -1;
  assert_int_equal(config_choice(config, "TT_NONE", NULL, (const char *const[]){"x", "y", NULL}, &index, &cause), -1);
  error_free(&cause);
  assert_int_equal(config_text(config, "TT_NONE", NULL, &text, &cause), -1);
  return 0;
}

static int unpack(struct error **err) {
  ProtobufCMessage *message = message_unpack(&sample__sample__descriptor, packed, packed_length, err);
  if (message == NULL)
    return -1;
  size_t length = 0;
  CLEANUP_MEMORY uint8_t *again = message_pack(message, &length);
  protobuf_c_message_free_unpacked(message, NULL);
  if (again == NULL)
    return error_set_memory(err);
  assert_int_equal(length, packed_length);
  assert_memory_equal(again, packed, length);
  return 0;
}

static int refuse_message(struct error **err) {
  (void)err;
  struct error *cause CLEANUP_ERROR = NULL;
  assert_int_equal(message_check(&sample__sample__descriptor, (const uint8_t *)"\x7a\x03\x0a\x01\xff", 5, &cause), -1);
  assert_int_equal(error_reason(cause), REASON_INVALID_REQUEST);
  return 0;
}

static int log_line(struct error **err) {
  (void)err;
  log_write(LOG_INFO, "torture", LOG_TEXT("text", document));
  return 0;
}

static const struct {
  const char *name;
  scenario *run;
  size_t least; /* allocations that there are at least: a scenario that makes none tests nothing */
} scenarios[] = {
    {"buffers", buffers, 5},
    {"blocks", blocks, 4},
    {"errors", errors, 12},
    {"encodings", encodings, 4},
    {"parse_json", parse_json, 20},
    {"refuse_json", refuse_json, 2},
    {"key_rings", key_rings, 8},
    {"bad_key_rings", bad_key_rings, 5},
    {"verify_token", verify_token, 5},
    {"refuse_token", refuse_token, 5},
    {"mint_token", mint_token, 2},
    {"labels", labels, 1},
    {"cursors", cursors, 1},
    {"configure", configure, 15},
    {"misconfigure", misconfigure, 5},
    {"unpack", unpack, 20},
    {"refuse_message", refuse_message, 3},
    {"log_line", log_line, 0},
};

/* Bytes in use on the heap; 0 where a sanitizer has its own. */
static size_t heap_in_use(void) {
  return mallinfo2().uordblks;
}

/* The n-th allocation fails. Returns how many were made. */
static size_t run_failing(const char *name, scenario *run, size_t n, int forever) {
  struct error *err CLEANUP_ERROR = NULL;
  memory_fail_after(n, forever);
  int result = run(&err);
  size_t made = memory_fail_after(0, 0);
  if (result != 0 && err != NULL && error_reason(err) != REASON_INTERNAL)
    fail_msg("%s, allocation %zu: %s", name, n, reason_name(error_reason(err)));
  if (result == 0 && err != NULL)
    fail_msg("%s, allocation %zu: success with an error", name, n);
  if (result != 0 && made < n)
    fail_msg("%s: failed though no allocation did: %s", name, error_detail(err));
  return made;
}

static void torture(const char *name, scenario *run, size_t least, int forever) {
  size_t wanted = run_failing(name, run, 0, 0);
  if (wanted < least)
    fail_msg("%s: only %zu allocations", name, wanted);
  for (size_t n = 1;; n++) {
    size_t before = heap_in_use();
    size_t made = run_failing(name, run, n, forever);
    size_t after = heap_in_use();
    if (after != before)
      fail_msg("%s, allocation %zu: %zu bytes leaked", name, n, after - before);
    if (made < n)
      break;
  }
  run_failing(name, run, 0, 0);
}

static void test_every_allocation_fails(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(scenarios); i++)
    for (int forever = 0; forever < 2; forever++)
      torture(scenarios[i].name, scenarios[i].run, scenarios[i].least, forever);
}

/* A message with everything in it, so that each of protobuf-c's allocations is met. */
static void pack_sample(void) {
  Sample__Inner inner = SAMPLE__INNER__INIT;
  Sample__Inner *inners[20];
  char *texts[] = {(char *)"one", (char *)"two"};
  int32_t numbers[] = {1, -1, 300};
  Sample__Sample__LabelsEntry label = SAMPLE__SAMPLE__LABELS_ENTRY__INIT;
  Sample__Sample__LabelsEntry *label_list[] = {&label, &label};
  Sample__Sample__TableEntry entry = SAMPLE__SAMPLE__TABLE_ENTRY__INIT;
  Sample__Sample__TableEntry *table[] = {&entry};
  Sample__Sample message = SAMPLE__SAMPLE__INIT;
  ProtobufCMessageUnknownField unknown = {
      .tag = 99, .wire_type = PROTOBUF_C_WIRE_TYPE_VARINT, .len = 1, .data = (uint8_t *)"\x05"};
  inner.name = (char *)"name";
  inner.inner_choice_case = SAMPLE__INNER__INNER_CHOICE_WORD;
  inner.word = (char *)"word";
  for (size_t i = 0; i < COUNT_OF(inners); i++)
    inners[i] = &inner;
  label.key = (char *)"key";
  label.value = (char *)"value";
  entry.value = &inner;
  message.text = (char *)"text";
  message.data = (ProtobufCBinaryData){3, (uint8_t *)"\xff\0x"};
  message.inner = &inner;
  message.optional_text = (char *)"optional";
  message.n_numbers = COUNT_OF(numbers), message.numbers = numbers;
  message.n_texts = COUNT_OF(texts), message.texts = texts;
  message.n_inners = COUNT_OF(inners), message.inners = inners;
  message.n_labels = COUNT_OF(label_list), message.labels = label_list;
  message.n_table = COUNT_OF(table), message.table = table;
  message.choice_case = SAMPLE__SAMPLE__CHOICE_CHOICE_DATA;
  message.choice_data = (ProtobufCBinaryData){1, (uint8_t *)"z"};
  message.base.n_unknown_fields = 1, message.base.unknown_fields = &unknown;
  packed = message_pack(&message.base, &packed_length);
}

static int set_up(void **state) {
  (void)state;
  ring = key_ring_parse(good_secrets, sizeof good_secrets - 1, NULL);
  digest_key_set(&metadata_key, BYTES("metadata"));
  cursor_key_set(&cursor_key, BYTES("metadata"));
  token = token_mint("acme", "subject", "top-secret", 1000, NULL);
  cursor_text = cursor_seal(&cursor_key, &(struct cursor){.limit = 1}, NULL);
  pack_sample();
  static const char config[] =
      "{\"TT_TEXT\":\"x\",\"TT_OBJECT\":{\"a\":[1]},\"TT_NUMBER\":5,\"TT_YES\":true,\"TT_TIME\":\"5s\"}";
  int file = mkstemp(config_path);
  static char secret_path[sizeof config_path + 8];
  snprintf(secret_path, sizeof secret_path, "%s.secret", config_path);
  FILE *secret = fopen(secret_path, "w");
  if (file < 0 || secret == NULL || write(file, config, sizeof config - 1) < 0)
    return -1;
  close(file);
  fputs("from a file\n", secret);
  fclose(secret);
  setenv("TT_SECRET_FILE", secret_path, 1);
  return ring == NULL || token == NULL || cursor_text == NULL || packed == NULL ? -1 : 0;
}

static int tear_down(void **state) {
  (void)state;
  unlink(getenv("TT_SECRET_FILE"));
  unlink(config_path);
  key_ring_free(ring);
  memory_free(token);
  memory_free(cursor_text);
  memory_free(packed);
  return 0;
}

int main(void) {
  mallopt(M_MXFAST, 0); /* its bins would count as in use, too */
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation_fails)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
