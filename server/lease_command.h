/*
 * The rules of a Command message, and its form for the session. Thread: any.
 */
#ifndef SERVER_LEASE_COMMAND_H
#define SERVER_LEASE_COMMAND_H

#include "backend/session/session.h"
#include "base/error.h"
#include "sandbox/lease/v1/lease.pb-c.h"

/* `command` may be NULL: it is missing. Returns 0, or -1 and *err. */
int lease_command_check(const Sandbox__Lease__V1__Command *command, struct error **err);

/* A checked command; points into the message. */
struct lease_command {
  struct session_command command;
  struct session_variable environment[LIMIT_ENV_ENTRIES];
  char cwd[sizeof("/workspace/") + LIMIT_PATH_BYTES];
};
/* Returns 0, or -1 and *err. */
int lease_command_fill(struct lease_command *filled, const Sandbox__Lease__V1__Command *command, struct error **err);

/* A path of a file call: not blank (INVALID_REQUEST), and inside the workspace (INVALID_PATH). `out` has
 * LIMIT_PATH_BYTES + 1 bytes, or is NULL. Returns 0, or -1 and *err. */
int lease_path_check(const char *path, char *out, struct error **err);

#endif
