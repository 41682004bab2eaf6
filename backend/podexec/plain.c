/*
 * sandboxd's place taken in this process: the wire, Configure, and what commands and files share. See plain.h.
 */
#include "backend/podexec/plain_internal.h"

#include "backend/podexec/script.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/limits.h"
#include "base/memory.h"
#include "base/message.h"
#include <stdio.h>
#include <string.h>

#define PROTOCOL 1
#define INSTANCE_BYTES 16
#define INPUT_BYTES (16 * 1024 * 1024)
#define MESSAGE_BYTES (LIMIT_COMMAND_BYTES + LIMIT_ENV_BYTES + 65536)
#define CALL_WINDOW (256 * 1024)
#define CALLS 512
#define OUTPUT_LIMIT (64 * 1024)
#define OPEN_TIMEOUT (20 * CLOCK_SECOND)

struct killing {
  struct plain_work work; /* first */
  struct run *run;
  struct plain_words words;
};

struct plain {
  uv_loop_t *loop;
  struct podexec_options where; /* its strings are ours: runs may need them until they are closed */
  struct plain_events events;
  struct wire *wire;
  struct buffer input;
  uv_idle_t idle; /* active while something is to be done */
  bool freed, configured;
  uint8_t instance[INSTANCE_BYTES];
  struct plain_work *works;
};

/* --- scripts --- */

int plain_line_read(struct plain_line *line, const uint8_t *bytes, size_t length, size_t *used) {
  static const char ours[] = "sandboxd: ";
  for (*used = 0; *used < length && !line->complete;) {
    char byte = (char)bytes[(*used)++];
    line->complete = byte == '\n';
    if (line->length == PLAIN_LINE - 1)
      return -1;
    line->text[line->length++] = line->complete ? '\0' : byte;
  }
  size_t compare = line->length < sizeof ours - 1 ? line->length : sizeof ours - 1;
  return memcmp(line->text, ours, compare) == 0 && !memchr(line->text, '\0', line->length - line->complete) ? 0 : -1;
}

int plain_words_add(struct plain_words *words, const char *text) {
  char *copy = words->count < PLAIN_WORDS ? memory_string(text) : NULL;
  if (!copy)
    return -1;
  words->words[words->count++] = copy;
  return 0;
}

int plain_words_add_number(struct plain_words *words, uint64_t number) {
  char text[24];
  snprintf(text, sizeof text, "%llu", (unsigned long long)number);
  return plain_words_add(words, text);
}

void plain_words_free(struct plain_words *words) {
  for (size_t i = 0; i < words->count; i++)
    memory_free(words->words[i]);
  words->count = 0;
}

const char *plain_workspace(const struct plain *plain) {
  return plain->where.workspace ? plain->where.workspace : "/workspace";
}

uv_loop_t *plain_loop(const struct plain *plain) {
  return plain->loop;
}

static int make_target(void *context, struct buffer *out, const char *prefix) {
  const struct plain_words *words = context;
  return script_target(out, prefix, words->where, (const char *const *)(const void *)words->words);
}

struct run *plain_run(struct plain *plain, struct plain_words *words, const struct run_events *events) {
  const struct run_options options = {
      .access = plain->where.access, .target = make_target, .target_context = words, .timeout = OPEN_TIMEOUT};
  words->where = &plain->where;
  return run_open(plain->loop, &options, events);
}

/* --- killing --- */

void plain_work_add(struct plain *plain, struct plain_work *work) {
  work->next = plain->works;
  work->link = &plain->works;
  if (work->next)
    work->next->link = &work->next;
  plain->works = work;
}

void plain_work_remove(struct plain_work *work) {
  if (!work->link)
    return;
  *work->link = work->next;
  if (work->next)
    work->next->link = work->link;
  work->link = NULL;
}

static void killing_free(struct plain_work *work) {
  struct killing *killing = (struct killing *)(void *)work;
  plain_work_remove(work);
  run_close(killing->run);
  plain_words_free(&killing->words);
  memory_free(killing);
}

static void on_kill_event(void *context) {
  (void)context;
}

