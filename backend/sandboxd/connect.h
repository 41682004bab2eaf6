/*
 * `sandboxd connect`: brings the descriptors that it was started with to the sandboxd that runs in this container, and
 * starts that one if there is none. The sandboxd stays when this process and whatever started it are gone.
 *
 * They meet at an abstract unix socket, which is there for one user of one container. Other programs of this user can
 * take that place before us: they may imitate sandboxd in any case.
 */
#ifndef BACKEND_SANDBOXD_CONNECT_H
#define BACKEND_SANDBOXD_CONNECT_H

#include "base/error.h"
#include <stdbool.h>

#define CONNECT_NAME_BYTES 32
#define CONNECT_GREETING "sandboxd: ready\n"
#define CONNECT_ANOTHER 3 /* exit code: not the program that is wanted */

/* Is the running program, byte for byte, the one with this SHA-256 in hexadecimal? Returns 0, or -1 and *err. */
int connect_verify(const char *digest, struct error **err);

/* name: sets apart several of one user in one container; at most CONNECT_NAME_BYTES, or NULL. Returns a socket to the
 * sandboxd, or -1 and *err. *listener: -1, or where a sandboxd is to be started, with `handover`; the socket is
 * connected to it already. */
int connect_reach(const char *name, int *listener, struct error **err);

/* Greets on standard output, hands standard input and output over and waits for their end. Returns the exit code. */
int connect_stay(int socket);

#endif
