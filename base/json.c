/*
 * Reading JSON: json_scan checks and rewrites the text, cJSON makes the tree, and the functions here read it. A
 * `struct json` is a cJSON item by another name; nobody else looks inside. cJSON notes the place of its last error in a
 * variable of its own without a lock; it is never read here.
 */
#include "base/json.h"
#include "base/json_scan.h"
#include "base/limits.h"
#include "base/memory.h"
#include <cjson/cJSON.h>
#include <pthread.h>
#include <string.h>

static const int64_t INTEGER_MOST = INT64_C(1) << 53; /* every integer up to here is exact in a double */

static const cJSON *item_of(const struct json *json) {
  return (const cJSON *)(const void *)json;
}

static const struct json *json_of(const cJSON *item) {
  return (const struct json *)(const void *)item;
}

static void use_our_memory(void) {
  cJSON_Hooks hooks = {.malloc_fn = memory_new, .free_fn = memory_free};
  cJSON_InitHooks(&hooks);
}

/* The string behind its length. */
static struct json_text text_of(const char *string) {
  size_t length = 0;
  for (int i = 0; i < JSON_LENGTH_DIGITS; i++)
    length = length << 4 | (size_t)(string[i] <= '9' ? string[i] - '0' : string[i] - 'a' + 10);
  return (struct json_text){string + JSON_LENGTH_DIGITS, length};
}

static bool is_string(const cJSON *item) {
  return cJSON_IsString(item) && item->valuestring[0] != JSON_NUMBER_MARK;
}

/* Turns the spelled-out U+0000 and U+0001 back, in place. */
static void unmark(char *string) {
  if (string == NULL || string[0] == JSON_NUMBER_MARK)
    return;
  char *to = string;
  for (const char *from = string; *from != '\0'; from++)
    *to++ = *from != JSON_ESCAPE_MARK ? *from : *++from == '0' ? '\0' : JSON_ESCAPE_MARK;
  *to = '\0';
}

/* Recursive: the depth is at most LIMIT_JSON_DEPTH. */
static void unmark_all(cJSON *item) {
  for (; item != NULL; item = item->next) {
    unmark(item->string);
    unmark(item->valuestring);
    unmark_all(item->child);
  }
}

static void wipe_all(cJSON *item) {
  for (; item != NULL; item = item->next) {
    if (item->valuestring != NULL)
      memory_wipe(item->valuestring,
                  is_string(item) ? JSON_LENGTH_DIGITS + text_of(item->valuestring).length : strlen(item->valuestring));
    wipe_all(item->child);
  }
}

static struct json *parse(const char *text, size_t length, size_t most_values, struct error **err) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, use_our_memory);
  struct buffer rewritten CLEANUP_BUFFER;
  buffer_init(&rewritten, SIZE_MAX);
  bool marked = false;
  cJSON *item = NULL;
  if (json_scan(text, length, most_values, &rewritten, &marked, err) == 0) {
    /* The grammar was checked: there is nothing left for cJSON to refuse. */
    item = cJSON_ParseWithLength(buffer_text(&rewritten), rewritten.length + 1);
    if (item == NULL)
      error_set_memory(err);
    else if (marked)
      unmark_all(item);
  }
  if (rewritten.data != NULL)
    memory_wipe(rewritten.data, rewritten.length);
  return (struct json *)(void *)item;
}

struct json *json_parse(const char *text, size_t length, struct error **err) {
  return parse(text, length, LIMIT_JSON_VALUES, err);
}

struct json *json_parse_trusted(const char *text, size_t length, struct error **err) {
  return parse(text, length, SIZE_MAX, err);
}

void json_free(struct json *json) {
  cJSON *item = (cJSON *)(void *)json;
  wipe_all(item);
  cJSON_Delete(item);
}

void json_cleanup(struct json **json) {
  json_free(*json);
}

bool json_is_object(const struct json *json) {
  return cJSON_IsObject(item_of(json));
}

bool json_is_array(const struct json *json) {
  return cJSON_IsArray(item_of(json));
}

int json_as_text(const struct json *value, struct json_text *text) {
  if (!is_string(item_of(value)))
    return -1;
  *text = text_of(item_of(value)->valuestring);
  return 0;
}

