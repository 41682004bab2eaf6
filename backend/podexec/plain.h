/*
 * For containers that sandboxd cannot be brought into: its place is taken in this process, and every command and every
 * file is a pods/exec of its own. It serves agent.proto on the other side of the transport, so that the session above
 * knows no difference; but it is slower, and:
 *
 *   - commands do not outlive a connection: one whose connection breaks is `lost`;
 *   - a signal and the end of time reach the command's process group, not what left it;
 *   - how a command was ended by a signal is told by its exit code alone (128 + n);
 *   - a command whose standard input was ended may be `lost` although it ended well: whether all of its output came
 *     can then not be made sure (see tail.h);
 *   - a command with its environment must fit into an argument (100 KiB);
 *   - files need `cat`, `wc`, and `mv` in the container, and a digest of a file read needs `sha256sum`.
 *
 * Thread: the loop's. No callback comes from within a function of this header.
 */
#ifndef BACKEND_PODEXEC_PLAIN_H
#define BACKEND_PODEXEC_PLAIN_H

#include "backend/podexec/podexec.h"

struct plain;

struct plain_events {
  void (*output)(void *context, const uint8_t *bytes, size_t length); /* to the session */
  void (*drained)(void *context);                                     /* all input was taken */
  /* The last: the session broke the protocol, or there is no memory. */
  void (*broken)(void *context, struct error *err);
  void *context;
};

/* where: copied. NULL without memory. */
struct plain *plain_new(uv_loop_t *loop, const struct podexec_options *where, const struct plain_events *events);
/* From the session. Returns 0, or -1 without memory. */
int plain_receive(struct plain *plain, const uint8_t *bytes, size_t length);
size_t plain_queued(const struct plain *plain);
/* Also from within a callback. Ends everything that it runs, as far as closing a connection does. */
void plain_free(struct plain *plain);

#endif
