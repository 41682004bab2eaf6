/*
 * What runs in a container to bring sandboxd up: one script for `sh`, and the path of the request that runs it. The
 * script answers on standard output by lines:
 *
 *   sandboxd: want      it found a directory that can be written and executed from: the program is to be sent
 *   sandboxd: none      there is none, or a tool is missing: nothing can be brought up
 *   sandboxd: ready     said by sandboxd itself; what follows is its protocol
 *
 * It needs `head`, `chmod` and `rm` beside `sh`. The program has no name any more by the time it runs: nothing is left
 * behind in any directory.
 */
#ifndef BACKEND_PODEXEC_SCRIPT_H
#define BACKEND_PODEXEC_SCRIPT_H

#include "backend/podexec/podexec.h"
#include "base/buffer.h"

enum script_answer { SCRIPT_NOTHING, SCRIPT_WANT, SCRIPT_NONE, SCRIPT_READY };

#define SCRIPT_NOISE_BYTES 4096 /* of other output in front of an answer */

/* Appends the path and query that run the program `words` (ended by NULL) in a container. Returns 0, or -1 without
 * room. */
int script_target(struct buffer *out, const char *prefix, const struct podexec_options *where,
                  const char *const *words);
/* The same for the script that brings sandboxd up. */
int script_target_start(struct buffer *out, const char *prefix, const struct podexec_options *where);
/* The script's text and its arguments, for tests: `words` gets at most 16 and a NULL. size: 24 bytes for text. */
void script_words(const struct podexec_options *where, const char *words[static 16], char *size);

/* Reads answers out of what the container writes. */
struct script_reader {
  char line[64];
  size_t length; /* of the line so far, more than fits included */
  size_t noise;
};
/* Takes bytes up to the end of the first answer; *used: how many. */
enum script_answer script_read(struct script_reader *reader, const uint8_t *bytes, size_t length, size_t *used);

#endif
