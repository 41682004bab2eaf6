/*
 * What unary answers may cost in memory: the output of commands and the files read whole that are being collected, and
 * those in answers that have not left yet, are bounded together. Beyond the bound something has to go, and that is the
 * largest of the Lease that holds most: whoever takes everything loses first, and nobody waits for a command that may
 * never end. Small answers are not counted and always have room.
 */
#include "base/log.h"
#include "base/memory.h"
#include "server/lease_state.h"

enum { SMALL_BYTES = 65536 };

static void count(struct lease_operation *operation, size_t bytes) {
  operation->service->holding += bytes - operation->holding;
  if (operation->lease)
    operation->lease->holding += bytes - operation->holding;
  operation->holding = bytes;
}

static struct lease_operation *largest(const struct lease_service *service) {
  const struct lease_table *table = &service->table;
  const struct lease *most = NULL;
  for (struct lease *lease = lease_table_next(table, NULL); lease; lease = lease_table_next(table, lease))
    if (!most || lease->holding > most->holding)
      most = lease;
  struct lease_operation *found = NULL;
  for (struct lease_operation *operation = most ? most->operations : NULL; operation; operation = operation->next)
    if (operation->holding > 0 && (!found || operation->holding > found->holding))
      found = operation;
  return found;
}

static void refuse(struct lease_operation *operation) {
  struct error *err = NULL;
  log_write(LOG_WARNING, "answer_dropped", LOG_TEXT("lease", operation->lease ? operation->lease->facts.id : ""),
            LOG_NUMBER("bytes", (int64_t)operation->holding));
  error_set(&err, REASON_OUTPUT_TOO_LARGE, "The server holds too much output; stream it instead");
  lease_operation_hold(operation);
  lease_operation_fail(operation, err);
  lease_operation_drop(operation);
}

void lease_holding_set(struct lease_operation *operation, size_t bytes) {
  struct lease_service *service = operation->service;
  count(operation, operation->call && bytes > SMALL_BYTES ? bytes : 0);
  while (operation->holding > 0 && service->holding > (size_t)service->settings.answer_bytes) {
    struct lease_operation *other = largest(service);
    refuse(other ? other : operation);
  }
}

void lease_holding_end(struct lease_operation *operation) {
  count(operation, 0);
}

/* An answer on its way: it outlives its operation, and perhaps its Lease. */
struct leaving {
  struct lease_service *service;
  size_t bytes;
};

static void leaving_cancelled(void *context) {
  (void)context; /* is not told of a call that was answered */
}

static void leaving_closed(void *context, bool delivered) {
  struct leaving *leaving = context;
  (void)delivered;
  leaving->service->holding -= leaving->bytes;
  memory_free(leaving);
}

int lease_holding_leave(struct lease_operation *operation) {
  static const struct call_events events = {.cancelled = leaving_cancelled, .closed = leaving_closed};
  if (operation->holding == 0)
    return 0;
  struct leaving *leaving = memory_zero(sizeof(*leaving));
  if (!leaving)
    return -1;
  *leaving = (struct leaving){.service = operation->service, .bytes = operation->holding};
  count(operation, 0);
  leaving->service->holding += leaving->bytes;
  call_watch(operation->call, &events, leaving);
  return 0;
}
