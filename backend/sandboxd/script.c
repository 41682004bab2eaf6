/*
 * From a RunStart to shell text: see script.h.
 */
#include "backend/sandboxd/script.h"

#include "base/limits.h"
#include <stdbool.h>
#include <string.h>

static bool script_name_valid(const char *name) {
  if (!*name || (*name >= '0' && *name <= '9'))
    return false;
  for (; *name; name++) {
    bool letter = (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z');
    if (!letter && !(*name >= '0' && *name <= '9') && *name != '_')
      return false;
  }
  return true;
}

/* Within single quotes only the quote itself is special. */
static int script_quote(struct buffer *out, const char *text) {
  if (buffer_append_byte(out, '\''))
    return -1;
  for (const char *quote; (quote = strchr(text, '\'')); text = quote + 1)
    if (buffer_append(out, text, (size_t)(quote - text)) || buffer_append_string(out, "'\\''"))
      return -1;
  return buffer_append_string(out, text) || buffer_append_byte(out, '\'') ? -1 : 0;
}

static int script_check(const Sandbox__Agent__V1__RunStart *start, struct error **err) {
  size_t environment = 0;
  if (start->id.len != 16)
    return error_set_field(err, REASON_INVALID_REQUEST, "id", "'id' must be 16 bytes");
  if (strlen(start->command) > LIMIT_COMMAND_BYTES)
    return error_set_field(err, REASON_INVALID_REQUEST, "command", "'command' is too long");
  if (start->cwd[0] != '/' || strlen(start->cwd) > LIMIT_PATH_BYTES + sizeof "/workspace/")
    return error_set_field(err, REASON_INVALID_REQUEST, "cwd", "'cwd' must be an absolute path of at most 4096 bytes");
  if (start->n_environment > LIMIT_ENV_ENTRIES)
    return error_set_field(err, REASON_INVALID_REQUEST, "environment", "'environment' has too many entries");
  for (size_t i = 0; i < start->n_environment; i++) {
    if (!script_name_valid(start->environment[i]->name))
      return error_set_field(err, REASON_INVALID_REQUEST, "environment", "'environment' has a name that is none");
    environment += strlen(start->environment[i]->name) + strlen(start->environment[i]->value);
  }
  if (environment > LIMIT_ENV_BYTES)
    return error_set_field(err, REASON_INVALID_REQUEST, "environment", "'environment' is too long");
  return 0;
}

int script_build(const Sandbox__Agent__V1__RunStart *start, struct buffer *out, struct error **err) {
  if (script_check(start, err))
    return -1;
  int failed = buffer_append_string(out, "cd -- ") || script_quote(out, start->cwd) ||
               buffer_append_string(out, " || exit; ");
  for (size_t i = 0; i < start->n_environment && !failed; i++)
    failed = buffer_append_string(out, i ? " " : "export ") || buffer_append_string(out, start->environment[i]->name) ||
             buffer_append_byte(out, '=') || script_quote(out, start->environment[i]->value);
  if (start->n_environment && !failed)
    failed = buffer_append_string(out, "; ");
  if (failed || buffer_append_string(out, start->command))
    return error_set_memory(err);
  return 0;
}
