/*
 * Listening TCP sockets for a "host:port". Thread: any; a name is looked up, which may take its time.
 */
#ifndef SERVER_TCP_SOCKETS_H
#define SERVER_TCP_SOCKETS_H

#include "base/error.h"
#include <stddef.h>

#define TCP_SOCKETS_MAX 32

/* Opens one socket for each address of the host that this machine has, at most *count and at least one; they do not
 * block. An IPv6 host stands in brackets; [::] takes IPv4 too. Port 0 takes a free one, the same for all; *port is then
 * which. An address that somebody else listens on is an error. Returns 0 and *count sockets, the caller's; or -1 and
 * *err. */
int tcp_sockets_open(const char *address, int sockets[static TCP_SOCKETS_MAX], size_t *count, int *port,
                     struct error **err);

#endif
