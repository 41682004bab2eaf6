/*
 * What downloads and uploads share. Every transfer has the same time limit, so the queue by beginning is the queue
 * by deadline too, and one timer serves all. The end of the Lease ends them earlier by itself.
 */
#include "server/lease_transfer.h"

#include "base/clock.h"

/* When to try again for a place, in milliseconds. */
enum { TRANSFER_RETRY_AFTER = 1000 };

static void transfer_rearm(struct lease_service *service) {
  if (service->transfer_timer)
    boot_timer_set(service->transfer_timer, service->first_transfer ? service->first_transfer->deadline : INT64_MAX);
}

static void transfer_enter(struct lease_transfer *transfer) {
  struct lease_service *service = transfer->operation.service;
  transfer->deadline = clock_boot() + service->settings.transfer_timeout;
  transfer->previous = service->last_transfer;
  transfer->next = NULL;
  if (transfer->previous)
    transfer->previous->next = transfer;
  else
    service->first_transfer = transfer;
  service->last_transfer = transfer;
  service->transfers++;
  transfer->operation.lease->transfers++;
  transfer_rearm(service);
}

void lease_transfer_leave(struct lease_transfer *transfer) {
  struct lease_service *service = transfer->operation.service;
  if (transfer->deadline == INT64_MIN)
    return;
  transfer->deadline = INT64_MIN;
  if (transfer->previous)
    transfer->previous->next = transfer->next;
  else
    service->first_transfer = transfer->next;
  if (transfer->next)
    transfer->next->previous = transfer->previous;
  else
    service->last_transfer = transfer->previous;
  service->transfers--;
  if (transfer->operation.lease)
    transfer->operation.lease->transfers--;
  transfer_rearm(service);
}

struct session *lease_transfer_begin(struct lease_transfer *transfer, const struct lease_operation_kind *kind,
                                     struct lease_service *service, struct call *call, struct lease *lease) {
  transfer->deadline = INT64_MIN;
  bool full = service->transfers >= (unsigned)service->settings.transfers ||
              lease->transfers >= (unsigned)service->settings.transfers_per_lease;
  if (lease->state == LEASE_ACTIVE && full) {
    struct error *err = lease_error(REASON_TRANSFER_LIMIT_REACHED);
    error_set_retry_after(err, TRANSFER_RETRY_AFTER);
    kind->free(&transfer->operation);
    call_fail(call, err);
    return NULL;
  }
  struct session *session = lease_operation_begin(&transfer->operation, kind, service, call, lease);
  if (session)
    transfer_enter(transfer);
  return session;
}

void lease_transfer_expire(void *context) {
  struct lease_service *service = context;
  int64_t now = clock_boot();
  for (struct lease_transfer *transfer = service->first_transfer, *next; transfer && transfer->deadline <= now;
       transfer = next) {
    next = transfer->next;
    /* Its place is given back when the session has let go of the file, too. */
    lease_operation_cancelled(&transfer->operation);
  }
  const struct lease_transfer *waiting = service->first_transfer;
  while (waiting && waiting->deadline <= now)
    waiting = waiting->next;
  boot_timer_set(service->transfer_timer, waiting ? waiting->deadline : INT64_MAX);
}

struct error *lease_transfer_error(const struct error *err) {
  switch (error_reason(err)) {
  case REASON_INVALID_PATH:
  case REASON_FILE_NOT_FOUND:
  case REASON_TRANSFER_TOO_LARGE:
  case REASON_CONTENT_LENGTH_MISMATCH:
  case REASON_CONTENT_DIGEST_MISMATCH:
  case REASON_SANDBOX_NOT_READY:
  case REASON_ABORTED:
    return lease_error_copy(err);
  default: {
    struct error *translated = NULL;
    error_set_detail(&translated, REASON_FILE_TRANSFER_FAILED, "%s: %s", reason_name(error_reason(err)),
                     error_detail(err));
    return translated;
  }
  }
}
