/*
 * One client: a connection (gateway/connection.h) on an h2o socket, plain or TLS. Thread: the loop's.
 */
#ifndef GATEWAY_PEER_H
#define GATEWAY_PEER_H

#include "gateway/connection.h"
#include "gateway/loop.h"

/* Takes over a socket that was just accepted. tls: the context for its handshake, or NULL. Without memory the socket is
 * closed. */
void peer_start(struct loop *loop, h2o_socket_t *socket, SSL_CTX *tls);
/* The loop of a connection that belongs to a peer. */
struct loop *peer_loop(const struct connection *connection);

/* Closes the peer that has been idle for longest. False if none is. */
bool peer_close_idle(struct loop *loop);
/* Shutting down: closes all idle peers; the others close behind their next answer. */
void peer_stop_all(struct loop *loop);
/* Closes all. */
void peer_close_all(struct loop *loop);
/* Frees the peers that were closed in this turn of the loop. */
void peer_free_closed(struct loop *loop);

#endif
