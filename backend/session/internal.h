/*
 * The inside of a session. connection.c keeps the connection and the list of operations; exec.c and file.c are the
 * operations. Thread: the loop's.
 *
 * Callbacks of the wire come only while connection.c runs it, and nothing that an operation does runs it: output is queued
 * and leaves in the next turn of the loop. So an operation may be started, fed or cancelled from within any callback.
 */
#ifndef SESSION_INTERNAL_H
#define SESSION_INTERNAL_H

#include "backend/session/session.h"
#include "backend/wire/wire.h"
#include <protobuf-c/protobuf-c.h>

struct operation;

/* What the connection tells an operation. */
struct operation_kind {
  /* The connection stands: start or take up the call (operation_call). Not called for an operation that has one. */
  void (*open)(struct operation *operation);
  /* One message of the call. */
  void (*message)(struct operation *operation, const uint8_t *bytes, size_t length);
  void (*writable)(struct operation *operation);
  /* The call is over (then operation->call is NULL). status WIRE_UNAVAILABLE: the connection broke. */
  void (*closed)(struct operation *operation, int status, const char *text);
  /* It waits for a connection no longer, or the session is closing: complete it now. err: why (not freed). */
  void (*abandon)(struct operation *operation, enum session_ended why, const struct error *err);
};

struct operation {
  const struct operation_kind *kind;
  struct session *session;
  struct operation *next, *previous;
  struct wire_call *call; /* NULL: none open */
  int64_t waiting_since;  /* boot clock: without a connection since; 0 while it has one */
  int64_t patience;       /* nanoseconds it may wait so */
  int64_t guard;          /* boot clock: when connection.c calls on_guard; 0: never */
  void (*on_guard)(struct operation *operation);
  bool finished; /* its last callback was given; only the wire's end of the call is waited for */
};

/* Adds it to the session and opens it as soon as the connection stands. `operation` is the first member of a memory_new
 * block, which is freed when the operation is finished and its call closed. */
void operation_add(struct session *session, struct operation *operation, const struct operation_kind *kind);
/* Starts its call; NULL without memory. */
struct wire_call *operation_call(struct operation *operation, const char *path);
/* Packs and queues one message. Returns 0, or -1. */
int operation_send(struct operation *operation, const ProtobufCMessage *message);
/* After its last callback. It may be gone when this returns. */
void operation_finish(struct operation *operation);
/* Something was queued for the wire: it leaves soon. */
void session_schedule(struct session *session);
/* The agent broke the protocol: the connection is closed, and what runs is taken to be lost. */
void session_violated(struct session *session, const char *what);
/* True once: when `instance` of the agent changed since the operation's command was started. */
uint64_t session_generation(const struct session *session);
/* Recomputes when the next guard is due. */
void session_guard_changed(struct session *session);

/* The reason a failed call gives in its text, if it is one of `allowed` (REASON_NONE ends them); else `otherwise`. */
enum reason status_reason(int status, const char *text, const enum reason *allowed, enum reason otherwise);

#endif
