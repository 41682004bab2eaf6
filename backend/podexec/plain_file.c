/*
 * Files by `cat`, each a pods/exec of its own: see plain.h. A script walks to the file, refusing symlinks, and says on
 * standard error what it found; the bytes go by standard output or input. A file is written under another name and
 * renamed when all of it is there: the last byte is kept back until its digest is known to be right.
 */
#include "backend/podexec/plain_internal.h"

#include "base/digest.h"
#include "base/limits.h"
#include "base/memory.h"
#include "base/message.h"
#include "base/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Exit codes of both scripts. */
enum { EXIT_FAILED = 10, EXIT_PATH = 11, EXIT_NOT_FOUND = 12, EXIT_TOO_LARGE = 13, EXIT_LENGTH = 14 };

/* $1 workspace, $2 path, $3 whether missing parents are made (2: and a missing file is fine). Leaves `at` behind. */
#define WALK                                                                                                           \
  "cd -- \"$1\" || exit 10\n"                                                                                          \
  "rest=$2 at=.\n"                                                                                                     \
  "while [ -n \"$rest\" ]; do\n"                                                                                       \
  "  part=${rest%%/*}\n"                                                                                               \
  "  case $rest in */*) rest=${rest#*/} ;; *) rest= ;; esac\n"                                                         \
  "  at=$at/$part\n"                                                                                                   \
  "  [ ! -L \"$at\" ] || exit 11\n"                                                                                    \
  "  [ -e \"$at\" ] && continue\n"                                                                                     \
  "  case $3:$rest in r:*) exit 12 ;; ?:) ;; p:*) mkdir \"$at\" || exit 11 ;; *) exit 11 ;; esac\n"                    \
  "done\n"                                                                                                             \
  "[ ! -e \"$at\" ] || [ -f \"$at\" ] || exit 11\n"

/* Then $4 the largest size, $5 whether a digest is wanted. */
static const char read_script[] = WALK
    "[ -f \"$at\" ] || exit 11\n"
    "size=$(wc -c <\"$at\") || exit 10\n"
    "[ \"$size\" -le \"$4\" ] || exit 13\n"
    "sum=\n"
    "[ \"$5\" = 0 ] || { sum=$(sha256sum <\"$at\") || exit 10; }\n"
    "echo \"sandboxd: file $((size)) ${sum%% *}\" >&2\n"
    "cat <\"$at\" 2>/dev/null || exit 10\n"
    "read -r line\n" /* until we have all of it and end standard input */
    "exit 0\n";

/* Then $4 the size. */
static const char write_script[] = WALK
    "umask 022\n"
    "temporary=${at%/*}/.sandboxd-$$\n"
    "trap 'rm -f \"$temporary\"' EXIT\n"
    "echo 'sandboxd: file' >&2\n"
    "cat >\"$temporary\" 2>/dev/null || exit 10\n"
    "size=$(wc -c <\"$temporary\") || exit 10\n"
    "[ \"$size\" -eq \"$4\" ] || exit 14\n"
    "mv -f \"$temporary\" \"$at\" 2>/dev/null || exit 10\n";

struct file {
  struct plain *plain;
  struct wire_call *call; /* NULL once it has ended */
  struct run *run;
  struct plain_words words;
  struct plain_line line;
  bool begun, paused, over;
  /* Writing. */
  bool digested, has_last;
  uint8_t wanted[DIGEST_SIZE];
  struct digest digest;
  uint64_t size, taken; /* reading, too */
  uint8_t last;       /* the byte that is kept back */
  struct buffer early; /* came before our line, which has a stream of its own */
  size_t held;        /* of messages, not consumed yet */
  bool complete;
};

static void fail(struct file *file, enum reason reason, const char *text) {
  if (file->over)
    return;
  file->over = true;
  if (file->call)
    plain_fail(file->call, reason, text);
  plain_schedule(file->plain);
}

static void fail_with(struct file *file, int exit_code) {
  switch (exit_code) {
  case EXIT_PATH:
    fail(file, REASON_INVALID_PATH, "not a regular file, or behind a symlink");
    return;
  case EXIT_NOT_FOUND:
    fail(file, REASON_FILE_NOT_FOUND, "there is no such file");
    return;
  case EXIT_TOO_LARGE:
    fail(file, REASON_TRANSFER_TOO_LARGE, "the file is too large");
    return;
  case EXIT_LENGTH:
    fail(file, REASON_FILE_TRANSFER_FAILED, "not every byte arrived");
    return;
  default:
    fail(file, REASON_FILE_TRANSFER_FAILED, "the script in the container failed");
  }
}

