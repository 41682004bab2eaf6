/*
 * The Lease service: made from its settings, started and stopped with its backend. Stopping fails what runs, gives
 * commands a moment to be killed in their sandboxes, closes the sessions and leaves the Leases alone: they outlive
 * this process.
 */
#include "server/lease_service.h"

#include "base/clock.h"
#include "base/memory.h"
#include "sandbox/lease/v1/lease.pb-c.h"
#include "server/lease_handlers.h"
#include "server/lease_state.h"
#include "server/lease_transfer.h"
#include <string.h>

/* How long stopping waits for commands to be killed, in milliseconds. */
enum { STOP_GRACE = 2000 };

struct error *lease_error(enum reason reason) {
  struct error *err = NULL;
  error_set(&err, reason, NULL);
  return err;
}

struct error *lease_error_copy(const struct error *err) {
  struct error *copy = NULL;
  enum reason reason = error_reason(err);
  if (error_field(err))
    error_set_field(&copy, reason, error_field(err), error_message(err));
  else if (strcmp(error_message(err), reason_message(reason)) != 0)
    error_set(&copy, reason, error_message(err));
  else
    error_set_detail(&copy, reason, "%s", error_detail(err));
  error_set_retry_after(copy, error_retry_after(err));
  return copy;
}

/* --- making and freeing --- */

struct lease_service *lease_service_new(uv_loop_t *loop, struct backend *backend, struct config *config,
                                        struct error **err) {
  struct lease_service *service = memory_zero(sizeof(*service));
  if (!service) {
    error_set_memory(err);
    return NULL;
  }
  service->loop = loop;
  service->backend = backend;
  if (lease_settings_read(&service->settings, config, err) < 0) {
    lease_service_free(service);
    return NULL;
  }
  const char *secret = service->settings.metadata_secret;
  digest_key_set(&service->metadata_key, secret, strlen(secret));
  cursor_key_set(&service->cursor_key, secret, strlen(secret));
  service->settings.metadata_secret = NULL;
  scope_cache_init(&service->scopes, &service->metadata_key);
  if (lease_table_init(&service->table) < 0 || lease_tombstones_init(&service->tombstones) < 0 ||
      label_map_init(&service->acquisitions) < 0) {
    error_set_memory(err);
    lease_service_free(service);
    return NULL;
  }
  return service;
}

void lease_service_free(struct lease_service *service) {
  if (!service)
    return;
  lease_acquire_forget(service);
  lease_lookup_forget(service);
  lease_table_free(&service->table);
  lease_tombstones_free(&service->tombstones);
  label_map_free(&service->acquisitions);
  scope_cache_free(&service->scopes);
  memory_wipe(&service->metadata_key, sizeof(service->metadata_key));
  memory_wipe(&service->cursor_key, sizeof(service->cursor_key));
  memory_free(service);
}

/* --- starting --- */

static void service_complete(struct lease_service *service, struct error *err) {
  backend_done *done = service->done;
  service->done = NULL;
  done(service->done_context, err);
}

static void service_expire(void *context) {
  lease_life_expire(context);
}

static void service_sweep(uv_timer_t *timer) {
  lease_life_sweep(timer->data);
}

static void service_started(void *context, struct error *err) {
  struct lease_service *service = context;
  if (service->phase == SERVICE_STARTING && !err) {
    service->phase = SERVICE_SERVING;
    uint64_t interval = (uint64_t)(service->settings.sweep_interval / CLOCK_MILLISECOND);
    uv_timer_start(&service->sweep, service_sweep, interval, interval);
  }
  service_complete(service, err);
}

static int service_open_timers(struct lease_service *service, struct error **err) {
  uv_timer_t *timers[] = {&service->sweep, &service->grace};
  for (size_t i = 0; i < sizeof(timers) / sizeof(*timers); i++) {
    uv_timer_init(service->loop, timers[i]);
    timers[i]->data = service;
    service->handles++;
  }
  service->expiry = boot_timer_new(service->loop, service_expire, service, err);
  if (!service->expiry)
    return -1;
  service->transfer_timer = boot_timer_new(service->loop, lease_transfer_expire, service, err);
  return service->transfer_timer ? 0 : -1;
}

