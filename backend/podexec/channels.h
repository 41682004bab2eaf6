/*
 * v5.channel.k8s.io, without any I/O: the first byte of each message names a stream. Thread: one at a time.
 */
#ifndef BACKEND_PODEXEC_CHANNELS_H
#define BACKEND_PODEXEC_CHANNELS_H

#include "base/buffer.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHANNEL_STDIN = 0, CHANNEL_STDOUT = 1, CHANNEL_STDERR = 2, CHANNEL_STATUS = 3, CHANNEL_CLOSE = 255 };

#define CHANNELS_STATUS_BYTES 16384 /* a longer one is refused */

struct channels_events {
  void (*output)(void *context, int channel, const uint8_t *bytes, size_t length); /* CHANNEL_STDOUT or _STDERR */
};

struct channels {
  bool begun; /* the channel of the current message is known */
  uint8_t channel;
  struct buffer status;
};

void channels_init(struct channels *channels);
void channels_free(struct channels *channels);

/* Part of a message, as a websocket gives it. Returns 0, or -1 and *err (REASON_SANDBOX_NOT_READY). */
int channels_receive(struct channels *channels, const uint8_t *bytes, size_t length, bool first, bool last,
                     const struct channels_events *events, void *context, struct error **err);

/* How the program ended, as the API server says in the end; hostile text. */
struct channels_end {
  bool told;         /* false: nothing was said */
  bool exited;       /* the program ran and ended with exit_code */
  int exit_code;     /* 0 to 255 */
  char message[256]; /* otherwise: why it did not run; valid UTF-8 */
};
/* Returns 0, or -1 and *err: what was said makes no sense. */
int channels_end_read(const struct channels *channels, struct channels_end *end, struct error **err);

/* The "message" of a Status object, or "": valid UTF-8 without control characters, cut to fit. */
void channels_status_message(const char *text, size_t length, char *message, size_t size);

#endif
