/*
 * A byte stream to the agent of one sandbox: a unix socket, a pods/exec WebSocket, a TCP connection. The session above
 * does not know which. Thread: the loop's.
 */
#ifndef BACKEND_TRANSPORT_H
#define BACKEND_TRANSPORT_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct transport_events {
  /* The connection stands (err NULL) or could not be made (REASON_SANDBOX_NOT_READY, or REASON_LEASE_NOT_FOUND when the
   * sandbox is gone for good). err is freed by the transport. */
  void (*connected)(void *context, struct error *err);
  /* Bytes came; valid for the call. */
  void (*received)(void *context, const uint8_t *bytes, size_t length);
  /* Everything passed to write so far has left. */
  void (*drained)(void *context);
  /* The connection broke; it may be connected again. Not called after close. */
  void (*lost)(void *context, struct error *err);
  void *context;
};

struct transport;

struct transport_operations {
  /* One `connected` follows. Only while not connected. */
  void (*connect)(struct transport *transport, const struct transport_events *events);
  /* Queues bytes (copied, or sent at once). Returns 0, or -1 when the connection is broken (`lost` follows). */
  int (*write)(struct transport *transport, const uint8_t *bytes, size_t length);
  /* Bytes queued and not yet handed to the system: above 1 MiB the session stops writing until `drained`. */
  size_t (*queued)(const struct transport *transport);
  void (*pause)(struct transport *transport, bool paused); /* stops and resumes reading */
  /* Breaks the connection; no further event. May be connected again. */
  void (*disconnect)(struct transport *transport);
  /* Disconnects and frees, when the loop allows. */
  void (*free)(struct transport *transport);
};

struct transport {
  const struct transport_operations *operations;
};

#endif
