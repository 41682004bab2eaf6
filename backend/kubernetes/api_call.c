/*
 * The life of one call: credentials, an attempt, perhaps a wait and another attempt, the answer. A watch is one
 * attempt whose text is handed on line by line.
 */
#include "backend/kubernetes/api_state.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/memory.h"
#include "base/version.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
  ANSWER_BYTES = 64 << 20, /* a page of a list */
  LINE_BYTES = 32 << 20,   /* of lines that came at once; etcd takes 1.5 MiB for an object */
  CONNECT_MILLISECONDS = 10000,
  ATTEMPT_MILLISECONDS = 30000,
  SILENCE_MILLISECONDS = 150000, /* a bookmark comes every minute or so */
  UNACKNOWLEDGED_MILLISECONDS = 20000,
};

#define CLOCK_OFFSET_LEAST (3 * CLOCK_SECOND)
#define CLOCK_OFFSET_STEP (2 * CLOCK_SECOND)

static void attempt(struct api_call *call);

/* --- the end --- */

static void timer_closed(uv_handle_t *handle) {
  struct api_call *call = handle->data;
  struct api *api = call->api;
  memory_free(call);
  api_handle_closed(api);
}

static void attempt_drop(struct api_call *call) {
  if (call->easy) {
    curl.multi_remove_handle(call->api->multi, call->easy);
    curl.easy_cleanup(call->easy);
    call->easy = NULL;
  }
  curl.slist_free_all(call->headers);
  call->headers = NULL;
}

static void heard_remove(struct api_call *call) {
  struct api *api = call->api;
  if (!call->is_heard)
    return;
  struct api_call **at = &api->heard;
  while (*at != call)
    at = &(*at)->heard_next;
  *at = call->heard_next;
  if (api->heard_end == &call->heard_next)
    api->heard_end = at;
  call->is_heard = false;
}

static void call_free(struct api_call *call) {
  struct api *api = call->api;
  heard_remove(call);
  attempt_drop(call);
  credentials_cancel(api->credentials, &call->waiter);
  if (call->previous)
    call->previous->next = call->next;
  else
    api->calls = call->next;
  if (call->next)
    call->next->previous = call->previous;
  memory_free(call->url);
  buffer_free(&call->body);
  buffer_free(&call->text);
  call->url = NULL;
  uv_close((uv_handle_t *)&call->timer, timer_closed);
}

void api_cancel(struct api_call *call) {
  if (call->busy)
    call->cancelled = true;
  else
    call_free(call);
}

/* Frees the call and tells its user. Takes over err. */
static void call_finish(struct api_call *call, struct api_answer *answer, struct error *err) {
  CLEANUP_BUFFER struct buffer text = call->text;
  api_done *done = call->done;
  void *context = call->context;
  buffer_init(&call->text, 0);
  call_free(call);
  if (!err) {
    answer->body = buffer_text(&text);
    answer->length = text.length;
  }
  done(context, answer, err);
  error_free(&err);
}

/* --- waiting --- */

static void on_wait_over(uv_timer_t *timer) {
  attempt(timer->data);
}

static void on_silence(uv_timer_t *timer) {
  struct api_call *call = timer->data;
  struct error *err = NULL;
  struct api_answer answer = {0};
  error_set_detail(&err, REASON_SERVER_UNAVAILABLE, "the watch was silent for too long");
  call_finish(call, &answer, err);
}

static uint32_t chance(void) {
  uint32_t number;
  random_bytes(&number, sizeof number);
  return number;
}

/* --- the answer --- */

static void clock_compare(struct api *api, const char *date) {
  time_t seconds = retry_date_parse(date);
  if (seconds <= 0)
    return;
  int64_t offset = (int64_t)seconds * CLOCK_SECOND + CLOCK_SECOND / 2 - clock_wall();
  if (llabs(offset) < CLOCK_OFFSET_LEAST)
    offset = 0;
  if (offset == 0 || llabs(offset - api->clock_offset) > CLOCK_OFFSET_STEP)
    api->clock_offset = offset;
}

/* The value of a header field of that name, or NULL. */
static const char *field_value(const char *line, size_t length, const char *name, char *value, size_t size) {
  size_t name_length = strlen(name);
  if (length <= name_length || strncasecmp(line, name, name_length) != 0 || line[name_length] != ':')
    return NULL;
  line += name_length + 1;
  length -= name_length + 1;
  while (length > 0 && (*line == ' ' || *line == '\t'))
    line++, length--;
  while (length > 0 && strchr(" \t\r\n", line[length - 1]))
    length--;
  if (length >= size)
    return NULL;
  memcpy(value, line, length);
  value[length] = 0;
  return value;
}