static void on_kill_output(void *context, int channel, const uint8_t *bytes, size_t length) {
  (void)context;
  (void)channel;
  (void)bytes;
  (void)length;
}

static void on_kill_ended(void *context, const struct channels_end *end, struct error *err) {
  (void)end;
  (void)err;
  struct killing *killing = context;
  killing_free(&killing->work);
}

void plain_kill(struct plain *plain, int pid, int number) {
  static const char script[] = "kill -\"$2\" -\"$1\" 2>/dev/null || kill -\"$2\" \"$1\"";
  struct killing *killing = memory_zero(sizeof *killing);
  if (!killing)
    return;
  const struct run_events events = {.opened = on_kill_event,
                                    .output = on_kill_output,
                                    .drained = on_kill_event,
                                    .ended = on_kill_ended,
                                    .context = killing};
  struct plain_words *words = &killing->words;
  killing->work.abandon = killing_free;
  plain_work_add(plain, &killing->work);
  if (plain_words_add(words, "sh") == 0 && plain_words_add(words, "-c") == 0 && plain_words_add(words, script) == 0 &&
      plain_words_add(words, "sh") == 0 && plain_words_add_number(words, (uint64_t)pid) == 0 &&
      plain_words_add_number(words, (uint64_t)number) == 0)
    killing->run = plain_run(plain, words, &events);
  if (!killing->run)
    killing_free(&killing->work);
}

/* --- answers --- */

int plain_send(struct wire_call *call, const ProtobufCMessage *message) {
  size_t length;
  uint8_t *packed = message_pack(message, &length);
  return packed ? wire_call_send_owned(call, packed, length) : -1;
}

void plain_fail(struct wire_call *call, enum reason reason, const char *text) {
  char whole[512];
  snprintf(whole, sizeof whole, "%s %s", reason_name(reason), text);
  wire_call_finish(call, reason_grpc_code(reason), whole);
}

static void configure(struct plain *plain, struct wire_call *call, const uint8_t *bytes, size_t length) {
  Sandbox__Agent__V1__ConfigureResponse response = SANDBOX__AGENT__V1__CONFIGURE_RESPONSE__INIT;
  Sandbox__Agent__V1__ConfigureRequest *request =
      (void *)message_unpack(&sandbox__agent__v1__configure_request__descriptor, bytes, length, NULL);
  if (!request || request->protocol != PROTOCOL) {
    plain_fail(call, REASON_INVALID_REQUEST, "not this protocol");
  } else {
    plain->configured = true;
    response.protocol = PROTOCOL;
    response.instance = (ProtobufCBinaryData){.data = plain->instance, .len = INSTANCE_BYTES};
    bool sent = plain_send(call, &response.base) == 0;
    wire_call_finish(call, sent ? WIRE_OK : WIRE_RESOURCE_EXHAUSTED, sent ? "" : "INTERNAL out of memory");
  }
  if (request)
    protobuf_c_message_free_unpacked(&request->base, NULL);
}

static void on_configure_message(struct wire_call *call, void *context, const uint8_t *bytes, size_t length) {
  configure(context, call, bytes, length);
  wire_call_consume(call, length);
}

static void on_configure_half_closed(struct wire_call *call, void *context) {
  (void)context;
  wire_call_finish(call, WIRE_UNKNOWN, "INVALID_REQUEST there is no message"); /* does nothing behind an answer */
}

static void on_configure_ended(struct wire_call *call, void *context, int status, const char *text) {
  (void)call;
  (void)context;
  (void)status;
  (void)text;
}

static void on_call(struct wire *wire, void *context, struct wire_call *call, const char *path) {
  static const struct wire_call_events configuring = {
      .message = on_configure_message, .half_closed = on_configure_half_closed, .ended = on_configure_ended};
  static const char prefix[] = "/sandbox.agent.v1.AgentService/";
  struct plain *plain = context;
  const char *method = strncmp(path, prefix, sizeof prefix - 1) ? "" : path + sizeof prefix - 1;
  (void)wire;
  if (!strcmp(method, "Configure"))
    wire_call_accept(call, &configuring, plain);
  else if (!plain->configured)
    plain_fail(call, REASON_INVALID_REQUEST, "the first call must be Configure");
  else if (!strcmp(method, "Run"))
    plain_command_opened(plain, call);
  else if (!strcmp(method, "ReadFile"))
    plain_read_opened(plain, call);
  else if (!strcmp(method, "WriteFile"))
    plain_write_opened(plain, call);
  else
    wire_call_finish(call, WIRE_UNIMPLEMENTED, "");
}

