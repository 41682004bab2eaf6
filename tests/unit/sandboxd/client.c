/*
 * The control plane's side for tests: see client.h.
 */
#include "tests/unit/sandboxd/client.h"

#include "base/memory.h"
#include "base/message.h"
#include "tests/unit/sandboxd/check.h"
#include "tests/unit/sandboxd/tree.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE 10000

const char *client_program;

int64_t client_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* --- the program --- */

int daemon_listen(struct daemon *daemon) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(daemon->top, sizeof daemon->top, "/tmp/sandboxd-test-XXXXXX");
  assert_non_null(mkdtemp(daemon->top));
  snprintf(daemon->workspace, sizeof daemon->workspace, "%s/workspace", daemon->top);
  snprintf(daemon->socket, sizeof daemon->socket, "%s/socket", daemon->top);
  assert_int_equal(mkdir(daemon->workspace, 0755), 0);
  memcpy(address.sun_path, daemon->socket, strlen(daemon->socket));
  int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(listen(listener, 16), 0);
  return listener;
}

void daemon_start(struct daemon *daemon, const char *const *arguments) {
  const char *all[16] = {"sandboxd", "serve", "--listen-fd", "20", "--workspace", daemon->workspace};
  size_t count = 6;
  int listener = daemon_listen(daemon);
  for (; arguments && *arguments; arguments++)
    all[count++] = *arguments;
  daemon->pid = fork();
  if (daemon->pid == 0) {
    dup2(listener, 20);
    dup2(listener, 33); /* one that it must not keep */
    execv(client_program, (char **)(uintptr_t)all);
    _exit(126);
  }
  close(listener);
}

int daemon_wait(struct daemon *daemon, int milliseconds) {
  int status;
  struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, daemon->pid, 0), .events = POLLIN};
  assert_true(end.fd >= 0);
  int ended = poll(&end, 1, milliseconds);
  close(end.fd);
  if (ended != 1)
    return -1;
  assert_int_equal(waitpid(daemon->pid, &status, 0), daemon->pid);
  daemon->pid = 0;
  return status;
}

void daemon_stop(struct daemon *daemon) {
  if (daemon->pid) {
    kill(daemon->pid, SIGKILL);
    waitpid(daemon->pid, NULL, 0);
  }
  daemon->pid = 0;
  if (daemon->top[0])
    tree_remove(daemon->top);
  daemon->top[0] = 0;
}

/* --- connections --- */

void client_open(struct client *client, int input, int output) {
  static const struct wire_events events;
  const struct wire_options options = {.role = WIRE_CLIENT,
                                       .message_limit = 192 * 1024,
                                       .call_window = 512 * 1024,
                                       .calls_limit = 512,
                                       .output_limit = 65536};
  *client = (struct client){.input = input, .output = output};
  fcntl(input, F_SETFL, O_NONBLOCK);
  fcntl(output, F_SETFL, O_NONBLOCK);
  client->wire = wire_new(&options, &events, client);
  assert_non_null(client->wire);
}

void client_connect(struct client *client, const struct daemon *daemon) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  memcpy(address.sun_path, daemon->socket, strlen(daemon->socket));
  int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(descriptor, (struct sockaddr *)&address, sizeof address), 0);
  client_open(client, descriptor, fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
}

void client_close(struct client *client) {
  wire_free(client->wire);
  client->wire = NULL;
  close(client->input);
  close(client->output);
}

static bool write_all(struct client *client) {
  const uint8_t *bytes;
  for (long length; (length = wire_transmit(client->wire, &bytes, NULL)) != 0;) {
    if (length < 0)
      return false;
    while (length > 0) {
      ssize_t written = write(client->output, bytes, (size_t)length);
      if (written < 0 && errno != EAGAIN)
        return false;
      if (written < 0)
        poll(&(struct pollfd){.fd = client->output, .events = POLLOUT}, 1, 1000);
      else
        bytes += written, length -= written;
    }
  }
  return true;
}

void client_step(struct client *client, int milliseconds) {
  static uint8_t bytes[65536];
  if (!client->broken && !write_all(client))
    client->broken = true;
  struct pollfd wait = {.fd = client->broken || client->stopped ? -1 : client->input, .events = POLLIN};
  if (poll(&wait, 1, milliseconds) <= 0)
    return;
  ssize_t length = read(client->input, bytes, sizeof bytes);
  if (length == 0 || (length < 0 && errno != EAGAIN) ||
      (length > 0 && wire_receive(client->wire, bytes, (size_t)length, NULL)))
    client->broken = true;
  if (!client->broken && !write_all(client))
    client->broken = true;
}

