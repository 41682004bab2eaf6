/*
 * TLS for the gRPC server: certificate, key and, for mutual TLS, the CA of the clients, from PEM files. The files are
 * looked at on every handshake and read again when they changed, so that renewing a certificate needs no restart. New
 * files that are no use (half written, key of another certificate) are logged, and the old ones stay in force.
 *
 * Thread: handshakes run on gRPC's threads; the rest is the start's.
 */
#ifndef SERVER_CERTIFICATES_H
#define SERVER_CERTIFICATES_H

#include "base/error.h"
#include <grpc/grpc_security.h>

struct certificates;

/* One for each listener: which version of the files it has is remembered here. client_ca NULL: clients need no
 * certificate. The paths are copied. NULL and *err, whose detail names the file. */
struct certificates *certificates_new(const char *certificate, const char *key, const char *client_ca,
                                      struct error **err);
/* For grpc_server_add_http2_port; the caller releases them. NULL and *err. */
grpc_server_credentials *certificates_credentials(struct certificates *certificates, struct error **err);
/* After the gRPC server is gone. NULL is allowed. */
void certificates_free(struct certificates *certificates);

#endif
