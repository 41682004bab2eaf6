/*
 * Transports to sandboxd through pods/exec: a WebSocket to the API server, which runs a program in the Pod's container
 * and carries its standard streams (v5.channel.k8s.io). Connecting runs a script in the container's `sh` that finds
 * sandboxd there or takes it from us (see script.h), and joins its streams to the session. The sandboxd stays when the
 * connection breaks, and the next connection finds it again. A container that nothing can be brought into is served
 * without it: see plain.h.
 *
 * The container is hostile: what it sends is given to the session, which checks it; nothing else is believed or kept.
 * Thread: the loop's.
 */
#ifndef BACKEND_PODEXEC_PODEXEC_H
#define BACKEND_PODEXEC_PODEXEC_H

#include "backend/transport.h"
#include "backend/websocket/websocket.h"
#include "base/error.h"
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/* Where the API server is, and who we are there. */
struct podexec_endpoint {
  struct websocket_endpoint websocket;
  const char *prefix; /* of every path; "" if there is none */
};

/* One of the two is NULL; both are valid for the call. */
typedef void podexec_granted(void *context, const struct podexec_endpoint *endpoint, struct error *err);

/* Who knows that. It must outlive the transports. */
struct podexec_access {
  /* Asks for the endpoint as it is now. granted is called once, perhaps before this returns, unless it is cancelled.
   * Returns what `cancel` takes; NULL without memory, and then granted is not called. */
  void *(*ask)(void *context, podexec_granted *granted, void *granted_context);
  /* Not after granted was called. */
  void (*cancel)(void *context, void *asked);
  /* The API server answered 401: the credentials are no good any more. */
  void (*refused)(void *context);
  void *context;
};

/* The sandboxd that is uploaded. Bytes are not copied: they must outlive the transports. */
struct podexec_program {
  const uint8_t *bytes;
  size_t length;
  char digest[65]; /* SHA-256, hexadecimal */
};

/* Reads it from a file. Free with podexec_program_free. Returns 0, or -1 and *err. */
int podexec_program_read(struct podexec_program *program, const char *path, struct error **err);
void podexec_program_free(struct podexec_program *program);

/* Strings are copied; NULL where nothing is said. */
struct podexec_options {
  const struct podexec_access *access;
  const struct podexec_program *program;
  const char *namespace_, *pod;
  const char *container; /* NULL: the Pod's default one */
  const char *installed; /* path of a sandboxd in the container, tried first; NULL: none */
  const char *workspace; /* NULL: /workspace */
  bool without_agent;    /* nothing is brought in: each command and each file is a pods/exec of its own, see plain.h */
};

/* REASON_LEASE_NOT_FOUND on `connected` when the Pod does not exist any more. NULL without memory. */
struct transport *transport_podexec_new(uv_loop_t *loop, const struct podexec_options *options);

#endif
