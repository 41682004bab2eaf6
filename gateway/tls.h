/*
 * The server's certificate. Its files are looked at whenever a client connects, so a renewed certificate needs no restart.
 * Thread: one owner at a time.
 */
#ifndef GATEWAY_TLS_H
#define GATEWAY_TLS_H

#include "base/error.h"
#include <openssl/ssl.h>

struct tls;

/* The paths (PEM: certificate chain, private key) stay the caller's. NULL and *err. */
struct tls *tls_new(const char *certificate, const char *key, struct error **err);
void tls_free(struct tls *tls);

/* For the next connection. If the files changed they are read again; if they cannot be used, the certificate from before
 * stays and a warning is logged once. Valid until the next call. */
SSL_CTX *tls_context(struct tls *tls);

#endif
