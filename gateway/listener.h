/*
 * Listening sockets. Thread: any.
 */
#ifndef GATEWAY_LISTENER_H
#define GATEWAY_LISTENER_H

#include "base/error.h"
#include <stddef.h>

/* Opens a socket for each of the comma-separated addresses (host:port, [IPv6]:port). Returns how many, at most `size`, or
 * -1 and *err whose detail is the line to print; no socket is then open. The caller closes them. */
int listener_open_all(const char *addresses, int *sockets, size_t size, struct error **err);
/* The address a socket is bound to, as host:port. */
#define LISTENER_NAME_BYTES 80
void listener_name(int socket, char name[static LISTENER_NAME_BYTES]);

#endif
