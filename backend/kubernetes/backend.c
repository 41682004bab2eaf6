/*
 * The Kubernetes backend behind backend/backend.h.
 */
#include "backend/kubernetes/kubernetes.h"

#include "backend/kubernetes/curl.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include <stdio.h>
#include <string.h>

enum { STOP_MILLISECONDS = 5000 };

/* A stop that waits for Claims to be deleted; its timer outlives it. */
struct stopping {
  uv_timer_t timer;
  struct kubernetes_backend *kubernetes; /* NULL once it is over */
  backend_done *done;
  void *context;
};

static struct kubernetes_backend *kubernetes_of(struct backend *backend) {
  return (struct kubernetes_backend *)(void *)backend;
}

int64_t kubernetes_wall(const struct kubernetes_backend *kubernetes) {
  return clock_wall() + (kubernetes->api ? api_clock_offset(kubernetes->api) : 0);
}

int kubernetes_claim_path(const struct kubernetes_backend *kubernetes, const char *name,
                          char path[static CLAIM_PATH_BYTES]) {
  int length = snprintf(path, CLAIM_PATH_BYTES,
                        "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/%s/sandboxclaims%s%s",
                        kubernetes->namespace_, name ? "/" : "", name ? name : "");
  return length > 0 && length < CLAIM_PATH_BYTES ? 0 : -1;
}

/* --- start and stop --- */

static void on_listed(void *context) {
  struct kubernetes_backend *kubernetes = context;
  struct error *err = NULL;
  lease_found_all(kubernetes);
  kubernetes->serving = true;
  log_write(LOG_INFO, "cluster_listed", LOG_NUMBER("claims", store_count(kubernetes->store, OBJECT_CLAIM)),
            LOG_NUMBER("pools", store_count(kubernetes->store, OBJECT_POOL)));
  backend_done *started = kubernetes->started;
  kubernetes->started = NULL;
  if (started)
    started(kubernetes->started_context, err);
}

static void kubernetes_start(struct backend *backend, const struct backend_events *events, backend_done *done,
                             void *context) {
  struct kubernetes_backend *kubernetes = kubernetes_of(backend);
  kubernetes->events = *events;
  kubernetes->started = done;
  kubernetes->started_context = context;
  kubernetes->cache = cache_new(
      backend->loop, kubernetes->api, kubernetes->namespace_,
      &(struct cache_events){.changed = lease_changed, .listed = on_listed, .context = kubernetes});
  if (kubernetes->cache) {
    kubernetes->store = cache_store(kubernetes->cache);
    return;
  }
  struct error *err = NULL;
  error_set_memory(&err);
  kubernetes->started = NULL;
  done(context, err);
  error_free(&err);
}

static void stopping_closed(uv_handle_t *handle) {
  memory_free(handle->data);
}

static void stop_finish(struct kubernetes_backend *kubernetes) {
  struct stopping *stop = kubernetes->stop;
  backend_done *done = stop->done;
  void *context = stop->context;
  kubernetes->stop = NULL;
  uv_close((uv_handle_t *)&stop->timer, stopping_closed);
  acquire_forget_all(kubernetes);
  ending_free_all(kubernetes);
  lookup_free_all(kubernetes);
  if (kubernetes->cache)
    lease_forget_all(kubernetes);
  cache_free(kubernetes->cache);
  kubernetes->cache = NULL;
  kubernetes->store = NULL;
  api_free(kubernetes->api);
  kubernetes->api = NULL;
  done(context, NULL);
}

void kubernetes_settle(struct kubernetes_backend *kubernetes) {
  /* From the timer, not from within whatever came to its end. */
  if (kubernetes->stop && !kubernetes->pendings && !ending_busy(kubernetes) &&
      uv_timer_get_due_in(&kubernetes->stop->timer) > 0)
    uv_timer_start(&kubernetes->stop->timer, kubernetes->stop->timer.timer_cb, 0, 0);
}

static void on_stop_timer(uv_timer_t *timer) {
  struct stopping *stop = timer->data;
  stop_finish(stop->kubernetes);
}

static void kubernetes_stop(struct backend *backend, backend_done *done, void *context) {
  struct kubernetes_backend *kubernetes = kubernetes_of(backend);
  struct stopping *stop = memory_zero(sizeof *stop);
  kubernetes->stopping = true;
  kubernetes->serving = false;
  kubernetes->started = NULL;
  if (!stop) {
    struct error *err = NULL;
    error_set_memory(&err);
    done(context, err);
    error_free(&err);
    return;
  }
  *stop = (struct stopping){.kubernetes = kubernetes, .done = done, .context = context};
  uv_timer_init(backend->loop, &stop->timer);
  stop->timer.data = stop;
  acquire_abort_all(kubernetes);
  kubernetes->stop = stop;
  bool busy = kubernetes->pendings || ending_busy(kubernetes);
  uv_timer_start(&stop->timer, on_stop_timer, busy ? STOP_MILLISECONDS : 0, 0);
}

