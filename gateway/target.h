/*
 * The target of a request: "/v1/leases/a%20b?path=x+y" as decoded path segments and query parameters. No I/O, no
 * allocation: everything is decoded where it lies. Thread: any.
 */
#ifndef GATEWAY_TARGET_H
#define GATEWAY_TARGET_H

#include "base/error.h"
#include "gateway/http_head.h"
#include <stdbool.h>
#include <stddef.h>

enum { TARGET_SEGMENTS = 6 }; /* one more than the longest route has */

struct target {
  struct http_text segments[TARGET_SEGMENTS]; /* of "/a/b": "a", "b"; decoded */
  size_t count;                               /* TARGET_SEGMENTS also stands for more */
  char *query;                                /* behind the '?', not decoded; NULL if there is none */
  size_t query_length;
};

/* Reads a target in origin form or absolute form and writes decoded segments over it. Any other form has no segments. A
 * malformed percent-encoding stands for itself: no route and no Lease has such a name. */
void target_read(char *text, size_t length, struct target *target);

/* Takes the next query parameter off target->query and writes it decoded over the query ('+' is a space). Returns 1; 0 at
 * the end; or -1 and REASON_INVALID_REQUEST if the percent-encoding is malformed. */
int target_next_parameter(struct target *target, struct http_text *name, struct http_text *value, struct error **err);

#endif