static size_t on_header(char *line, size_t one, size_t length, void *context) {
  struct api_call *call = context;
  char value[64];
  (void)one;
  if (field_value(line, length, "date", value, sizeof value))
    clock_compare(call->api, value);
  else if (field_value(line, length, "retry-after", value, sizeof value))
    call->retry_after = retry_after_parse(value, clock_wall());
  return length;
}

static size_t on_text(char *bytes, size_t one, size_t length, void *context) {
  struct api_call *call = context;
  struct api *api = call->api;
  (void)one;
  call->last_heard = clock_boot();
  if (buffer_append(&call->text, bytes, length) < 0)
    return 0;
  if (call->watch && !call->is_heard) {
    call->is_heard = true;
    call->heard_next = NULL;
    *api->heard_end = call;
    api->heard_end = &call->heard_next;
  }
  return length;
}

static int status_of(const struct api_call *call) {
  long code = 0;
  if (call->easy)
    curl.easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &code);
  return (int)code;
}

/* False once the user has cancelled the call: it is gone then. */
static bool deliver_line(struct api_call *call, const char *text, size_t length) {
  call->busy = true;
  call->line(call->context, text, length);
  call->busy = false;
  if (call->cancelled)
    call_free(call);
  return !call->cancelled;
}

static bool tell_open(struct api_call *call) {
  if (call->is_open)
    return true;
  call->is_open = call->busy = true;
  call->opened(call->context);
  call->busy = false;
  if (call->cancelled)
    call_free(call);
  return !call->cancelled;
}

static void call_conclude(struct api_call *call);

void api_call_deliver(struct api_call *call) {
  /* A call that was cancelled lives until its timer has closed, so that its flag can be read. */
  if (status_of(call) == 200) {
    if (!call->finished && !uv_is_closing((uv_handle_t *)&call->timer))
      uv_timer_again(&call->timer);
    if (!tell_open(call))
      return;
    /* The text is taken out while its lines are handed on. */
    CLEANUP_BUFFER struct buffer text = call->text;
    buffer_init(&call->text, LINE_BYTES);
    size_t at = 0;
    for (uint8_t *end; at < text.length && (end = memchr(text.data + at, '\n', text.length - at));) {
      size_t length = (size_t)(end - text.data) - at;
      if (!deliver_line(call, (const char *)text.data + at, length))
        return;
      at += length + 1;
    }
    buffer_consume(&text, at);
    if (text.length > 0 || text.capacity <= 65536) { /* keeps what it needs again */
      call->text = text;
      buffer_init(&text, 0);
    }
  }
  if (call->finished)
    call_conclude(call);
}

/* --- attempts --- */

static struct error *failure_of(const struct api_call *call, struct api_answer *answer) {
  struct error *err = NULL;
  if (call->result == CURLE_OK && answer->code >= 200 && answer->code < 300)
    return NULL;
  if (call->result == CURLE_OK) {
    status_error(answer->code, buffer_text(&call->text), call->text.length, answer->reason, &err);
    error_set_retry_after(err, (unsigned)(answer->retry_after / CLOCK_MILLISECOND));
    return err;
  }
  answer->code = 0;
  error_set_detail(&err, REASON_SERVER_UNAVAILABLE, "the API server cannot be reached: %s",
                   call->trouble[0] ? call->trouble : curl.easy_strerror(call->result));
  return err;
}

/* Tries again, if that makes sense. */
static bool again(struct api_call *call, const struct api_answer *answer) {
  if (answer->code == 401 && !call->renewed) {
    call->renewed = true;
    credentials_refused(call->api->credentials);
    attempt_drop(call);
    attempt(call);
    return true;
  }
  if (call->watch)
    return false;
  const struct retry_failure failure = {.code = answer->code, .retry_after = answer->retry_after};
  int64_t wait = retry_next(&call->retry, &failure, clock_boot(), call->deadline, chance());
  if (wait < 0)
    return false;
  call->fresh = call->result == CURLE_OPERATION_TIMEDOUT; /* the connection may be dead and not know it */
  attempt_drop(call);
  uv_timer_start(&call->timer, on_wait_over, (uint64_t)((wait + CLOCK_MILLISECOND - 1) / CLOCK_MILLISECOND), 0);
  return true;
}

