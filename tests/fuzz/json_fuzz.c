/*
 * JSON: what is read can be written, read again, and is then written the same; every accessor is called on it. The same
 * text goes to the key ring's reader.
 */
// Sources: base/*.c
// Libraries: -lcjson -lcrypto -lprotobuf-c
#include "base/identity.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "tests/fuzz/fuzz.h"
#include <string.h>

static void look_at(const struct json *value);

static void look_at_members(const struct json *value) {
  const void *position = NULL;
  const struct json *element;
  struct json_text name;
  while (json_next(value, &position, &name, &element)) {
    PROMISE(text_valid(name.data, name.length) && name.data[name.length] == '\0');
    look_at(element);
  }
}

static void look_at(const struct json *value) {
  struct json_text text;
  int64_t number;
  bool present, yes;
  const struct json *object;
  if (json_as_text(value, &text) == 0)
    PROMISE(text_valid(text.data, text.length) && text.data[text.length] == '\0');
  if (json_as_integer(value, &number) == 0)
    PROMISE(number >= -(INT64_C(1) << 53) && number <= INT64_C(1) << 53);
  json_get_text(value, "a", &text, NULL);
  json_get_integer(value, "a", &present, &number, NULL);
  json_get_boolean(value, "a", &present, &yes, NULL);
  json_get_object(value, "a", &object, NULL);
  look_at_members(value);
}

static void check_rewriting(const struct json *json) {
  struct buffer once CLEANUP_BUFFER;
  struct buffer twice CLEANUP_BUFFER;
  buffer_init(&once, SIZE_MAX);
  buffer_init(&twice, SIZE_MAX);
  PROMISE(json_write_value(&once, json) == 0);
  struct json *again CLEANUP_JSON = json_parse(buffer_text(&once), once.length, NULL);
  PROMISE(again != NULL && json_write_value(&twice, again) == 0);
  PROMISE(once.length == twice.length && memcmp(once.data, twice.data, once.length) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *text = size > 0 ? (const char *)data : "";
  struct error *err CLEANUP_ERROR = NULL;
  struct json *json CLEANUP_JSON = json_parse(text, size, &err);
  if (json != NULL) {
    look_at(json);
    check_rewriting(json);
  } else {
    PROMISE(error_reason(err) == REASON_INVALID_JSON && error_detail(err)[0] != '\0');
  }
  key_ring_free(key_ring_parse(text, size, NULL));
  return 0;
}
