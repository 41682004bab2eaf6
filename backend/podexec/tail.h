/*
 * The end of a stream, marked by a line that nobody else writes. pods/exec can end with success and part of the output
 * missing: only what is followed by the mark has arrived whole. No I/O. Thread: one at a time.
 */
#ifndef BACKEND_PODEXEC_TAIL_H
#define BACKEND_PODEXEC_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TAIL_MARK_BYTES 33 /* 32 characters and a line's end */

struct tail {
  uint8_t held[TAIL_MARK_BYTES]; /* may be the mark's begin */
  size_t length;
  bool complete; /* the mark has come; what follows is dropped */
};

/* Gives on what is in front of the mark, as soon as it is known not to be the mark's begin. */
void tail_receive(struct tail *tail, const char mark[static TAIL_MARK_BYTES], const uint8_t *bytes, size_t length,
                  void (*give)(void *context, const uint8_t *bytes, size_t length), void *context);

#endif
