/*
 * A session with one Pod through pods/exec, for tests on a real cluster and for measuring:
 *
 *   probe ADDRESS PORT FOLDER NAMESPACE POD SANDBOXD SCENARIO [ARGUMENT...]
 *
 * With PROBE_WITHOUT_AGENT in the environment it does without sandboxd. FOLDER holds ca.pem, client.pem, client.key. Each scenario prints one JSON object and exits with 0, or says on
 * standard error what was wrong and exits with 1:
 *
 *   run COMMAND             its output, exit code and how long all of it took, the connection included
 *   output BYTES TIMES      a command that writes so much, so often: every byte must come
 *   overhead TIMES          of `true`: how long each takes from here, and what the shell costs in there
 *   transfer BYTES TIMES    a file up and down again: must be the same
 *   manners                 what commands and files promise
 *   cut TIMES               a command that counts while what carries the connection is killed: nothing may be missing
 */
#include "backend/podexec/podexec.h"
#include "backend/session/session.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "tests/kubernetes/podexec/probe.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = 65536, OUTPUT_BYTES = 64 << 20, CHUNK = 65536 };

static struct podexec_endpoint endpoint = {.prefix = ""};
struct session *session;
uv_loop_t *loop;

void fail(const char *what, const struct error *err) {
  fprintf(stderr, "probe: %s: %s\n", what, err ? error_detail(err) : "");
  exit(1);
}

/* --- the API server --- */

static void *ask(void *context, podexec_granted *granted, void *granted_context) {
  (void)context;
  granted(granted_context, &endpoint, NULL);
  return &endpoint;
}

static void cancel(void *context, void *asked) {
  (void)context;
  (void)asked;
}

static const struct podexec_access access_of_probe = {.ask = ask, .cancel = cancel};

static char *read_text(const char *folder, const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "re");
  char *text = memory_zero(FILE_BYTES);
  if (!file || !text || fread(text, 1, FILE_BYTES - 1, file) == 0)
    fail(path, NULL);
  fclose(file);
  return text;
}

/* --- one command --- */

struct command {
  struct session_exec *exec;
  struct buffer output;
  struct digest digest;
  uint64_t bytes;
  bool keep; /* the output itself */
  bool ended;
  struct session_end end;
  void (*heard)(struct command *command);
};

static void on_started(void *context) {
  (void)context;
}

static void on_output(void *context, int stream, uint64_t offset, const uint8_t *bytes, size_t length) {
  struct command *command = context;
  (void)offset;
  if (stream == 1 || command->keep) {
    command->bytes += length;
    digest_update(&command->digest, bytes, length);
  }
  if (command->keep && buffer_append(&command->output, bytes, length) != 0)
    fail("too much output", NULL);
  session_exec_consume(command->exec, length);
  if (command->heard)
    command->heard(command);
}

static void on_ended(void *context, const struct session_end *end, struct error *err) {
  struct command *command = context;
  if (err)
    fail("command", err);
  command->end = *end;
  command->ended = true;
  uv_stop(loop);
}

static void command_start(struct command *command, const char *text, bool keep) {
  static const struct session_exec_events events = {.started = on_started, .output = on_output, .ended = on_ended};
  const struct session_command what = {.command = text, .cwd = "/workspace"};
  command->keep = keep;
  command->bytes = 0;
  command->ended = false;
  buffer_init(&command->output, OUTPUT_BYTES);
  digest_start(&command->digest);
  command->exec = session_exec_start(session, &what, &events, command);
  if (!command->exec)
    fail("memory", NULL);
}

static void command_wait(struct command *command) {
  while (!command->ended)
    uv_run(loop, UV_RUN_DEFAULT);
}

static void run(struct command *command, const char *text, bool keep) {
  command_start(command, text, keep);
  command_wait(command);
}

/* --- scenarios --- */

static int by_value(const void *a, const void *b) {
  const int64_t *one = a, *other = b;
  return (*one > *other) - (*one < *other);
}

static double milliseconds(int64_t nanoseconds) {
  return (double)nanoseconds / 1e6;
}

static void scenario_run(char **arguments, int64_t begun) {
  struct command command = {0};
  struct buffer CLEANUP_BUFFER text;
  run(&command, arguments[0], true);
  buffer_init(&text, OUTPUT_BYTES);
  json_write_string(&text, buffer_text(&command.output), command.output.length);
  printf("{\"output\": %s, \"exitCode\": %d, \"milliseconds\": %.1f}\n", buffer_text(&text), command.end.exit_code,
         milliseconds(clock_boot() - begun));
  buffer_free(&command.output);
}

