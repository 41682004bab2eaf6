/*
 * curl's multi interface on the loop. curl's callbacks only take note: what they learned is handed on after curl has
 * returned, so that users may begin and end calls in theirs.
 */
#include "backend/kubernetes/api_state.h"

#include "base/memory.h"
#include <string.h>

enum { STREAMS_MAX = 250 };

/* A socket of curl's. */
struct api_socket {
  struct api *api;
  curl_socket_t fd;
  uv_poll_t poll;
};

void api_handle_closed(struct api *api) {
  if (--api->handles > 0 || !api->freed)
    return;
  memory_free(api->server);
  curl.slist_free_all(api->connect_to);
  memory_free(api);
}

/* What curl has noted while it ran. */
static void hand_on(struct api *api) {
  int left;
  for (CURLMsg *message; (message = curl.multi_info_read(api->multi, &left));) {
    struct api_call *call = NULL;
    if (message->msg != CURLMSG_DONE)
      continue;
    curl.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&call);
    api_call_ended(call, message->data.result);
    if (api->freed)
      return;
  }
  while (!api->freed && api->heard) {
    struct api_call *call = api->heard;
    api->heard = call->heard_next;
    if (!api->heard)
      api->heard_end = &api->heard;
    call->is_heard = false;
    api_call_deliver(call);
  }
}

static void run(struct api *api, curl_socket_t fd, int events) {
  int running;
  api->handles++; /* a callback may free the api */
  curl.multi_socket_action(api->multi, fd, events, &running);
  hand_on(api);
  api_handle_closed(api);
}

static void on_timer(uv_timer_t *timer) {
  run(timer->data, CURL_SOCKET_TIMEOUT, 0);
}

static int timer_changed(CURLM *multi, long milliseconds, void *context) {
  struct api *api = context;
  (void)multi;
  if (api->freed || milliseconds < 0)
    uv_timer_stop(&api->timer);
  else
    uv_timer_start(&api->timer, on_timer, (uint64_t)milliseconds, 0);
  return 0;
}

static void on_socket(uv_poll_t *poll, int status, int events) {
  struct api_socket *socket = poll->data;
  int flags = 0;
  if (status < 0)
    flags = CURL_CSELECT_ERR;
  if (events & UV_READABLE)
    flags |= CURL_CSELECT_IN;
  if (events & UV_WRITABLE)
    flags |= CURL_CSELECT_OUT;
  run(socket->api, socket->fd, flags);
}

static void socket_closed(uv_handle_t *handle) {
  struct api_socket *socket = handle->data;
  struct api *api = socket->api;
  memory_free(socket);
  api_handle_closed(api);
}

static struct api_socket *socket_new(struct api *api, curl_socket_t fd) {
  struct api_socket *socket = memory_zero(sizeof *socket);
  if (!socket || uv_poll_init_socket(api->loop, &socket->poll, fd) < 0) {
    memory_free(socket);
    return NULL;
  }
  socket->api = api;
  socket->fd = fd;
  socket->poll.data = socket;
  api->handles++;
  curl.multi_assign(api->multi, fd, socket);
  return socket;
}

static int socket_changed(CURL *easy, curl_socket_t fd, int what, void *context, void *known) {
  struct api *api = context;
  struct api_socket *socket = known;
  (void)easy;
  if (what == CURL_POLL_REMOVE) {
    if (socket) {
      curl.multi_assign(api->multi, fd, NULL);
      uv_poll_stop(&socket->poll);
      uv_close((uv_handle_t *)&socket->poll, socket_closed);
    }
    return 0;
  }
  if (!socket && !(socket = socket_new(api, fd)))
    return -1;
  int events = (what != CURL_POLL_OUT ? UV_READABLE : 0) | (what != CURL_POLL_IN ? UV_WRITABLE : 0);
  return uv_poll_start(&socket->poll, events, on_socket) < 0 ? -1 : 0;
}

/* Where certificates are for another name than the URL's, the URL gets that name, and the connection goes to where it
 * pointed. */
static int address_rename(struct api *api, CURLU *url, const char *name) {
  char *host = NULL, *port = NULL, *text = NULL;
  CLEANUP_BUFFER struct buffer way;
  buffer_init(&way, 4096);
  if (curl.url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
      curl.url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
      buffer_append_format(&way, "%s:%s:%s:%s", name, port, host, port) == 0 &&
      curl.url_set(url, CURLUPART_HOST, name, 0) == CURLUE_OK &&
      curl.url_get(url, CURLUPART_URL, &text, 0) == CURLUE_OK) {
    api->server = memory_string(text);
    api->connect_to = curl.slist_append(NULL, buffer_text(&way));
  }
  curl.free(host);
  curl.free(port);
  curl.free(text);
  return api->server && api->connect_to ? 0 : -1;
}

static int address_set(struct api *api, const struct credentials *credentials, struct error **err) {
  const char *server = credentials_server(credentials), *name = credentials_server_name(credentials);
  CURLU *url = curl.url();
  int result = url ? 0 : error_set_memory(err);
  if (url && curl.url_set(url, CURLUPART_URL, server, 0) != CURLUE_OK)
    result = error_set_detail(err, REASON_INTERNAL, "the API server's address is no URL: %s", server);
  else if (url && name)
    result = address_rename(api, url, name);
  else if (url)
    result = (api->server = memory_string(server)) ? 0 : error_set_memory(err);
  curl.url_cleanup(url);
  size_t length = api->server ? strlen(api->server) : 0;
  while (length > 0 && api->server[length - 1] == '/')
    api->server[--length] = 0;
  return result;
}

struct api *api_new(uv_loop_t *loop, struct credentials *credentials, struct error **err) {
  if (curl_load(err) < 0) {
    credentials_free(credentials);
    return NULL;
  }
  struct api *api = memory_zero(sizeof *api);
  if (api)
    api->multi = curl.multi_init();
  if (!api || !api->multi || address_set(api, credentials, err) < 0) {
    credentials_free(credentials);
    if (api)
      curl.multi_cleanup(api->multi);
    memory_free(api);
    if (err && !*err)
      error_set_memory(err);
    return NULL;
  }
  api->loop = loop;
  api->credentials = credentials;
  api->heard_end = &api->heard;
  uv_timer_init(loop, &api->timer);
  api->timer.data = api;
  api->handles = 1;
  curl.multi_setopt(api->multi, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
  curl.multi_setopt(api->multi, CURLMOPT_MAX_CONCURRENT_STREAMS, (long)STREAMS_MAX);
  curl.multi_setopt(api->multi, CURLMOPT_SOCKETFUNCTION, socket_changed);
  curl.multi_setopt(api->multi, CURLMOPT_SOCKETDATA, api);
  curl.multi_setopt(api->multi, CURLMOPT_TIMERFUNCTION, timer_changed);
  curl.multi_setopt(api->multi, CURLMOPT_TIMERDATA, api);
  return api;
}

static void timer_closed(uv_handle_t *handle) {
  api_handle_closed(handle->data);
}

void api_free(struct api *api) {
  if (!api)
    return;
  while (api->calls)
    api_cancel(api->calls);
  api->freed = true;
  curl.multi_cleanup(api->multi);
  credentials_free(api->credentials);
  uv_close((uv_handle_t *)&api->timer, timer_closed);
}

int64_t api_clock_offset(const struct api *api) {
  return api->clock_offset;
}

const char *api_namespace(const struct api *api) {
  return credentials_namespace(api->credentials);
}

void api_count(const struct api *api, struct api_counts *counts) {
  *counts = api->counts;
}
