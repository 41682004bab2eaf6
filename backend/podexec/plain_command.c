/*
 * A command as a pods/exec of its own: see plain.h. The script says its process id first, on standard error, so that it
 * can be killed from outside.
 */
#include "backend/podexec/plain_internal.h"
#include "backend/podexec/tail.h"

#include "base/digest.h"
#include "base/limits.h"
#include "base/memory.h"
#include "base/message.h"
#include "base/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGUMENT_BYTES (100 * 1024)
#define GUARD_MILLISECONDS 5000 /* for a killed command to end */
#define EXIT_CODE_MOST 255

/* $1 is the mark, $2 is 1 if there is standard input, $3 the directory, $4 the command, then the environment:
 * NAME=VALUE. Behind the mark it waits until standard input ends: we end it when the mark has come on both streams. */
static const char script[] =
    "echo \"sandboxd: pid $$\" >&2\n"
    "mark=$1 input=$2\n"
    "shift 2\n"
    "exec 3<&0\n"
    "[ \"$input\" = 1 ] || exec </dev/null\n"
    "sh -lc 'cd -- \"$1\" || exit; c=$2; shift 2; for v; do export \"$v\"; done; set --; eval \"$c\"' sh \"$@\" 3<&-\n"
    "code=$?\n"
    "echo \"$mark\"\n"
    "echo \"$mark\" >&2\n"
    "while read -r line <&3; do :; done\n"
    "exit $code\n";

struct command {
  struct plain_work work; /* first; while it is condemned */
  struct plain *plain;
  struct wire_call *call; /* NULL once it has ended */
  struct run *run;
  struct plain_words words;
  struct plain_line line;
  struct tail tails[2];
  char mark[TAIL_MARK_BYTES + 1];
  uv_timer_t timer; /* for the end of its time, then for a killed one to end */
  int pid;          /* 0: unknown */
  uint64_t timeout; /* milliseconds */
  uint64_t sent[2], limit;
  uint64_t stdin_offset;
  size_t held;         /* of standard input's messages, not consumed yet */
  struct buffer early; /* of standard input: came before the command was there */
  struct buffer ahead; /* of standard output: came before the line on standard error */
  bool stdin_over;     /* no more of it may come */
  bool stdin_ended;    /* and that because its end came */
  bool paused, over;
  bool condemned; /* it was cancelled, and is to be killed as soon as its process id is known */
  int ended_by; /* 0: by itself */
};

static void on_closed(uv_handle_t *handle) {
  struct command *command = handle->data;
  plain_words_free(&command->words);
  buffer_free(&command->early);
  buffer_free(&command->ahead);
  memory_free(command);
}

/* Nothing more is to come, neither from its call nor from its run. */
static void release(struct command *command) {
  plain_work_remove(&command->work);
  run_close(command->run);
  command->run = NULL;
  if (!uv_is_closing((uv_handle_t *)&command->timer))
    uv_close((uv_handle_t *)&command->timer, on_closed);
}

static void kill_now(struct command *command) {
  if (command->pid > 0)
    plain_kill(command->plain, command->pid, 9);
}

/* --- its end --- */

static void finish(struct command *command, int ended_by, int exit_code) {
  Sandbox__Agent__V1__RunEnd end = SANDBOX__AGENT__V1__RUN_END__INIT;
  Sandbox__Agent__V1__RunResponse response = SANDBOX__AGENT__V1__RUN_RESPONSE__INIT;
  if (command->over)
    return;
  command->over = true;
  uv_timer_stop(&command->timer);
  end.ended_by = (Sandbox__Agent__V1__RunEndedBy)ended_by;
  end.exit_code = exit_code;
  end.stdout_bytes = command->sent[0];
  end.stderr_bytes = command->sent[1];
  response.response_case = SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_END;
  response.end = &end;
  bool sent = command->call && plain_send(command->call, &response.base) == 0;
  if (command->call)
    wire_call_finish(command->call, sent ? WIRE_OK : WIRE_RESOURCE_EXHAUSTED, sent ? "" : "INTERNAL out of memory");
  plain_schedule(command->plain);
}

static void fail(struct command *command, enum reason reason, const char *text) {
  if (command->over)
    return;
  command->over = true;
  uv_timer_stop(&command->timer);
  if (command->call)
    plain_fail(command->call, reason, text);
  plain_schedule(command->plain);
}

