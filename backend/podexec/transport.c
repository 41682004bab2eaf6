/*
 * The transport through pods/exec: runs the script that brings sandboxd up, sends the program if it is wanted, and then
 * carries bytes. Where nothing can be brought up, it leads to plain.h instead, from then on. See podexec.h.
 */
#include "backend/podexec/podexec.h"
#include "backend/podexec/plain.h"
#include "backend/podexec/run.h"
#include "backend/podexec/script.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include <string.h>

#define OPEN_TIMEOUT (30 * CLOCK_SECOND) /* the session is less patient */
#define UPLOAD_HIGH (1024 * 1024)
#define LAST_WORDS 160 /* of standard error, for the log */

enum transport_state { TRANSPORT_IDLE, TRANSPORT_OPENING, TRANSPORT_STARTING, TRANSPORT_SENDING, TRANSPORT_JOINED };

struct transport_podexec {
  struct transport transport;
  uv_loop_t *loop;
  struct podexec_options options; /* strings are ours, behind the struct */
  struct transport_events events;
  enum transport_state state;
  struct run *run;
  bool plain_only;     /* the container said that nothing can be brought into it */
  struct plain *plain; /* joined to this instead of the run */
  struct script_reader reader;
  size_t sent; /* of the program */
  char words[LAST_WORDS + 1];
  size_t words_length;
  char strings[];
};

static struct transport_podexec *podexec_of(struct transport *transport) {
  return (struct transport_podexec *)(void *)transport;
}

/* --- its end --- */

static void drop(struct transport_podexec *transport) {
  struct run *run = transport->run;
  transport->run = NULL;
  struct plain *plain = transport->plain;
  transport->plain = NULL;
  transport->state = TRANSPORT_IDLE;
  run_close(run);
  plain_free(plain);
}

/* Tells that it ended, by `lost` or `connected`. */
static void end_with(struct transport_podexec *transport, struct error *err) {
  struct transport_events events = transport->events;
  bool joined = transport->state == TRANSPORT_JOINED;
  drop(transport);
  if (joined)
    events.lost(events.context, err);
  else
    events.connected(events.context, err);
}

static void end_for(struct transport_podexec *transport, const char *what) {
  CLEANUP_ERROR struct error *err = NULL;
  error_set_detail(&err, REASON_SANDBOX_NOT_READY, "pods/exec: %s", what);
  end_with(transport, err);
}

/* The last words on standard error say best what is wrong; they are the container's. */
static void on_ended(void *context, const struct channels_end *end, struct error *given) {
  struct transport_podexec *transport = context;
  CLEANUP_ERROR struct error *err = NULL;
  if (end && end->exited)
    error_set_detail(&err, REASON_SANDBOX_NOT_READY, "pods/exec: ended with code %d: %s", end->exit_code,
                     transport->words);
  else if (end)
    error_set_detail(&err, REASON_SANDBOX_NOT_READY, "pods/exec: %s", end->message);
  end_with(transport, err ? err : given);
}

/* --- bringing it up --- */

static void send_program(struct transport_podexec *transport) {
  const struct podexec_program *program = transport->options.program;
  while (transport->sent < program->length && run_queued(transport->run) < UPLOAD_HIGH) {
    size_t left = program->length - transport->sent;
    size_t some = left < RUN_MESSAGE_BYTES ? left : RUN_MESSAGE_BYTES;
    if (run_send(transport->run, program->bytes + transport->sent, some) != 0)
      return; /* its end is told */
    transport->sent += some;
  }
}

static void join(struct transport_podexec *transport) {
  transport->state = TRANSPORT_JOINED;
  transport->events.connected(transport->events.context, NULL);
}

static void on_plain_output(void *context, const uint8_t *bytes, size_t length) {
  struct transport_podexec *transport = context;
  transport->events.received(transport->events.context, bytes, length);
}

static void on_plain_drained(void *context) {
  struct transport_podexec *transport = context;
  transport->events.drained(transport->events.context);
}

static void on_plain_broken(void *context, struct error *err) {
  end_with(context, err);
}

static void join_plain(struct transport_podexec *transport) {
  const struct plain_events events = {
      .output = on_plain_output, .drained = on_plain_drained, .broken = on_plain_broken, .context = transport};
  if (!transport->plain_only)
    log_write(LOG_WARNING, "sandbox_without_agent", LOG_TEXT("pod", transport->options.pod));
  run_close(transport->run);
  transport->run = NULL;
  transport->plain_only = true;
  transport->plain = plain_new(transport->loop, &transport->options, &events);
  if (transport->plain)
    join(transport);
  else
    end_for(transport, "out of memory");
}

/* Takes what the script says; returns how many bytes were its. */
static size_t take_answer(struct transport_podexec *transport, const uint8_t *bytes, size_t length) {
  size_t used;
  switch (script_read(&transport->reader, bytes, length, &used)) {
  case SCRIPT_WANT:
    if (transport->state != TRANSPORT_STARTING) {
      end_for(transport, "the container asks for sandboxd again");
    } else {
      transport->state = TRANSPORT_SENDING;
      send_program(transport);
    }
    break;
  case SCRIPT_NONE:
    join_plain(transport);
    break;
  case SCRIPT_READY:
    join(transport);
    break;
  default:
    if (transport->reader.noise > SCRIPT_NOISE_BYTES)
      end_for(transport, "the container writes what it should not");
  }
  return used;
}

