/*
 * The agent's messages as their receivers want them: checked against the protocol's ranges as far as one message alone
 * can be, and the bytes of output and files left where they came. Pure functions.
 */
#ifndef BACKEND_SESSION_REPLY_H
#define BACKEND_SESSION_REPLY_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum reply_kind { REPLY_BAD, REPLY_STARTED, REPLY_OUTPUT, REPLY_END, REPLY_INFO, REPLY_DATA };

struct reply {
  enum reply_kind kind;
  /* STARTED: of standard input. OUTPUT: of the first byte. */
  uint64_t offset;
  /* OUTPUT: 1 or 2. */
  int stream;
  /* OUTPUT and DATA: 1 to LIMIT_CHUNK_BYTES, within the message. INFO: the digest, 32 bytes, or none. */
  const uint8_t *bytes;
  size_t length;
  /* END: a RunEndedBy from 1 to 6, 0 to 255, 0 to 64, totals. */
  int ended_by, exit_code, signal;
  uint64_t stdout_bytes, stderr_bytes;
  /* INFO. */
  uint64_t size;
  uint8_t digest[32]; /* what `bytes` of an INFO points to */
};

/* Each reads one whole message; kind REPLY_BAD if it is malformed or out of range. */
void reply_read_run(const uint8_t *message, size_t length, struct reply *reply);
void reply_read_file(const uint8_t *message, size_t length, struct reply *reply);
bool reply_is_write_response(const uint8_t *message, size_t length);

/* The reason that a status text begins with ("<REASON> <text>"), or REASON_NONE. */
enum reason reply_reason(const char *text);

/* Bytes that go in front of a payload, which comes last in the message. */
#define REPLY_HEAD_MOST 32
/* RunRequest with a StdinChunk. Returns how many were written. */
size_t reply_write_stdin_head(uint8_t head[static REPLY_HEAD_MOST], uint64_t offset, size_t length);
/* WriteFileRequest with data. */
size_t reply_write_data_head(uint8_t head[static REPLY_HEAD_MOST], size_t length);

#endif
