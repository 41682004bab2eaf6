/*
 * A stack that is taken whole needs no lock and has no ABA problem; turned around, it is the order of posting. Only the
 * post that finds it empty rings, so that under load one wake-up serves many items.
 */
#include "server/mailbox.h"

bool mailbox_post(struct mailbox *mailbox, struct mailbox_item *item) {
  struct mailbox_item *newest = atomic_load_explicit(&mailbox->newest, memory_order_relaxed);
  do
    item->next = newest;
  while (!atomic_compare_exchange_weak_explicit(&mailbox->newest, &newest, item, memory_order_release,
                                                memory_order_relaxed));
  return !newest;
}

static struct mailbox_item *oldest_first(struct mailbox_item *item) {
  struct mailbox_item *list = NULL;
  while (item) {
    struct mailbox_item *next = item->next;
    item->next = list;
    list = item;
    item = next;
  }
  return list;
}

void mailbox_run(struct mailbox *mailbox) {
  struct mailbox_item *item = oldest_first(atomic_exchange_explicit(&mailbox->newest, NULL, memory_order_acquire));
  while (item) {
    struct mailbox_item *next = item->next; /* the item may be gone, or posted again, once it ran */
    item->run(item);
    item = next;
  }
}

static void bell_rings(uv_async_t *bell) {
  struct inbox *inbox = bell->data;
  mailbox_run(&inbox->mailbox);
}

int inbox_open(struct inbox *inbox, uv_loop_t *loop, struct error **err) {
  atomic_init(&inbox->mailbox.newest, NULL);
  int result = uv_async_init(loop, &inbox->bell, bell_rings);
  if (result < 0)
    return error_set_detail(err, REASON_INTERNAL, "opening the inbox: %s", uv_strerror(result));
  inbox->bell.data = inbox;
  return 0;
}

void inbox_post(struct inbox *inbox, struct mailbox_item *item) {
  if (mailbox_post(&inbox->mailbox, item))
    uv_async_send(&inbox->bell);
}

void inbox_close(struct inbox *inbox, uv_close_cb closed) { uv_close((uv_handle_t *)&inbox->bell, closed); }