static void hear_words(struct transport_podexec *transport, const uint8_t *bytes, size_t length) {
  size_t some = length < LAST_WORDS ? length : LAST_WORDS;
  size_t keep = LAST_WORDS - some < transport->words_length ? LAST_WORDS - some : transport->words_length;
  memmove(transport->words, transport->words + transport->words_length - keep, keep);
  for (size_t i = 0; i < some; i++) {
    char letter = (char)bytes[length - some + i];
    transport->words[keep + i] = letter > ' ' && letter < 0x7f ? letter : ' ';
  }
  transport->words_length = keep + some;
  transport->words[transport->words_length] = '\0';
}

static void on_output(void *context, int channel, const uint8_t *bytes, size_t length) {
  struct transport_podexec *transport = context;
  if (channel == CHANNEL_STDERR) {
    hear_words(transport, bytes, length);
    return;
  }
  /* Once the run is closed, the transport may be gone. */
  const struct run *run = transport->run;
  while (length > 0 && !run_closed(run) && transport->state != TRANSPORT_JOINED) {
    size_t used = take_answer(transport, bytes, length);
    bytes += used;
    length -= used;
  }
  if (length > 0 && !run_closed(run))
    transport->events.received(transport->events.context, bytes, length);
}

static void on_opened(void *context) {
  struct transport_podexec *transport = context;
  transport->state = TRANSPORT_STARTING;
}

static void on_drained(void *context) {
  struct transport_podexec *transport = context;
  if (transport->state == TRANSPORT_SENDING)
    send_program(transport);
  else if (transport->state == TRANSPORT_JOINED)
    transport->events.drained(transport->events.context);
}

static int make_target(void *context, struct buffer *out, const char *prefix) {
  struct transport_podexec *transport = context;
  return script_target_start(out, prefix, &transport->options);
}

/* --- the transport's operations --- */

static void podexec_connect(struct transport *base, const struct transport_events *events) {
  struct transport_podexec *transport = podexec_of(base);
  const struct run_options options = {
      .access = transport->options.access, .target = make_target, .target_context = transport, .timeout = OPEN_TIMEOUT};
  const struct run_events run_events = {
      .opened = on_opened, .output = on_output, .drained = on_drained, .ended = on_ended, .context = transport};
  transport->events = *events;
  transport->reader = (struct script_reader){0};
  transport->sent = transport->words_length = 0;
  transport->words[0] = '\0';
  transport->state = TRANSPORT_OPENING;
  if (transport->plain_only) {
    join_plain(transport);
    return;
  }
  transport->run = run_open(transport->loop, &options, &run_events);
  if (transport->run)
    return;
  CLEANUP_ERROR struct error *err = NULL;
  error_set_memory(&err);
  end_with(transport, err);
}

static int podexec_write(struct transport *base, const uint8_t *bytes, size_t length) {
  struct transport_podexec *transport = podexec_of(base);
  if (transport->state != TRANSPORT_JOINED)
    return -1;
  return transport->plain ? plain_receive(transport->plain, bytes, length) : run_send(transport->run, bytes, length);
}

static size_t podexec_queued(const struct transport *base) {
  const struct transport_podexec *transport = (const struct transport_podexec *)(const void *)base;
  return transport->plain ? plain_queued(transport->plain) : transport->run ? run_queued(transport->run) : 0;
}

static void podexec_pause(struct transport *base, bool paused) {
  struct transport_podexec *transport = podexec_of(base);
  if (transport->run)
    run_pause(transport->run, paused);
}

static void podexec_disconnect(struct transport *base) {
  drop(podexec_of(base));
}

static void podexec_free(struct transport *base) {
  drop(podexec_of(base));
  memory_free(base);
}

/* Copies a string behind the struct. */
static const char *keep(char **at, const char *text) {
  if (!text)
    return NULL;
  size_t size = strlen(text) + 1;
  char *copy = memcpy(*at, text, size);
  *at += size;
  return copy;
}

static size_t size_of(const char *text) {
  return text ? strlen(text) + 1 : 0;
}

struct transport *transport_podexec_new(uv_loop_t *loop, const struct podexec_options *options) {
  static const struct transport_operations operations = {.connect = podexec_connect,
                                                         .write = podexec_write,
                                                         .queued = podexec_queued,
                                                         .pause = podexec_pause,
                                                         .disconnect = podexec_disconnect,
                                                         .free = podexec_free};
  size_t strings = size_of(options->namespace_) + size_of(options->pod) + size_of(options->container) +
                   size_of(options->installed) + size_of(options->workspace);
  struct transport_podexec *transport = memory_zero(sizeof *transport + strings);
  if (!transport)
    return NULL;
  char *at = transport->strings;
  transport->transport.operations = &operations;
  transport->loop = loop;
  transport->options = (struct podexec_options){.access = options->access,
                                                .program = options->program,
                                                .namespace_ = keep(&at, options->namespace_),
                                                .pod = keep(&at, options->pod),
                                                .container = keep(&at, options->container),
                                                .installed = keep(&at, options->installed),
                                                .workspace = keep(&at, options->workspace)};
  transport->plain_only = options->without_agent;
  return &transport->transport;
}
