/*
 * StreamExec: one command, its output as it comes, its standard input as the client sends it.
 *
 * Flow control goes the whole way. Output counts against the session's window until the message with it has left, so a
 * client that does not read stops the command. Standard input is asked of the client only while the session has
 * room for more. The client's half-close is the end of standard input.
 */
#include "base/memory.h"
#include "rpc/message.h"
#include "server/lease_command.h"
#include "server/lease_encode.h"
#include "server/lease_handlers.h"
#include "server/lease_state.h"

enum { STDIN_MESSAGE_MAX = 1048576, SIGNAL_MAX = 64, STDIN_FIELD = 2 };

struct stream_exec {
  struct lease_operation operation;
  struct session_exec *session; /* NULL once it has ended */
  struct send_queue output;
  size_t sending; /* output bytes of the message that is under way */
  bool busy;      /* a message is under way */
  bool receiving; /* the client's next message was asked for */
  bool started, started_sent;
  bool ended, ended_sent;
  bool stdin_open;
  struct session_end end;
};

int lease_check_stream_exec(const ProtobufCMessage *message, struct error **err) {
  const Sandbox__Lease__V1__StreamExecRequest *request = (const Sandbox__Lease__V1__StreamExecRequest *)message;
  if (request->request_case != SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__REQUEST_START)
    return error_set_field(err, REASON_INVALID_REQUEST, "start", "The first message must be 'start'");
  return lease_command_check(request->start->command, err);
}

/* What the client will not get any more no longer counts against the window. */
static void stream_stop(struct lease_operation *operation) {
  struct stream_exec *stream = (struct stream_exec *)operation;
  size_t held = stream->output.length + stream->sending;
  send_queue_clear(&stream->output);
  stream->sending = 0;
  if (held > 0)
    session_exec_consume(stream->session, held);
  session_exec_cancel(stream->session);
}

static void stream_free(struct lease_operation *operation) {
  struct stream_exec *stream = (struct stream_exec *)operation;
  send_queue_clear(&stream->output);
  memory_free(stream);
}

/* --- to the client --- */

static grpc_byte_buffer *stream_started_message(void) {
  Sandbox__Lease__V1__StreamExecStarted started = SANDBOX__LEASE__V1__STREAM_EXEC_STARTED__INIT;
  Sandbox__Lease__V1__StreamExecResponse response = SANDBOX__LEASE__V1__STREAM_EXEC_RESPONSE__INIT;
  response.response_case = SANDBOX__LEASE__V1__STREAM_EXEC_RESPONSE__RESPONSE_STARTED;
  response.started = &started;
  return rpc_pack(&response.base);
}

static grpc_byte_buffer *stream_ended_message(const struct session_end *end) {
  Sandbox__Lease__V1__CommandEnd ended = SANDBOX__LEASE__V1__COMMAND_END__INIT;
  ended.ended_by = lease_ended_by(end->ended_by);
  ended.exit_code = end->exit_code;
  ended.signal = end->signal;
  ended.stdout_bytes = (int64_t)end->stdout_bytes;
  ended.stderr_bytes = (int64_t)end->stderr_bytes;
  Sandbox__Lease__V1__StreamExecResponse response = SANDBOX__LEASE__V1__STREAM_EXEC_RESPONSE__INIT;
  response.response_case = SANDBOX__LEASE__V1__STREAM_EXEC_RESPONSE__RESPONSE_ENDED;
  response.ended = &ended;
  return rpc_pack(&response.base);
}

/* The next message, or NULL: there is none now, or no memory (*failed). */
static grpc_byte_buffer *stream_next_message(struct stream_exec *stream, bool *failed) {
  grpc_byte_buffer *message = NULL;
  struct send_batch batch;
  if (stream->started && !stream->started_sent) {
    message = stream_started_message();
    stream->started_sent = true;
  } else if (send_queue_take(&stream->output, &batch) == 0) {
    stream->sending = batch.length;
    message = lease_encode_output(&batch);
  } else if (stream->ended && !stream->ended_sent) {
    message = stream_ended_message(&stream->end);
    stream->ended_sent = true;
  } else {
    return NULL;
  }
  *failed = !message;
  return message;
}

