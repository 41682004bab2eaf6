/*
 * From a host's name to a TCP connection: each of its addresses is tried in turn.
 */
#include "backend/websocket/internal.h"

#include <stdio.h>

static void try_address(struct websocket *websocket);

static void on_closed_again(uv_handle_t *handle) {
  struct websocket *websocket = handle->data;
  if (websocket->state != WEBSOCKET_CLOSED) {
    uv_tcp_init(websocket->loop, &websocket->tcp);
    try_address(websocket);
  } else {
    websocket_release(websocket);
  }
}

static void on_connected(uv_connect_t *request, int status) {
  struct websocket *websocket = request->data;
  if (websocket->state != WEBSOCKET_CONNECTING || status == UV_ECANCELED)
    return;
  if (status < 0 && websocket->address && websocket->address->ai_next) {
    websocket->address = websocket->address->ai_next;
    uv_close((uv_handle_t *)&websocket->tcp, on_closed_again);
    return;
  }
  websocket_connected(websocket, status);
}

static void begin(struct websocket *websocket, const struct sockaddr *address) {
  int status = uv_tcp_connect(&websocket->connect, &websocket->tcp, address, on_connected);
  if (status < 0)
    websocket_connected(websocket, status);
}

static void try_address(struct websocket *websocket) {
  begin(websocket, websocket->address->ai_addr);
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *addresses) {
  struct websocket *websocket = request->data;
  websocket->resolving = false;
  websocket->addresses = websocket->address = addresses;
  if (websocket->state == WEBSOCKET_CLOSED) {
    websocket_release(websocket);
    return;
  }
  websocket->handles--;
  if (websocket->state == WEBSOCKET_CONNECTING && status == 0 && addresses)
    try_address(websocket);
  else if (websocket->state == WEBSOCKET_CONNECTING)
    websocket_connected(websocket, status < 0 ? status : UV_EAI_NODATA);
}

void connect_start(struct websocket *websocket, const char *host) {
  static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
  union {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
  } address;
  websocket->connect.data = websocket->resolve.data = websocket;
  if (uv_ip4_addr(host, websocket->port, &address.four) == 0 || uv_ip6_addr(host, websocket->port, &address.six) == 0) {
    begin(websocket, &address.any);
    return;
  }
  char port[8];
  snprintf(port, sizeof port, "%u", websocket->port);
  int status = uv_getaddrinfo(websocket->loop, &websocket->resolve, on_resolved, host, port, &hints);
  websocket->resolving = status == 0;
  if (status == 0)
    websocket->handles++;
  else
    websocket_connected(websocket, status);
}

void connect_stop(struct websocket *websocket) {
  if (websocket->resolving)
    uv_cancel((uv_req_t *)&websocket->resolve); /* if it did not begin yet; its callback comes in any case */
}

void connect_free(struct websocket *websocket) {
  uv_freeaddrinfo(websocket->addresses);
}