static void scenario_output(char **arguments) {
  uint64_t bytes = strtoull(arguments[0], NULL, 10);
  int times = (int)strtol(arguments[1], NULL, 10), whole = 0;
  char text[160];
  uint8_t wanted[DIGEST_SIZE], found[DIGEST_SIZE];
  static const char line[] = "0123456789abcde\n";
  struct digest digest;
  digest_start(&digest);
  for (uint64_t i = 0; i < bytes / 16; i++)
    digest_update(&digest, line, 16);
  digest_finish(&digest, wanted);
  snprintf(text, sizeof text, "yes 0123456789abcde | head -c %llu", (unsigned long long)(bytes / 16 * 16));
  int64_t begun = clock_boot();
  for (int i = 0; i < times; i++) {
    struct command command = {0};
    run(&command, text, false);
    digest_finish(&command.digest, found);
    whole += command.bytes == bytes / 16 * 16 && command.end.exit_code == 0 && memcmp(wanted, found, sizeof found) == 0;
  }
  double seconds = (double)(clock_boot() - begun) / 1e9;
  printf("{\"whole\": %d, \"times\": %d, \"mebibytesPerSecond\": %.1f}\n", whole, times,
         (double)bytes * times / seconds / 1048576);
}

static void scenario_overhead(char **arguments) {
  size_t times = strtoull(arguments[0], NULL, 10);
  int64_t *took = memory_array(times, sizeof *took);
  struct command command = {0};
  for (int i = 0; i < 5; i++)
    run(&command, "true", false);
  for (size_t i = 0; i < times; i++) {
    int64_t begun = clock_boot();
    run(&command, "true", false);
    took[i] = clock_boot() - begun;
  }
  qsort(took, times, sizeof *took, by_value);
  run(&command,
      "a=$(date +%s%N); i=0; while [ $i -lt 100 ]; do sh -lc true; i=$((i+1)); done; b=$(date +%s%N); "
      "echo $(((b-a)/100))",
      true);
  int64_t spawn = strtoll(buffer_text(&command.output), NULL, 10);
  printf("{\"p50\": %.2f, \"p90\": %.2f, \"p99\": %.2f, \"spawn\": %.2f, \"overhead\": %.2f}\n",
         milliseconds(took[times / 2]), milliseconds(took[times * 9 / 10]), milliseconds(took[times * 99 / 100]),
         milliseconds(spawn), milliseconds(took[times / 2] - spawn));
  buffer_free(&command.output);
  memory_free(took);
}

struct transfer {
  struct session_write *write;
  struct session_read *read;
  const uint8_t *bytes;
  uint64_t size, sent, got;
  struct digest digest;
  bool ended;
};

static void send_more(struct transfer *transfer) {
  while (transfer->sent < transfer->size) {
    uint64_t left = transfer->size - transfer->sent;
    size_t some = left < CHUNK ? (size_t)left : CHUNK;
    bool more = session_write_data(transfer->write, transfer->bytes + transfer->sent, some);
    transfer->sent += some;
    if (transfer->sent == transfer->size)
      session_write_finish(transfer->write);
    if (!more)
      return;
  }
}

static void on_wanted(void *context) {
  send_more(context);
}

static void on_transfer_ended(void *context, struct error *err) {
  struct transfer *transfer = context;
  if (err)
    fail("transfer", err);
  transfer->ended = true;
  uv_stop(loop);
}

static void on_info(void *context, uint64_t size, const uint8_t *sha256) {
  (void)context;
  (void)size;
  (void)sha256;
}

static void on_data(void *context, const uint8_t *bytes, size_t length) {
  struct transfer *transfer = context;
  digest_update(&transfer->digest, bytes, length);
  transfer->got += length;
  session_read_consume(transfer->read, length);
}

static double transfer_once(struct transfer *transfer, bool up, const uint8_t *sha256) {
  static const struct session_write_events writing = {.wanted = on_wanted, .ended = on_transfer_ended};
  static const struct session_read_events reading = {.info = on_info, .data = on_data, .ended = on_transfer_ended};
  int64_t begun = clock_boot();
  transfer->ended = false;
  digest_start(&transfer->digest);
  if (up) {
    transfer->write = session_write_start(session, "probe.bin", transfer->size, sha256, false, &writing, transfer);
    send_more(transfer);
  } else {
    transfer->read = session_read_start(session, "probe.bin", 1 << 30, false, &reading, transfer);
  }
  while (!transfer->ended)
    uv_run(loop, UV_RUN_DEFAULT);
  return (double)transfer->size / 1048576 / ((double)(clock_boot() - begun) / 1e9);
}