static void kubernetes_free(struct backend *backend) {
  struct kubernetes_backend *kubernetes = kubernetes_of(backend);
  api_free(kubernetes->api);
  access_free(&kubernetes->access);
  podexec_program_free(&kubernetes->program);
  settings_free(&kubernetes->settings);
  memory_free(kubernetes);
}

/* --- questions --- */

static bool kubernetes_ready(struct backend *backend, struct error **why) {
  struct kubernetes_backend *kubernetes = kubernetes_of(backend);
  if (!kubernetes->serving) {
    error_set_detail(why, REASON_SERVER_UNAVAILABLE, "the cluster has not been listed");
    return false;
  }
  if (!cache_in_step(kubernetes->cache, why))
    return false;
  for (size_t i = 0; i < kubernetes->settings.pool_count; i++) {
    const struct pool_settings *pool = &kubernetes->settings.pools[i];
    if (!store_find(kubernetes->store, OBJECT_POOL, pool->warm_pool)) {
      error_set_detail(why, REASON_SERVER_UNAVAILABLE, "there is no SandboxWarmPool %s", pool->warm_pool);
      return false;
    }
  }
  return true;
}

static bool kubernetes_has_pool(struct backend *backend, const char *pool) {
  return settings_pool(&kubernetes_of(backend)->settings, pool) != NULL;
}

static void kubernetes_count(struct backend *backend, const char *name, unsigned *bound, unsigned *warm) {
  struct kubernetes_backend *kubernetes = kubernetes_of(backend);
  const struct pool_settings *pool = settings_pool(&kubernetes->settings, name);
  *bound = *warm = 0;
  if (!pool || !kubernetes->store)
    return;
  for (const struct object *claim = NULL; (claim = store_next(kubernetes->store, OBJECT_CLAIM, claim));) {
    const struct lease *lease = claim->attachment;
    *bound += lease && !lease->lost && strcmp(claim->claim.pool, name) == 0;
  }
  const struct object *warm_pool = store_find(kubernetes->store, OBJECT_POOL, pool->warm_pool);
  if (warm_pool && warm_pool->pool.ready > 0)
    *warm = (unsigned)warm_pool->pool.ready;
}

/* --- what is done with sandboxes --- */

static struct backend_pending *kubernetes_acquire(struct backend *backend, const struct backend_acquire *acquire,
                                                  backend_acquired *acquired, void *context) {
  return acquire_begin(kubernetes_of(backend), acquire, acquired, context);
}

static void kubernetes_cancel(struct backend *backend, struct backend_pending *pending) {
  (void)backend;
  acquire_cancel(pending);
}

static void kubernetes_release(struct backend *backend, const char *id, backend_done *done, void *context) {
  struct kubernetes_backend *kubernetes = kubernetes_of(backend);
  const struct object *claim = kubernetes->store ? lease_find(kubernetes, id) : NULL;
  struct error *err = NULL;
  if (!claim) {
    error_set(&err, REASON_LEASE_NOT_FOUND, NULL);
    done(context, err);
    error_free(&err);
  } else if (claim->deleting) {
    done(context, NULL);
  } else {
    ending_begin(kubernetes, claim->name, claim->uid, NULL, done, context);
  }
}

static void kubernetes_get(struct backend *backend, const char *id, backend_found *found, void *context) {
  struct kubernetes_backend *kubernetes = kubernetes_of(backend);
  struct error *err = NULL;
  if (kubernetes->serving) {
    lookup_begin(kubernetes, id, found, context);
    return;
  }
  error_set(&err, REASON_SERVER_UNAVAILABLE, NULL);
  found(context, NULL, err);
  error_free(&err);
}

/* A write for each use would cost more than the knowledge is worth. */
static void kubernetes_touch(struct backend *backend, const char *id, int64_t wall) {
  (void)backend;
  (void)id;
  (void)wall;
}

static void kubernetes_sweep(struct backend *backend) {
  struct kubernetes_backend *kubernetes = kubernetes_of(backend);
  if (!kubernetes->serving)
    return;
  ending_sweep(kubernetes);
  lease_sweep(kubernetes);
}