static void call_conclude(struct api_call *call) {
  struct api_answer answer = {.code = status_of(call), .retry_after = call->retry_after};
  long connections = 0;
  curl.easy_getinfo(call->easy, CURLINFO_NUM_CONNECTS, &connections);
  call->api->counts.connections += (uint64_t)connections;
  struct error *err = failure_of(call, &answer);
  call->api->counts.failures += err != NULL;
  if (err && again(call, &answer))
    error_free(&err);
  else
    call_finish(call, &answer, err);
}

void api_call_ended(struct api_call *call, CURLcode result) {
  call->finished = true;
  call->result = result;
  if (call->watch) {
    heard_remove(call);
    api_call_deliver(call);
  } else {
    call_conclude(call);
  }
}

static int on_connected(void *context, curl_socket_t fd, curlsocktype purpose) {
  (void)context;
  (void)purpose;
  unsigned limit = UNACKNOWLEDGED_MILLISECONDS;
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit);
  return CURL_SOCKOPT_OK;
}

static int header_add(struct api_call *call, const char *format, const char *value) {
  CLEANUP_BUFFER struct buffer line;
  buffer_init(&line, 65536);
  if (buffer_append_string(&line, format) < 0 || buffer_append_string(&line, value) < 0)
    return -1;
  struct curl_slist *longer = curl.slist_append(call->headers, buffer_text(&line));
  memory_wipe(line.data, line.length);
  if (!longer)
    return -1;
  call->headers = longer;
  return 0;
}

static CURLcode blob_set(CURL *easy, CURLoption option, const char *text) {
  struct curl_blob blob = {.data = (void *)(uintptr_t)text, .len = strlen(text), .flags = CURL_BLOB_COPY};
  return curl.easy_setopt(easy, option, &blob);
}

static int tls_set(struct api_call *call, const struct credential *credential) {
  CURL *easy = call->easy;
  curl.easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
  curl.easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
  curl.easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
  if (credential->authority && blob_set(easy, CURLOPT_CAINFO_BLOB, credential->authority) != CURLE_OK)
    return -1;
  if (credential->certificate && (blob_set(easy, CURLOPT_SSLCERT_BLOB, credential->certificate) != CURLE_OK ||
                                  blob_set(easy, CURLOPT_SSLKEY_BLOB, credential->key) != CURLE_OK))
    return -1;
  return 0;
}

static int body_set(struct api_call *call) {
  CURL *easy = call->easy;
  if (call->watch || strcmp(call->method, "GET") == 0)
    return 0;
  curl.easy_setopt(easy, CURLOPT_CUSTOMREQUEST, call->method);
  if (call->body.length == 0)
    return 0;
  curl.easy_setopt(easy, CURLOPT_POSTFIELDS, buffer_text(&call->body));
  curl.easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body.length);
  return header_add(call, "Content-Type: ", call->content_type ? call->content_type : "application/json");
}

static int easy_prepare(struct api_call *call, const struct credential *credential) {
  CURL *easy = call->easy = curl.easy_init();
  if (!easy)
    return -1;
  const char *proxy = credentials_proxy(call->api->credentials);
  curl.easy_setopt(easy, CURLOPT_PRIVATE, call);
  curl.easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl.easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "https");
  curl.easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
  curl.easy_setopt(easy, CURLOPT_PIPEWAIT, 1L);
  curl.easy_setopt(easy, CURLOPT_FRESH_CONNECT, call->fresh ? 1L : 0L);
  curl.easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  curl.easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 20L);
  curl.easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, 5L);
  curl.easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_connected);
  curl.easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MILLISECONDS);
  curl.easy_setopt(easy, CURLOPT_USERAGENT, "agent-sandbox-platform/" PLATFORM_VERSION);
  curl.easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_text);
  curl.easy_setopt(easy, CURLOPT_WRITEDATA, call);
  curl.easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
  curl.easy_setopt(easy, CURLOPT_HEADERDATA, call);
  curl.easy_setopt(easy, CURLOPT_ERRORBUFFER, call->trouble);
  curl.easy_setopt(easy, CURLOPT_CONNECT_TO, call->api->connect_to);
  curl.easy_setopt(easy, CURLOPT_PROXY, proxy ? proxy : "");
  if (!call->watch) {
    int64_t left = (call->deadline - clock_boot()) / CLOCK_MILLISECOND;
    curl.easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(left < ATTEMPT_MILLISECONDS ? left : ATTEMPT_MILLISECONDS));
  }
  if (tls_set(call, credential) < 0 || body_set(call) < 0 || header_add(call, "Accept: ", "application/json") < 0 ||
      (credential->bearer && header_add(call, "Authorization: Bearer ", credential->bearer) < 0))
    return -1;
  curl.easy_setopt(easy, CURLOPT_HTTPHEADER, call->headers);
  return curl.easy_setopt(easy, CURLOPT_URL, call->url) == CURLE_OK ? 0 : -1;
}

