/*
 * exec: runs one command, passes its output on as it comes, its input if there is any, signals that this program gets,
 * and ends with its exit code.
 */
#include "base/buffer.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "rpc/message.h"
#include "sandbox/lease/v1/lease.pb-c.h"
#include "tools/leasectl/commands.h"
#include "tools/leasectl/output.h"
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
  EXEC_FAILED = 125,
  INPUT_CHUNK = 65536,
  ENTRIES_MAX = 256,
  LINE_LIMIT = 4194304,
  SIGNALS_MAX = 16,
  SIGNAL_PATIENCE_MS = 2000,
};

/* One run. Fields below `json` are written on the queue's thread and read after the call has ended. */
struct run {
  bool json;
  bool ended;
  int exit_code;
  bool output_broken; /* our own standard output is closed */
  struct error *failure;
};

static int bytes_write(int fd, const uint8_t *bytes, size_t length) {
  while (length > 0) {
    ssize_t written = write(fd, bytes, length);
    if (written < 0 && errno != EINTR)
      return -1;
    if (written > 0) {
      bytes += written;
      length -= (size_t)written;
    }
  }
  return 0;
}

static int output_line(const Sandbox__Lease__V1__Output *output, bool is_stderr) {
  CLEANUP_BUFFER struct buffer line;
  buffer_init(&line, LINE_LIMIT);
  if (buffer_append_format(&line, "{\"type\":\"output\",\"stream\":\"%s\",\"offset\":%" PRId64 ",\"data\":\"",
                           is_stderr ? "stderr" : "stdout", output->offset) < 0 ||
      text_base64(&line, output->data.data, output->data.len) < 0 || buffer_append_string(&line, "\"}\n") < 0)
    return -1;
  return bytes_write(STDOUT_FILENO, line.data, line.length);
}

static const char *ended_name(Sandbox__Lease__V1__EndedBy ended_by) {
  static const char *const names[] = {"unknown",   "exited",        "signalled",   "timed out",
                                      "cancelled", "out of memory", "lease ended", "sandbox lost"};
  return (size_t)ended_by < sizeof names / sizeof names[0] ? names[ended_by] : names[0];
}

static int end_line(const Sandbox__Lease__V1__CommandEnd *end) {
  CLEANUP_BUFFER struct buffer line;
  buffer_init(&line, LINE_LIMIT);
  if (buffer_append_format(
          &line,
          "{\"type\":\"ended\",\"endedBy\":\"%s\",\"exitCode\":%d,\"signal\":%d,\"stdoutBytes\":%" PRId64
          ",\"stderrBytes\":%" PRId64 "}\n",
          ended_name(end->ended_by), end->exit_code, end->signal, end->stdout_bytes, end->stderr_bytes) < 0)
    return -1;
  return bytes_write(STDOUT_FILENO, line.data, line.length);
}

static void end_take(struct run *run, const Sandbox__Lease__V1__CommandEnd *end) {
  run->ended = true;
  run->exit_code = end->exit_code;
  if (run->json)
    run->output_broken = end_line(end) < 0 || run->output_broken;
  else if (end->ended_by != SANDBOX__LEASE__V1__ENDED_BY__ENDED_BY_EXITED &&
           end->ended_by != SANDBOX__LEASE__V1__ENDED_BY__ENDED_BY_SIGNALLED)
    fprintf(stderr, "leasectl: the command ended: %s\n", ended_name(end->ended_by));
  if (end->ended_by != SANDBOX__LEASE__V1__ENDED_BY__ENDED_BY_EXITED && run->exit_code == 0)
    run->exit_code = EXEC_FAILED;
}

/* On the queue's thread: the next message is asked for only when this one has been written, so that a slow reader of
 * our output slows the command down. */
static bool run_message(void *context, grpc_byte_buffer *bytes) {
  struct run *run = context;
  Sandbox__Lease__V1__StreamExecResponse *response = (Sandbox__Lease__V1__StreamExecResponse *)rpc_unpack(
      &sandbox__lease__v1__stream_exec_response__descriptor, bytes, &run->failure);
  if (!response)
    return false;
  if (response->response_case == SANDBOX__LEASE__V1__STREAM_EXEC_RESPONSE__RESPONSE_OUTPUT) {
    const Sandbox__Lease__V1__Output *output = response->output;
    bool is_stderr = output->stream == SANDBOX__LEASE__V1__OUTPUT_STREAM__OUTPUT_STREAM_STDERR;
    run->output_broken =
        (run->json ? output_line(output, is_stderr)
                   : bytes_write(is_stderr ? STDERR_FILENO : STDOUT_FILENO, output->data.data, output->data.len)) < 0;
  } else if (response->response_case == SANDBOX__LEASE__V1__STREAM_EXEC_RESPONSE__RESPONSE_ENDED)
    end_take(run, response->ended);
  protobuf_c_message_free_unpacked(&response->base, NULL);
  return !run->output_broken;
}

/* --- to the command --- */

