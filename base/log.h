/*
 * Logs: one JSON object a line on standard error: time, level, event, and the given fields. Never pass a token, a
 * secret, a command or content. Thread: any; a line is written whole by one write, of at most 4,096 bytes: longer text
 * is cut, and the line then says "truncated":true. Needs no memory. Invalid UTF-8 is repaired. errno is kept.
 *
 *   log_write(LOG_INFO, "lease_acquired", LOG_TEXT("lease", id), LOG_NUMBER("milliseconds", 12));
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };

struct log_field {
  const char *name; /* [a-z_]+ */
  const char *text; /* NULL: `number` counts */
  int64_t number;
};

/* NULL reads as "". A function, because gcc warns of `array ? array : ""`. */
static inline struct log_field log_text_field(const char *name, const char *text) {
  return (struct log_field){.name = name, .text = text != NULL ? text : ""};
}
#define LOG_TEXT(field_name, value) log_text_field((field_name), (value))
#define LOG_NUMBER(field_name, value) ((struct log_field){.name = (field_name), .number = (int64_t)(value)})
/* Two fields are made of an error: reason and detail. */
#define LOG_REASON(err) LOG_TEXT("reason", reason_name(error_reason(err)))
#define LOG_DETAIL(err) LOG_TEXT("detail", error_detail(err))

#define log_write(level, event, ...)                                                                                   \
  log_write_fields((level), (event), (const struct log_field[]){__VA_ARGS__},                                          \
                   sizeof((const struct log_field[]){__VA_ARGS__}) / sizeof(struct log_field))
void log_write_fields(enum log_level level, const char *event, const struct log_field *fields, size_t count);

/* Lines below this level are dropped. LOG_INFO at first. */
void log_set_level(enum log_level level);
/* "debug", "info", "warning", "error". Returns 0, or -1. */
int log_parse_level(const char *name, enum log_level *level);

#endif
