#include "tests/unit/server/harness.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/memory.h"
#include "server/acceptor.h"
#include "server/health.h"
#include "server/reflection.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct harness {
  uv_loop_t loop;
  uv_async_t wish;
  pthread_t thread;
  pthread_mutex_t mutex;
  bool stop_wished, ready_wished; /* under the mutex */
  uint64_t grace;
  bool is_ready, is_stopping; /* the loop's */

  struct key_ring *ring;
  struct plumbing_service service;
  struct health *health;
  struct reflection *reflection;
  struct acceptor *acceptor;
  char folder[64], address[128];
};

static void must(bool fact, const char *what) {
  if (fact)
    return;
  fprintf(stderr, "harness: %s\n", what);
  abort();
}

static bool is_ready(void *context) { return ((struct harness *)context)->is_ready; }

/* The loop's thread */

static void stopped(void *context) {
  struct harness *harness = context;
  acceptor_free(harness->acceptor);
  uv_close((uv_handle_t *)&harness->wish, NULL);
}

static void on_wish(uv_async_t *async) {
  struct harness *harness = async->data;
  pthread_mutex_lock(&harness->mutex);
  bool stop = harness->stop_wished && !harness->is_stopping;
  harness->is_ready = harness->ready_wished;
  pthread_mutex_unlock(&harness->mutex);
  health_changed(harness->health);
  if (!stop)
    return;
  harness->is_stopping = true;
  health_stop(harness->health);
  reflection_stop(harness->reflection);
  acceptor_stop(harness->acceptor, harness->grace, stopped, harness);
}

static void *harness_main(void *argument) {
  struct harness *harness = argument;
  uv_run(&harness->loop, UV_RUN_DEFAULT);
  must(uv_loop_close(&harness->loop) == 0, "the loop has handles left");
  return NULL;
}

/* The test's thread */

static void listen_on_socket(struct harness *harness) {
  snprintf(harness->folder, sizeof harness->folder, "/tmp/harness-XXXXXX");
  must(mkdtemp(harness->folder), "no temporary folder");
  snprintf(harness->address, sizeof harness->address, "unix:%s/socket", harness->folder);
  must(acceptor_listen_unix(harness->acceptor, harness->address, NULL) == 0, "cannot listen");
}

struct harness *harness_start(unsigned threads) {
  struct harness *harness = calloc(1, sizeof *harness);
  must(harness, "no memory");
  const char *secrets = "{\"app\":\"secret\"}";
  must((harness->ring = key_ring_parse(secrets, strlen(secrets), NULL)), "no key ring");
  must(uv_loop_init(&harness->loop) == 0, "no loop");
  uv_async_init(&harness->loop, &harness->wish, on_wish);
  harness->wish.data = harness;
  pthread_mutex_init(&harness->mutex, NULL);
  harness->is_ready = harness->ready_wished = true;
  harness->service.loop = &harness->loop;
  must((harness->health = health_new(is_ready, harness, NULL)), "no health");
  must((harness->reflection = reflection_new(NULL)), "no reflection");

  struct acceptor_service services[3] = {
      {.context = &harness->service}, {.context = harness->health}, {.context = harness->reflection}};
  services[0].methods = plumbing_methods(&services[0].count);
  services[1].methods = health_methods(&services[1].count);
  services[2].methods = reflection_methods(&services[2].count);
  harness->acceptor = acceptor_new(
      &(struct acceptor_options){
          .loop = &harness->loop, .ring = harness->ring, .services = services, .service_count = 3, .threads = threads},
      NULL);
  must(harness->acceptor, "no acceptor");
  listen_on_socket(harness);
  must(acceptor_start(harness->acceptor, NULL) == 0, "not started");
  must(pthread_create(&harness->thread, NULL, harness_main, harness) == 0, "no thread");
  return harness;
}

const char *harness_address(const struct harness *harness) { return harness->address; }

struct plumbing_service *harness_service(struct harness *harness) {
  return &harness->service;
}

char *harness_bearer(const char *subject) {
  char *token = token_mint("app", subject, "secret", clock_wall() / CLOCK_SECOND + 60, NULL);
  must(token, "no token");
  CLEANUP_BUFFER struct buffer bearer;
  buffer_init(&bearer, 8192);
  must(buffer_append_format(&bearer, "Bearer %s", token) == 0, "no memory");
  memory_free(token);
  return buffer_take(&bearer);
}

void harness_set_ready(struct harness *harness, bool ready) {
  pthread_mutex_lock(&harness->mutex);
  harness->ready_wished = ready;
  pthread_mutex_unlock(&harness->mutex);
  uv_async_send(&harness->wish);
}

void harness_stop(struct harness *harness, uint64_t grace) {
  pthread_mutex_lock(&harness->mutex);
  harness->stop_wished = true;
  harness->grace = grace;
  pthread_mutex_unlock(&harness->mutex);
  uv_async_send(&harness->wish);
}

void harness_free(struct harness *harness) {
  if (!harness->stop_wished)
    harness_stop(harness, 5000);
  pthread_join(harness->thread, NULL);
  health_free(harness->health);
  reflection_free(harness->reflection);
  key_ring_free(harness->ring);
  pthread_mutex_destroy(&harness->mutex);
  unlink(harness->address + strlen("unix:"));
  rmdir(harness->folder);
  free(harness);
}