static void on_timer(uv_timer_t *timer) {
  struct command *command = timer->data;
  if (command->condemned) {
    release(command);
    return;
  }
  if (command->ended_by != 0) {
    finish(command, command->ended_by, 0); /* killed, and it does not end: nobody waits any longer */
    run_close(command->run);
    command->run = NULL;
    return;
  }
  command->ended_by = SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_TIMED_OUT;
  kill_now(command);
  uv_timer_start(timer, on_timer, GUARD_MILLISECONDS, 0);
}

/* --- what the container says --- */

/* At most LIMIT_CHUNK_BYTES. */
static void send_chunk(struct command *command, int stream, const uint8_t *bytes, size_t length) {
  Sandbox__Agent__V1__OutputChunk chunk = SANDBOX__AGENT__V1__OUTPUT_CHUNK__INIT;
  Sandbox__Agent__V1__RunResponse response = SANDBOX__AGENT__V1__RUN_RESPONSE__INIT;
  uint64_t *sent = &command->sent[stream - 1];
  bool exceeds = command->limit > 0 && length > command->limit - *sent;
  if (exceeds)
    length = (size_t)(command->limit - *sent);
  chunk.stream = (uint32_t)stream;
  chunk.offset = *sent;
  chunk.data = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)bytes, .len = length};
  response.response_case = SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_OUTPUT;
  response.output = &chunk;
  if (length > 0 && plain_send(command->call, &response.base) != 0) {
    fail(command, REASON_INTERNAL, "out of memory");
    kill_now(command);
    return;
  }
  *sent += length;
  if (exceeds) {
    kill_now(command);
    finish(command, SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_OUTPUT_LIMIT, 0);
  }
}

static void send_output(struct command *command, int stream, const uint8_t *bytes, size_t length) {
  for (size_t some; length > 0 && !command->over; bytes += some, length -= some) {
    some = length < LIMIT_CHUNK_BYTES ? length : LIMIT_CHUNK_BYTES;
    send_chunk(command, stream, bytes, some);
  }
}

static void on_drained(void *context) {
  struct command *command = context;
  if (command->call && command->held > 0)
    wire_call_consume(command->call, command->held);
  command->held = 0;
  plain_schedule(command->plain);
}

static void send_stdin(struct command *command, const uint8_t *bytes, size_t length) {
  if (run_send(command->run, bytes, length) == 0 && run_queued(command->run) < PLAIN_HIGH)
    on_drained(command);
}

static void send_started(struct command *command) {
  Sandbox__Agent__V1__RunStarted started = SANDBOX__AGENT__V1__RUN_STARTED__INIT;
  Sandbox__Agent__V1__RunResponse response = SANDBOX__AGENT__V1__RUN_RESPONSE__INIT;
  response.response_case = SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_STARTED;
  response.started = &started;
  if (plain_send(command->call, &response.base) != 0)
    fail(command, REASON_INTERNAL, "out of memory");
  if (command->timeout > 0)
    uv_timer_start(&command->timer, on_timer, command->timeout, 0);
  send_stdin(command, command->early.data, command->early.length);
  buffer_free(&command->early);
  if (command->stdin_ended)
    run_send_end(command->run);
}

static void give_out(void *context, const uint8_t *bytes, size_t length) {
  struct command *command = context;
  if (!command->over)
    send_output(command, 1, bytes, length);
}

static void give_err(void *context, const uint8_t *bytes, size_t length) {
  struct command *command = context;
  if (!command->over)
    send_output(command, 2, bytes, length);
}

static bool is_whole(const struct command *command) {
  return command->tails[0].complete && command->tails[1].complete;
}

/* The command may go once all that it wrote is here. */
static void take_output(struct command *command, int stream, const uint8_t *bytes, size_t length) {
  bool before = is_whole(command);
  tail_receive(&command->tails[stream - 1], command->mark, bytes, length, stream == 1 ? give_out : give_err, command);
  if (!before && is_whole(command) && !command->stdin_ended)
    run_send_end(command->run);
}

/* 0 if the line does not say one. */
static int process_id(const struct plain_line *line) {
  static const char start[] = "sandboxd: pid ";
  if (!line->complete || strncmp(line->text, start, sizeof start - 1) != 0)
    return 0;
  long pid = strtol(line->text + sizeof start - 1, NULL, 10);
  return pid > 1 && pid <= INT32_MAX ? (int)pid : 0;
}

