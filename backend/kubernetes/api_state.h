/*
 * The inside of api.h: api.c joins curl to the loop, api_call.c is the life of one call. Thread: the loop's.
 */
#ifndef KUBERNETES_API_STATE_H
#define KUBERNETES_API_STATE_H

#include "backend/kubernetes/api.h"
#include "backend/kubernetes/retry.h"
#include "backend/kubernetes/curl.h"
#include "base/buffer.h"
#include <stdbool.h>

struct api {
  uv_loop_t *loop;
  struct credentials *credentials;
  char *server;                  /* what every URL begins with */
  struct curl_slist *connect_to; /* where that leads, if the URL does not say */
  CURLM *multi;
  uv_timer_t timer; /* curl's */
  struct api_call *calls;
  struct api_call *heard; /* watches with lines to deliver, in order */
  struct api_call **heard_end;
  int64_t clock_offset;
  struct api_counts counts;
  unsigned handles; /* uv handles that are open */
  bool freed;
};

struct api_call {
  struct api *api;
  struct api_call *next, *previous;
  struct api_call *heard_next;
  bool is_heard;

  const char *method, *content_type;
  char *url;
  struct buffer body;
  int64_t deadline; /* boot clock; of a watch: none */
  bool watch;
  void (*opened)(void *context);
  api_line *line;
  api_done *done;
  void *context;

  CURL *easy; /* an attempt runs */
  struct curl_slist *headers;
  struct credentials_waiter waiter;
  struct retry retry;
  bool renewed;   /* credentials were made anew for it once */
  bool fresh;     /* the next attempt opens a new connection */
  bool is_open;   /* the watch was told that it is */
  bool finished;  /* the attempt's end is known, its lines come first */
  bool busy;      /* in a callback of it */
  bool cancelled; /* while busy */
  CURLcode result;
  struct buffer text; /* of the answer */
  int64_t retry_after, last_heard;
  char trouble[CURL_ERROR_SIZE];
  uv_timer_t timer; /* the wait before the next attempt; a watch's silence */
};

/* --- api_call.c --- */

/* The attempt of an easy handle has ended, outside of curl. */
void api_call_ended(struct api_call *call, CURLcode result);
/* Delivers the lines that came. The call may be gone after it. */
void api_call_deliver(struct api_call *call);
/* A handle of the api has closed; frees it after the last. */
void api_handle_closed(struct api *api);

#endif
