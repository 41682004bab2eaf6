/*
 * Configuration: where a setting's text comes from, and reading it as what it must be. Order: the environment variable,
 * the file named by <NAME>_FILE in the environment, the member of the --config file, the file named by its <NAME>_FILE
 * member. The first two exclude each other, and so do the last two: two sources of one rank are a mistake somebody
 * would search for long.
 */
#include "base/config.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  FILE_BYTES = 1048576, /* of a configuration file, and of a value's file */
  NAME_BYTES = 128,     /* of a setting, "_FILE" included */
};

/* A text that was handed out. */
struct config_value {
  struct config_value *next;
  size_t length;
  char text[];
};

struct config {
  struct json *file; /* an object, or NULL */
  struct config_value *values;
};

static void close_descriptor(int *descriptor) {
  if (*descriptor >= 0)
    close(*descriptor);
}

static void wipe_buffer(struct buffer *buffer) {
  if (buffer->data != NULL)
    memory_wipe(buffer->data, buffer->capacity);
  buffer_free(buffer);
}

/* Reads to the end; `what` begins the error's line. */
static int read_all(int descriptor, struct buffer *out, const char *what, const char *path, struct error **err) {
  for (;;) {
    uint8_t part[4096];
    ssize_t length = read(descriptor, part, sizeof part);
    if (length < 0 && errno == EINTR)
      continue;
    if (length < 0)
      return error_set_errno(err, errno, "%s: cannot read %s", what, path);
    int appended = buffer_append(out, part, (size_t)length);
    memory_wipe(part, (size_t)length);
    if (appended != 0 && out->length + (size_t)length > out->limit)
      return error_set_detail(err, REASON_INTERNAL, "%s: %s must have at most %d bytes", what, path, FILE_BYTES);
    if (appended != 0)
      return error_set_memory(err);
    if (length == 0)
      return 0;
  }
}

static int read_file(const char *what, const char *path, struct buffer *out, struct error **err) {
  __attribute__((cleanup(close_descriptor))) int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    return error_set_errno(err, errno, "%s: cannot open %s", what, path);
  return read_all(descriptor, out, what, path, err);
}

/* The --config file into config->file. */
static int load_file(struct config *config, const char *path, struct error **err) {
  __attribute__((cleanup(wipe_buffer))) struct buffer text;
  buffer_init(&text, FILE_BYTES);
  struct error *cause CLEANUP_ERROR = NULL;
  if (read_file("--config", path, &text, err) != 0)
    return -1;
  config->file = json_parse_trusted(buffer_text(&text), text.length, &cause);
  if (config->file == NULL && error_reason(cause) == REASON_INTERNAL)
    return error_move(err, &cause);
  if (config->file == NULL)
    return error_set_detail(err, REASON_INTERNAL, "--config: %s: %s", path, error_detail(cause));
  if (!json_is_object(config->file))
    return error_set_detail(err, REASON_INTERNAL, "--config: %s must hold a JSON object", path);
  return 0;
}

struct config *config_load(const char *path, struct error **err) {
  struct config *config = memory_zero(sizeof *config);
  if (config == NULL) {
    error_set_memory(err);
    return NULL;
  }
  if (path != NULL && load_file(config, path, err) != 0) {
    config_free(config);
    return NULL;
  }
  return config;
}

void config_free(struct config *config) {
  if (config == NULL)
    return;
  while (config->values != NULL) {
    struct config_value *value = config->values;
    config->values = value->next;
    memory_wipe(value->text, value->length);
    memory_free(value);
  }
  json_free(config->file);
  memory_free(config);
}

/* Keeps a copy of the text and gives it out. */
static int keep(struct config *config, const char *name, const char *text, size_t length, const char **out,
                struct error **err) {
  if (length == 0)
    return 0;
  if (memchr(text, '\0', length) != NULL)
    return error_set_detail(err, REASON_INTERNAL, "%s must not contain U+0000", name);
  struct config_value *value = memory_new(sizeof *value + length + 1);
  if (value == NULL)
    return error_set_memory(err);
  memcpy(value->text, text, length);
  value->text[length] = '\0';
  value->length = length;
  value->next = config->values;
  config->values = value;
  *out = value->text;
  return 0;
}

