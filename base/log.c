/*
 * Logs. A line is built on the stack and never allocates, so that "out of memory" can be logged too. It is at most
 * LINE_BYTES long, which is what a pipe takes in one piece (PIPE_BUF): lines of different threads and processes never
 * mix. Text that does not fit is shortened and the line says so.
 */
#include "base/log.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 4096 };

static const char line_end[] = "}\n";
static const char line_end_truncated[] = ",\"truncated\":true}\n";

static const char *const level_names[] = {"debug", "info", "warning", "error"};
enum { LEVEL_COUNT = sizeof level_names / sizeof level_names[0] };

static atomic_int lowest_level = LOG_INFO;

void log_set_level(enum log_level level) {
  atomic_store_explicit(&lowest_level, (int)level, memory_order_relaxed);
}

int log_parse_level(const char *name, enum log_level *level) {
  for (int i = 0; i < LEVEL_COUNT; i++)
    if (strcmp(name, level_names[i]) == 0) {
      *level = (enum log_level)i;
      return 0;
    }
  return -1;
}

/* Appends `,"name":"text"`, with less of the text where the whole does not fit. */
static void append_text(struct buffer *line, const char *name, const char *text, bool *truncated) {
  size_t before = line->length;
  size_t length = strnlen(text, LINE_BYTES);
  if (buffer_append_format(line, ",\"%s\":", name) != 0) {
    *truncated = true;
    return;
  }
  if (length == LINE_BYTES)
    *truncated = true;
  while (json_write_string(line, text, length) != 0) {
    *truncated = true;
    if (length == 0) {
      buffer_truncate(line, before);
      return;
    }
    length = length * 7 / 8;
    while (length > 0 && ((uint8_t)text[length] & 0xC0) == 0x80)
      length--;
  }
}

static void append_field(struct buffer *line, const struct log_field *field, bool *truncated) {
  if (field->text != NULL)
    append_text(line, field->name, field->text, truncated);
  else if (buffer_append_format(line, ",\"%s\":%" PRId64, field->name, field->number) != 0)
    *truncated = true;
}

/* A log that cannot be written has nobody to tell. */
static void write_whole(const char *text, size_t length) {
  while (length > 0) {
    ssize_t written = write(STDERR_FILENO, text, length);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return;
    text += written;
    length -= (size_t)written;
  }
}

void log_write_fields(enum log_level level, const char *event, const struct log_field *fields, size_t count) {
  if ((int)level < atomic_load_explicit(&lowest_level, memory_order_relaxed) || (unsigned)level >= LEVEL_COUNT)
    return;
  int saved = errno;
  char memory[LINE_BYTES + 1], now[CLOCK_TEXT_SIZE];
  struct buffer line;
  buffer_borrow(&line, memory, sizeof memory - (sizeof line_end_truncated - 1));
  clock_format(clock_wall(), now);
  bool truncated = false;
  buffer_append_format(&line, "{\"time\":\"%s\",\"level\":\"%s\"", now, level_names[level]);
  append_text(&line, "event", event, &truncated);
  for (size_t i = 0; i < count; i++)
    append_field(&line, &fields[i], &truncated);
  const char *end = truncated ? line_end_truncated : line_end;
  memcpy(memory + line.length, end, strlen(end));
  write_whole(memory, line.length + strlen(end));
  errno = saved;
}
