/*
 * The HTTP/1.1 request that opens a WebSocket, and its answer, without any I/O. The answer comes from a stranger: its
 * head is at most 16 KiB, and a refusal's body is kept only when its length is told and at most 4 KiB. Thread: one at a
 * time.
 */
#ifndef BACKEND_WEBSOCKET_HANDSHAKE_H
#define BACKEND_WEBSOCKET_HANDSHAKE_H

#include "backend/websocket/websocket.h"
#include "base/buffer.h"

#define HANDSHAKE_HEAD_BYTES 16384
#define HANDSHAKE_BODY_BYTES 4096
#define HANDSHAKE_ACCEPT_BYTES 28
#define HANDSHAKE_PROTOCOL_BYTES 64

enum handshake_state { HANDSHAKE_HEAD, HANDSHAKE_BODY, HANDSHAKE_OPEN, HANDSHAKE_REFUSED };

struct handshake {
  enum handshake_state state;
  char accept[HANDSHAKE_ACCEPT_BYTES + 1]; /* what Sec-WebSocket-Accept must be */
  char protocol[HANDSHAKE_PROTOCOL_BYTES + 1];
  struct buffer answer; /* the head, then the body of a refusal */
  size_t body_length;
  struct websocket_refusal refusal; /* while HANDSHAKE_REFUSED */
};

/* Appends the request to `out`. Returns 0, or -1 and *err (REASON_INTERNAL): something in it cannot stand in a request,
 * or there is no memory. handshake_free afterwards in any case. */
int handshake_start(struct handshake *handshake, const struct websocket_request *request, struct buffer *out,
                    struct error **err);
void handshake_free(struct handshake *handshake);

/* Takes bytes of the answer while the state is HEAD or BODY; *used: how many of them; those behind belong to frames.
 * Returns 0, or -1 and *err (REASON_SANDBOX_NOT_READY): it is no valid answer. */
int handshake_receive(struct handshake *handshake, const uint8_t *bytes, size_t length, size_t *used,
                      struct error **err);

#endif