/* Of a value's file: all of it without one newline at the end. */
static int keep_file(struct config *config, const char *name, const char *path, const char **out, struct error **err) {
  __attribute__((cleanup(wipe_buffer))) struct buffer text;
  buffer_init(&text, FILE_BYTES);
  if (read_file(name, path, &text, err) != 0)
    return -1;
  size_t length = text.length;
  if (length > 0 && text.data[length - 1] == '\n')
    length--;
  if (length > 0 && length < text.length && text.data[length - 1] == '\r')
    length--;
  return keep(config, name, buffer_text(&text), length, out, err);
}

/* The member of that name, NULL if there is none; the last one if there are several. */
static const struct json *file_member(const struct config *config, const char *name) {
  const void *position = NULL;
  const struct json *value, *found = NULL;
  struct json_text text;
  while (config->file != NULL && json_next(config->file, &position, &text, &value))
    if (text.length == strlen(name) && memcmp(text.data, name, text.length) == 0)
      found = value;
  return found;
}

/* A member as text: a string's own, anything else as JSON; null is none. */
static int keep_member(struct config *config, const char *name, const struct json *member, const char **out,
                       struct error **err) {
  struct json_text text;
  if (member == NULL)
    return 0;
  if (json_as_text(member, &text) == 0)
    return keep(config, name, text.data, text.length, out, err);
  __attribute__((cleanup(wipe_buffer))) struct buffer json;
  buffer_init(&json, SIZE_MAX);
  if (json_write_value(&json, member) != 0)
    return error_set_memory(err);
  return strcmp(buffer_text(&json), "null") == 0 ? 0 : keep(config, name, buffer_text(&json), json.length, out, err);
}

static const char *environment(const char *name) {
  const char *value = getenv(name);
  return value != NULL && value[0] != '\0' ? value : NULL;
}

static int both_given(const char *name, const char *file_name, const char *where, struct error **err) {
  return error_set_detail(err, REASON_INTERNAL, "%s and %s are both set in the %s: set one of them", name, file_name,
                          where);
}

static int from_environment(struct config *config, const char *name, const char *file_name, const char **out,
                            struct error **err) {
  const char *text = environment(name), *path = environment(file_name);
  if (text != NULL && path != NULL)
    return both_given(name, file_name, "environment", err);
  if (text != NULL)
    return keep(config, name, text, strlen(text), out, err);
  return path != NULL ? keep_file(config, file_name, path, out, err) : 0;
}

static int from_file(struct config *config, const char *name, const char *file_name, const char **out,
                     struct error **err) {
  const char *path = NULL;
  if (keep_member(config, name, file_member(config, name), out, err) != 0 ||
      keep_member(config, file_name, file_member(config, file_name), &path, err) != 0)
    return -1;
  if (*out != NULL && path != NULL)
    return both_given(name, file_name, "--config file", err);
  return path != NULL ? keep_file(config, file_name, path, out, err) : 0;
}

int config_optional(struct config *config, const char *name, const char **value, struct error **err) {
  char memory[NAME_BYTES];
  struct buffer file_name;
  buffer_borrow(&file_name, memory, sizeof memory);
  *value = NULL;
  if (buffer_append_format(&file_name, "%s_FILE", name) != 0)
    return error_set_detail(err, REASON_INTERNAL, "%s is too long for a setting's name", name);
  if (from_environment(config, name, memory, value, err) != 0)
    return -1;
  return *value != NULL ? 0 : from_file(config, name, memory, value, err);
}

int config_text(struct config *config, const char *name, const char *fallback, const char **value, struct error **err) {
  if (config_optional(config, name, value, err) != 0)
    return -1;
  if (*value == NULL && fallback == NULL)
    return error_set_detail(err, REASON_INTERNAL, "%s is required: set it, or %s_FILE to a file that holds it", name,
                            name);
  if (*value == NULL)
    *value = fallback;
  return 0;
}

