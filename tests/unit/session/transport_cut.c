#include "tests/unit/session/transport_cut.h"

#include <stdlib.h>

static struct transport_cut *cut_of(const struct transport *transport) {
  return (struct transport_cut *)(void *)(uintptr_t)transport;
}

static void choose(struct transport_cut *cut) {
  cut->left = cut->most ? cut->least + (size_t)rand_r(&cut->seed) % (cut->most - cut->least + 1) : SIZE_MAX;
}

static void cut_now(struct transport_cut *cut) {
  cut->inner->operations->disconnect(cut->inner);
  cut->open = false;
  cut->cuts++;
  if (cut->times > 0 && --cut->times == 0)
    cut->most = 0;
}

static void on_connected(void *context, struct error *err) {
  struct transport_cut *cut = context;
  cut->open = err == NULL;
  choose(cut);
  cut->events.connected(cut->events.context, err);
}

static void on_received(void *context, const uint8_t *bytes, size_t length) {
  struct transport_cut *cut = context;
  if (length < cut->left) {
    cut->left -= length;
    cut->events.received(cut->events.context, bytes, length);
    return;
  }
  if (cut->left > 0)
    cut->events.received(cut->events.context, bytes, cut->left);
  if (!cut->open)
    return; /* the session has left by itself */
  struct error *err CLEANUP_ERROR = NULL;
  cut_now(cut);
  error_set_detail(&err, REASON_SANDBOX_NOT_READY, "cut while reading");
  cut->events.lost(cut->events.context, err);
}

static void on_drained(void *context) {
  struct transport_cut *cut = context;
  cut->events.drained(cut->events.context);
}

static void on_lost(void *context, struct error *err) {
  struct transport_cut *cut = context;
  cut->open = false;
  cut->events.lost(cut->events.context, err);
}

static void cut_connect(struct transport *transport, const struct transport_events *events) {
  struct transport_cut *cut = cut_of(transport);
  const struct transport_events own = {
      .connected = on_connected, .received = on_received, .drained = on_drained, .lost = on_lost, .context = cut};
  cut->events = *events;
  cut->inner->operations->connect(cut->inner, &own);
}

static int cut_write(struct transport *transport, const uint8_t *bytes, size_t length) {
  struct transport_cut *cut = cut_of(transport);
  if (!cut->open)
    return -1;
  if (length < cut->left) {
    cut->left -= length;
    return cut->inner->operations->write(cut->inner, bytes, length);
  }
  if (cut->left > 0)
    cut->inner->operations->write(cut->inner, bytes, cut->left);
  cut_now(cut);
  return -1;
}

static size_t cut_queued(const struct transport *transport) {
  struct transport_cut *cut = cut_of(transport);
  return cut->inner->operations->queued(cut->inner);
}

static void cut_pause(struct transport *transport, bool paused) {
  struct transport_cut *cut = cut_of(transport);
  cut->inner->operations->pause(cut->inner, paused);
}

static void cut_disconnect(struct transport *transport) {
  struct transport_cut *cut = cut_of(transport);
  cut->open = false;
  cut->inner->operations->disconnect(cut->inner);
}

static void cut_free(struct transport *transport) {
  struct transport_cut *cut = cut_of(transport);
  cut->open = false;
  cut->inner->operations->free(cut->inner);
}

void transport_cut_init(struct transport_cut *cut, struct transport *inner) {
  static const struct transport_operations operations = {.connect = cut_connect,
                                                         .write = cut_write,
                                                         .queued = cut_queued,
                                                         .pause = cut_pause,
                                                         .disconnect = cut_disconnect,
                                                         .free = cut_free};
  *cut = (struct transport_cut){.transport = {.operations = &operations}, .inner = inner, .left = SIZE_MAX};
}

void transport_cut_every(struct transport_cut *cut, size_t least, size_t most, unsigned seed) {
  cut->least = least;
  cut->most = most;
  cut->seed = seed;
  cut->times = 0;
  choose(cut);
}

void transport_cut_times(struct transport_cut *cut, unsigned times, size_t bytes) {
  transport_cut_every(cut, bytes, bytes, 1);
  cut->times = times;
}