/* What goes to the command, one message at a time. A command that does not read its input holds back whatever is behind
 * it, signals too; so one that cannot be passed on within a while ends the command, as who sent it wanted. */
struct pump {
  struct stream *stream;
  uint32_t signals[SIGNALS_MAX]; /* not passed on yet, oldest first */
  size_t signal_count;
  int64_t stuck_at;        /* boot clock: the oldest signal's patience ends */
  unsigned interrupts;     /* SIGINTs so far; the second gives up */
  bool input, input_ended; /* there is more to read; its end was read and is not passed on yet */
};

static void input_send(struct pump *pump, uint8_t *bytes, size_t length) {
  Sandbox__Lease__V1__StreamExecRequest request = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__INIT;
  request.request_case = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__REQUEST_STDIN;
  request.stdin = (ProtobufCBinaryData){.data = bytes, .len = length};
  stream_post(pump->stream, rpc_pack(&request.base));
}

static void input_end_send(struct pump *pump) {
  Sandbox__Lease__V1__StdinEnd end = SANDBOX__LEASE__V1__STDIN_END__INIT;
  Sandbox__Lease__V1__StreamExecRequest request = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__INIT;
  request.request_case = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__REQUEST_STDIN_END;
  request.stdin_end = &end;
  stream_post(pump->stream, rpc_pack(&request.base));
  pump->input_ended = false;
}

static void signal_send(struct pump *pump) {
  Sandbox__Lease__V1__Signal signal_message = SANDBOX__LEASE__V1__SIGNAL__INIT;
  signal_message.number = (int32_t)pump->signals[0];
  Sandbox__Lease__V1__StreamExecRequest request = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__INIT;
  request.request_case = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__REQUEST_SIGNAL;
  request.signal = &signal_message;
  stream_post(pump->stream, rpc_pack(&request.base));
  memmove(pump->signals, pump->signals + 1, --pump->signal_count * sizeof pump->signals[0]);
}

static void signal_take(struct pump *pump, int signals) {
  struct signalfd_siginfo information;
  if (read(signals, &information, sizeof information) != (ssize_t)sizeof information)
    return;
  if (information.ssi_signo == SIGINT && ++pump->interrupts > 1)
    stream_cancel(pump->stream);
  else if (pump->signal_count < SIGNALS_MAX) {
    if (pump->signal_count == 0)
      pump->stuck_at = clock_boot() + SIGNAL_PATIENCE_MS * CLOCK_MILLISECOND;
    pump->signals[pump->signal_count++] = information.ssi_signo;
  }
}

static void input_take(struct pump *pump) {
  static uint8_t bytes[INPUT_CHUNK];
  ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);
  if (got > 0)
    input_send(pump, bytes, (size_t)got);
  else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
    pump->input = false;
    pump->input_ended = true;
  }
}

/* Milliseconds to wait at most; -1: until something happens. */
static int pump_patience(const struct pump *pump) {
  if (pump->signal_count == 0)
    return -1;
  int64_t left = pump->stuck_at - clock_boot();
  return left > 0 ? (int)(left / CLOCK_MILLISECOND) + 1 : 0;
}

/* Passes input and signals on until the call has ended. */
static void run_pump(struct pump *pump, int notify, int signals) {
  while (!stream_ended(pump->stream)) {
    bool busy = stream_busy(pump->stream);
    if (!busy && (pump->signal_count > 0 || pump->input_ended)) {
      if (pump->signal_count > 0)
        signal_send(pump);
      else
        input_end_send(pump);
      busy = true;
    }
    struct pollfd polled[3] = {{.fd = notify, .events = POLLIN},
                               {.fd = signals, .events = POLLIN},
                               {.fd = pump->input && !busy ? STDIN_FILENO : -1, .events = POLLIN}};
    int ready = poll(polled, 3, pump_patience(pump));
    if (ready == 0) {
      fprintf(stderr, "leasectl: the command reads none of its input, so that no signal gets through: killing it\n");
      stream_cancel(pump->stream);
      pump->signal_count = 0;
    }
    if (ready <= 0)
      continue;
    uint64_t count;
    if (polled[0].revents && read(notify, &count, sizeof count) < 0)
      continue;
    if (polled[1].revents)
      signal_take(pump, signals);
    if (polled[2].revents)
      input_take(pump);
  }
}

static void signals_passed(sigset_t *set) {
  sigemptyset(set);
  const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
  for (size_t i = 0; i < sizeof passed / sizeof passed[0]; i++)
    sigaddset(set, passed[i]);
}

