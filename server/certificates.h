/*
 * TLS for the gRPC server: certificate, key and, for mutual TLS, the CA of the clients, from PEM files. The files are
 * looked at on every handshake and read again when they changed, so that renewing a certificate needs no restart. New
 * files that are no use (half written, key of another certificate) are logged, and the old ones stay in force.
 *
 * Thread: the start's, then the front's.
 */
#ifndef SERVER_CERTIFICATES_H
#define SERVER_CERTIFICATES_H

#include "base/error.h"
#include <openssl/ssl.h>

struct certificates;

/* client_ca NULL: clients need no certificate. The paths are copied. NULL and *err, whose detail names the file. */
struct certificates *certificates_new(const char *certificate, const char *key, const char *client_ca,
                                      struct error **err);
/* For the next connection; valid until the next call. Never NULL: at worst the files that were in force before. */
SSL_CTX *certificates_context(struct certificates *certificates);
/* After the front is gone. NULL is allowed. */
void certificates_free(struct certificates *certificates);

#endif