void client_until(struct client *client, const bool *done) {
  int64_t limit = client_now() + PATIENCE;
  while (!*done) {
    client_step(client, 50);
    if (client_now() > limit)
      fail_msg("nothing happened for too long");
    if (client->broken && !*done)
      fail_msg("the connection broke");
  }
}

void client_for(struct client *client, int milliseconds) {
  int64_t limit = client_now() + milliseconds;
  for (int64_t left; (left = limit - client_now()) > 0;)
    client_step(client, (int)left);
}

/* --- calls --- */

static void talk_message(struct wire_call *call, void *context, const uint8_t *bytes, size_t length) {
  struct talk *talk = context;
  talk->message(talk, bytes, length);
  talk->held += length;
  if (!talk->hold) {
    wire_call_consume(call, talk->held);
    talk->held = 0;
  }
}

static void talk_ended(struct wire_call *call, void *context, int status, const char *text) {
  struct talk *talk = context;
  (void)call;
  talk->call = NULL;
  talk->over = true;
  talk->status = status;
  snprintf(talk->text, sizeof talk->text, "%s", text);
}

static const struct wire_call_events talk_events = {.message = talk_message, .ended = talk_ended};

void talk_start(struct talk *talk, struct client *client, const char *method) {
  char path[80];
  snprintf(path, sizeof path, "/sandbox.agent.v1.AgentService/%s", method);
  talk->client = client;
  talk->over = false;
  talk->call = wire_call_start(client->wire, path, &talk_events, talk);
  assert_non_null(talk->call);
}

void talk_send(struct talk *talk, const ProtobufCMessage *message) {
  size_t length;
  uint8_t *bytes = message_pack(message, &length);
  assert_non_null(bytes);
  if (talk->call)
    wire_call_send_owned(talk->call, bytes, length);
  else
    memory_free(bytes);
}

void talk_consume(struct talk *talk) {
  talk->hold = false;
  if (talk->call)
    wire_call_consume(talk->call, talk->held);
  talk->held = 0;
}

void talk_reset(struct talk *talk) {
  wire_call_cancel(talk->call);
  client_until(talk->client, &talk->over);
}

bool talk_failed_for(const struct talk *talk, const char *reason) {
  size_t length = strlen(reason);
  return talk->over && talk->status != WIRE_OK && !strncmp(talk->text, reason, length) && talk->text[length] == ' ';
}

struct configure {
  struct talk talk;
  uint8_t instance[16];
  bool answered;
};

static void configure_message(struct talk *talk, const uint8_t *bytes, size_t length) {
  struct configure *configure = (void *)talk;
  Sandbox__Agent__V1__ConfigureResponse *response =
      (void *)message_unpack(&sandbox__agent__v1__configure_response__descriptor, bytes, length, NULL);
  assert_non_null(response);
  assert_int_equal(response->protocol, 1);
  assert_int_equal(response->instance.len, 16);
  memcpy(configure->instance, response->instance.data, 16);
  configure->answered = true;
  protobuf_c_message_free_unpacked(&response->base, NULL);
}

void client_configure(struct client *client, uint64_t deadline, uint64_t orphan, uint64_t reattach, uint8_t *instance) {
  struct configure configure = {.talk.message = configure_message};
  Sandbox__Agent__V1__ConfigureRequest request = SANDBOX__AGENT__V1__CONFIGURE_REQUEST__INIT;
  request.protocol = 1;
  request.deadline_milliseconds = deadline;
  request.orphan_milliseconds = orphan;
  request.reattach_milliseconds = reattach;
  talk_start(&configure.talk, client, "Configure");
  talk_send(&configure.talk, &request.base);
  wire_call_half_close(configure.talk.call);
  client_until(client, &configure.talk.over);
  assert_int_equal(configure.talk.status, WIRE_OK);
  assert_true(configure.answered);
  if (instance)
    memcpy(instance, configure.instance, 16);
}

/* --- commands --- */

static void run_output(struct run *run, const Sandbox__Agent__V1__OutputChunk *chunk) {
  assert_in_range(chunk->stream, 1, 2);
  assert_in_range(chunk->data.len, 1, 131072);
  struct buffer *output = &run->output[chunk->stream - 1];
  assert_int_equal(chunk->offset, run->begin[chunk->stream - 1] + output->length);
  assert_int_equal(buffer_append(output, chunk->data.data, chunk->data.len), 0);
}