static void on_call_ended(struct wire_call *call, void *context, int status, const char *text) {
  struct file *file = context;
  (void)call;
  (void)status;
  (void)text;
  run_close(file->run);
  plain_words_free(&file->words);
  buffer_free(&file->early);
  memory_free(file);
}

static void on_opened(void *context) {
  (void)context;
}

/* Reads our line. Returns 1 when it is there, 0 when more must come, -1 when it failed; *used: bytes taken. */
static int take_line(struct file *file, const uint8_t *bytes, size_t length, size_t *used) {
  if (plain_line_read(&file->line, bytes, length, used) == 0)
    return file->line.complete;
  *used = length;
  fail(file, REASON_FILE_TRANSFER_FAILED, "the shell says what it should not");
  return -1;
}

static struct file *file_new(struct plain *plain, struct wire_call *call) {
  struct file *file = memory_zero(sizeof *file);
  if (!file) {
    plain_fail(call, REASON_FILE_TRANSFER_FAILED, "out of memory");
    return NULL;
  }
  file->plain = plain;
  file->call = call;
  buffer_init(&file->early, 4 * PLAIN_HIGH);
  return file;
}

static int add_words(struct file *file, const char *script, const char *path, const char *parents, uint64_t size) {
  struct plain_words *words = &file->words;
  const char *const first[] = {"sh", "-c", script, "sh", plain_workspace(file->plain), path, parents};
  for (size_t i = 0; i < sizeof first / sizeof first[0]; i++)
    if (plain_words_add(words, first[i]) != 0)
      return -1;
  return plain_words_add_number(words, size);
}

static void start(struct file *file, const struct run_events *events) {
  struct run_events mine = *events;
  mine.context = file;
  file->run = plain_run(file->plain, &file->words, &mine);
  if (!file->run)
    fail(file, REASON_FILE_TRANSFER_FAILED, "out of memory");
}

/* --- reading --- */

static void send_info(struct file *file) {
  static const char begin[] = "sandboxd: file ";
  Sandbox__Agent__V1__FileInfo info = SANDBOX__AGENT__V1__FILE_INFO__INIT;
  Sandbox__Agent__V1__ReadFileResponse response = SANDBOX__AGENT__V1__READ_FILE_RESPONSE__INIT;
  char *end = file->line.text;
  bool ours = strncmp(file->line.text, begin, sizeof begin - 1) == 0;
  if (ours)
    info.size_bytes = strtoull(file->line.text + sizeof begin - 1, &end, 10);
  size_t digits = strlen(end) > 0 ? strlen(end) - 1 : 0;
  if (digits > 0 && text_unhex(end + 1, digits, file->wanted, DIGEST_SIZE) == 0)
    info.sha256 = (ProtobufCBinaryData){.data = file->wanted, .len = DIGEST_SIZE};
  response.response_case = SANDBOX__AGENT__V1__READ_FILE_RESPONSE__RESPONSE_INFO;
  response.info = &info;
  file->begun = true;
  file->size = info.size_bytes;
  if (!ours || (digits > 0 && info.sha256.len == 0) || plain_send(file->call, &response.base) != 0)
    fail(file, REASON_FILE_TRANSFER_FAILED, "the shell does not work");
  else if (file->size == 0)
    run_send_end(file->run);
}

static void send_chunk(struct file *file, const uint8_t *bytes, size_t length) {
  Sandbox__Agent__V1__ReadFileResponse response = SANDBOX__AGENT__V1__READ_FILE_RESPONSE__INIT;
  response.response_case = SANDBOX__AGENT__V1__READ_FILE_RESPONSE__RESPONSE_DATA;
  response.data = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)bytes, .len = length};
  if (plain_send(file->call, &response.base) != 0)
    fail(file, REASON_FILE_TRANSFER_FAILED, "out of memory");
}

static void send_data(struct file *file, const uint8_t *bytes, size_t length) {
  if (length > file->size - file->taken) {
    fail(file, REASON_FILE_TRANSFER_FAILED, "the file has changed");
    return;
  }
  file->taken += length;
  if (file->taken == file->size)
    run_send_end(file->run);
  for (size_t some; length > 0 && !file->over; bytes += some, length -= some) {
    some = length < LIMIT_CHUNK_BYTES ? length : LIMIT_CHUNK_BYTES;
    send_chunk(file, bytes, some);
  }
  if (file->over || wire_call_queued(file->call) <= PLAIN_HIGH || file->paused)
    return;
  file->paused = true;
  run_pause(file->run, true);
}

