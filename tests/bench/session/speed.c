/*
 * What a session costs: a command there and back beside the floor of the same run (spawning the same `sh -lc` without
 * anything between), bytes each way, and the memory of a thousand sessions that do nothing.
 *
 *   speed PROGRAM          PROGRAM is sandboxd; it runs on this machine, without isolation
 */
#include "backend/session/session.h"
#include "backend/transport_unix.h"
#include "backend/wire/wire.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"
#include "sandbox/agent/v1/agent.pb-c.h"
#include "tests/unit/sandboxd/check.h"
#include "tests/unit/sandboxd/client.h"
#include <malloc.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 400
#define PARALLEL 8
#define MEBIBYTE 1048576
#define OUTPUT (512 * MEBIBYTE)
#define FILE_BYTES (64 * MEBIBYTE)
#define TRANSFERS 8
#define SESSIONS 1000

static uv_loop_t loop;
static struct daemon agent;
static struct session *session;
static int64_t deadline;

static double now(void) {
  return (double)clock_boot() / 1e6;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double percentile(double *samples, int count, double p) {
  qsort(samples, (size_t)count, sizeof *samples, compare);
  return samples[(int)((double)(count - 1) * p)];
}

/* --- commands --- */

struct command {
  struct session_exec *exec;
  uint64_t bytes;
  bool ended, wanted;
};

static void on_started(void *context) {
  (void)context;
}

static void on_output(void *context, int stream, uint64_t offset, const uint8_t *bytes, size_t length) {
  struct command *command = context;
  (void)stream;
  (void)offset;
  (void)bytes;
  command->bytes += length;
  session_exec_consume(command->exec, length);
}

static void on_wanted(void *context) {
  ((struct command *)context)->wanted = true;
}

static void on_ended(void *context, const struct session_end *end, struct error *err) {
  struct command *command = context;
  if (!end || end->ended_by != SESSION_ENDED_EXITED || end->exit_code != 0) {
    fprintf(stderr, "a command failed: %s\n", error_detail(err));
    exit(1);
  }
  command->ended = true;
}

static void start(struct command *command, const char *text, bool with_stdin) {
  static const struct session_exec_events events = {
      .started = on_started, .output = on_output, .stdin_wanted = on_wanted, .ended = on_ended};
  struct session_command what = {.command = text, .cwd = agent.workspace, .stdin_open = with_stdin};
  *command = (struct command){0};
  command->exec = session_exec_start(session, &what, &events, command);
}

static void run_until(const bool *flag) {
  while (!*flag)
    uv_run(&loop, UV_RUN_ONCE);
}

static pid_t spawn(void) {
  char name[] = "sh", flags[] = "-lc", text[] = "true";
  char *arguments[] = {name, flags, text, NULL};
  pid_t pid;
  if (posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ))
    exit(1);
  return pid;
}

static void measure_latency(void) {
  static double bare[ROUNDS], with[ROUNDS];
  struct command command;
  for (int i = 0; i < ROUNDS; i++) {
    double begun = now();
    waitpid(spawn(), NULL, 0);
    double between = now();
    start(&command, "true", false);
    run_until(&command.ended);
    bare[i] = between - begun;
    with[i] = now() - between;
  }
  double p50 = percentile(bare, ROUNDS, 0.5), p99 = percentile(bare, ROUNDS, 0.99);
  printf("sh -lc true           bare p50 %.3f ms p99 %.3f   exec p50 %.3f ms p99 %.3f   added p50 %.3f ms\n", p50, p99,
         percentile(with, ROUNDS, 0.5), percentile(with, ROUNDS, 0.99), percentile(with, ROUNDS, 0.5) - p50);
}

static void measure_rate(void) {
  static struct command commands[PARALLEL];
  double begun = now();
  for (int i = 0; i < PARALLEL; i++)
    spawn();
  for (int i = 0; i < ROUNDS; i++) {
    wait(NULL);
    if (i < ROUNDS - PARALLEL)
      spawn();
  }
  double bare = ROUNDS / (now() - begun) * 1e3;
  int started = PARALLEL, ended = 0;
  begun = now();
  for (int i = 0; i < PARALLEL; i++)
    start(&commands[i], "true", false);
  while (ended < ROUNDS) {
    uv_run(&loop, UV_RUN_ONCE);
    for (int i = 0; i < PARALLEL; i++) {
      if (!commands[i].ended)
        continue;
      ended++;
      commands[i].ended = false;
      if (started++ < ROUNDS)
        start(&commands[i], "true", false);
    }
  }
  double with = ROUNDS / (now() - begun) * 1e3;
  printf("%d at once             bare %.0f/s   exec %.0f/s   ratio %.2f\n", PARALLEL, bare, with, with / bare);
}