/* The first line of standard error is ours. Returns how much of the bytes it takes. */
static size_t take_line(struct command *command, const uint8_t *bytes, size_t length) {
  size_t used;
  if (plain_line_read(&command->line, bytes, length, &used) != 0) {
    fail(command, REASON_INTERNAL, "the shell does not work");
    return length;
  }
  if (!command->line.complete)
    return used;
  command->pid = process_id(&command->line);
  if (command->pid == 0)
    fail(command, REASON_INTERNAL, "the shell does not work");
  else
    send_started(command);
  return used;
}

/* Returns whether it is one of those. */
static bool kill_condemned(struct command *command, int channel, const uint8_t *bytes, size_t length) {
  size_t used;
  if (!command->condemned)
    return false;
  if (channel == CHANNEL_STDERR && plain_line_read(&command->line, bytes, length, &used) == 0 &&
      !command->line.complete)
    return true;
  command->pid = process_id(&command->line);
  kill_now(command);
  release(command);
  return true;
}

static void on_output(void *context, int channel, const uint8_t *bytes, size_t length) {
  struct command *command = context;
  if (kill_condemned(command, channel, bytes, length))
    return;
  if (command->over || !command->call)
    return;
  if (!command->line.complete && channel == CHANNEL_STDERR) {
    size_t used = take_line(command, bytes, length);
    bytes += used;
    length -= used;
    if (command->line.complete && !command->over && command->ahead.length > 0)
      take_output(command, CHANNEL_STDOUT, command->ahead.data, command->ahead.length);
    if (command->line.complete)
      buffer_free(&command->ahead);
  } else if (!command->line.complete) {
    if (buffer_append(&command->ahead, bytes, length) != 0)
      fail(command, REASON_INTERNAL, "the shell says what it should not");
    return;
  }
  if (length > 0 && !command->over)
    take_output(command, channel, bytes, length);
  if (!command->over && wire_call_queued(command->call) > PLAIN_HIGH && !command->paused) {
    command->paused = true;
    run_pause(command->run, true);
  }
  plain_schedule(command->plain);
}

static void on_opened(void *context) {
  (void)context;
}

static void on_ended(void *context, const struct channels_end *end, struct error *err) {
  struct command *command = context;
  if (command->condemned)
    release(command);
  else if (end && end->exited && command->line.complete && (command->ended_by || is_whole(command)))
    finish(command, command->ended_by ? command->ended_by : SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_EXITED,
           end->exit_code & EXIT_CODE_MOST);
  else if (command->line.complete)
    finish(command, command->ended_by ? command->ended_by : SANDBOX__AGENT__V1__RUN_ENDED_BY__RUN_ENDED_BY_LOST, 0);
  else
    fail(command, REASON_SANDBOX_NOT_READY, end ? end->message : error_detail(err));
}

/* --- what the session asks for --- */

static int add_words(struct command *command, const Sandbox__Agent__V1__RunStart *start) {
  struct plain_words *words = &command->words;
  size_t total = strlen(start->command) + strlen(start->cwd);
  uint8_t random[16];
  char mark[TAIL_MARK_BYTES];
  random_bytes(random, sizeof random);
  text_hex(random, sizeof random, mark);
  snprintf(command->mark, sizeof command->mark, "%s\n", mark);
  const char *const first[] = {"sh", "-c", script, "sh", mark, start->stdin ? "1" : "0", start->cwd, start->command};
  for (size_t i = 0; i < sizeof first / sizeof first[0]; i++)
    if (plain_words_add(words, first[i]) != 0)
      return -1;
  for (size_t i = 0; i < start->n_environment; i++) {
    const Sandbox__Agent__V1__EnvironmentVariable *variable = start->environment[i];
    size_t size = strlen(variable->name) + strlen(variable->value) + 2;
    CLEANUP_MEMORY char *text = memory_new(size);
    if (!text || (total += size) > ARGUMENT_BYTES)
      return -1;
    snprintf(text, size, "%s=%s", variable->name, variable->value);
    if (plain_words_add(words, text) != 0)
      return -1;
  }
  return total <= ARGUMENT_BYTES ? 0 : -1;
}

static void start_command(struct command *command, const Sandbox__Agent__V1__RunStart *start) {
  const struct run_events events = {
      .opened = on_opened, .output = on_output, .drained = on_drained, .ended = on_ended, .context = command};
  command->timeout = start->timeout_milliseconds;
  command->limit = start->output_limit_bytes;
  command->stdin_over = !start->stdin;
  if (add_words(command, start) == 0)
    command->run = plain_run(command->plain, &command->words, &events);
  if (!command->run)
    fail(command, REASON_SANDBOX_NOT_READY, "out of memory, or too long a command for a sandbox without sandboxd");
}

