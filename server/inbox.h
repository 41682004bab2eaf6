/*
 * What other threads hand to the loop thread: a list of items, each run once on the loop in the order of posting. One
 * wake-up serves all that was posted meanwhile.
 */
#ifndef SERVER_INBOX_H
#define SERVER_INBOX_H

#include "base/error.h"
#include <stdatomic.h>
#include <uv.h>

/* A member of what is posted. It may be posted again once it runs. */
struct inbox_item {
  struct inbox_item *next;
  void (*run)(struct inbox_item *item); /* on the loop thread */
};

#define INBOX_ITEM_OWNER(item, type, member) ((type *)(void *)((char *)(item) - offsetof(type, member)))

struct inbox {
  _Atomic(struct inbox_item *) newest;
  uv_async_t async;
};

/* Loop thread. Returns 0, or -1 and *err. */
int inbox_open(struct inbox *inbox, uv_loop_t *loop, struct error **err);
/* Any thread, until inbox_close. */
void inbox_post(struct inbox *inbox, struct inbox_item *item);
/* Loop thread; nothing may be posted any more. The inbox must live until `closed` is called with its handle. */
void inbox_close(struct inbox *inbox, uv_close_cb closed);

#endif
