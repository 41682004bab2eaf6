/*
 * The text given to `sh -lc`: enter the working directory, export the environment, then the command exactly as it came.
 * They stand on one line before the command, after the login profile has run, so that neither PATH of /etc/profile nor
 * a `cd` there wins over what the caller asked for, and the shell's own line numbers stay true. If the directory cannot
 * be entered, the shell says so and exits with its own code.
 */
#ifndef BACKEND_SANDBOXD_SCRIPT_H
#define BACKEND_SANDBOXD_SCRIPT_H

#include "base/buffer.h"
#include "base/error.h"
#include "sandbox/agent/v1/agent.pb-c.h"

/* Longest text that fits into one argument of execve (MAX_ARG_STRLEN less its NUL). */
#define SCRIPT_ARGUMENT_BYTES 131071

/* Most bytes of a script: everything of a RunStart at its limit, each byte quoted. */
#define SCRIPT_LIMIT (4u * 1048576u)

/* Checks `start` (id, sizes, names) and appends the script. Returns 0, or -1 and INVALID_REQUEST with the field. */
int script_build(const Sandbox__Agent__V1__RunStart *start, struct buffer *out, struct error **err);

#endif
