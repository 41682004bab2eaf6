/*
 * The addresses a server listens on. A host:port is served with TLS when certificates are configured; a unix socket
 * never is: its mode (0600) decides who may connect. Thread: the loop's.
 */
#ifndef SERVER_LISTENERS_H
#define SERVER_LISTENERS_H

#include "base/error.h"
#include "server/acceptor.h"
#include "server/server_settings.h"

struct listeners;

/* NULL without memory. */
struct listeners *listeners_new(void);
/* Binds every address of settings->addresses. Returns 0, or -1 and *err, whose detail is the line to print. */
int listeners_open(struct listeners *listeners, struct acceptor *acceptor, const struct server_settings *settings,
                   struct error **err);
/* Removes sockets and their locks. Call it when nobody is served any more. */
void listeners_remove_sockets(struct listeners *listeners);
/* After the acceptor is gone, which uses the certificates. Removes sockets too. NULL is allowed. */
void listeners_free(struct listeners *listeners);

#endif