static void stream_send(struct stream_exec *stream) {
  if (stream->busy || !stream->operation.call)
    return;
  bool failed = false;
  grpc_byte_buffer *message = stream_next_message(stream, &failed);
  if (failed) {
    lease_operation_fail(&stream->operation, lease_error(REASON_INTERNAL));
  } else if (message) {
    stream->busy = true;
    call_send(stream->operation.call, message);
  } else if (stream->ended_sent) {
    call_finish(lease_operation_answer(&stream->operation));
  }
}

static void stream_sent(void *context) {
  struct stream_exec *stream = context;
  size_t sent = stream->sending;
  stream->busy = false;
  stream->sending = 0;
  if (stream->session && sent > 0)
    session_exec_consume(stream->session, sent);
  stream_send(stream);
  lease_operation_settle(&stream->operation);
}

/* --- from the client --- */

/* Room for more standard input: asks the client for its next message. */
static void stream_receive(struct stream_exec *stream) {
  if (!stream->operation.call || stream->receiving)
    return;
  stream->receiving = true;
  call_receive(stream->operation.call);
}

static int stream_stdin(struct stream_exec *stream, const uint8_t *bytes, size_t length, bool *more,
                        struct error **err) {
  if (!stream->stdin_open)
    return error_set_field(err, REASON_INVALID_REQUEST, "stdin", "'stdin' is not open");
  if (length > STDIN_MESSAGE_MAX)
    return error_set_field(err, REASON_INVALID_REQUEST, "stdin", "'stdin' must have at most 1048576 bytes");
  if (stream->session && length > 0)
    *more = session_exec_stdin(stream->session, bytes, length);
  return 0;
}

static void stream_stdin_end(struct stream_exec *stream) {
  if (stream->stdin_open && stream->session)
    session_exec_stdin_end(stream->session);
  stream->stdin_open = false;
}

/* *more: whether the next message may be asked for at once. Returns 0, or -1 and *err. */
static int stream_request(struct stream_exec *stream, const Sandbox__Lease__V1__StreamExecRequest *request, bool *more,
                          struct error **err) {
  switch (request->request_case) {
  case SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__REQUEST_STDIN:
    return stream_stdin(stream, request->stdin.data, request->stdin.len, more, err);
  case SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__REQUEST_STDIN_END:
    stream_stdin_end(stream);
    return 0;
  case SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__REQUEST_SIGNAL:
    if (request->signal->number < 1 || request->signal->number > SIGNAL_MAX)
      return error_set_field(err, REASON_INVALID_REQUEST, "number", "'number' must be a signal between 1 and 64");
    if (stream->session)
      session_exec_signal(stream->session, request->signal->number);
    return 0;
  case SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__REQUEST_START:
    return error_set_field(err, REASON_INVALID_REQUEST, "start", "'start' must be the first message and no other");
  default:
    /* Something of a later version. */
    return 0;
  }
}

static int stream_decode(struct stream_exec *stream, grpc_byte_buffer *message, bool *more, struct error **err) {
  grpc_slice payload;
  if (rpc_unpack_bytes(STDIN_FIELD, message, &payload)) {
    int result = stream_stdin(stream, GRPC_SLICE_START_PTR(payload), GRPC_SLICE_LENGTH(payload), more, err);
    grpc_slice_unref(payload);
    return result;
  }
  ProtobufCMessage *request = rpc_unpack(&sandbox__lease__v1__stream_exec_request__descriptor, message, err);
  if (!request)
    return -1;
  int result = stream_request(stream, (const Sandbox__Lease__V1__StreamExecRequest *)request, more, err);
  protobuf_c_message_free_unpacked(request, NULL);
  return result;
}

