/*
 * A transport over a unix-domain stream socket. Thread: the loop's.
 */
#ifndef BACKEND_TRANSPORT_UNIX_H
#define BACKEND_TRANSPORT_UNIX_H

#include "backend/transport.h"
#include <uv.h>

/* path: of the listening socket, of any length; its last component at most 80 bytes. Copied. Nobody listening there
 * reads as REASON_LEASE_NOT_FOUND: the sandbox is gone. NULL without memory. */
struct transport *transport_unix_new(uv_loop_t *loop, const char *path);

#endif