/* From nothing to the first command's end: connection, Configure and the command. */
static void measure_cold(void) {
  static double samples[50];
  struct session *warm = session;
  for (int i = 0; i < 50; i++) {
    struct session_options options = {
        .loop = &loop, .transport = transport_unix_new(&loop, agent.socket), .deadline = deadline, .lease = "cold"};
    struct command command;
    double begun = now();
    session = session_new(&options);
    start(&command, "true", false);
    run_until(&command.ended);
    samples[i] = now() - begun;
    session_close(session, SESSION_ENDED_LOST);
    uv_run(&loop, UV_RUN_NOWAIT);
  }
  session = warm;
  printf("cold first exec       p50 %.3f ms\n", percentile(samples, 50, 0.5));
}

static void measure_output(void) {
  struct command command;
  char text[64];
  snprintf(text, sizeof text, "exec head -c %d /dev/zero", OUTPUT);
  double begun = now();
  start(&command, text, false);
  run_until(&command.ended);
  double took = now() - begun;
  if (command.bytes != OUTPUT)
    exit(1);
  printf("stdout                %.0f MiB/s\n", OUTPUT / MEBIBYTE / took * 1e3);
}

static void measure_input(void) {
  static uint8_t bytes[131072];
  struct command command;
  double begun = now();
  start(&command, "exec cat > /dev/null", true);
  for (int sent = 0; sent < OUTPUT; sent += (int)sizeof bytes) {
    command.wanted = false;
    if (!session_exec_stdin(command.exec, bytes, sizeof bytes))
      run_until(&command.wanted);
  }
  session_exec_stdin_end(command.exec);
  run_until(&command.ended);
  printf("stdin                 %.0f MiB/s\n", OUTPUT / MEBIBYTE / (now() - begun) * 1e3);
}

/* --- files --- */

struct transfer {
  struct session_read *read;
  struct session_write *write;
  uint64_t bytes;
  bool ended, wanted;
};

static void on_info(void *context, uint64_t size, const uint8_t *sha256) {
  (void)context;
  (void)size;
  (void)sha256;
}

static void on_data(void *context, const uint8_t *bytes, size_t length) {
  struct transfer *transfer = context;
  (void)bytes;
  transfer->bytes += length;
  session_read_consume(transfer->read, length);
}

static void on_transfer_wanted(void *context) {
  ((struct transfer *)context)->wanted = true;
}

static void on_transfer_ended(void *context, struct error *err) {
  if (err) {
    fprintf(stderr, "a transfer failed: %s\n", error_detail(err));
    exit(1);
  }
  ((struct transfer *)context)->ended = true;
}

static void write_file(void) {
  static const struct session_write_events events = {.wanted = on_transfer_wanted, .ended = on_transfer_ended};
  static uint8_t bytes[131072];
  struct transfer transfer = {0};
  transfer.write = session_write_start(session, "file", FILE_BYTES, NULL, false, &events, &transfer);
  for (int sent = 0; sent < FILE_BYTES; sent += (int)sizeof bytes) {
    transfer.wanted = false;
    if (!session_write_data(transfer.write, bytes, sizeof bytes))
      run_until(&transfer.wanted);
  }
  session_write_finish(transfer.write);
  run_until(&transfer.ended);
}

static void read_file(bool digest) {
  static const struct session_read_events events = {.info = on_info, .data = on_data, .ended = on_transfer_ended};
  struct transfer transfer = {0};
  transfer.read = session_read_start(session, "file", FILE_BYTES, digest, &events, &transfer);
  run_until(&transfer.ended);
}

static void measure_files(void) {
  double total = (double)TRANSFERS * FILE_BYTES / MEBIBYTE * 1e3, begun = now();
  for (int i = 0; i < TRANSFERS; i++)
    write_file();
  printf("file up               %.0f MiB/s\n", total / (now() - begun));
  for (int digest = 0; digest < 2; digest++) {
    begun = now();
    for (int i = 0; i < TRANSFERS; i++)
      read_file(digest);
    printf("file down             %.0f MiB/s %s digest\n", total / (now() - begun), digest ? "with" : "without");
  }
}

/* --- memory --- */

/* A process that answers Configure on every connection, and no more. */
struct answerer {
  uv_pipe_t pipe;
  struct wire *wire;
};

static void on_answer_message(struct wire_call *call, void *context, const uint8_t *bytes, size_t length) {
  static uint8_t instance[16];
  (void)context;
  (void)bytes;
  Sandbox__Agent__V1__ConfigureResponse response = SANDBOX__AGENT__V1__CONFIGURE_RESPONSE__INIT;
  response.protocol = 1;
  response.instance = (ProtobufCBinaryData){.data = instance, .len = sizeof instance};
  size_t packed_length;
  uint8_t *packed = message_pack(&response.base, &packed_length);
  wire_call_send_owned(call, packed, packed_length);
  wire_call_consume(call, length);
  wire_call_finish(call, WIRE_OK, "");
}

