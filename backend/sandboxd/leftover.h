/*
 * Pipes that processes left behind by an ended command may still write to. What comes is read and dropped, so that a
 * server that a command started does not die of SIGPIPE or wait for ever, until all who could write are gone.
 */
#ifndef BACKEND_SANDBOXD_LEFTOVER_H
#define BACKEND_SANDBOXD_LEFTOVER_H

#include "backend/sandboxd/loop.h"
#include <stddef.h>

#define LEFTOVER_PIPES 256 /* for a further one the oldest is closed */

struct leftover;

struct leftovers {
  struct loop *loop;
  struct leftover *first, *last; /* oldest first */
  size_t count;
};

/* descriptor: a non-blocking read end, taken over; -1: none. */
void leftovers_take(struct leftovers *leftovers, int descriptor);
/* Closes all. */
void leftovers_free(struct leftovers *leftovers);

#endif