static void on_read_output(void *context, int channel, const uint8_t *bytes, size_t length) {
  struct file *file = context;
  size_t used;
  if (file->over)
    return;
  if (channel == CHANNEL_STDERR && !file->begun) {
    if (take_line(file, bytes, length, &used) == 1)
      send_info(file);
    if (file->begun && !file->over && file->early.length > 0)
      send_data(file, file->early.data, file->early.length);
    if (file->begun)
      buffer_free(&file->early);
  } else if (channel == CHANNEL_STDOUT && file->begun) {
    send_data(file, bytes, length);
  } else if (channel == CHANNEL_STDOUT && buffer_append(&file->early, bytes, length) != 0) {
    fail(file, REASON_FILE_TRANSFER_FAILED, "the shell says what it should not");
  }
  plain_schedule(file->plain);
}

static void on_read_drained(void *context) {
  (void)context;
}

static void on_read_ended(void *context, const struct channels_end *end, struct error *err) {
  struct file *file = context;
  if (file->over)
    return;
  if (!end || !end->exited)
    fail(file, REASON_FILE_TRANSFER_FAILED, end ? end->message : error_detail(err));
  else if (end->exit_code != 0 || !file->begun)
    fail_with(file, end->exit_code);
  else {
    file->over = true;
    wire_call_finish(file->call, WIRE_OK, "");
    plain_schedule(file->plain);
  }
}

static void on_read_message(struct wire_call *call, void *context, const uint8_t *bytes, size_t length) {
  static const struct run_events events = {
      .opened = on_opened, .output = on_read_output, .drained = on_read_drained, .ended = on_read_ended};
  struct file *file = context;
  Sandbox__Agent__V1__ReadFileRequest *request =
      (void *)message_unpack(&sandbox__agent__v1__read_file_request__descriptor, bytes, length, NULL);
  wire_call_consume(call, length);
  if (!request || file->words.count > 0)
    fail(file, REASON_FILE_TRANSFER_FAILED, "a message that is none, or too many");
  else if (add_words(file, read_script, request->path, "r", request->max_bytes) != 0 ||
           plain_words_add(&file->words, request->digest ? "1" : "0") != 0)
    fail(file, REASON_FILE_TRANSFER_FAILED, "out of memory");
  else
    start(file, &events);
  if (request)
    protobuf_c_message_free_unpacked(&request->base, NULL);
}

static void on_read_writable(struct wire_call *call, void *context) {
  struct file *file = context;
  (void)call;
  if (!file->paused || !file->run)
    return;
  file->paused = false;
  run_pause(file->run, false);
}

static void on_read_half_closed(struct wire_call *call, void *context) {
  struct file *file = context;
  (void)call;
  if (file->words.count == 0)
    fail(file, REASON_FILE_TRANSFER_FAILED, "there is no message");
}

void plain_read_opened(struct plain *plain, struct wire_call *call) {
  static const struct wire_call_events events = {.message = on_read_message,
                                                 .half_closed = on_read_half_closed,
                                                 .writable = on_read_writable,
                                                 .ended = on_call_ended};
  struct file *file = file_new(plain, call);
  if (file)
    wire_call_accept(call, &events, file);
}

/* --- writing --- */

static void on_write_drained(void *context) {
  struct file *file = context;
  if (file->held > 0)
    wire_call_consume(file->call, file->held);
  file->held = 0;
  plain_schedule(file->plain);
}

/* All but the last byte that has come. */
static void send_on(struct file *file, const uint8_t *bytes, size_t length) {
  if (length == 0)
    return;
  if (file->has_last)
    run_send(file->run, &file->last, 1);
  file->has_last = true;
  file->last = bytes[length - 1];
  run_send(file->run, bytes, length - 1); /* a failure's end is told */
  if (run_queued(file->run) < PLAIN_HIGH)
    on_write_drained(file);
}

static void complete(struct file *file) {
  uint8_t found[DIGEST_SIZE];
  digest_finish(&file->digest, found);
  if (file->taken != file->size) {
    fail(file, REASON_CONTENT_LENGTH_MISMATCH, "fewer bytes came than announced");
  } else if (file->digested && !digest_equal(found, file->wanted, sizeof found)) {
    fail(file, REASON_CONTENT_DIGEST_MISMATCH, "the bytes have another digest");
  } else {
    if (file->has_last)
      run_send(file->run, &file->last, 1);
    run_send_end(file->run);
  }
}