/* Not from within curl, and not before the call was given to its user. */
static void attempt_fail(struct api_call *call, struct error *err) {
  struct api_answer answer = {0};
  call_finish(call, &answer, err);
}

static void on_credential(void *context, const struct credential *credential, struct error *failure) {
  struct api_call *call = context;
  struct error *err = NULL;
  if (!credential) {
    error_set_detail(&err, REASON_SERVER_UNAVAILABLE, "no credentials: %s", error_detail(failure));
    attempt_fail(call, err);
    return;
  }
  call->trouble[0] = 0;
  call->retry_after = 0;
  call->finished = false;
  buffer_clear(&call->text);
  if (easy_prepare(call, credential) < 0 || curl.multi_add_handle(call->api->multi, call->easy) != CURLM_OK) {
    error_set_memory(&err);
    curl.easy_cleanup(call->easy);
    call->easy = NULL;
    attempt_fail(call, err);
    return;
  }
  struct api_counts *counts = &call->api->counts;
  uint64_t *count = call->watch                        ? &counts->watches
                    : strcmp(call->method, "GET") == 0 ? &counts->reads
                                                       : &counts->writes;
  ++*count;
  if (call->watch)
    uv_timer_start(&call->timer, on_silence, SILENCE_MILLISECONDS, SILENCE_MILLISECONDS);
}

static void attempt(struct api_call *call) {
  struct error *err = NULL;
  if (!call->watch && clock_boot() >= call->deadline) {
    error_set_detail(&err, REASON_SERVER_UNAVAILABLE, "the deadline has passed");
    attempt_fail(call, err);
    return;
  }
  credentials_get(call->api->credentials, &call->waiter, on_credential, call);
}

/* --- the beginning --- */

static struct api_call *call_new(struct api *api, const char *path) {
  struct api_call *call = memory_zero(sizeof *call);
  if (!call)
    return NULL;
  CLEANUP_BUFFER struct buffer url;
  buffer_init(&url, 16384);
  if (buffer_append_format(&url, "%s%s", api->server, path) < 0) {
    memory_free(call);
    return NULL;
  }
  call->url = buffer_take(&url);
  call->api = api;
  buffer_init(&call->body, SIZE_MAX);
  buffer_init(&call->text, ANSWER_BYTES);
  uv_timer_init(api->loop, &call->timer);
  call->timer.data = call;
  api->handles++;
  call->next = api->calls;
  if (call->next)
    call->next->previous = call;
  api->calls = call;
  return call;
}

struct api_call *api_send(struct api *api, const struct api_request *request, api_done *done, void *context) {
  struct api_call *call = call_new(api, request->path);
  if (!call)
    return NULL;
  call->method = request->method;
  call->content_type = request->content_type;
  call->deadline = request->deadline;
  call->done = done;
  call->context = context;
  if (request->body && buffer_append_string(&call->body, request->body) < 0) {
    call_free(call);
    return NULL;
  }
  uv_timer_start(&call->timer, on_wait_over, 0, 0);
  return call;
}

struct api_call *api_watch(struct api *api, const char *path, void (*opened)(void *context), api_line *line,
                           api_done *done, void *context) {
  struct api_call *call = call_new(api, path);
  if (!call)
    return NULL;
  call->method = "GET";
  call->watch = true;
  call->deadline = INT64_MAX;
  call->opened = opened;
  call->line = line;
  call->done = done;
  call->context = context;
  buffer_free(&call->text);
  buffer_init(&call->text, LINE_BYTES);
  uv_timer_start(&call->timer, on_wait_over, 0, 0);
  return call;
}

int64_t api_watch_heard(const struct api_call *watch) {
  return watch->last_heard;
}