void lease_service_start(struct lease_service *service, backend_done *done, void *context) {
  const struct backend_events events = {.bound = lease_life_bound, .ended = lease_life_ended, .context = service};
  struct error *err = NULL;
  service->phase = SERVICE_STARTING;
  service->done = done;
  service->done_context = context;
  if (service_open_timers(service, &err) < 0) {
    service_complete(service, err);
    error_free(&err);
    return;
  }
  service->backend->operations->start(service->backend, &events, service_started, service);
}

bool lease_service_ready(struct lease_service *service) {
  struct error *why = NULL;
  bool ready = service->phase == SERVICE_SERVING && service->backend->operations->ready(service->backend, &why);
  error_free(&why);
  return ready;
}

/* --- stopping --- */

static void service_handle_closed(uv_handle_t *handle) {
  struct lease_service *service = handle->data;
  if (--service->handles == 0)
    service_complete(service, NULL);
}

static void service_backend_stopped(void *context, struct error *err) {
  struct lease_service *service = context;
  (void)err;
  service->phase = SERVICE_STOPPED;
  boot_timer_free(service->expiry);
  boot_timer_free(service->transfer_timer);
  service->expiry = NULL;
  service->transfer_timer = NULL;
  uv_close((uv_handle_t *)&service->sweep, service_handle_closed);
  uv_close((uv_handle_t *)&service->grace, service_handle_closed);
}

static bool service_idle(const struct lease_service *service) {
  return service->operations == 0 && !service->lookups && service->acquisitions.count == 0;
}

/* Nothing runs any more, or the time for it is over. */
static void service_stop_backend(uv_timer_t *timer) {
  struct lease_service *service = timer->data;
  if (service->backend_stopping)
    return;
  service->backend_stopping = true;
  lease_life_close_sessions(service);
  service->backend->operations->stop(service->backend, service_backend_stopped, service);
}

void lease_service_settle(struct lease_service *service) {
  /* In a turn of its own: whoever settles is still at work. */
  if (service->phase == SERVICE_STOPPING && !service->backend_stopping && service_idle(service))
    uv_timer_start(&service->grace, service_stop_backend, 0, 0);
}

void lease_service_stop(struct lease_service *service, backend_done *done, void *context) {
  service->phase = SERVICE_STOPPING;
  service->done = done;
  service->done_context = context;
  uv_timer_stop(&service->sweep);
  uv_timer_start(&service->grace, service_stop_backend, STOP_GRACE, 0);
  lease_operation_abort_all(service);
  lease_lookup_abort(service);
  lease_acquire_abort(service);
  lease_life_abort_waiters(service);
  lease_service_settle(service);
}

/* --- methods --- */

#define METHOD(rpc, call_kind, message, check_function, handler)                                                        \
  {                                                                                                                    \
    .path = "/sandbox.lease.v1.LeaseService/" rpc, .kind = (call_kind),                                                \
    .request = &sandbox__lease__v1__##message##_request__descriptor, .authenticated = true, .check = (check_function), \
    .handle = (handler)                                                                                                \
  }

const struct call_method *lease_service_methods(size_t *count) {
  static const struct call_method methods[] = {
    METHOD("CheckAccess", CALL_UNARY, check_access, NULL, lease_handle_access),
    METHOD("AcquireLease", CALL_UNARY, acquire_lease, lease_check_acquire, lease_handle_acquire),
    METHOD("GetLease", CALL_UNARY, get_lease, NULL, lease_handle_get),
    METHOD("ListLeases", CALL_UNARY, list_leases, lease_check_list, lease_handle_list),
    METHOD("ReleaseLease", CALL_UNARY, release_lease, NULL, lease_handle_release),
    METHOD("DeleteLease", CALL_UNARY, delete_lease, NULL, lease_handle_delete),
    METHOD("Exec", CALL_UNARY, exec, lease_check_exec, lease_handle_exec),
    METHOD("StreamExec", CALL_BIDIRECTIONAL, stream_exec, lease_check_stream_exec, lease_handle_stream_exec),
    METHOD("ReadFile", CALL_UNARY, read_file, lease_check_read, lease_handle_read),
    METHOD("WriteFile", CALL_UNARY, write_file, lease_check_write, lease_handle_write),
    METHOD("DownloadFile", CALL_SERVER_STREAM, download_file, lease_check_download, lease_handle_download),
    METHOD("UploadFile", CALL_CLIENT_STREAM, upload_file, lease_check_upload, lease_handle_upload),
  };
  *count = sizeof(methods) / sizeof(*methods);
  return methods;
}
