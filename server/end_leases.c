/*
 * Ids are collected until the backend has started, then all are released at once, and the last answer stops the
 * backend. A Lease that ends by itself meanwhile is over as well.
 */
#include "server/end_leases.h"

#include "base/log.h"
#include "base/memory.h"

#include <string.h>

struct end_leases {
  struct backend *backend;
  char (*ids)[LIMIT_LEASE_ID_BYTES + 1];
  size_t count, room;
  size_t waiting; /* releases not yet answered, and one for the loop that asks for them */
  size_t ended, failed;
  struct error *err; /* the first thing that went wrong as a whole */
  end_leases_done *done;
  void *context;
};

/* What a release needs to know of itself. */
struct end_leases_one {
  struct end_leases *all;
  char id[LIMIT_LEASE_ID_BYTES + 1];
};

static void on_stopped(void *context, struct error *err) {
  struct end_leases *all = context;
  (void)err; /* what stopping leaves behind is the backend's own to log */
  all->done(all->context, all->ended, all->failed, all->err);
  error_free(&all->err);
  memory_free(all->ids);
  memory_free(all);
}

static void settle(struct end_leases *all) {
  if (--all->waiting == 0)
    all->backend->operations->stop(all->backend, on_stopped, all);
}

static void on_released(void *context, struct error *err) {
  struct end_leases_one *one = context;
  struct end_leases *all = one->all;
  if (!err || error_reason(err) == REASON_LEASE_NOT_FOUND) {
    all->ended++;
  } else {
    all->failed++;
    log_write(LOG_ERROR, "lease_not_ended", LOG_TEXT("lease", one->id), LOG_REASON(err), LOG_DETAIL(err));
  }
  memory_free(one);
  settle(all);
}

static void release(struct end_leases *all, const char *id) {
  struct end_leases_one *one = memory_zero(sizeof *one);
  if (!one) {
    all->failed++;
    log_write(LOG_ERROR, "lease_not_ended", LOG_TEXT("lease", id), LOG_TEXT("detail", "out of memory"));
    return;
  }
  one->all = all;
  memcpy(one->id, id, sizeof one->id);
  all->waiting++;
  all->backend->operations->release(all->backend, one->id, on_released, one);
}

static void on_started(void *context, struct error *err) {
  struct end_leases *all = context;
  if (err && !all->err)
    error_set_detail(&all->err, error_reason(err), "%s", error_detail(err));
  all->waiting = 1;
  for (size_t i = 0; i < all->count; i++)
    release(all, all->ids[i]);
  settle(all);
}

static void on_bound(void *context, const struct backend_sandbox *sandbox) {
  struct end_leases *all = context;
  for (size_t i = 0; i < all->count; i++)
    if (strcmp(all->ids[i], sandbox->id) == 0)
      return; /* its facts changed */
  if (all->count == all->room) {
    size_t room = all->room > 0 ? all->room * 2 : 64;
    void *grown = memory_resize(all->ids, room * sizeof *all->ids);
    if (!grown) {
      error_free(&all->err);
      error_set_memory(&all->err);
      return;
    }
    all->ids = grown;
    all->room = room;
  }
  memcpy(all->ids[all->count++], sandbox->id, sizeof sandbox->id);
}

static void on_ended(void *context, const char *id, enum backend_end end) {
  (void)context; /* the release that waits for it is answered, too */
  (void)id;
  (void)end;
}

int end_leases_start(struct backend *backend, end_leases_done *done, void *context, struct error **err) {
  struct end_leases *all = memory_zero(sizeof *all);
  if (!all)
    return error_set_memory(err);
  all->backend = backend;
  all->done = done;
  all->context = context;
  const struct backend_events events = {.bound = on_bound, .ended = on_ended, .context = all};
  backend->operations->start(backend, &events, on_started, all);
  return 0;
}