int kubernetes_target(struct kubernetes_backend *kubernetes, const char *id, struct kubernetes_target *target,
                      struct error **err) {
  struct judge_facts facts;
  const struct object *claim = kubernetes->store ? lease_find(kubernetes, id) : NULL;
  if (!claim || !lease_usable(kubernetes, claim))
    return error_set(err, REASON_LEASE_NOT_FOUND, NULL);
  lease_facts(kubernetes, claim, &facts);
  if (!facts.pool || !facts.sandbox || strcmp(facts.sandbox->sandbox.claim_uid, claim->uid) != 0 || !facts.pod ||
      strcmp(facts.pod->pod.sandbox_uid, facts.sandbox->uid) != 0 || facts.pod->pod.phase != POD_RUNNING)
    return error_set_detail(err, REASON_SANDBOX_NOT_READY, "the sandbox has no running Pod");
  if (strcmp(facts.pod->pod.runtime, facts.pool->runtime) != 0)
    return error_set(err, REASON_RUNTIME_CLASS_MISMATCH, NULL);
  if (!object_has_container(facts.pod, facts.pool->container))
    return error_set(err, REASON_SANDBOX_CONTAINER_NOT_FOUND, NULL);
  *target = (struct kubernetes_target){.namespace_ = kubernetes->namespace_,
                                       .pod = facts.pod->name,
                                       .pod_uid = facts.pod->uid,
                                       .container = facts.pool->container,
                                       .address = facts.pod->pod.address,
                                       .pool = facts.pool};
  return 0;
}

static struct transport *kubernetes_open_transport(struct backend *backend, const char *id, struct error **err) {
  struct kubernetes_backend *kubernetes = kubernetes_of(backend);
  struct kubernetes_target target;
  if (kubernetes_target(kubernetes, id, &target, err) < 0)
    return NULL;
  const struct podexec_options options = {.access = &kubernetes->access.podexec,
                                          .program = &kubernetes->program,
                                          .namespace_ = target.namespace_,
                                          .pod = target.pod,
                                          .container = target.container[0] ? target.container : NULL};
  struct transport *transport = transport_podexec_new(backend->loop, &options);
  if (!transport)
    error_set_memory(err);
  return transport;
}

/* --- the backend --- */

static const struct backend_operations operations = {
    .start = kubernetes_start,
    .stop = kubernetes_stop,
    .free = kubernetes_free,
    .ready = kubernetes_ready,
    .has_pool = kubernetes_has_pool,
    .acquire = kubernetes_acquire,
    .cancel = kubernetes_cancel,
    .release = kubernetes_release,
    .get = kubernetes_get,
    .touch = kubernetes_touch,
    .sweep = kubernetes_sweep,
    .open_transport = kubernetes_open_transport,
    .count = kubernetes_count,
};

static int namespace_choose(struct kubernetes_backend *kubernetes, struct error **err) {
  const char *name = kubernetes->settings.namespace_;
  if (!name)
    name = api_namespace(kubernetes->api);
  if (!name || strlen(name) >= sizeof kubernetes->namespace_)
    return error_set_detail(err, REASON_INTERNAL, "SANDBOX_K8S_NAMESPACE must name the namespace of the Claims");
  memcpy(kubernetes->namespace_, name, strlen(name) + 1);
  return 0;
}

static int kubernetes_make(struct kubernetes_backend *kubernetes, struct config *config, struct error **err) {
  struct kubernetes_settings *settings = &kubernetes->settings;
  if (settings_read(settings, config, err) < 0 || curl_load(err) < 0)
    return -1;
  struct credentials *credentials = credentials_new(kubernetes->backend.loop, settings->kubeconfig, settings->context,
                                                    err);
  if (!credentials || !(kubernetes->api = api_new(kubernetes->backend.loop, credentials, err)))
    return -1;
  if (access_init(&kubernetes->access, credentials, err) < 0)
    return -1;
  if (podexec_program_read(&kubernetes->program, settings->sandboxd, err) < 0)
    return error_context(err, "SANDBOX_K8S_SANDBOXD");
  return namespace_choose(kubernetes, err);
}

struct backend *backend_kubernetes_new(uv_loop_t *loop, struct config *config, struct error **err) {
  struct kubernetes_backend *kubernetes = memory_zero(sizeof *kubernetes);
  if (!kubernetes) {
    error_set_memory(err);
    return NULL;
  }
  kubernetes->backend = (struct backend){.operations = &operations, .loop = loop};
  if (kubernetes_make(kubernetes, config, err) == 0)
    return &kubernetes->backend;
  kubernetes_free(&kubernetes->backend);
  return NULL;
}
