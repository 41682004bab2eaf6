/*
 * One TLS connection as its client, without any I/O: what the socket gave goes in at one end and plain bytes come out
 * at the other, and back. TLS 1.2 or later; the server's certificate must lead to the given authorities and have the
 * given name, always. Thread: one at a time.
 */
#ifndef BACKEND_WEBSOCKET_TLS_H
#define BACKEND_WEBSOCKET_TLS_H

#include "backend/websocket/websocket.h"
#include "base/buffer.h"
#include <sys/types.h>

struct tls;

/* What is for the socket is appended to `output`, which must outlive it. NULL and *err (REASON_INTERNAL): the
 * credentials cannot be used, or there is no memory. */
struct tls *tls_new(const struct websocket_endpoint *endpoint, struct buffer *output, struct error **err);
void tls_free(struct tls *tls);

/* Bytes from the socket, not copied: they must stay until tls_handshake or tls_read has returned 0. */
void tls_receive(struct tls *tls, const uint8_t *bytes, size_t length);
/* Goes on with the handshake: returns 1 when it is complete, 0 when more must come, or -1 and *err
 * (REASON_SANDBOX_NOT_READY). */
int tls_handshake(struct tls *tls, struct error **err);
/* Plain bytes: returns how many, 0 when more must come, or -1 and *err; *ended: the other side has said that no more
 * will come. */
ssize_t tls_read(struct tls *tls, uint8_t *bytes, size_t size, bool *ended, struct error **err);
/* Encrypts all of it. Returns 0, or -1 and *err: `output` is full. */
int tls_write(struct tls *tls, const uint8_t *bytes, size_t length, struct error **err);
/* Says that no more will come. */
void tls_end(struct tls *tls);

#endif