static void take_stdin(struct command *command, const Sandbox__Agent__V1__StdinChunk *chunk, size_t length) {
  if (chunk->offset != command->stdin_offset || command->stdin_over) {
    fail(command, REASON_INVALID_REQUEST, "standard input is not what comes next");
    kill_now(command);
    return;
  }
  command->stdin_offset += chunk->data.len;
  command->held += length;
  if (command->line.complete)
    send_stdin(command, chunk->data.data, chunk->data.len);
  else if (buffer_append(&command->early, chunk->data.data, chunk->data.len) != 0)
    fail(command, REASON_INTERNAL, "out of memory");
}

static void end_stdin(struct command *command) {
  command->stdin_over = command->stdin_ended = true;
  if (command->line.complete)
    run_send_end(command->run);
}

static void handle(struct command *command, const Sandbox__Agent__V1__RunRequest *request, size_t length) {
  bool start = request->request_case == SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_START;
  if (request->request_case == SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_ATTACH)
    fail(command, REASON_NOT_FOUND, "no command is kept");
  else if (start == (command->words.count > 0))
    fail(command, REASON_INVALID_REQUEST, "'start' must come first, and once");
  else if (start)
    start_command(command, request->start);
  else if (!command->run)
    return;
  else if (request->request_case == SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_STDIN)
    take_stdin(command, request->stdin, length);
  else if (request->request_case == SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_STDIN_END && !command->stdin_over)
    end_stdin(command);
  else if (request->request_case == SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_SIGNAL && command->pid > 0 &&
           request->signal->number >= 1 && request->signal->number <= 64)
    plain_kill(command->plain, command->pid, request->signal->number);
}

static void on_message(struct wire_call *call, void *context, const uint8_t *bytes, size_t length) {
  struct command *command = context;
  Sandbox__Agent__V1__RunRequest *request =
      (void *)message_unpack(&sandbox__agent__v1__run_request__descriptor, bytes, length, NULL);
  bool input = request && request->request_case == SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_STDIN && !command->over;
  if (!request)
    fail(command, REASON_INVALID_REQUEST, "a message that is none");
  else if (!command->over)
    handle(command, request, length);
  if (!input)
    wire_call_consume(call, length);
  if (request)
    protobuf_c_message_free_unpacked(&request->base, NULL);
}

static void on_half_closed(struct wire_call *call, void *context) {
  struct command *command = context;
  (void)call;
  if (command->words.count == 0)
    fail(command, REASON_INVALID_REQUEST, "there is no message");
}

static void on_writable(struct wire_call *call, void *context) {
  struct command *command = context;
  (void)call;
  if (!command->paused || !command->run)
    return;
  command->paused = false;
  run_pause(command->run, false);
}

static void abandon(struct plain_work *work) {
  release((struct command *)(void *)work);
}

static void on_call_ended(struct wire_call *call, void *context, int status, const char *text) {
  struct command *command = context;
  (void)call;
  (void)text;
  command->call = NULL;
  if (status == WIRE_CANCELLED && !command->over && command->run && command->pid == 0) {
    command->condemned = command->over = true;
    command->work.abandon = abandon;
    plain_work_add(command->plain, &command->work);
    uv_timer_start(&command->timer, on_timer, GUARD_MILLISECONDS, 0);
    return;
  }
  if (status == WIRE_CANCELLED && !command->over)
    kill_now(command);
  command->over = true;
  release(command);
}

void plain_command_opened(struct plain *plain, struct wire_call *call) {
  static const struct wire_call_events events = {.message = on_message,
                                                 .half_closed = on_half_closed,
                                                 .writable = on_writable,
                                                 .ended = on_call_ended};
  struct command *command = memory_zero(sizeof *command);
  if (!command) {
    plain_fail(call, REASON_INTERNAL, "out of memory");
    return;
  }
  command->plain = plain;
  command->call = call;
  uv_timer_init(plain_loop(plain), &command->timer);
  command->timer.data = command;
  buffer_init(&command->early, 2 * PLAIN_HIGH);
  buffer_init(&command->ahead, 2 * PLAIN_HIGH);
  wire_call_accept(call, &events, command);
}
