/*
 * The Lease service from within: its state, and what its files do for each other. Thread: the loop's.
 */
#ifndef SERVER_LEASE_STATE_H
#define SERVER_LEASE_STATE_H

#include "backend/backend.h"
#include "backend/session/session.h"
#include "base/cursor.h"
#include "base/digest.h"
#include "server/boot_timer.h"
#include "server/call.h"
#include "server/label_map.h"
#include "server/lease_service.h"
#include "server/lease_settings.h"
#include "server/lease_table.h"
#include "server/lease_tombstones.h"
#include "server/scope_cache.h"
#include <uv.h>

enum service_phase { SERVICE_NEW, SERVICE_STARTING, SERVICE_SERVING, SERVICE_STOPPING, SERVICE_STOPPED };

struct lease_transfer;

struct lease_service {
  uv_loop_t *loop;
  struct backend *backend; /* the caller's */
  struct lease_settings settings;
  enum service_phase phase;

  struct digest_key metadata_key;
  struct cursor_key cursor_key;
  struct scope_cache scopes;

  struct lease_table table;
  struct lease_tombstones tombstones;
  struct label_map acquisitions;     /* pending acquires by idempotency label */
  struct lease_lookup *lookups;      /* ids that the backend was asked for */
  size_t operations;                 /* calls that use a sandbox, and sessions' work whose call is gone */
  struct lease_operation *orphans;   /* those whose Lease is gone */

  /* Transfers by deadline: all have the same time limit, so the first ends first. */
  struct lease_transfer *first_transfer, *last_transfer;
  unsigned transfers;

  size_t holding; /* bytes for unary answers: see lease_holding.c */

  struct boot_timer *expiry;   /* the nearest deadline of a Lease */
  struct boot_timer *transfer_timer; /* the nearest deadline of a transfer */
  uv_timer_t sweep;
  uv_timer_t grace; /* how long stopping waits for what runs */
  bool backend_stopping;
  unsigned handles; /* uv handles of this struct that are open */

  backend_done *done; /* of start or stop */
  void *done_context;
};

/* --- Leases (lease_life.c) --- */

/* What the backend tells unasked. */
void lease_life_bound(void *context, const struct backend_sandbox *sandbox);
void lease_life_ended(void *context, const char *id, enum backend_end end);
/* Puts a sandbox into the table, or brings its facts up to date. NULL without memory. */
struct lease *lease_life_adopt(struct lease_service *service, const struct backend_sandbox *sandbox);
/* Ends every Lease whose deadline has come and sets the timer for the next. Cheap when there is none. */
void lease_life_expire(struct lease_service *service);
/* Begins the end of an active Lease, or tries again to end one whose release failed: what uses it ends, its sandbox is
 * destroyed. The Lease may be gone when this returns. */
void lease_life_end(struct lease_service *service, struct lease *lease, enum backend_end end);
/* Tries again what failed, and lets the backend look for what is left over. */
void lease_life_sweep(struct lease_service *service);
/* Closes every session. */
void lease_life_close_sessions(struct lease_service *service);
/* Notes that the sandbox is being used. */
void lease_life_touch(struct lease_service *service, struct lease *lease);
/* The open session, opening one if need be. NULL and *err (SANDBOX_NOT_READY). */
struct session *lease_life_session(struct lease_service *service, struct lease *lease, struct error **err);

/* Waits for the end of an ending Lease: the call is answered with it, or with nothing if `empty`. */
void lease_life_wait(struct lease *lease, struct call *call, bool empty);
/* Answers all calls that wait for an end. */
void lease_life_abort_waiters(struct lease_service *service);

/* --- finding the Lease of a call (lease_lookup.c) --- */

/* lease: the caller's own, active or ending; NULL with err, which passes to the handler: LEASE_NOT_FOUND,
 * LEASE_NOT_ACTIVE (ended and remembered), SERVER_UNAVAILABLE. */
typedef void lease_handler(struct lease_service *service, struct call *call, const ProtobufCMessage *request,
                           struct lease *lease, struct error *err);
