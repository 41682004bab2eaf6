/*
 * The API server: JSON requests and watches, all multiplexed on one HTTP/2 connection, TLS verified. Calls have a
 * deadline; failures that may pass are tried again inside it. Thread: the loop's. Callbacks come from the loop alone,
 * never from within a function of this header; within a callback everything is allowed.
 */
#ifndef KUBERNETES_API_H
#define KUBERNETES_API_H

#include "backend/kubernetes/credentials.h"
#include "backend/kubernetes/status.h"
#include "base/error.h"
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct api;
struct api_call;

/* Takes over the credentials, also when it fails. NULL and *err. */
struct api *api_new(uv_loop_t *loop, struct credentials *credentials, struct error **err);
/* Ends all calls, tells none of them, and frees when the loop allows. */
void api_free(struct api *api);

struct api_answer {
  int code;                        /* HTTP status; 0: there was no answer */
  char reason[STATUS_REASON_SIZE]; /* of the Status, if it is no success */
  const char *body;                /* of a success; valid for the call */
  size_t length;
  int64_t retry_after; /* nanoseconds, or 0 */
};

/* err NULL: success (2xx). Freed by the caller of the callback. Without an answer inside the deadline it is
 * REASON_SERVER_UNAVAILABLE; whether the request was carried out is then not known. */
typedef void api_done(void *context, const struct api_answer *answer, struct error *err);

struct api_request {
  const char *method;       /* "GET"; static */
  const char *path;         /* "/api/v1/…" with its query; copied */
  const char *body;         /* JSON, or NULL; copied */
  const char *content_type; /* of the body; static; NULL: application/json */
  int64_t deadline;         /* boot clock */
};
/* NULL without memory: done is then not called. */
struct api_call *api_send(struct api *api, const struct api_request *request, api_done *done, void *context);

/* One line of a watch, without its end; valid for the call. */
typedef void api_line(void *context, const char *text, size_t length);
/* A GET whose answer is lines, for as long as the server sends them. opened comes when the server has begun to answer.
 * It is tried once. done: err NULL if the server ended it in order. NULL without memory. */
struct api_call *api_watch(struct api *api, const char *path, void (*opened)(void *context), api_line *line,
                           api_done *done, void *context);
/* When the last byte of a watch came (boot clock); 0 before the first. */
int64_t api_watch_heard(const struct api_call *watch);

/* Ends a call; its callbacks do not come any more. */
void api_cancel(struct api_call *call);

/* How far the API server's clock is ahead of ours, in nanoseconds: 0 while they differ by less than 3 s. */
int64_t api_clock_offset(const struct api *api);
const char *api_namespace(const struct api *api); /* of the credentials, or NULL */

/* Since the beginning. */
struct api_counts {
  uint64_t reads, writes, watches; /* attempts sent */
  uint64_t failures;               /* attempts without an answer, or with one that is no success */
  uint64_t connections;            /* opened */
};
void api_count(const struct api *api, struct api_counts *counts);

#endif