static void on_write_output(void *context, int channel, const uint8_t *bytes, size_t length) {
  struct file *file = context;
  size_t used;
  if (file->over || file->begun || channel != CHANNEL_STDERR || take_line(file, bytes, length, &used) != 1)
    return;
  file->begun = true;
  send_on(file, file->early.data, file->early.length);
  buffer_free(&file->early);
  if (file->complete)
    complete(file);
  plain_schedule(file->plain);
}

static void on_write_ended(void *context, const struct channels_end *end, struct error *err) {
  struct file *file = context;
  const Sandbox__Agent__V1__WriteFileResponse response = SANDBOX__AGENT__V1__WRITE_FILE_RESPONSE__INIT;
  if (file->over)
    return;
  if (!end || !end->exited) {
    fail(file, REASON_FILE_TRANSFER_FAILED, end ? end->message : error_detail(err));
  } else if (end->exit_code != 0 || !file->complete) {
    fail_with(file, end->exit_code);
  } else {
    file->over = true;
    bool sent = plain_send(file->call, &response.base) == 0;
    wire_call_finish(file->call, sent ? WIRE_OK : WIRE_RESOURCE_EXHAUSTED, sent ? "" : "INTERNAL out of memory");
    plain_schedule(file->plain);
  }
}

static void begin_write(struct file *file, const Sandbox__Agent__V1__WriteFileInfo *info) {
  static const struct run_events events = {
      .opened = on_opened, .output = on_write_output, .drained = on_write_drained, .ended = on_write_ended};
  const ProtobufCBinaryData *sum = info->file ? &info->file->sha256 : NULL;
  if (file->words.count > 0 || !sum || (sum->len != 0 && sum->len != DIGEST_SIZE)) {
    fail(file, REASON_FILE_TRANSFER_FAILED, "an announcement that is none, or a second one");
    return;
  }
  file->size = info->file->size_bytes;
  file->digested = sum->len != 0;
  if (file->digested)
    memcpy(file->wanted, sum->data, DIGEST_SIZE);
  digest_start(&file->digest);
  if (add_words(file, write_script, info->path, info->make_parents ? "p" : "w", file->size) != 0)
    fail(file, REASON_FILE_TRANSFER_FAILED, "out of memory");
  else
    start(file, &events);
}

static void take_data(struct file *file, const ProtobufCBinaryData *data, size_t length) {
  file->held += length;
  if (file->words.count == 0 || data->len > file->size - file->taken) {
    fail(file, REASON_CONTENT_LENGTH_MISMATCH, "more bytes came than announced");
    return;
  }
  file->taken += data->len;
  digest_update(&file->digest, data->data, data->len);
  if (file->begun)
    send_on(file, data->data, data->len);
  else if (buffer_append(&file->early, data->data, data->len) != 0)
    fail(file, REASON_FILE_TRANSFER_FAILED, "out of memory");
}

static void on_write_message(struct wire_call *call, void *context, const uint8_t *bytes, size_t length) {
  struct file *file = context;
  Sandbox__Agent__V1__WriteFileRequest *request =
      (void *)message_unpack(&sandbox__agent__v1__write_file_request__descriptor, bytes, length, NULL);
  bool data = request && request->request_case == SANDBOX__AGENT__V1__WRITE_FILE_REQUEST__REQUEST_DATA && !file->over;
  if (!request)
    fail(file, REASON_FILE_TRANSFER_FAILED, "a message that is none");
  else if (data)
    take_data(file, &request->data, length);
  else if (!file->over && request->request_case == SANDBOX__AGENT__V1__WRITE_FILE_REQUEST__REQUEST_INFO)
    begin_write(file, request->info);
  if (!data)
    wire_call_consume(call, length);
  if (request)
    protobuf_c_message_free_unpacked(&request->base, NULL);
}

static void on_write_half_closed(struct wire_call *call, void *context) {
  struct file *file = context;
  (void)call;
  file->complete = true;
  if (file->words.count == 0)
    fail(file, REASON_FILE_TRANSFER_FAILED, "there is no message");
  else if (file->begun && !file->over)
    complete(file);
}

void plain_write_opened(struct plain *plain, struct wire_call *call) {
  static const struct wire_call_events events = {
      .message = on_write_message, .half_closed = on_write_half_closed, .ended = on_call_ended};
  struct file *file = file_new(plain, call);
  if (file)
    wire_call_accept(call, &events, file);
}
