/*
 * How threads hand work to one another: a list of items that many push on and one reader takes whole, without a lock.
 * An inbox is a mailbox with a bell for the loop thread; completion-queue threads have one too (call_outbox.h).
 */
#ifndef SERVER_MAILBOX_H
#define SERVER_MAILBOX_H

#include "base/error.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

/* A member of what is posted. It may be posted again once it runs. */
struct mailbox_item {
  struct mailbox_item *next;
  void (*run)(struct mailbox_item *item); /* on the reader's thread */
};

#define MAILBOX_ITEM_OWNER(item, type, member) ((type *)(void *)((char *)(item) - offsetof(type, member)))

/* Zeroed is empty. */
struct mailbox {
  _Atomic(struct mailbox_item *) newest;
};

/* Any thread. True if the mailbox was empty: the reader must then be woken. */
bool mailbox_post(struct mailbox *mailbox, struct mailbox_item *item);
/* The reader: runs what was posted so far, in the order of posting. */
void mailbox_run(struct mailbox *mailbox);

struct inbox {
  struct mailbox mailbox;
  uv_async_t bell;
};

/* Loop thread. Returns 0, or -1 and *err. */
int inbox_open(struct inbox *inbox, uv_loop_t *loop, struct error **err);
/* Any thread, until inbox_close. */
void inbox_post(struct inbox *inbox, struct mailbox_item *item);
/* Loop thread; nothing may be posted any more. The inbox must live until `closed` is called with its bell, whose data
 * is the inbox. */
void inbox_close(struct inbox *inbox, uv_close_cb closed);

#endif