static void stream_message(void *context, grpc_byte_buffer *message) {
  struct stream_exec *stream = context;
  struct error *err = NULL;
  bool more = true;
  stream->receiving = false;
  if (!message) {
    stream_stdin_end(stream);
    return;
  }
  if (stream_decode(stream, message, &more, &err) < 0) {
    lease_operation_fail(&stream->operation, err);
    lease_operation_settle(&stream->operation);
  } else if (more) {
    stream_receive(stream);
  }
}

/* --- from the command --- */

static void stream_started(void *context) {
  struct stream_exec *stream = context;
  stream->started = true;
  stream_send(stream);
}

static void stream_output(void *context, int number, uint64_t offset, const uint8_t *bytes, size_t length) {
  struct stream_exec *stream = context;
  if (!stream->operation.call) {
    session_exec_consume(stream->session, length);
    return;
  }
  if (send_queue_append(&stream->output, number, offset, bytes, length) < 0) {
    session_exec_consume(stream->session, length);
    lease_operation_fail(&stream->operation, lease_error(REASON_INTERNAL));
    return;
  }
  stream_send(stream);
}

static void stream_stdin_wanted(void *context) {
  stream_receive(context);
}

static void stream_ended(void *context, const struct session_end *end, struct error *err) {
  struct stream_exec *stream = context;
  stream->session = NULL;
  stream->operation.running = false;
  if (err || end->ended_by == SESSION_ENDED_CANCELLED) {
    lease_operation_fail(&stream->operation, err ? lease_error_copy(err) : lease_error(REASON_ABORTED));
  } else {
    stream->end = *end;
    stream->ended = true;
    stream_send(stream);
  }
  lease_operation_settle(&stream->operation);
}

/* --- the call --- */

static void stream_begin(struct stream_exec *stream, struct session *session, const struct session_command *command) {
  static const struct session_exec_events session_events = {.started = stream_started,
                                                            .output = stream_output,
                                                            .stdin_wanted = stream_stdin_wanted,
                                                            .ended = stream_ended};
  static const struct call_events call_events = {
    .message = stream_message, .sent = stream_sent, .cancelled = lease_operation_cancelled};
  stream->stdin_open = command->stdin_open;
  stream->session = session_exec_start(session, command, &session_events, stream);
  if (!stream->session) {
    lease_operation_fail(&stream->operation, lease_error(REASON_INTERNAL));
    lease_operation_settle(&stream->operation);
    return;
  }
  stream->operation.running = true;
  call_watch(stream->operation.call, &call_events, stream);
  stream_receive(stream);
}

static const struct lease_operation_kind stream_kind = {.stop = stream_stop, .free = stream_free};

static void stream_found(struct lease_service *service, struct call *call, const ProtobufCMessage *message,
                         struct lease *lease, struct error *err) {
  const Sandbox__Lease__V1__StreamExecRequest *request = (const Sandbox__Lease__V1__StreamExecRequest *)message;
  struct lease_command command;
  if (!err)
    lease_command_fill(&command, request->start->command, &err);
  struct stream_exec *stream = err ? NULL : memory_zero(sizeof(*stream));
  if (!stream) {
    call_fail(call, err ? err : lease_error(REASON_INTERNAL));
    return;
  }
  struct session *session = lease_operation_begin(&stream->operation, &stream_kind, service, call, lease);
  if (!session)
    return;
  command.command.stdin_open = request->start->stdin;
  stream_begin(stream, session, &command.command);
}

void lease_handle_stream_exec(struct call *call, const ProtobufCMessage *message, void *context) {
  const Sandbox__Lease__V1__StreamExecRequest *request = (const Sandbox__Lease__V1__StreamExecRequest *)message;
  lease_lookup(context, call, request->start->lease_id, message, stream_found);
}