static int run_command(struct invocation *invocation, const Sandbox__Lease__V1__StreamExecStart *start) {
  Sandbox__Lease__V1__StreamExecRequest request = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__INIT;
  request.request_case = SANDBOX__LEASE__V1__STREAM_EXEC_REQUEST__REQUEST_START;
  request.start = (Sandbox__Lease__V1__StreamExecStart *)start;
  struct run run = {.json = invocation->json, .exit_code = EXEC_FAILED};
  CLEANUP_ERROR struct error *err = NULL;
  sigset_t set;
  signals_passed(&set);
  /* Before the connection's threads are made, so that the signals come here alone. */
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  signal(SIGPIPE, SIG_IGN);
  int signals = signalfd(-1, &set, SFD_CLOEXEC), notify = eventfd(0, EFD_CLOEXEC);
  struct stream *stream = signals < 0 || notify < 0 || invocation_connect(invocation, &err) < 0
                              ? NULL
                              : stream_start(invocation->connection, "/sandbox.lease.v1.LeaseService/StreamExec",
                                             &request.base, false, run_message, &run, notify, &err);
  int failed = -1;
  if (stream) {
    struct pump pump = {.stream = stream, .input = start->stdin};
    run_pump(&pump, notify, signals);
    failed = stream_finish(stream, &err);
  } else if (!err)
    error_set_errno(&err, errno, "cannot wait for signals");
  close(signals);
  close(notify);
  if (run.output_broken)
    failed = 0; /* our own reader has gone; nobody is left to be told */
  else if (run.failure) {
    error_free(&err);
    failed = error_move(&err, &run.failure);
  }
  error_free(&run.failure);
  if (failed)
    output_failure(err, invocation->json);
  else if (!run.ended && !run.output_broken)
    fprintf(stderr, "leasectl: the call ended without the command's end\n");
  return failed || !run.ended ? EXEC_FAILED : run.exit_code;
}

/* The words behind the Lease id, as one shell line: a single word is shell text, several are quoted each. */
static int command_line(struct buffer *line, int count, char **words) {
  if (count == 1)
    return buffer_append_string(line, words[0]);
  for (int i = 0; i < count; i++) {
    if (buffer_append_string(line, i ? " '" : "'") < 0)
      return -1;
    for (const char *at = words[i]; *at; at++)
      if ((*at == '\'' ? buffer_append_string(line, "'\\''") : buffer_append_byte(line, (uint8_t)*at)) < 0)
        return -1;
    if (buffer_append_byte(line, '\'') < 0)
      return -1;
  }
  return 0;
}

struct environment {
  Sandbox__Lease__V1__Command__EnvEntry entries[ENTRIES_MAX], *pointers[ENTRIES_MAX];
  size_t count;
};

/* "NAME=VALUE"; `text` is changed. */
static int environment_add(struct environment *environment, char *text) {
  char *equals = strchr(text, '=');
  if (!equals || environment->count == ENTRIES_MAX)
    return -1;
  *equals = '\0';
  Sandbox__Lease__V1__Command__EnvEntry *entry = &environment->entries[environment->count];
  sandbox__lease__v1__command__env_entry__init(entry);
  entry->key = text;
  entry->value = equals + 1;
  environment->pointers[environment->count++] = entry;
  return 0;
}

int command_exec(struct invocation *invocation, int count, char **arguments) {
  static const struct option options[] = {
      {"cwd", required_argument, NULL, 'c'},     {"env", required_argument, NULL, 'e'},
      {"timeout", required_argument, NULL, 't'}, {"interactive", no_argument, NULL, 'i'},
      {"no-stdin", no_argument, NULL, 'n'},      COMMON_OPTIONS};
  static struct environment environment;
  Sandbox__Lease__V1__Command command = SANDBOX__LEASE__V1__COMMAND__INIT;
  Sandbox__Lease__V1__StreamExecStart start = SANDBOX__LEASE__V1__STREAM_EXEC_START__INIT;
  start.stdin = !isatty(STDIN_FILENO);
  for (int option; (option = getopt_long(count, arguments, "+c:e:t:in", options, NULL)) != -1;) {
    long seconds;
    if (option == 'c')
      command.cwd = optarg;
    else if (option == 'e' && environment_add(&environment, optarg) == 0)
      continue;
    else if (option == 't' && number_parse(optarg, 1, 86400, &seconds) == 0) {
      command._timeout_seconds_case = SANDBOX__LEASE__V1__COMMAND___TIMEOUT_SECONDS_TIMEOUT_SECONDS;
      command.timeout_seconds = seconds;
    } else if (option == 'i' || option == 'n')
      start.stdin = option == 'i';
    else if (!invocation_option(invocation, option))
      return option == 'e'   ? usage_error("exec", "--env wants NAME=VALUE, at most 256 times")
             : option == 't' ? usage_error("exec", "--timeout wants 1 to 86400 seconds")
                             : usage_refused();
  }
  if (optind + 2 > count)
    return usage_error("exec", "wants a Lease id and a command");
  start.lease_id = arguments[optind++];
  if (strcmp(arguments[optind], "--") == 0 && optind + 1 < count)
    optind++;
  CLEANUP_BUFFER struct buffer line;
  buffer_init(&line, LINE_LIMIT);
  if (command_line(&line, count - optind, arguments + optind) < 0)
    return usage_error("exec", "the command is too long");
  command.command = (char *)buffer_text(&line);
  command.env = environment.pointers;
  command.n_env = environment.count;
  start.command = &command;
  return run_command(invocation, &start);
}