/* Finds the Lease by (scope, id) and goes on with `handler`, at once or, if the backend has to be asked, later. A
 * foreign Lease and one that does not exist take the same path. */
void lease_lookup(struct lease_service *service, struct call *call, const char *id, const ProtobufCMessage *request,
                  lease_handler *handler);
/* Answers the calls that still wait for the backend. */
void lease_lookup_abort(struct lease_service *service);
/* Frees what a stopped backend will not complete any more. */
void lease_lookup_forget(struct lease_service *service);
/* Labels of the caller, valid until the next call; NULL and the call is answered. */
const struct scope_labels *lease_lookup_labels(struct lease_service *service, struct call *call);

/* --- acquires (lease_acquire.c) --- */

/* Answers every waiting caller and cancels what is pending. */
void lease_acquire_abort(struct lease_service *service);
/* Frees what a stopped backend will not complete any more. */
void lease_acquire_forget(struct lease_service *service);

/* The sandbox of an acquire that may still be pending is in the table: it is not counted twice. */
void lease_acquire_bound(struct lease_service *service, const char *idempotency);

/* --- calls that use a sandbox (lease_operation.c) --- */

struct lease_operation_kind {
  /* Makes the session's part end soon, dropping what waits for the client. Only while it is running. */
  void (*stop)(struct lease_operation *operation);
  void (*free)(struct lease_operation *operation);
};

struct lease_operation {
  const struct lease_operation_kind *kind;
  struct lease_service *service;
  struct lease *lease; /* NULL once the Lease is gone */
  struct call *call;   /* NULL once answered */
  bool running;        /* the session's part goes on */
  unsigned held;       /* functions at work on it, under which it must not be freed */
  bool swept;          /* a sweep has seen it without a Lease */
  size_t holding;      /* bytes that it holds for its answer, as far as they count */
  struct lease_operation *next, *previous; /* of the same Lease */
};

/* Checks that the Lease may be used, opens its session, and joins the operation to it. Otherwise answers the call,
 * frees the operation and returns NULL. */
struct session *lease_operation_begin(struct lease_operation *operation, const struct lease_operation_kind *kind,
                                      struct lease_service *service, struct call *call, struct lease *lease);
/* Answers the call, if it still waits, with the error, which is taken over; stops the session's part. */
void lease_operation_fail(struct lease_operation *operation, struct error *err);
/* Takes the call for an answer: NULL if there was one already. */
struct call *lease_operation_answer(struct lease_operation *operation);
/* Ends and frees the operation if it is answered, no longer running and not held. Each event settles last. */
void lease_operation_settle(struct lease_operation *operation);
void lease_operation_hold(struct lease_operation *operation);
/* Lets go of it, and settles. */
void lease_operation_drop(struct lease_operation *operation);
/* For call_events.cancelled: context is the operation. */
void lease_operation_cancelled(void *context);
/* The Lease goes: what still uses it only has an answer to deliver. */
void lease_operation_orphan(struct lease *lease);
/* Aborts those that have had no Lease for a whole sweep interval: their clients do not read. */
void lease_operation_sweep(struct lease_service *service);
/* Aborts all operations of all Leases. */
void lease_operation_abort_all(struct lease_service *service);

/* --- what unary answers hold (lease_holding.c) --- */

/* So many bytes are held for the operation's answer. If that is too much for the server, some operation fails, perhaps
 * this one: see its call. */
void lease_holding_set(struct lease_operation *operation, size_t bytes);
/* They are no longer held. */
void lease_holding_end(struct lease_operation *operation);
/* The call, which still waits, is about to be answered with them: they count until the answer has left. Returns 0, or
 * -1 without memory. */
int lease_holding_leave(struct lease_operation *operation);

/* --- the service itself (lease_service.c) --- */

/* Goes on with stopping once nothing runs any more. */
void lease_service_settle(struct lease_service *service);

/* A copy of what a Consumer may see of an error. */
struct error *lease_error_copy(const struct error *err);
/* A new error. */
struct error *lease_error(enum reason reason);

#endif
