/*
 * The rules of a Command message, and its form for the session.
 */
#include "server/lease_command.h"

#include "base/clock.h"
#include "base/text.h"
#include <stdio.h>
#include <string.h>

/* No Lease lasts as long. */
enum { TIMEOUT_MAX_SECONDS = 86400 };

/* [A-Za-z_][A-Za-z0-9_]* */
static bool name_valid(const char *name) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
  static const char others[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
  return name[0] && strchr(letters, name[0]) && name[strspn(name, others)] == 0;
}

static int environment_check(const Sandbox__Lease__V1__Command *command, struct error **err) {
  size_t bytes = 0;
  if (command->n_env > LIMIT_ENV_ENTRIES)
    return error_set_field(err, REASON_INVALID_REQUEST, "env", "'env' must have at most 256 entries");
  for (size_t i = 0; i < command->n_env; i++) {
    const Sandbox__Lease__V1__Command__EnvEntry *entry = command->env[i];
    if (!name_valid(entry->key))
      return error_set_field(err, REASON_INVALID_REQUEST, "env", "'env' names must match [A-Za-z_][A-Za-z0-9_]*");
    for (size_t j = 0; j < i; j++)
      if (strcmp(command->env[j]->key, entry->key) == 0)
        return error_set_field(err, REASON_INVALID_REQUEST, "env", "'env' names must not repeat");
    bytes += strlen(entry->key) + strlen(entry->value);
  }
  if (bytes > LIMIT_ENV_BYTES)
    return error_set_field(err, REASON_INVALID_REQUEST, "env", "'env' must have at most 131072 bytes in all");
  return 0;
}

int lease_command_check(const Sandbox__Lease__V1__Command *command, struct error **err) {
  size_t length = command ? strlen(command->command) : 0;
  if (!command || text_blank(command->command, length))
    return error_set_field(err, REASON_INVALID_REQUEST, "command", "'command' must be a non-empty string");
  if (length > LIMIT_COMMAND_BYTES)
    return error_set_field(err, REASON_INVALID_REQUEST, "command", "'command' must have at most 1048576 bytes");
  char path[LIMIT_PATH_BYTES + 1];
  if (command->cwd[0] && session_path_normalise(command->cwd, path, err) < 0)
    return -1;
  if (environment_check(command, err) < 0)
    return -1;
  if (command->_timeout_seconds_case == SANDBOX__LEASE__V1__COMMAND___TIMEOUT_SECONDS_TIMEOUT_SECONDS &&
      command->timeout_seconds <= 0)
    return error_set_field(err, REASON_INVALID_REQUEST, "timeout_seconds",
                           "'timeoutSeconds' must be a positive integer");
  return 0;
}

int lease_command_fill(struct lease_command *filled, const Sandbox__Lease__V1__Command *command, struct error **err) {
  char path[LIMIT_PATH_BYTES + 1] = "";
  if (command->cwd[0] && session_path_normalise(command->cwd, path, err) < 0)
    return -1;
  snprintf(filled->cwd, sizeof(filled->cwd), path[0] ? "/workspace/%s" : "/workspace", path);
  for (size_t i = 0; i < command->n_env; i++)
    filled->environment[i] = (struct session_variable){.name = command->env[i]->key, .value = command->env[i]->value};
  filled->command = (struct session_command){.command = command->command,
                                             .cwd = filled->cwd,
                                             .environment = filled->environment,
                                             .environment_count = command->n_env};
  if (command->_timeout_seconds_case == SANDBOX__LEASE__V1__COMMAND___TIMEOUT_SECONDS_TIMEOUT_SECONDS) {
    int64_t seconds = command->timeout_seconds < TIMEOUT_MAX_SECONDS ? command->timeout_seconds : TIMEOUT_MAX_SECONDS;
    filled->command.timeout = seconds * CLOCK_SECOND;
  }
  return 0;
}

int lease_path_check(const char *path, char *out, struct error **err) {
  char normalised[LIMIT_PATH_BYTES + 1];
  if (text_blank(path, strlen(path)))
    return error_set_field(err, REASON_INVALID_REQUEST, "path", "'path' must be a non-empty string");
  return session_path_normalise(path, out ? out : normalised, err);
}