static void scenario_transfer(char **arguments) {
  uint64_t size = strtoull(arguments[0], NULL, 10);
  int times = (int)strtol(arguments[1], NULL, 10);
  uint8_t *bytes = memory_new(size), sum[DIGEST_SIZE], found[DIGEST_SIZE];
  double up = 0, down = 0;
  struct digest digest;
  random_bytes(bytes, size);
  digest_start(&digest);
  digest_update(&digest, bytes, size);
  digest_finish(&digest, sum);
  struct command command = {0};
  run(&command, "true", false);
  for (int i = 0; i < times; i++) {
    struct transfer sending = {.bytes = bytes, .size = size}, receiving = {.size = size};
    double rate = transfer_once(&sending, true, sum);
    up = rate > up ? rate : up;
    rate = transfer_once(&receiving, false, NULL);
    down = rate > down ? rate : down;
    digest_finish(&receiving.digest, found);
    if (receiving.got != size || memcmp(sum, found, sizeof sum) != 0)
      fail("the file is not the same", NULL);
  }
  printf("{\"up\": %.1f, \"down\": %.1f}\n", up, down);
  memory_free(bytes);
}

static void on_number(struct command *command) {
  static int64_t last;
  if (clock_boot() - last < CLOCK_SECOND / 2)
    return;
  last = clock_boot();
  static struct command killer;
  static bool started;
  (void)command;
  if (started && !killer.ended)
    return;
  started = true;
  /* Whatever was started in the container from outside, but for its first process: this carries connections, our own
   * included. */
  command_start(&killer,
                "for p in /proc/[0-9]*; do [ \"$(cut -d' ' -f4 $p/stat)\" != 0 ] || [ $p = /proc/1 ] || "
                "kill -9 ${p#/proc/}; done 2>/dev/null",
                true);
}

static void scenario_cut(char **arguments) {
  char text[160];
  struct command command = {.heard = on_number};
  long count = strtol(arguments[0], NULL, 10);
  snprintf(text, sizeof text, "i=0; while [ $i -lt %ld ]; do i=$((i+1)); echo $i; sleep 0.01; done", count);
  run(&command, text, true);
  const char *at = buffer_text(&command.output);
  for (long i = 1; i <= count; i++) {
    char *end;
    if (strtol(at, &end, 10) != i || *end != '\n')
      fail("a number is missing", NULL);
    at = end + 1;
  }
  printf("{\"numbers\": %ld, \"exitCode\": %d, \"rest\": %zu}\n", count, command.end.exit_code, strlen(at));
  buffer_free(&command.output);
}

static void play(const char *scenario, char **arguments, int64_t begun) {
  if (!strcmp(scenario, "run"))
    scenario_run(arguments, begun);
  else if (!strcmp(scenario, "output"))
    scenario_output(arguments);
  else if (!strcmp(scenario, "overhead"))
    scenario_overhead(arguments);
  else if (!strcmp(scenario, "transfer"))
    scenario_transfer(arguments);
  else if (!strcmp(scenario, "cut"))
    scenario_cut(arguments);
  else if (!strcmp(scenario, "manners"))
    printf("{\"checks\": %d}\n", manners_check());
  else
    fail("no such scenario", NULL);
}

int main(int count, char **texts) {
  struct podexec_program program;
  struct error *err CLEANUP_ERROR = NULL;
  int64_t begun = clock_boot();
  if (count < 8)
    fail("usage: probe ADDRESS PORT FOLDER NAMESPACE POD SANDBOXD SCENARIO ARGUMENT...", NULL);
  endpoint.websocket = (struct websocket_endpoint){.host = texts[1],
                                                   .port = (uint16_t)strtol(texts[2], NULL, 10),
                                                   .authorities = read_text(texts[3], "ca.pem"),
                                                   .certificate = read_text(texts[3], "client.pem"),
                                                   .key = read_text(texts[3], "client.key")};
  if (podexec_program_read(&program, texts[6], &err) != 0)
    fail("program", err);
  signal(SIGPIPE, SIG_IGN);
  loop = uv_default_loop();
  const struct podexec_options options = {
      .access = &access_of_probe,
      .program = &program,
      .namespace_ = texts[4],
      .pod = texts[5],
      .without_agent = getenv("PROBE_WITHOUT_AGENT") != NULL};
  const struct session_options what = {.loop = loop,
                                       .transport = transport_podexec_new(loop, &options),
                                       .deadline = clock_boot() + 600 * CLOCK_SECOND,
                                       .lease = "probe",
                                       .connect_timeout = 30 * CLOCK_SECOND};
  session = session_new(&what);
  play(texts[7], texts + 8, begun);
  session_close(session, SESSION_ENDED_LEASE);
  uv_run(loop, UV_RUN_DEFAULT);
  return 0;
}
