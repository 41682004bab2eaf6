/*
 * Errors. A function that can fail returns 0 or -1 (or a pointer or NULL) and, when it fails, stores one
 * `struct error` in the caller's `struct error **`. Passing NULL throws the description away. An error has a reason
 * from reasons.def, a message a Consumer may read, and a detail for the log alone.
 *
 * Thread: any; an error belongs to one owner at a time. Making an error never fails: without memory the caller gets a
 * shared static one with the reason asked for.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdbool.h>

/* One constant for each line of reasons.def: REASON_UNAUTHORIZED, … */
enum reason {
  REASON_NONE = 0,
#define REASON(name, http_status, grpc_code, retryable, message) REASON_##name,
#include "base/reasons.def"
#undef REASON
  REASON_COUNT
};

/* "LEASE_NOT_FOUND". Static. */
const char *reason_name(enum reason reason);
/* The reason of that name, or REASON_NONE. */
enum reason reason_find(const char *name);
/* 400 to 599. */
int reason_http_status(enum reason reason);
/* The numeric gRPC status code, 1 to 16. */
int reason_grpc_code(enum reason reason);
bool reason_retryable(enum reason reason);
/* Static. */
const char *reason_message(enum reason reason);

struct error;

/* Each stores a new error in *err, if err is not NULL, and returns -1. *err must be NULL before. `message` may be NULL:
 * the reason's own. */
int error_set(struct error **err, enum reason reason, const char *message);
/* With the name of the field at fault, as the public proto spells it: it becomes google.rpc.BadRequest. */
int error_set_field(struct error **err, enum reason reason, const char *field, const char *message);
/* The reason's own message; the formatted text is detail for the log. */
int error_set_detail(struct error **err, enum reason reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* REASON_INTERNAL; the detail is the formatted text, ": " and strerror(number). */
int error_set_errno(struct error **err, int number, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* REASON_INTERNAL, "out of memory"; allocates nothing. */
int error_set_memory(struct error **err);

/* Puts "<text>: " before the detail of *err, if there is an error. Returns -1. */
int error_context(struct error **err, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* When to call again; milliseconds, 0 is unknown. It becomes Retry-After and google.rpc.RetryInfo. */
void error_set_retry_after(struct error *err, unsigned milliseconds);

/* All of these accept NULL, which reads as REASON_INTERNAL without a detail. Strings live as long as the error. */
enum reason error_reason(const struct error *err);
const char *error_message(const struct error *err);
const char *error_detail(const struct error *err); /* "" if there is none */
const char *error_field(const struct error *err);  /* NULL if there is none */
unsigned error_retry_after(const struct error *err);

/* Moves *from to *to if `to` is not NULL, else frees it. Returns -1. */
int error_move(struct error **to, struct error **from);
/* Frees *err and makes it NULL. */
void error_free(struct error **err);

#define CLEANUP_ERROR __attribute__((cleanup(error_free)))

#endif
