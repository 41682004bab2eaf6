/*
 * The routes, all in one table (route.c): a new endpoint is one row there and one file for its handler. Thread: any.
 */
#ifndef GATEWAY_ROUTE_H
#define GATEWAY_ROUTE_H

#include "gateway/handler.h"
#include "gateway/target.h"

/* The handlers; each in a file of its own. */
extern const struct handler handle_health, handle_ready;
extern const struct handler handle_acquire, handle_list, handle_get, handle_delete, handle_release;
extern const struct handler handle_exec, handle_file_read, handle_file_write;
extern const struct handler handle_download, handle_upload;

/* What a request is for. handler NULL: `refusal` says why not; `allow` is the value of the Allow header that goes with
 * REASON_METHOD_NOT_ALLOWED. */
struct route_match {
  const struct handler *handler;
  struct http_text lease_id; /* if the path has one */
  enum reason refusal;
  const char *allow;
  bool open; /* needs no token, even to be refused */
};

struct route_match route_find(struct http_text method, const struct target *target);

#endif
