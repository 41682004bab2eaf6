#include "tests/unit/kubernetes/api_double.h"

#include "tests/unit/kubernetes/check.h"
#include <stdlib.h>
#include <string.h>

struct api_call {
  struct api_call *next;
  char *method, *path, *body;
  void (*opened)(void *context);
  api_line *line;
  api_done *done;
  void *context;
};

static struct api_call *calls;
static int one;

struct credentials *credentials_new(uv_loop_t *loop, const char *kubeconfig, const char *context, struct error **err) {
  (void)loop;
  (void)kubeconfig;
  (void)context;
  (void)err;
  return (struct credentials *)(void *)&one;
}

const char *credentials_server(const struct credentials *credentials) {
  (void)credentials;
  return "https://[::1]:6443/base/";
}

const char *credentials_server_name(const struct credentials *credentials) {
  (void)credentials;
  return NULL;
}

void credentials_get(struct credentials *credentials, struct credentials_waiter *waiter, credentials_done *done,
                     void *context) {
  (void)credentials;
  (void)waiter;
  (void)done;
  (void)context;
}

void credentials_cancel(struct credentials *credentials, struct credentials_waiter *waiter) {
  (void)credentials;
  (void)waiter;
}

void credentials_refused(struct credentials *credentials) {
  (void)credentials;
}

struct api *api_new(uv_loop_t *loop, struct credentials *credentials, struct error **err) {
  (void)loop;
  (void)err;
  return (struct api *)(void *)credentials;
}

static struct api_call *call_new(const char *method, const char *path, const char *body, api_done *done,
                                 void *context) {
  struct api_call *call = calloc(1, sizeof *call), **place = &calls;
  call->method = strdup(method);
  call->path = strdup(path);
  call->body = strdup(body ? body : "");
  call->done = done;
  call->context = context;
  while (*place)
    place = &(*place)->next;
  *place = call;
  return call;
}

static void call_drop(struct api_call *call) {
  struct api_call **place = &calls;
  while (*place != call)
    place = &(*place)->next;
  *place = call->next;
  free(call->method);
  free(call->path);
  free(call->body);
  free(call);
}

struct api_call *api_send(struct api *api, const struct api_request *request, api_done *done, void *context) {
  (void)api;
  CLEANUP_MEMORY void *probe = memory_new(1); /* it may fail, as the real one may */
  return probe ? call_new(request->method, request->path, request->body, done, context) : NULL;
}

struct api_call *api_watch(struct api *api, const char *path, void (*opened)(void *context), api_line *line,
                           api_done *done, void *context) {
  (void)api;
  CLEANUP_MEMORY void *probe = memory_new(1);
  struct api_call *call = probe ? call_new("WATCH", path, NULL, done, context) : NULL;
  if (call) {
    call->opened = opened;
    call->line = line;
  }
  return call;
}

void api_cancel(struct api_call *call) {
  call_drop(call);
}

void api_free(struct api *api) {
  while (api && calls)
    call_drop(calls);
}

int64_t api_clock_offset(const struct api *api) {
  (void)api;
  return 0;
}

const char *api_namespace(const struct api *api) {
  (void)api;
  return "pools";
}

struct api_call *double_find(const char *method, const char *path) {
  struct api_call *call = calls;
  while (call && (strcmp(call->method, method) != 0 || !strstr(call->path, path)))
    call = call->next;
  return call;
}

const char *double_path(const struct api_call *call) {
  return call->path;
}

const char *double_body(const struct api_call *call) {
  return call->body;
}

void double_answer(struct api_call *call, int code, const char *reason, const char *body) {
  api_done *done = call->done;
  void *context = call->context;
  struct api_answer answer = {.code = code, .body = body, .length = body ? strlen(body) : 0};
  struct error *err = NULL;
  call_drop(call);
  if (code < 200 || code >= 300) {
    memcpy(answer.reason, reason, strlen(reason) + 1);
    error_set_detail(&err, code == 0 || code >= 500 ? REASON_SERVER_UNAVAILABLE : REASON_INTERNAL, "answer %d", code);
  }
  done(context, &answer, err);
  error_free(&err);
}

void double_line(struct api_call *call, const char *text) {
  call->line(call->context, text, strlen(text));
}

size_t double_open(void) {
  size_t count = 0;
  for (const struct api_call *call = calls; call; call = call->next)
    count++;
  return count;
}
