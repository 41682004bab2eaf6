/*
 * What stands before gRPC on a TCP port: takes the connections, ends their TLS, has a guard (server/guard.h) look at
 * their frames, and passes the bytes to gRPC over a socket pair. One thread of its own for all of them.
 *
 * Thread: the loop's.
 */
#ifndef SERVER_FRONT_H
#define SERVER_FRONT_H

#include "base/error.h"
#include "server/certificates.h"
#include <grpc/grpc.h>

struct front;

/* `server` is the caller's. NULL and *err. */
struct front *front_new(grpc_server *server, struct error **err);
/* Before front_start. `address` is "host:port"; port 0 takes a free one, *port is then which. certificates NULL: no
 * TLS; else they must outlive the front. Returns 0, or -1 and *err. */
int front_listen(struct front *front, const char *address, struct certificates *certificates, int *port,
                 struct error **err);
/* After grpc_server_start. Returns 0, or -1 and *err. */
int front_start(struct front *front, struct error **err);
/* From here on no connection is handed to gRPC any more: before the server is shut down. */
void front_refuse(struct front *front);
/* After front_refuse, when gRPC has closed its connections, or if it was never started. What gRPC wrote last gets a
 * second to leave. NULL is allowed. */
void front_free(struct front *front);

#endif
