/*
 * Pipes of leftover processes: see leftover.h.
 */
#include "backend/sandboxd/leftover.h"

#include "base/memory.h"
#include <errno.h>
#include <unistd.h>

struct leftover {
  struct leftovers *all;
  struct leftover *previous, *next;
  struct loop_watch watch;
};

/* Returns whether more may come. */
static bool leftover_drop_bytes(int descriptor) {
  static char dropped[65536];
  ssize_t length = read(descriptor, dropped, sizeof dropped);
  return length > 0 || (length < 0 && (errno == EAGAIN || errno == EINTR));
}

static void leftover_close(struct leftover *leftover) {
  struct leftovers *all = leftover->all;
  loop_watch_set(all->loop, &leftover->watch, 0);
  close(leftover->watch.descriptor);
  *(leftover->previous ? &leftover->previous->next : &all->first) = leftover->next;
  *(leftover->next ? &leftover->next->previous : &all->last) = leftover->previous;
  all->count--;
  memory_free(leftover);
}

static void leftover_ready(void *context, uint32_t events) {
  struct leftover *leftover = context;
  (void)events;
  if (!leftover_drop_bytes(leftover->watch.descriptor))
    leftover_close(leftover);
}

void leftovers_take(struct leftovers *leftovers, int descriptor) {
  if (descriptor < 0)
    return;
  struct leftover *leftover = leftover_drop_bytes(descriptor) ? memory_zero(sizeof *leftover) : NULL;
  if (!leftover) {
    close(descriptor);
    return;
  }
  leftover->all = leftovers;
  leftover->watch = (struct loop_watch){.descriptor = descriptor, .ready = leftover_ready, .context = leftover};
  leftover->previous = leftovers->last;
  *(leftovers->last ? &leftovers->last->next : &leftovers->first) = leftover;
  leftovers->last = leftover;
  leftovers->count++;
  if (loop_watch_set(leftovers->loop, &leftover->watch, EPOLLIN))
    leftover_close(leftover);
  else if (leftovers->count > LEFTOVER_PIPES)
    leftover_close(leftovers->first);
}

void leftovers_free(struct leftovers *leftovers) {
  while (leftovers->first)
    leftover_close(leftovers->first);
}