static void on_answer_ended(struct wire_call *call, void *context, int status, const char *text) {
  (void)call;
  (void)context;
  (void)status;
  (void)text;
}

static void on_answer_opened(struct wire *wire, void *context, struct wire_call *call, const char *path) {
  static const struct wire_call_events events = {.message = on_answer_message, .ended = on_answer_ended};
  (void)wire;
  (void)path;
  wire_call_accept(call, &events, context);
}

static void on_answer_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer) {
  static char room[65536];
  (void)handle;
  (void)suggested;
  *buffer = uv_buf_init(room, sizeof room);
}

static void on_answer_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer) {
  struct answerer *answerer = stream->data;
  const uint8_t *bytes;
  long out;
  if (length < 0)
    uv_read_stop(stream);
  if (length <= 0)
    return;
  wire_receive(answerer->wire, (const uint8_t *)buffer->base, (size_t)length, NULL);
  while ((out = wire_transmit(answerer->wire, &bytes, NULL)) > 0) {
    uv_buf_t piece = uv_buf_init((char *)(uintptr_t)bytes, (unsigned)out);
    uv_try_write(stream, &piece, 1);
  }
}

static void on_answer_connection(uv_stream_t *listener, int status) {
  static const struct wire_options options = {
      .role = WIRE_SERVER, .message_limit = 65536, .call_window = 65536, .calls_limit = 16, .output_limit = 65536};
  static const struct wire_events events = {.opened = on_answer_opened};
  struct answerer *answerer = calloc(1, sizeof *answerer);
  if (status != 0 || !answerer)
    exit(1);
  uv_pipe_init(listener->loop, &answerer->pipe, 0);
  uv_accept(listener, (uv_stream_t *)&answerer->pipe);
  answerer->pipe.data = answerer;
  answerer->wire = wire_new(&options, &events, NULL);
  uv_read_start((uv_stream_t *)&answerer->pipe, on_answer_room, on_answer_read);
}

static void answer(const char *path) {
  uv_loop_t own;
  uv_pipe_t listener;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  uv_loop_init(&own);
  uv_pipe_init(&own, &listener, 0);
  uv_pipe_bind(&listener, path);
  uv_listen((uv_stream_t *)&listener, 4096, on_answer_connection);
  uv_run(&own, UV_RUN_DEFAULT);
}

static long resident(void) {
  char line[128];
  long kibibytes = 0;
  FILE *file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file))
    if (strncmp(line, "VmRSS:", 6) == 0)
      kibibytes = strtol(line + 6, NULL, 10);
  if (file)
    fclose(file);
  return kibibytes;
}

static void run_for(int milliseconds) {
  double end = now() + milliseconds;
  while (now() < end) {
    uv_run(&loop, UV_RUN_NOWAIT);
    usleep(1000);
  }
}

static void measure_memory(void) {
  static struct session *sessions[SESSIONS];
  char path[128];
  snprintf(path, sizeof path, "%s/answerer", agent.top);
  pid_t pid = fork();
  if (pid == 0)
    answer(path);
  while (access(path, F_OK) != 0)
    usleep(1000);
  usleep(50000);
  malloc_trim(0);
  long before = resident();
  for (int i = 0; i < SESSIONS; i++) {
    struct session_options options = {
        .loop = &loop, .transport = transport_unix_new(&loop, path), .deadline = deadline, .lease = "many"};
    sessions[i] = session_new(&options);
  }
  run_for(2000);
  size_t counted = 0;
  for (int i = 0; i < SESSIONS; i++)
    counted += session_memory(sessions[i]);
  printf("%d idle sessions    %.1f KiB resident each, %.1f KiB counted\n", SESSIONS,
         (double)(resident() - before) / SESSIONS, (double)counted / SESSIONS / 1024);
  for (int i = 0; i < SESSIONS; i++)
    session_close(sessions[i], SESSION_ENDED_LEASE);
  run_for(100);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  unlink(path);
}

int main(int count, char **arguments) {
  signal(SIGPIPE, SIG_IGN);
  log_set_level(LOG_ERROR);
  client_program = count > 1 ? arguments[1] : "";
  daemon_start(&agent, NULL);
  uv_loop_init(&loop);
  deadline = clock_boot() + 3600 * CLOCK_SECOND;
  measure_memory();
  struct session_options options = {
      .loop = &loop, .transport = transport_unix_new(&loop, agent.socket), .deadline = deadline, .lease = "speed"};
  session = session_new(&options);
  measure_latency();
  measure_rate();
  measure_cold();
  measure_output();
  measure_input();
  measure_files();
  printf("after all that        %.1f KiB counted\n", (double)session_memory(session) / 1024);
  session_close(session, SESSION_ENDED_LEASE);
  uv_run(&loop, UV_RUN_DEFAULT);
  daemon_stop(&agent);
  return 0;
}
