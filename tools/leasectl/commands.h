/*
 * The subcommands of leasectl. Each gets its own arguments (arguments[0] is its name) and returns the exit status: 0,
 * 1 when the platform refused or failed, 2 for wrong usage; `exec` returns the command's own code, or 125 when
 * the command could not be run to its end.
 */
#ifndef LEASECTL_COMMANDS_H
#define LEASECTL_COMMANDS_H

#include "base/error.h"
#include "tools/leasectl/call.h"
#include "tools/leasectl/settings.h"
#include <stdbool.h>

struct invocation {
  struct settings *settings;
  struct connection *connection; /* NULL for commands that need none */
  bool json;
};

int command_acquire(struct invocation *invocation, int count, char **arguments);
int command_list(struct invocation *invocation, int count, char **arguments);
int command_get(struct invocation *invocation, int count, char **arguments);
int command_release(struct invocation *invocation, int count, char **arguments);
int command_delete(struct invocation *invocation, int count, char **arguments);
int command_token(struct invocation *invocation, int count, char **arguments);
/* Before any thread is made: blocks the signals that exec passes on. */
void command_exec_prepare(void);
int command_exec(struct invocation *invocation, int count, char **arguments);
int command_copy(struct invocation *invocation, int count, char **arguments);

/* "leasectl: <text>" and where to read more, on standard error. Returns 2. */
int usage_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A whole decimal number in [minimum, maximum]: 0, or -1. */
int number_parse(const char *text, long minimum, long maximum, long *number);

#endif
