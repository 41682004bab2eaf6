/*
 * A stack that many threads push on and the loop takes whole, which needs no lock and has no ABA problem; turned around,
 * it is the order of posting. Only the push on an empty stack wakes the loop.
 */
#include "server/inbox.h"

static struct inbox_item *oldest_first(struct inbox_item *item) {
  struct inbox_item *list = NULL;
  while (item) {
    struct inbox_item *next = item->next;
    item->next = list;
    list = item;
    item = next;
  }
  return list;
}

static void inbox_run(uv_async_t *async) {
  struct inbox *inbox = async->data;
  struct inbox_item *item = oldest_first(atomic_exchange_explicit(&inbox->newest, NULL, memory_order_acquire));
  while (item) {
    struct inbox_item *next = item->next; /* the item may be gone, or posted again, once it ran */
    item->run(item);
    item = next;
  }
}

int inbox_open(struct inbox *inbox, uv_loop_t *loop, struct error **err) {
  atomic_init(&inbox->newest, NULL);
  int result = uv_async_init(loop, &inbox->async, inbox_run);
  if (result < 0)
    return error_set_detail(err, REASON_INTERNAL, "opening the inbox: %s", uv_strerror(result));
  inbox->async.data = inbox;
  return 0;
}

void inbox_post(struct inbox *inbox, struct inbox_item *item) {
  struct inbox_item *newest = atomic_load_explicit(&inbox->newest, memory_order_relaxed);
  do
    item->next = newest;
  while (!atomic_compare_exchange_weak_explicit(&inbox->newest, &newest, item, memory_order_release,
                                                memory_order_relaxed));
  if (!newest)
    uv_async_send(&inbox->async);
}

void inbox_close(struct inbox *inbox, uv_close_cb closed) { uv_close((uv_handle_t *)&inbox->async, closed); }