static void run_message(struct talk *talk, const uint8_t *bytes, size_t length) {
  struct run *run = (void *)talk;
  Sandbox__Agent__V1__RunResponse *response =
      (void *)message_unpack(&sandbox__agent__v1__run_response__descriptor, bytes, length, NULL);
  assert_non_null(response);
  assert_false(run->ended);
  assert_true(run->started == (response->response_case != SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_STARTED));
  switch (response->response_case) {
  case SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_STARTED:
    run->started = true;
    run->stdin_offset = response->started->stdin_offset;
    break;
  case SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_OUTPUT:
    run_output(run, response->output);
    break;
  case SANDBOX__AGENT__V1__RUN_RESPONSE__RESPONSE_END:
    run->ended = true;
    run->ended_by = response->end->ended_by;
    run->exit_code = response->end->exit_code;
    run->signal = response->end->signal;
    run->totals[0] = response->end->stdout_bytes;
    run->totals[1] = response->end->stderr_bytes;
    break;
  default:
    fail_msg("an empty response");
  }
  protobuf_c_message_free_unpacked(&response->base, NULL);
}

void run_start(struct run *run, struct client *client, const char *command, const struct run_options *options) {
  static const struct run_options none;
  Sandbox__Agent__V1__RunStart start = SANDBOX__AGENT__V1__RUN_START__INIT;
  Sandbox__Agent__V1__RunRequest request = SANDBOX__AGENT__V1__RUN_REQUEST__INIT;
  options = options ? options : &none;
  memset(run, 0, sizeof *run);
  run->talk.message = run_message;
  buffer_init(&run->output[0], 256u << 20);
  buffer_init(&run->output[1], 256u << 20);
  if (options->id)
    memcpy(run->id, options->id, 16);
  else
    assert_int_equal(getrandom(run->id, 16, 0), 16);
  start.id.data = run->id;
  start.id.len = 16;
  start.command = (char *)(uintptr_t)command;
  start.cwd = (char *)(uintptr_t)(options->cwd ? options->cwd : "/");
  start.timeout_milliseconds = options->timeout;
  start.output_limit_bytes = options->limit;
  start.stdin = options->input;
  request.request_case = SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_START;
  request.start = &start;
  talk_start(&run->talk, client, "Run");
  talk_send(&run->talk, &request.base);
}

void run_attach_at(struct run *run, struct client *client, uint64_t out, uint64_t err) {
  Sandbox__Agent__V1__RunAttach attach = SANDBOX__AGENT__V1__RUN_ATTACH__INIT;
  Sandbox__Agent__V1__RunRequest request = SANDBOX__AGENT__V1__RUN_REQUEST__INIT;
  run->started = run->ended = false;
  attach.id.data = run->id;
  attach.id.len = 16;
  attach.stdout_offset = out;
  attach.stderr_offset = err;
  request.request_case = SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_ATTACH;
  request.attach = &attach;
  talk_start(&run->talk, client, "Run");
  talk_send(&run->talk, &request.base);
}

void run_attach(struct run *run, struct client *client) {
  run_attach_at(run, client, run->begin[0] + run->output[0].length, run->begin[1] + run->output[1].length);
}

void run_stdin(struct run *run, uint64_t offset, const void *bytes, size_t length) {
  Sandbox__Agent__V1__StdinChunk chunk = SANDBOX__AGENT__V1__STDIN_CHUNK__INIT;
  Sandbox__Agent__V1__RunRequest request = SANDBOX__AGENT__V1__RUN_REQUEST__INIT;
  chunk.offset = offset;
  chunk.data.data = (uint8_t *)(uintptr_t)bytes;
  chunk.data.len = length;
  request.request_case = SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_STDIN;
  request.stdin = &chunk;
  talk_send(&run->talk, &request.base);
}

void run_stdin_end(struct run *run) {
  Sandbox__Agent__V1__StdinEnd end = SANDBOX__AGENT__V1__STDIN_END__INIT;
  Sandbox__Agent__V1__RunRequest request = SANDBOX__AGENT__V1__RUN_REQUEST__INIT;
  request.request_case = SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_STDIN_END;
  request.stdin_end = &end;
  talk_send(&run->talk, &request.base);
}

void run_signal(struct run *run, int number) {
  Sandbox__Agent__V1__Signal signal = SANDBOX__AGENT__V1__SIGNAL__INIT;
  Sandbox__Agent__V1__RunRequest request = SANDBOX__AGENT__V1__RUN_REQUEST__INIT;
  signal.number = number;
  request.request_case = SANDBOX__AGENT__V1__RUN_REQUEST__REQUEST_SIGNAL;
  request.signal = &signal;
  talk_send(&run->talk, &request.base);
}

