#include "gateway/route.h"

#include <string.h>

#define LEASE_ID NULL /* stands for any id */

/* The last segment is followed by END. */
static const char END[] = "";

struct route {
  const char *path[TARGET_SEGMENTS + 1];
  const char *allow; /* all methods of the path */
  struct {
    struct http_text method;
    const struct handler *handler;
  } methods[3];
};

static const struct route routes[] = {
    {{"health", END}, "GET, HEAD", {{{"GET", 3}, &handle_health}, {{"HEAD", 4}, &handle_health}}},
    {{"ready", END}, "GET, HEAD", {{{"GET", 3}, &handle_ready}, {{"HEAD", 4}, &handle_ready}}},
    {{"v1", "leases", END}, "GET, POST", {{{"POST", 4}, &handle_acquire}, {{"GET", 3}, &handle_list}}},
    {{"v1", "leases", LEASE_ID, END}, "GET, DELETE", {{{"GET", 3}, &handle_get}, {{"DELETE", 6}, &handle_delete}}},
    {{"v1", "leases", LEASE_ID, "release", END}, "POST", {{{"POST", 4}, &handle_release}}},
    {{"v1", "leases", LEASE_ID, "exec", END}, "POST", {{{"POST", 4}, &handle_exec}}},
    {{"v1", "leases", LEASE_ID, "files", "read", END}, "POST", {{{"POST", 4}, &handle_file_read}}},
    {{"v1", "leases", LEASE_ID, "files", "write", END}, "POST", {{{"POST", 4}, &handle_file_write}}},
    {{"v1", "leases", LEASE_ID, "files", "content", END},
     "GET, PUT",
     {{{"GET", 3}, &handle_download}, {{"PUT", 3}, &handle_upload}}},
};

static bool segment_is(struct http_text segment, const char *name) {
  return segment.length == strlen(name) && memcmp(segment.data, name, segment.length) == 0;
}

static bool path_is(const struct target *target, const char *const *path, struct http_text *lease_id) {
  for (size_t i = 0; i < target->count; i++) {
    if (path[i] == END)
      return false;
    if (path[i] == LEASE_ID && target->segments[i].length > 0)
      *lease_id = target->segments[i];
    else if (path[i] == LEASE_ID || !segment_is(target->segments[i], path[i]))
      return false;
  }
  return path[target->count] == END;
}

/* "/v1/leases/{id}/…" */
static bool is_below_a_lease(const struct target *target) {
  return target->count > 3 && segment_is(target->segments[0], "v1") && segment_is(target->segments[1], "leases") &&
         target->segments[2].length > 0;
}

struct route_match route_find(struct http_text method, const struct target *target) {
  struct route_match match = {.refusal = REASON_NOT_FOUND};
  for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
    const struct route *route = &routes[i];
    if (!path_is(target, route->path, &match.lease_id))
      continue;
    match.open = route->methods[0].handler->open;
    for (size_t m = 0; m < 3 && route->methods[m].handler; m++)
      if (http_text_is(method, route->methods[m].method)) {
        match.handler = route->methods[m].handler;
        return match;
      }
    match.refusal = REASON_METHOD_NOT_ALLOWED;
    match.allow = route->allow;
    return match;
  }
  if (is_below_a_lease(target)) {
    match.refusal = REASON_METHOD_NOT_ALLOWED;
    match.allow = "";
  }
  return match;
}
