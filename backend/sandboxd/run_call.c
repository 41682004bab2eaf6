/*
 * The Run call: messages of the control plane to what a command can do. The call and its command part ways when the
 * connection breaks, or when another call takes the command.
 */
#include "backend/sandboxd/command.h"
#include "backend/sandboxd/reply.h"
#include "backend/sandboxd/service.h"
#include "base/memory.h"
#include "base/message.h"

struct run_call {
  struct agent *agent;
  struct wire_call *call;
  struct command *command; /* NULL: none yet, or taken by another call */
};

static void run_call_taken(void *context) {
  struct run_call *run = context;
  run->command = NULL;
}

static int run_call_handle(struct run_call *run, const Sandbox__Agent__V1__RunRequest *request, size_t length,
                           struct error **err) {
  const struct command_call call = {.call = run->call, .taken = run_call_taken, .context = run};
  bool first = request->request_case == SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_START ||
               request->request_case == SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_ATTACH;
  if (first == (run->command != NULL))
    return error_set_field(err, REASON_INVALID_REQUEST, "request", "'start' or 'attach' must come first, and once");
  switch (request->request_case) {
  case SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_START:
    run->command = command_start(&run->agent->commands, request->start, &call, err);
    return run->command ? 0 : -1;
  case SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_ATTACH:
    run->command = command_attach(&run->agent->commands, request->attach, &call, err);
    return run->command ? 0 : -1;
  case SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_STDIN:
    return command_stdin(run->command, request->stdin, length, err);
  case SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_STDIN_END:
    command_stdin_end(run->command);
    return 0;
  case SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_SIGNAL:
    return command_signal(run->command, request->signal->number, err);
  default:
    return error_set_field(err, REASON_INVALID_REQUEST, "request", "'request' is missing");
  }
}

/* A call that ends by a failure here ends its command too: see command_delivered. */
static void run_call_message(struct wire_call *call, void *context, const uint8_t *bytes, size_t length) {
  struct run_call *run = context;
  struct error *err = NULL;
  Sandbox__Agent__V1__RunRequest *request =
      (void *)message_unpack(&sandbox__agent__v1__run_request__descriptor, bytes, length, &err);
  /* Bytes for standard input are consumed when the command has them. */
  bool stdin_bytes = request && request->request_case == SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_STDIN && run->command;
  if (!request || run_call_handle(run, request, length, &err))
    reply_failure(call, &err);
  if (!stdin_bytes)
    wire_call_consume(call, length);
  if (request)
    protobuf_c_message_free_unpacked(&request->base, NULL);
}

/* The end of standard input has a message of its own: a client that sends no more may close its side at any time. */
static void run_call_half_closed(struct wire_call *call, void *context) {
  const struct run_call *run = context;
  if (!run->command)
    wire_call_finish(call, WIRE_UNKNOWN, "INVALID_REQUEST there is no message");
}

static void run_call_writable(struct wire_call *call, void *context) {
  const struct run_call *run = context;
  (void)call;
  if (run->command)
    command_writable(run->command);
}

static void run_call_ended(struct wire_call *call, void *context, int status, const char *text) {
  struct run_call *run = context;
  (void)call;
  (void)text;
  if (run->command && status == WIRE_UNAVAILABLE)
    command_lost(run->command);
  else if (run->command && status == WIRE_OK)
    command_delivered(run->command);
  else if (run->command)
    command_cancel(run->command);
  memory_free(run);
}

static const struct wire_call_events run_call_events = {.message = run_call_message,
                                                        .half_closed = run_call_half_closed,
                                                        .writable = run_call_writable,
                                                        .ended = run_call_ended};

void run_call_opened(struct agent *agent, struct wire_call *call) {
  struct run_call *run = memory_zero(sizeof *run);
  if (!run) {
    wire_call_finish(call, WIRE_RESOURCE_EXHAUSTED, "INTERNAL out of memory");
    return;
  }
  run->agent = agent;
  run->call = call;
  wire_call_accept(call, &run_call_events, run);
}
