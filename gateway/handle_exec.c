/*
 * POST /v1/leases/{id}/exec: run one command to its end.
 */
#include "gateway/exchange.h"
#include "gateway/route.h"
#include "gateway/translate.h"

#include "base/limits.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* The end of the answer. */
struct exec_state {
  char end[32];
};

/* One more than the server allows, so that it can say what is wrong. */
enum { ENV_ENTRIES = LIMIT_ENV_ENTRIES + 1 };

struct environment {
  Sandbox__Lease__V1__Command__EnvEntry entries[ENV_ENTRIES];
  Sandbox__Lease__V1__Command__EnvEntry *pointers[ENV_ENTRIES];
  size_t count;
};

static int add_entry(struct environment *environment, struct json_text name, const struct json *value, struct error **err) {
  struct json_text text;
  if (json_as_text(value, &text) < 0)
    return error_set(err, REASON_INVALID_JSON, NULL);
  if (memchr(name.data, '\0', name.length) || memchr(text.data, '\0', text.length))
    return error_set_field(err, REASON_INVALID_REQUEST, "env", "'env' must not contain U+0000");
  Sandbox__Lease__V1__Command__EnvEntry *entry = &environment->entries[environment->count];
  sandbox__lease__v1__command__env_entry__init(entry);
  entry->key = (char *)name.data;
  entry->value = (char *)text.data;
  environment->pointers[environment->count++] = entry;
  return 0;
}

static int read_environment(const struct json *json, struct environment *environment, struct error **err) {
  const struct json *object, *value;
  const void *position = NULL;
  struct json_text name;
  environment->count = 0;
  if (json_get_object(json, "env", &object, err) < 0)
    return -1;
  while (object && environment->count < ENV_ENTRIES && json_next(object, &position, &name, &value))
    if (add_entry(environment, name, value, err) < 0)
      return -1;
  return 0;
}

static int read_command(const struct json *json, struct environment *environment, Sandbox__Lease__V1__Command *command,
                        struct error **err) {
  bool has_timeout = false;
  if (translate_text(json, "command", &command->command, err) < 0 || translate_text(json, "cwd", &command->cwd, err) < 0 ||
      read_environment(json, environment, err) < 0 ||
      json_get_integer(json, "timeoutSeconds", &has_timeout, &command->timeout_seconds, err) < 0)
    return -1;
  if (has_timeout)
    command->_timeout_seconds_case = SANDBOX__LEASE__V1__COMMAND___TIMEOUT_SECONDS_TIMEOUT_SECONDS;
  command->n_env = environment->count;
  command->env = environment->pointers;
  return 0;
}

/* No deadline: the command ends with its timeout, with its Lease, or with its client. */
static int start(struct exchange *exchange, const struct json *json, struct error **err) {
  static const struct exchange_method method = {.path = "/sandbox.lease.v1.LeaseService/Exec",
                                                .reply = &sandbox__lease__v1__exec_response__descriptor};
  struct environment environment;
  Sandbox__Lease__V1__Command command = SANDBOX__LEASE__V1__COMMAND__INIT;
  Sandbox__Lease__V1__ExecRequest request = SANDBOX__LEASE__V1__EXEC_REQUEST__INIT;
  request.lease_id = (char *)exchange_lease_id(exchange, err);
  request.command = &command;
  if (!request.lease_id || read_command(json, &environment, &command, err) < 0)
    return -1;
  return exchange_call(exchange, &method, &request.base, err);
}

/* Escaping is where bytes become text: invalid UTF-8 turns into U+FFFD. */
static void answer(struct exchange *exchange, const ProtobufCMessage *reply) {
  const Sandbox__Lease__V1__ExecResponse *ended = (const Sandbox__Lease__V1__ExecResponse *)reply;
  struct exec_state *state = memory_zero(sizeof *state);
  exchange->state = state;
  if (!state) {
    exchange_fail(exchange, NULL);
    return;
  }
  snprintf(state->end, sizeof state->end, "\",\"code\":%d}", (int)ended->exit_code);
  json_body_add_text(&exchange->json, "{\"stdout\":\"");
  json_body_add(&exchange->json, JSON_BODY_ESCAPE, ended->stdout.data, ended->stdout.len);
  json_body_add_text(&exchange->json, "\",\"stderr\":\"");
  json_body_add(&exchange->json, JSON_BODY_ESCAPE, ended->stderr.data, ended->stderr.len);
  json_body_add_text(&exchange->json, state->end);
  exchange_reply_long_json(exchange);
}

const struct handler handle_exec = {.body = HANDLER_BODY_JSON, .start = start, .answer = answer};
