/*
 * Running one program in a container: see run.h.
 */
#include "backend/podexec/run.h"

#include "base/log.h"
#include "base/memory.h"
#include <stdio.h>
#include <string.h>

#define TARGET_BYTES 65536

struct run {
  uv_loop_t *loop;
  struct run_options options;
  struct run_events events;
  void *asked; /* for credentials; NULL: not, or not any more */
  bool granted;
  struct websocket *websocket;
  struct channels channels;
  bool opened, over, closed;
  uv_idle_t later; /* tells of a failure in the next turn of the loop */
  struct error *failure;
};

static const char *const run_protocol = "v5.channel.k8s.io";

/* --- its end --- */

static void end_with(struct run *run, const struct channels_end *end, struct error *err) {
  if (run->over)
    return;
  run->over = true;
  run->events.ended(run->events.context, end, err);
}

static void on_later(uv_idle_t *idle) {
  struct run *run = idle->data;
  CLEANUP_ERROR struct error *failure = run->failure;
  run->failure = NULL;
  uv_idle_stop(idle);
  end_with(run, NULL, failure);
}

/* Takes *err over. */
static void fail_later(struct run *run, struct error **err) {
  run->failure = *err;
  *err = NULL;
  uv_idle_start(&run->later, on_later);
}

/* --- events of the websocket --- */

static void on_opened(void *context) {
  struct run *run = context;
  run->opened = true;
  run->events.opened(run->events.context);
}

static void on_output(void *context, int channel, const uint8_t *bytes, size_t length) {
  struct run *run = context;
  if (!run->over && !run->closed)
    run->events.output(run->events.context, channel, bytes, length);
}

static void on_received(void *context, const uint8_t *bytes, size_t length, bool first, bool last) {
  static const struct channels_events events = {.output = on_output};
  struct run *run = context;
  CLEANUP_ERROR struct error *err = NULL;
  if (run->over || channels_receive(&run->channels, bytes, length, first, last, &events, run, &err) == 0 || run->closed)
    return;
  end_with(run, NULL, err);
}

static void on_drained(void *context) {
  struct run *run = context;
  if (!run->over)
    run->events.drained(run->events.context);
}

/* What the program's end was comes in front of the connection's. */
static void on_lost(void *context, struct error *err) {
  struct run *run = context;
  struct channels_end end;
  CLEANUP_ERROR struct error *wrong = NULL;
  if (channels_end_read(&run->channels, &end, &wrong) != 0)
    end_with(run, NULL, wrong);
  else if (end.told)
    end_with(run, &end, NULL);
  else
    end_with(run, NULL, err);
}

static void on_refused(void *context, const struct websocket_refusal *refusal) {
  struct run *run = context;
  CLEANUP_ERROR struct error *err = NULL;
  char message[256];
  channels_status_message(refusal->body, refusal->body_length, message, sizeof message);
  if (refusal->status == 401 && run->options.access->refused)
    run->options.access->refused(run->options.access->context);
  error_set_detail(&err, refusal->status == 404 ? REASON_LEASE_NOT_FOUND : REASON_SANDBOX_NOT_READY,
                   "pods/exec: the API server answers %d: %s", refusal->status, message);
  if (refusal->retry_after > 0)
    error_set_retry_after(err, refusal->retry_after);
  end_with(run, NULL, err);
}

/* --- opening --- */

static int open_websocket(struct run *run, const struct podexec_endpoint *endpoint, struct error **err) {
  static const struct websocket_events parts = {.opened = on_opened,
                                                .received = on_received,
                                                .drained = on_drained,
                                                .refused = on_refused,
                                                .lost = on_lost};
  struct websocket_events events = parts;
  CLEANUP_BUFFER struct buffer target;
  buffer_init(&target, TARGET_BYTES);
  if (run->options.target(run->options.target_context, &target, endpoint->prefix) != 0)
    return error_set_memory(err);
  const struct websocket_request request = {.endpoint = &endpoint->websocket,
                                            .target = buffer_text(&target),
                                            .protocol = run_protocol,
                                            .timeout = run->options.timeout};
  events.context = run;
  run->websocket = websocket_open(run->loop, &request, &events);
  return run->websocket ? 0 : error_set_memory(err);
}

static void on_granted(void *context, const struct podexec_endpoint *endpoint, struct error *given) {
  struct run *run = context;
  CLEANUP_ERROR struct error *err = NULL;
  run->asked = NULL;
  run->granted = true;
  if (!endpoint)
    error_set_detail(&err, REASON_SANDBOX_NOT_READY, "credentials: %s", error_detail(given));
  else if (open_websocket(run, endpoint, &err) == 0)
    return;
  fail_later(run, &err);
}

struct run *run_open(uv_loop_t *loop, const struct run_options *options, const struct run_events *events) {
  struct run *run = memory_zero(sizeof *run);
  if (!run)
    return NULL;
  run->loop = loop;
  run->options = *options;
  run->events = *events;
  channels_init(&run->channels);
  uv_idle_init(loop, &run->later);
  run->later.data = run;
  void *asked = options->access->ask(options->access->context, on_granted, run);
  if (!run->granted)
    run->asked = asked;
  if (!asked && !run->granted) {
    CLEANUP_ERROR struct error *err = NULL;
    error_set_memory(&err);
    fail_later(run, &err);
  }
  return run;
}

/* --- use --- */

int run_send(struct run *run, const uint8_t *bytes, size_t length) {
  if (!run->opened || run->over)
    return -1;
  while (length > 0) {
    size_t some = length < RUN_MESSAGE_BYTES ? length : RUN_MESSAGE_BYTES;
    if (websocket_send(run->websocket, CHANNEL_STDIN, bytes, some) != 0)
      return -1;
    bytes += some;
    length -= some;
  }
  return 0;
}

int run_send_end(struct run *run) {
  static const uint8_t stream = CHANNEL_STDIN;
  return run->opened && !run->over ? websocket_send(run->websocket, CHANNEL_CLOSE, &stream, 1) : -1;
}

size_t run_queued(const struct run *run) {
  return run->websocket ? websocket_queued(run->websocket) : 0;
}

void run_pause(struct run *run, bool paused) {
  if (run->websocket)
    websocket_pause(run->websocket, paused);
}

bool run_closed(const struct run *run) {
  return run->closed;
}

static void on_closed(uv_handle_t *handle) {
  struct run *run = handle->data;
  channels_free(&run->channels);
  error_free(&run->failure);
  memory_free(run);
}

void run_close(struct run *run) {
  if (!run || run->closed)
    return;
  run->closed = run->over = true;
  if (run->asked)
    run->options.access->cancel(run->options.access->context, run->asked);
  run->asked = NULL;
  if (run->websocket)
    websocket_close(run->websocket);
  uv_close((uv_handle_t *)&run->later, on_closed);
}