void run_wait(struct run *run) { client_until(run->talk.client, &run->talk.over); }

void run_wait_for(struct run *run, const char *text) {
  int64_t limit = client_now() + PATIENCE;
  while (!strstr(buffer_text(&run->output[0]), text)) {
    client_step(run->talk.client, 50);
    if (client_now() > limit || run->talk.over)
      fail_msg("\"%s\" did not come", text);
  }
}

void run_free(struct run *run) {
  assert_true(run->talk.over);
  buffer_free(&run->output[0]);
  buffer_free(&run->output[1]);
}

/* --- files --- */

static void file_read_message(struct talk *talk, const uint8_t *bytes, size_t length) {
  struct file_read *read = (void *)talk;
  Sandbox__Agent__V1__ReadFileResponse *response =
      (void *)message_unpack(&sandbox__agent__v1__read_file_response__descriptor, bytes, length, NULL);
  assert_non_null(response);
  if (response->response_case == SANDBOX__AGENT__V1__READ_FILE_RESPONSE__RESPONSE_INFO) {
    assert_false(read->informed);
    read->informed = true;
    read->size = response->info->size_bytes;
    read->digest = response->info->sha256.len == 32;
    if (read->digest)
      memcpy(read->sha256, response->info->sha256.data, 32);
  } else {
    assert_true(read->informed);
    assert_in_range(response->data.len, 1, 131072);
    assert_int_equal(buffer_append(&read->data, response->data.data, response->data.len), 0);
  }
  protobuf_c_message_free_unpacked(&response->base, NULL);
}

void file_read_start(struct file_read *read, struct client *client, const char *path, uint64_t max, bool digest) {
  Sandbox__Agent__V1__ReadFileRequest request = SANDBOX__AGENT__V1__READ_FILE_REQUEST__INIT;
  memset(read, 0, sizeof *read);
  read->talk.message = file_read_message;
  buffer_init(&read->data, 256u << 20);
  request.path = (char *)(uintptr_t)path;
  request.max_bytes = max;
  request.digest = digest;
  talk_start(&read->talk, client, "ReadFile");
  talk_send(&read->talk, &request.base);
  wire_call_half_close(read->talk.call);
}

void file_read_free(struct file_read *read) { buffer_free(&read->data); }

static void file_write_message(struct talk *talk, const uint8_t *bytes, size_t length) {
  struct file_write *write = (void *)talk;
  (void)bytes;
  assert_int_equal(length, 0);
  assert_false(write->answered);
  write->answered = true;
}

void file_write_start(struct file_write *write, struct client *client, const char *path, uint64_t size,
                      const uint8_t *sha256, bool make_parents) {
  Sandbox__Agent__V1__FileInfo file = SANDBOX__AGENT__V1__FILE_INFO__INIT;
  Sandbox__Agent__V1__WriteFileInfo info = SANDBOX__AGENT__V1__WRITE_FILE_INFO__INIT;
  Sandbox__Agent__V1__WriteFileRequest request = SANDBOX__AGENT__V1__WRITE_FILE_REQUEST__INIT;
  memset(write, 0, sizeof *write);
  write->talk.message = file_write_message;
  file.size_bytes = size;
  file.sha256.data = (uint8_t *)(uintptr_t)sha256;
  file.sha256.len = sha256 ? 32 : 0;
  info.path = (char *)(uintptr_t)path;
  info.file = &file;
  info.make_parents = make_parents;
  request.request_case = SANDBOX__AGENT__V1__WRITE_FILE_REQUEST__REQUEST_INFO;
  request.info = &info;
  talk_start(&write->talk, client, "WriteFile");
  talk_send(&write->talk, &request.base);
}

void file_write_data(struct file_write *write, const void *bytes, size_t length) {
  Sandbox__Agent__V1__WriteFileRequest request = SANDBOX__AGENT__V1__WRITE_FILE_REQUEST__INIT;
  request.request_case = SANDBOX__AGENT__V1__WRITE_FILE_REQUEST__REQUEST_DATA;
  request.data.data = (uint8_t *)(uintptr_t)bytes;
  request.data.len = length;
  talk_send(&write->talk, &request.base);
}

void file_write_finish(struct file_write *write) {
  if (write->talk.call)
    wire_call_half_close(write->talk.call);
  client_until(write->talk.client, &write->talk.over);
}
