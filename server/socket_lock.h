/*
 * Whose a unix socket's path is. gRPC unlinks whatever it finds at a path it is to listen on, a socket in use included,
 * so that two servers would silently take it from each other. A lock file beside the socket, "<path>.lock", settles it;
 * it goes with the process, however that ends. Thread: one.
 */
#ifndef SERVER_SOCKET_LOCK_H
#define SERVER_SOCKET_LOCK_H

#include "base/error.h"

struct socket_lock;

/* NULL and *err if another process has the lock, serves the path without one, or if something other than a socket is at
 * the path. */
struct socket_lock *socket_lock_take(const char *path, struct error **err);
/* Removes socket and lock file. NULL is allowed. */
void socket_lock_release(struct socket_lock *lock);

#endif
