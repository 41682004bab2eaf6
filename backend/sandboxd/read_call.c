/*
 * The ReadFile call: one consistent snapshot of a regular file. Its size is fixed when it is opened. A file up to
 * READ_WHOLE is read into memory once; a larger one is read twice when a digest is wanted, first to announce it and
 * then to send. If somebody wrote in between the two differ; that is for the server to find, which compares what it
 * got with what was announced in any case, before it passes the last bytes on.
 */
#include "backend/sandboxd/path.h"
#include "backend/sandboxd/reply.h"
#include "backend/sandboxd/service.h"
#include "base/digest.h"
#include "base/limits.h"
#include "base/memory.h"
#include "base/message.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define READ_WHOLE 524288 /* bytes */
#define READ_SLICE 1048576 /* bytes hashed in one round of the loop: below a millisecond */

struct read_call {
  struct agent *agent;
  struct wire_call *call;
  int file;          /* -1: not open */
  uint64_t size;
  uint64_t position; /* of the next byte to hash, then to send */
  bool digest;
  bool sending;
  struct digest hash;
  uint8_t announced[DIGEST_SIZE];
  uint8_t *whole;    /* a small file's bytes, or NULL */
  struct loop_task task;
};

static void read_call_fail(struct read_call *read, struct error **err) {
  loop_task_cancel(&read->agent->loop, &read->task);
  reply_failure(read->call, err);
}

static int read_call_bytes(const struct read_call *read, uint64_t position, uint8_t *out, size_t length,
                           struct error **err) {
  while (length) {
    ssize_t got = pread(read->file, out, length, (off_t)position);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return error_set_detail(err, REASON_FILE_TRANSFER_FAILED, "read: %s", strerror(errno));
    if (got == 0)
      return error_set_detail(err, REASON_FILE_TRANSFER_FAILED, "the file has become shorter");
    out += got;
    position += (uint64_t)got;
    length -= (size_t)got;
  }
  return 0;
}

static int read_call_send_chunk(struct read_call *read, struct error **err) {
  uint64_t left = read->size - read->position;
  size_t length = left < LIMIT_CHUNK_BYTES ? (size_t)left : LIMIT_CHUNK_BYTES;
  uint8_t *block = reply_data_new(length);
  if (!block)
    return error_set_memory(err);
  uint8_t *bytes = reply_data_bytes(block, length);
  if (read->whole) {
    memcpy(bytes, read->whole + read->position, length);
  } else if (read_call_bytes(read, read->position, bytes, length, err)) {
    memory_free(block);
    return -1;
  }
  read->position += length;
  return reply_data(read->call, block, length) ? error_set_memory(err) : 0;
}

static void read_call_send(struct read_call *read) {
  struct error *err = NULL;
  while (read->position < read->size && wire_call_queued(read->call) < REPLY_HIGH_WATER)
    if (read_call_send_chunk(read, &err)) {
      read_call_fail(read, &err);
      return;
    }
  if (read->position == read->size)
    wire_call_finish(read->call, WIRE_OK, "");
}

static int read_call_announce(struct read_call *read, struct error **err) {
  Sandbox__Agent__V1__FileInfo info = SANDBOX__AGENT__V1__FILE_INFO__INIT;
  Sandbox__Agent__V1__ReadFileResponse response = SANDBOX__AGENT__V1__READ_FILE_RESPONSE__INIT;
  info.size_bytes = read->size;
  if (read->digest) {
    digest_finish(&read->hash, read->announced);
    info.sha256.data = read->announced;
    info.sha256.len = DIGEST_SIZE;
  }
  response.response_case = SANDBOX__AGENT__V1__READ_FILE_RESPONSE__RESPONSE_INFO;
  response.info = &info;
  read->sending = true;
  read->position = 0;
  return reply_message(read->call, &response.base) ? error_set_memory(err) : 0;
}

