/*
 * lease-server with a Lease service that is the plumbing service, and with the backends "double", which is ready at
 * once, "slow", which never gets ready, and "broken", which fails to start: to test the program without any sandbox.
 */
#include "base/memory.h"
#include "server/lease_service.h"
#include "server/program.h"
#include "tests/unit/server/plumbing_service.h"

#include <stdlib.h>
#include <string.h>

struct double_backend {
  struct backend backend;
  const char *name;
};

struct lease_service {
  struct plumbing_service plumbing; /* first: it is the handlers' context */
  struct backend *backend;
  bool is_ready;
};

static void backend_free(struct backend *backend) { free(backend); }

static const struct backend_operations OPERATIONS = {.free = backend_free};

static struct backend *backend_make(uv_loop_t *loop, const char *name) {
  struct double_backend *backend = calloc(1, sizeof *backend);
  if (!backend)
    abort();
  backend->backend.operations = &OPERATIONS;
  backend->backend.loop = loop;
  backend->name = name;
  return &backend->backend;
}

static struct backend *make_double(uv_loop_t *loop, struct config *config, struct error **err) {
  (void)config;
  (void)err;
  return backend_make(loop, "double");
}

static struct backend *make_slow(uv_loop_t *loop, struct config *config, struct error **err) {
  (void)config;
  (void)err;
  return backend_make(loop, "slow");
}

static struct backend *make_broken(uv_loop_t *loop, struct config *config, struct error **err) {
  (void)config;
  (void)err;
  return backend_make(loop, "broken");
}

struct lease_service *lease_service_new(uv_loop_t *loop, struct backend *backend, struct config *config,
                                        struct error **err) {
  const char *secret;
  if (config_text(config, "SANDBOX_METADATA_SECRET", NULL, &secret, err) < 0)
    return NULL;
  struct lease_service *service = calloc(1, sizeof *service);
  if (!service)
    abort();
  service->plumbing.loop = loop;
  service->backend = backend;
  return service;
}

void lease_service_start(struct lease_service *service, backend_done *done, void *context) {
  const char *name = ((struct double_backend *)service->backend)->name;
  struct error *err = NULL;
  if (strcmp(name, "broken") == 0)
    error_set_detail(&err, REASON_INTERNAL, "it is broken");
  service->is_ready = !err;
  if (strcmp(name, "slow") != 0)
    done(context, err);
}

void lease_service_stop(struct lease_service *service, backend_done *done, void *context) {
  service->is_ready = false;
  done(context, NULL);
}

void lease_service_free(struct lease_service *service) { free(service); }

bool lease_service_ready(struct lease_service *service) { return service->is_ready; }

const struct call_method *lease_service_methods(size_t *count) { return plumbing_methods(count); }

int main(int argc, char **argv) {
  static const struct program_backend backends[] = {
      {"double", make_double}, {"slow", make_slow}, {"broken", make_broken}, {"kubernetes", NULL}, {NULL, NULL}};
  return program_run(argc, argv, backends);
}
