/*
 * The table of reasons, made from reasons.def. gRPC's code names become numbers here, so that nobody needs gRPC's
 * headers for them.
 */
#include "base/error.h"
#include <stddef.h>
#include <string.h>

/* Status codes of gRPC (doc/statuscodes.md of grpc). */
enum grpc_code {
  GRPC_CODE_CANCELLED = 1,
  GRPC_CODE_UNKNOWN = 2,
  GRPC_CODE_INVALID_ARGUMENT = 3,
  GRPC_CODE_DEADLINE_EXCEEDED = 4,
  GRPC_CODE_NOT_FOUND = 5,
  GRPC_CODE_ALREADY_EXISTS = 6,
  GRPC_CODE_PERMISSION_DENIED = 7,
  GRPC_CODE_RESOURCE_EXHAUSTED = 8,
  GRPC_CODE_FAILED_PRECONDITION = 9,
  GRPC_CODE_ABORTED = 10,
  GRPC_CODE_OUT_OF_RANGE = 11,
  GRPC_CODE_UNIMPLEMENTED = 12,
  GRPC_CODE_INTERNAL = 13,
  GRPC_CODE_UNAVAILABLE = 14,
  GRPC_CODE_DATA_LOSS = 15,
  GRPC_CODE_UNAUTHENTICATED = 16,
};

struct reason_row {
  const char *name;
  int http_status;
  int grpc_code;
  bool retryable;
  const char *message;
};

static const struct reason_row rows[REASON_COUNT] = {
#define REASON(name, http_status, grpc_code, retryable, message)                                                       \
  [REASON_##name] = {#name, http_status, GRPC_CODE_##grpc_code, retryable, message},
#include "base/reasons.def"
#undef REASON
};

/* REASON_NONE, and a value that is no reason at all, read as REASON_INTERNAL. */
static const struct reason_row *row_of(enum reason reason) {
  return (unsigned)reason < REASON_COUNT && rows[reason].name != NULL ? &rows[reason] : &rows[REASON_INTERNAL];
}

const char *reason_name(enum reason reason) {
  return row_of(reason)->name;
}

enum reason reason_find(const char *name) {
  for (int i = 0; i < REASON_COUNT; i++)
    if (rows[i].name != NULL && strcmp(rows[i].name, name) == 0)
      return (enum reason)i;
  return REASON_NONE;
}

int reason_http_status(enum reason reason) {
  return row_of(reason)->http_status;
}

int reason_grpc_code(enum reason reason) {
  return row_of(reason)->grpc_code;
}

bool reason_retryable(enum reason reason) {
  return row_of(reason)->retryable;
}

const char *reason_message(enum reason reason) {
  return row_of(reason)->message;
}