/* Hashes one slice; then either comes again or begins to send. */
static int read_call_hash(struct read_call *read, struct error **err) {
  static uint8_t bytes[65536];
  for (size_t done = 0; read->digest && read->position < read->size; done += sizeof bytes) {
    if (done >= READ_SLICE) {
      loop_task_queue(&read->agent->loop, &read->task);
      return 0;
    }
    uint64_t left = read->size - read->position;
    size_t length = left < sizeof bytes ? (size_t)left : sizeof bytes;
    if (read_call_bytes(read, read->position, bytes, length, err))
      return -1;
    digest_update(&read->hash, bytes, length);
    read->position += length;
  }
  return read_call_announce(read, err);
}

static void read_call_advance(void *context) {
  struct read_call *read = context;
  struct error *err = NULL;
  if (read_call_hash(read, &err))
    read_call_fail(read, &err);
  else if (read->sending)
    read_call_send(read);
}

static int read_call_read_whole(struct read_call *read, struct error **err) {
  if (read->size > READ_WHOLE || !read->size)
    return 0;
  read->whole = memory_new((size_t)read->size);
  if (!read->whole)
    return error_set_memory(err);
  if (read_call_bytes(read, 0, read->whole, (size_t)read->size, err))
    return -1;
  if (read->digest)
    digest_update(&read->hash, read->whole, (size_t)read->size);
  read->position = read->size;
  return 0;
}

static int read_call_start(struct read_call *read, const Sandbox__Agent__V1__ReadFileRequest *request,
                           struct error **err) {
  struct stat status;
  if (read->file >= 0)
    return error_set_field(err, REASON_INVALID_REQUEST, "path", "there is one request in a call");
  if (strlen(request->path) > LIMIT_PATH_BYTES)
    return error_set_field(err, REASON_INVALID_PATH, "path", "Path is longer than 4096 bytes");
  read->file = path_open_file(&read->agent->root, request->path, &status, err);
  if (read->file < 0)
    return -1;
  read->size = (uint64_t)status.st_size;
  read->digest = request->digest;
  if (read->size > request->max_bytes)
    return error_set_detail(err, REASON_TRANSFER_TOO_LARGE, "the file has more than 'max_bytes'");
  digest_start(&read->hash);
  return read_call_read_whole(read, err);
}

static void read_call_message(struct wire_call *call, void *context, const uint8_t *bytes, size_t length) {
  struct read_call *read = context;
  struct error *err = NULL;
  Sandbox__Agent__V1__ReadFileRequest *request =
      (void *)message_unpack(&sandbox__agent__v1__read_file_request__descriptor, bytes, length, &err);
  if (!request || read_call_start(read, request, &err))
    read_call_fail(read, &err);
  else
    read_call_advance(read);
  wire_call_consume(call, length);
  if (request)
    protobuf_c_message_free_unpacked(&request->base, NULL);
}

static void read_call_half_closed(struct wire_call *call, void *context) {
  const struct read_call *read = context;
  if (read->file < 0)
    wire_call_finish(call, WIRE_UNKNOWN, "INVALID_REQUEST there is no message");
}

static void read_call_writable(struct wire_call *call, void *context) {
  struct read_call *read = context;
  (void)call;
  if (read->sending)
    read_call_send(read);
}

static void read_call_ended(struct wire_call *call, void *context, int status, const char *text) {
  struct read_call *read = context;
  (void)call;
  (void)status;
  (void)text;
  loop_task_cancel(&read->agent->loop, &read->task);
  if (read->file >= 0)
    close(read->file);
  read->agent->transfers--;
  memory_free(read->whole);
  memory_free(read);
}

static const struct wire_call_events read_call_events = {.message = read_call_message,
                                                         .half_closed = read_call_half_closed,
                                                         .writable = read_call_writable,
                                                         .ended = read_call_ended};

void read_call_opened(struct agent *agent, struct wire_call *call) {
  struct read_call *read = agent->transfers < AGENT_TRANSFERS ? memory_zero(sizeof *read) : NULL;
  if (!read) {
    wire_call_finish(call, WIRE_RESOURCE_EXHAUSTED, "FILE_TRANSFER_FAILED too many at once");
    return;
  }
  agent->transfers++;
  read->agent = agent;
  read->call = call;
  read->file = -1;
  read->task = (struct loop_task){.run = read_call_advance, .context = read};
  wire_call_accept(call, &read_call_events, read);
}
