/*
 * What both directions of …/files/content share. Thread: the loop's.
 */
#ifndef GATEWAY_CONTENT_H
#define GATEWAY_CONTENT_H

#include "base/error.h"
#include <stddef.h>

struct exchange;

/* Reads the query parameter `path`: exactly once and not blank. A path that does not fit the `size` bytes at `path` is cut
 * there, which is still over the server's limit. 0, or -1 and *err. */
int content_path(struct exchange *exchange, char *path, size_t size, struct error **err);

#endif