/* "-" and digits to a number; refuses fractions, exponents and what is out of range. */
int json_as_integer(const struct json *value, int64_t *number) {
  const cJSON *item = item_of(value);
  if (!cJSON_IsString(item) || item->valuestring[0] != JSON_NUMBER_MARK)
    return -1;
  const char *digit = item->valuestring + 1;
  bool negative = *digit == '-';
  int64_t result = 0;
  for (digit += negative; *digit != '\0'; digit++) {
    if (*digit < '0' || *digit > '9')
      return -1;
    result = result * 10 + (*digit - '0');
    if (result > INTEGER_MOST)
      return -1;
  }
  *number = negative ? -result : result;
  return 0;
}

/* The last member of that name; NULL if there is none, or it is null. -1 if `object` is no object. */
static int find_member(const struct json *object, const char *name, const struct json **value, struct error **err) {
  *value = NULL;
  if (!json_is_object(object))
    return error_set_field(err, REASON_INVALID_JSON, name, NULL);
  size_t length = strlen(name);
  const cJSON *found = NULL;
  for (const cJSON *item = item_of(object)->child; item != NULL; item = item->next) {
    struct json_text text = text_of(item->string);
    if (text.length == length && memcmp(text.data, name, length) == 0)
      found = item;
  }
  if (!cJSON_IsNull(found))
    *value = json_of(found);
  return 0;
}

int json_get_text(const struct json *object, const char *name, struct json_text *text, struct error **err) {
  const struct json *value;
  *text = (struct json_text){NULL, 0};
  if (find_member(object, name, &value, err) != 0)
    return -1;
  return value == NULL || json_as_text(value, text) == 0 ? 0 : error_set_field(err, REASON_INVALID_JSON, name, NULL);
}

int json_get_integer(const struct json *object, const char *name, bool *present, int64_t *value, struct error **err) {
  const struct json *found;
  *present = false;
  if (find_member(object, name, &found, err) != 0)
    return -1;
  if (found != NULL && json_as_integer(found, value) != 0)
    return error_set_field(err, REASON_INVALID_JSON, name, NULL);
  *present = found != NULL;
  return 0;
}

int json_get_boolean(const struct json *object, const char *name, bool *present, bool *value, struct error **err) {
  const struct json *found;
  *present = false;
  if (find_member(object, name, &found, err) != 0)
    return -1;
  if (found != NULL && !cJSON_IsBool(item_of(found)))
    return error_set_field(err, REASON_INVALID_JSON, name, NULL);
  *present = found != NULL;
  if (*present)
    *value = cJSON_IsTrue(item_of(found));
  return 0;
}

int json_get_object(const struct json *object, const char *name, const struct json **value, struct error **err) {
  if (find_member(object, name, value, err) != 0)
    return -1;
  if (*value == NULL || json_is_object(*value))
    return 0;
  *value = NULL;
  return error_set_field(err, REASON_INVALID_JSON, name, NULL);
}

bool json_next(const struct json *container, const void **position, struct json_text *name, const struct json **value) {
  const cJSON *item = *position != NULL ? ((const cJSON *)*position)->next : item_of(container)->child;
  if (item == NULL)
    return false;
  *position = item;
  *name = item->string != NULL ? text_of(item->string) : (struct json_text){"", 0};
  *value = json_of(item);
  return true;
}

static int write_container(struct buffer *out, const struct json *value) {
  bool object = json_is_object(value);
  const void *position = NULL;
  const struct json *element;
  struct json_text name;
  if (buffer_append_byte(out, object ? '{' : '[') != 0)
    return -1;
  for (bool first = true; json_next(value, &position, &name, &element); first = false) {
    if (!first && buffer_append_byte(out, ',') != 0)
      return -1;
    if (object && (json_write_string(out, name.data, name.length) != 0 || buffer_append_byte(out, ':') != 0))
      return -1;
    if (json_write_value(out, element) != 0)
      return -1;
  }
  return buffer_append_byte(out, object ? '}' : ']');
}

int json_write_value(struct buffer *out, const struct json *value) {
  const cJSON *item = item_of(value);
  struct json_text text;
  if (json_as_text(value, &text) == 0)
    return json_write_string(out, text.data, text.length);
  if (cJSON_IsString(item))
    return buffer_append_string(out, item->valuestring + 1);
  if (cJSON_IsObject(item) || cJSON_IsArray(item))
    return write_container(out, value);
  return buffer_append_string(out, cJSON_IsNull(item) ? "null" : cJSON_IsTrue(item) ? "true" : "false");
}