/* "-" and digits, nothing else. */
static int parse_integer(const char *text, int64_t *number) {
  const char *digit = text + (text[0] == '-');
  if (digit[0] < '0' || digit[0] > '9')
    return -1;
  char *end;
  errno = 0;
  *number = strtoll(text, &end, 10);
  return errno == 0 && *end == '\0' ? 0 : -1;
}

int config_integer(struct config *config, const char *name, int64_t fallback, int64_t minimum, int64_t maximum,
                   int64_t *value, struct error **err) {
  const char *text;
  if (config_optional(config, name, &text, err) != 0)
    return -1;
  int64_t number = fallback;
  if (text != NULL && (parse_integer(text, &number) != 0 || number < minimum || number > maximum))
    return error_set_detail(err, REASON_INTERNAL, "%s must be an integer between %" PRId64 " and %" PRId64, name,
                            minimum, maximum);
  *value = number;
  return 0;
}

int config_boolean(struct config *config, const char *name, bool fallback, bool *value, struct error **err) {
  const char *text;
  if (config_optional(config, name, &text, err) != 0)
    return -1;
  bool yes = text != NULL && strcmp(text, "true") == 0;
  if (text != NULL && !yes && strcmp(text, "false") != 0)
    return error_set_detail(err, REASON_INTERNAL, "%s must be true or false", name);
  *value = text != NULL ? yes : fallback;
  return 0;
}

/* "1h30m", "250ms": as clock_parse_duration reads it, to the millisecond. */
static void write_duration(struct buffer *out, int64_t duration) {
  static const struct {
    int64_t unit;
    const char *name;
  } units[] = {{3600 * CLOCK_SECOND, "h"}, {60 * CLOCK_SECOND, "m"}, {CLOCK_SECOND, "s"}, {CLOCK_MILLISECOND, "ms"}};
  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
    if (duration >= units[i].unit)
      buffer_append_format(out, "%" PRId64 "%s", duration / units[i].unit, units[i].name);
    duration %= units[i].unit;
  }
  if (out->length == 0)
    buffer_append_string(out, "0s");
}

int config_duration(struct config *config, const char *name, int64_t fallback, int64_t minimum, int64_t maximum,
                    int64_t *value, struct error **err) {
  const char *text;
  if (config_optional(config, name, &text, err) != 0)
    return -1;
  int64_t duration = fallback;
  if (text != NULL && (clock_parse_duration(text, &duration) != 0 || duration < minimum || duration > maximum)) {
    char least_memory[64], most_memory[64];
    struct buffer least, most;
    buffer_borrow(&least, least_memory, sizeof least_memory);
    buffer_borrow(&most, most_memory, sizeof most_memory);
    write_duration(&least, minimum);
    write_duration(&most, maximum);
    return error_set_detail(err, REASON_INTERNAL, "%s must be a duration such as 90s or 1m30s, between %s and %s", name,
                            least_memory, most_memory);
  }
  *value = duration;
  return 0;
}

static int refuse_choice(const char *name, const char *const *choices, const char *rule, struct error **err) {
  struct buffer list CLEANUP_BUFFER;
  buffer_init(&list, 1024);
  for (const char *const *choice = choices; *choice != NULL; choice++)
    if (buffer_append_format(&list, "%s%s", choice == choices ? "" : ", ", *choice) != 0)
      break;
  return error_set_detail(err, REASON_INTERNAL, "%s %s one of: %s", name, rule, buffer_text(&list));
}

int config_choice(struct config *config, const char *name, const char *fallback, const char *const *choices, int *index,
                  struct error **err) {
  const char *text;
  if (config_optional(config, name, &text, err) != 0)
    return -1;
  if (text == NULL && fallback == NULL)
    return refuse_choice(name, choices, "is required and must be", err);
  for (int i = 0; choices[i] != NULL; i++)
    if (strcmp(choices[i], text != NULL ? text : fallback) == 0) {
      *index = i;
      return 0;
    }
  return refuse_choice(name, choices, "must be", err);
}
