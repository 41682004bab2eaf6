/*
 * The mark at the end of a stream: see tail.h.
 */
#define _GNU_SOURCE
#include "backend/podexec/tail.h"

#include <string.h>

/* The longest end of the bytes that begins the mark; all of the mark if it is there. */
static size_t overlap(const char *mark, const uint8_t *bytes, size_t length) {
  size_t most = length < TAIL_MARK_BYTES ? length : TAIL_MARK_BYTES;
  for (size_t size = most; size > 0; size--)
    if (memcmp(bytes + length - size, mark, size) == 0)
      return size;
  return 0;
}

/* One byte more behind what is held. Returns how much of the held bytes is none of the mark, that byte included. */
static size_t hold(struct tail *tail, const char *mark, uint8_t byte, uint8_t given[static TAIL_MARK_BYTES + 1]) {
  uint8_t all[TAIL_MARK_BYTES + 1];
  memcpy(all, tail->held, tail->length);
  all[tail->length] = byte;
  size_t total = tail->length + 1, kept = overlap(mark, all, total);
  memcpy(given, all, total - kept);
  memcpy(tail->held, all + total - kept, kept);
  tail->length = kept;
  tail->complete = kept == TAIL_MARK_BYTES;
  return total - kept;
}

void tail_receive(struct tail *tail, const char mark[static TAIL_MARK_BYTES], const uint8_t *bytes, size_t length,
                  void (*give)(void *context, const uint8_t *bytes, size_t length), void *context) {
  uint8_t given[TAIL_MARK_BYTES + 1];
  while (length > 0 && tail->length > 0 && !tail->complete) {
    size_t ready = hold(tail, mark, *bytes++, given);
    length--;
    if (ready > 0)
      give(context, given, ready);
  }
  if (length == 0 || tail->complete)
    return;
  const uint8_t *found = memmem(bytes, length, mark, TAIL_MARK_BYTES);
  size_t kept = found ? 0 : overlap(mark, bytes, length);
  size_t ready = found ? (size_t)(found - bytes) : length - kept;
  tail->complete = found != NULL;
  tail->length = kept;
  memcpy(tail->held, bytes + length - kept, kept);
  if (ready > 0)
    give(context, bytes, ready);
}