/* --- moving bytes --- */

static int take_input(struct plain *plain, struct error **err) {
  if (plain->input.length == 0)
    return 0;
  int result = wire_receive(plain->wire, plain->input.data, plain->input.length, err);
  buffer_free(&plain->input);
  if (result == 0)
    plain->events.drained(plain->events.context);
  return result;
}

/* The session takes what it gets, and does not call back but by plain_receive and plain_free. */
static int give_output(struct plain *plain, struct error **err) {
  const uint8_t *bytes;
  long length = 0;
  while (!plain->freed && (length = wire_transmit(plain->wire, &bytes, err)) > 0)
    plain->events.output(plain->events.context, bytes, (size_t)length);
  return length < 0 ? -1 : 0;
}

static void forget(const char *text) {
  memory_free((void *)(uintptr_t)text);
}

static void release(struct plain *plain) {
  wire_free(plain->wire);
  while (plain->works)
    plain->works->abandon(plain->works);
  buffer_free(&plain->input);
  forget(plain->where.namespace_);
  forget(plain->where.pod);
  forget(plain->where.container);
  forget(plain->where.workspace);
  memory_free(plain);
}

static void on_closed(uv_handle_t *handle) {
  release(handle->data);
}

static void on_idle(uv_idle_t *idle) {
  struct plain *plain = idle->data;
  CLEANUP_ERROR struct error *err = NULL;
  uv_idle_stop(idle);
  if (take_input(plain, &err) != 0 || give_output(plain, &err) != 0)
    if (!plain->freed)
      plain->events.broken(plain->events.context, err);
}

void plain_schedule(struct plain *plain) {
  if (!plain->freed)
    uv_idle_start(&plain->idle, on_idle);
}

static int copy_where(struct plain *plain, const struct podexec_options *where) {
  plain->where = (struct podexec_options){.access = where->access, .program = where->program};
  plain->where.namespace_ = memory_string(where->namespace_);
  plain->where.pod = memory_string(where->pod);
  plain->where.container = where->container ? memory_string(where->container) : NULL;
  plain->where.workspace = where->workspace ? memory_string(where->workspace) : NULL;
  bool whole = plain->where.namespace_ && plain->where.pod && (plain->where.container || !where->container) &&
               (plain->where.workspace || !where->workspace);
  return whole ? 0 : -1;
}

struct plain *plain_new(uv_loop_t *loop, const struct podexec_options *where, const struct plain_events *events) {
  static const struct wire_options options = {.role = WIRE_SERVER,
                                              .message_limit = MESSAGE_BYTES,
                                              .call_window = CALL_WINDOW,
                                              .calls_limit = CALLS,
                                              .output_limit = OUTPUT_LIMIT};
  static const struct wire_events wire_events = {.opened = on_call};
  struct plain *plain = memory_zero(sizeof *plain);
  if (!plain)
    return NULL;
  plain->wire = wire_new(&options, &wire_events, plain);
  buffer_init(&plain->input, INPUT_BYTES);
  if (copy_where(plain, where) != 0 || !plain->wire) {
    release(plain);
    return NULL;
  }
  plain->loop = loop;
  plain->events = *events;
  random_bytes(plain->instance, sizeof plain->instance);
  uv_idle_init(loop, &plain->idle);
  plain->idle.data = plain;
  plain_schedule(plain);
  return plain;
}

int plain_receive(struct plain *plain, const uint8_t *bytes, size_t length) {
  plain_schedule(plain);
  return buffer_append(&plain->input, bytes, length);
}

size_t plain_queued(const struct plain *plain) {
  return plain->input.length;
}

void plain_free(struct plain *plain) {
  if (!plain || plain->freed)
    return;
  plain->freed = true;
  uv_close((uv_handle_t *)&plain->idle, on_closed);
}
