/*
 * Errors. One that is made without memory is one of a static table, shared by everybody: such an error is never written
 * to and never freed.
 */
#define _GNU_SOURCE /* strerrordesc_np: strerror that never changes with the locale and is safe in threads */
#include "base/error.h"
#include "base/memory.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct error {
  enum reason reason;
  unsigned retry_after;
  char *message; /* NULL: the reason's own */
  char *detail;  /* NULL: none */
  char *field;   /* NULL: none */
};

enum { DETAIL_BYTES = 2048 }; /* longer detail is cut: it may quote what a stranger sent */

static const struct error shared_errors[REASON_COUNT] = {
#define REASON(name, http_status, grpc_code, retryable, message) [REASON_##name] = {.reason = REASON_##name},
#include "base/reasons.def"
#undef REASON
};
static const struct error shared_memory_error = {.reason = REASON_INTERNAL};

static bool error_is_shared(const struct error *err) {
  return err == &shared_memory_error || (err >= shared_errors && err < shared_errors + REASON_COUNT);
}

static struct error *shared_error(enum reason reason) {
  unsigned place = (unsigned)reason < REASON_COUNT && reason != REASON_NONE ? (unsigned)reason : REASON_INTERNAL;
  return (struct error *)&shared_errors[place];
}

void error_free(struct error **err) {
  if (err == NULL || *err == NULL)
    return;
  struct error *old = *err;
  *err = NULL;
  if (error_is_shared(old))
    return;
  memory_free(old->message);
  memory_free(old->detail);
  memory_free(old->field);
  memory_free(old);
}

/* The text of a format, cut to DETAIL_BYTES; NULL without memory. */
static char *format_text(const char *format, va_list arguments) {
  char text[DETAIL_BYTES];
  if (vsnprintf(text, sizeof text, format, arguments) < 0)
    return memory_string(format);
  return memory_string(text);
}

static char *join_texts(const char *first, const char *second) {
  char text[DETAIL_BYTES];
  snprintf(text, sizeof text, "%s: %s", first, second);
  return memory_string(text);
}

/* Stores an error of its own in *err. Takes `detail`, frees it if there is no memory for the rest. */
static int error_store(struct error **err, enum reason reason, const char *message, const char *field, char *detail) {
  struct error *made = memory_zero(sizeof *made);
  if (made == NULL) {
    memory_free(detail);
    *err = shared_error(reason);
    return -1;
  }
  *made = (struct error){
      .reason = shared_error(reason)->reason,
      .message = message != NULL ? memory_string(message) : NULL,
      .field = field != NULL ? memory_string(field) : NULL,
      .detail = detail,
  };
  if ((message != NULL && made->message == NULL) || (field != NULL && made->field == NULL)) {
    error_free(&made);
    made = shared_error(reason);
  }
  *err = made;
  return -1;
}

int error_set(struct error **err, enum reason reason, const char *message) {
  return error_set_field(err, reason, NULL, message);
}

int error_set_field(struct error **err, enum reason reason, const char *field, const char *message) {
  if (err != NULL)
    error_store(err, reason, message, field, NULL);
  return -1;
}

int error_set_detail(struct error **err, enum reason reason, const char *format, ...) {
  if (err == NULL)
    return -1;
  va_list arguments;
  va_start(arguments, format);
  char *detail = format_text(format, arguments);
  va_end(arguments);
  return error_store(err, reason, NULL, NULL, detail);
}

int error_set_errno(struct error **err, int number, const char *format, ...) {
  if (err == NULL)
    return -1;
  va_list arguments;
  va_start(arguments, format);
  CLEANUP_MEMORY char *text = format_text(format, arguments);
  va_end(arguments);
  char unknown[32];
  const char *word = strerrordesc_np(number);
  if (word == NULL) {
    snprintf(unknown, sizeof unknown, "error %d", number);
    word = unknown;
  }
  return error_store(err, REASON_INTERNAL, NULL, NULL, text != NULL ? join_texts(text, word) : NULL);
}

int error_set_memory(struct error **err) {
  if (err != NULL)
    *err = (struct error *)&shared_memory_error;
  return -1;
}

int error_context(struct error **err, const char *format, ...) {
  if (err == NULL || *err == NULL)
    return -1;
  va_list arguments;
  va_start(arguments, format);
  CLEANUP_MEMORY char *text = format_text(format, arguments);
  va_end(arguments);
  const char *old = error_detail(*err);
  char *detail = text == NULL ? NULL : old[0] == '\0' ? memory_string(text) : join_texts(text, old);
  if (detail == NULL)
    return -1;
  if (error_is_shared(*err)) {
    error_store(err, (*err)->reason, NULL, NULL, detail);
    return -1;
  }
  memory_free((*err)->detail);
  (*err)->detail = detail;
  return -1;
}

void error_set_retry_after(struct error *err, unsigned milliseconds) {
  if (err != NULL && !error_is_shared(err))
    err->retry_after = milliseconds;
}

enum reason error_reason(const struct error *err) {
  return err != NULL ? err->reason : REASON_INTERNAL;
}

const char *error_message(const struct error *err) {
  return err != NULL && err->message != NULL ? err->message : reason_message(error_reason(err));
}

const char *error_detail(const struct error *err) {
  if (err == &shared_memory_error)
    return "out of memory";
  return err != NULL && err->detail != NULL ? err->detail : "";
}

const char *error_field(const struct error *err) {
  return err != NULL ? err->field : NULL;
}

unsigned error_retry_after(const struct error *err) {
  return err != NULL ? err->retry_after : 0;
}

int error_move(struct error **to, struct error **from) {
  if (to == NULL)
    error_free(from);
  else if (to != from) {
    *to = *from;
    *from = NULL;
  }
  return -1;
}
