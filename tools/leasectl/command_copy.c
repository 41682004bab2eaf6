/*
 * cp: one file from this machine into a sandbox, or back. Size and digest are checked on both ways; a local file is
 * replaced only when all of it has come.
 */
#define _GNU_SOURCE /* mkostemp */
#include "base/buffer.h"
#include "base/digest.h"
#include "base/limits.h"
#include "base/memory.h"
#include "rpc/message.h"
#include "sandbox/lease/v1/lease.pb-c.h"
#include "tools/leasectl/commands.h"
#include "tools/leasectl/output.h"
#include "tools/leasectl/progress.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DATA_FIELD = 2, NAME_LIMIT = 8192 };

/* "lease-…:path", taken apart; lease NULL: a path on this machine. */
struct place {
  char *lease;
  const char *path;
};

static int place_parse(char *text, struct place *place) {
  char *colon = strchr(text, ':');
  if (!colon || strncmp(text, "lease-", 6) != 0) {
    *place = (struct place){.path = text};
    return 0;
  }
  *colon = '\0';
  *place = (struct place){.lease = text, .path = colon + 1};
  return colon[1] ? 0 : -1;
}

static const char *last_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* The target, with the source's name behind it if it names a folder. */
static int target_name(struct buffer *name, const char *target, bool folder, const char *source) {
  size_t length = strlen(target);
  if (buffer_append_string(name, target) < 0)
    return -1;
  if (!folder)
    return 0;
  return ((length && target[length - 1] != '/') && buffer_append_byte(name, '/') < 0) ||
                 buffer_append_string(name, last_name(source)) < 0
             ? -1
             : 0;
}

/* --- into the sandbox --- */

static int file_digest(int fd, const char *path, uint64_t size, uint8_t sha256[static DIGEST_SIZE],
                       struct error **err) {
  static uint8_t bytes[LIMIT_CHUNK_BYTES];
  struct digest digest;
  digest_start(&digest);
  uint64_t total = 0;
  for (ssize_t got; (got = read(fd, bytes, sizeof bytes)) != 0; total += (uint64_t)got) {
    if (got < 0)
      return error_set_errno(err, errno, "cannot read %s", path);
    digest_update(&digest, bytes, (size_t)got);
  }
  digest_finish(&digest, sha256);
  if (total != size)
    return error_set_detail(err, REASON_INTERNAL, "%s changed while it was read", path);
  return lseek(fd, 0, SEEK_SET) < 0 ? error_set_errno(err, errno, "%s can be read only once", path) : 0;
}

static int upload_open(const char *path, struct stat *status, struct error **err) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return error_set_errno(err, errno, "cannot open %s", path);
  const char *wrong = fstat(fd, status) < 0                    ? "cannot be examined"
                      : S_ISDIR(status->st_mode)               ? "is a folder; cp copies one file"
                      : !S_ISREG(status->st_mode)              ? "is not a regular file"
                      : status->st_size > LIMIT_TRANSFER_BYTES ? "is larger than 64 MiB"
                                                               : NULL;
  if (!wrong)
    return fd;
  close(fd);
  return error_set_detail(err, REASON_INTERNAL, "%s %s", path, wrong);
}

static bool ignore_message(void *context, grpc_byte_buffer *message) {
  (void)context;
  (void)message;
  return true;
}

static void upload_data(struct stream *stream, int fd, uint64_t size, struct progress *progress) {
  uint64_t sent = 0;
  for (;;) {
    grpc_slice slice = grpc_slice_malloc(LIMIT_CHUNK_BYTES);
    ssize_t got = read(fd, GRPC_SLICE_START_PTR(slice), LIMIT_CHUNK_BYTES);
    if (got <= 0) {
      grpc_slice_unref(slice);
      break; /* what is missing the server notices */
    }
    grpc_slice part = grpc_slice_sub(slice, 0, (size_t)got);
    grpc_slice_unref(slice);
    if (!stream_send(stream, rpc_pack_bytes(DATA_FIELD, part)))
      return;
    sent += (uint64_t)got;
    progress_show(progress, sent, size);
  }
  stream_half_close(stream);
}

static int upload(struct invocation *invocation, const char *source, const char *lease, const char *path,
                  struct error **err) {
  struct stat status;
  int fd = upload_open(source, &status, err);
  if (fd < 0)
    return -1;
  uint8_t sha256[DIGEST_SIZE];
  uint64_t size = (uint64_t)status.st_size;
  if (file_digest(fd, source, size, sha256, err) < 0) {
    close(fd);
    return -1;
  }
  Sandbox__Lease__V1__FileInfo file = SANDBOX__LEASE__V1__FILE_INFO__INIT;
  file.size_bytes = status.st_size;
  file.sha256 = (ProtobufCBinaryData){.data = sha256, .len = sizeof sha256};
  Sandbox__Lease__V1__UploadFileInfo info = SANDBOX__LEASE__V1__UPLOAD_FILE_INFO__INIT;
  info.lease_id = (char *)lease;
  info.path = (char *)path;
  info.file = &file;
  Sandbox__Lease__V1__UploadFileRequest request = SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__INIT;
  request.request_case = SANDBOX__LEASE__V1__UPLOAD_FILE_REQUEST__REQUEST_INFO;
  request.info = &info;
  struct stream *stream = stream_start(invocation->connection, "/sandbox.lease.v1.LeaseService/UploadFile",
                                       &request.base, false, ignore_message, NULL, -1, err);
  int failed = -1;
  if (stream) {
    struct progress progress;
    progress_start(&progress, last_name(source), !invocation->json);
    upload_data(stream, fd, size, &progress);
    failed = stream_finish(stream, err);
    progress_end(&progress);
  }
  close(fd);
  return failed;
}

/* --- out of the sandbox --- */

/* Written on the queue's thread until the call has ended. */
struct download {
  int fd;
  const char *name; /* of what is written, for messages */
  struct digest digest;
  struct progress progress;
  uint64_t size, got;
  uint8_t sha256[DIGEST_SIZE];
  bool informed;
  struct error *failure;
};

static int download_write(struct download *download, const uint8_t *bytes, size_t length) {
  download->got += length;
  if (!download->informed || download->got > download->size)
    return error_set_detail(&download->failure, REASON_INTERNAL, "the server sent more than it announced");
  digest_update(&download->digest, bytes, length);
  for (size_t done = 0; done < length;) {
    ssize_t written = write(download->fd, bytes + done, length - done);
    if (written < 0 && errno != EINTR)
      return error_set_errno(&download->failure, errno, "cannot write %s", download->name);
    done += written > 0 ? (size_t)written : 0;
  }
  progress_show(&download->progress, download->got, download->size);
  return 0;
}

static int download_info(struct download *download, const Sandbox__Lease__V1__FileInfo *info) {
  if (download->informed || info->size_bytes < 0 || info->sha256.len != DIGEST_SIZE)
    return error_set_detail(&download->failure, REASON_INTERNAL, "the server's announcement of the file is malformed");
  download->informed = true;
  download->size = (uint64_t)info->size_bytes;
  memcpy(download->sha256, info->sha256.data, DIGEST_SIZE);
  return 0;
}

static bool download_message(void *context, grpc_byte_buffer *bytes) {
  struct download *download = context;
  grpc_slice payload;
  if (rpc_unpack_bytes(DATA_FIELD, bytes, &payload)) {
    int failed = download_write(download, GRPC_SLICE_START_PTR(payload), GRPC_SLICE_LENGTH(payload));
    grpc_slice_unref(payload);
    return !failed;
  }
  Sandbox__Lease__V1__DownloadFileResponse *response = (Sandbox__Lease__V1__DownloadFileResponse *)rpc_unpack(
      &sandbox__lease__v1__download_file_response__descriptor, bytes, &download->failure);
  int failed = !response || response->response_case != SANDBOX__LEASE__V1__DOWNLOAD_FILE_RESPONSE__RESPONSE_INFO ||
               download_info(download, response->info) < 0;
  if (response)
    protobuf_c_message_free_unpacked(&response->base, NULL);
  return !failed;
}

static int download_check(struct download *download, struct error **err) {
  uint8_t sha256[DIGEST_SIZE];
  digest_finish(&download->digest, sha256);
  if (!download->informed || download->got != download->size)
    return error_set_detail(err, REASON_INTERNAL, "the file came cut short: %" PRIu64 " of %" PRIu64 " bytes",
                            download->got, download->size);
  if (!digest_equal(sha256, download->sha256, DIGEST_SIZE))
    return error_set_detail(err, REASON_INTERNAL, "the file came with another digest than announced");
  return 0;
}

/* Into `fd`. */
static int download_run(struct invocation *invocation, const char *lease, const char *path, int fd, const char *name,
                        struct error **err) {
  Sandbox__Lease__V1__DownloadFileRequest request = SANDBOX__LEASE__V1__DOWNLOAD_FILE_REQUEST__INIT;
  request.lease_id = (char *)lease;
  request.path = (char *)path;
  struct download download = {.fd = fd, .name = name};
  digest_start(&download.digest);
  progress_start(&download.progress, last_name(path), !invocation->json && fd != STDOUT_FILENO);
  struct stream *stream = stream_start(invocation->connection, "/sandbox.lease.v1.LeaseService/DownloadFile",
                                       &request.base, true, download_message, &download, -1, err);
  if (!stream)
    return -1;
  int failed = stream_finish(stream, err);
  progress_end(&download.progress);
  if (download.failure) {
    error_free(err);
    return error_move(err, &download.failure);
  }
  return failed ? -1 : download_check(&download, err);
}

/* A pipe or a device is written to, never replaced. */
static int download_into(struct invocation *invocation, const char *lease, const char *path, const char *target,
                         struct error **err) {
  int fd = open(target, O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    return error_set_errno(err, errno, "cannot write %s", target);
  int failed = download_run(invocation, lease, path, fd, target, err);
  close(fd);
  return failed;
}

/* "name.XXXXXX" to "name". */
static int temporary_rename(const char *temporary) {
  CLEANUP_BUFFER struct buffer name;
  buffer_init(&name, NAME_LIMIT);
  if (buffer_append(&name, temporary, strlen(temporary) - strlen(".XXXXXX")) < 0)
    return -1;
  return rename(temporary, buffer_text(&name));
}

static int download(struct invocation *invocation, const char *lease, const char *path, const char *target,
                    struct error **err) {
  if (strcmp(target, "-") == 0)
    return download_run(invocation, lease, path, STDOUT_FILENO, "standard output", err);
  struct stat old;
  bool exists = stat(target, &old) == 0;
  if (exists && !S_ISREG(old.st_mode))
    return download_into(invocation, lease, path, target, err);
  /* Beside the file itself, not beside a link to it. */
  char *real = exists ? realpath(target, NULL) : NULL;
  CLEANUP_BUFFER struct buffer temporary;
  buffer_init(&temporary, NAME_LIMIT);
  int named = buffer_append_format(&temporary, "%s.XXXXXX", real ? real : target);
  free(real);
  if (named < 0)
    return error_set_memory(err);
  char *name = (char *)temporary.data;
  int fd = mkostemp(name, O_CLOEXEC);
  if (fd < 0)
    return error_set_errno(err, errno, "cannot write beside %s", target);
  mode_t mask = umask(0);
  umask(mask);
  int failed = download_run(invocation, lease, path, fd, target, err);
  if (!failed && (fchmod(fd, exists ? old.st_mode & 07777 : 0666 & ~mask) < 0 || temporary_rename(name) < 0))
    failed = error_set_errno(err, errno, "cannot put %s in its place", target);
  if (failed)
    unlink(name);
  close(fd);
  return failed;
}

static int copy(struct invocation *invocation, const struct place *from, const struct place *to, struct error **err) {
  CLEANUP_BUFFER struct buffer target;
  buffer_init(&target, NAME_LIMIT);
  struct stat status;
  size_t length = strlen(to->path);
  bool folder = to->lease ? to->path[length - 1] == '/' : stat(to->path, &status) == 0 && S_ISDIR(status.st_mode);
  if (target_name(&target, to->path, folder, from->path) < 0)
    return error_set_detail(err, REASON_INTERNAL, "the name is too long");
  return to->lease ? upload(invocation, from->path, to->lease, buffer_text(&target), err)
                   : download(invocation, from->lease, from->path, buffer_text(&target), err);
}

int command_copy(struct invocation *invocation, int count, char **arguments) {
  static const struct option options[] = {COMMON_OPTIONS};
  for (int option; (option = getopt_long(count, arguments, "", options, NULL)) != -1;)
    if (!invocation_option(invocation, option))
      return usage_refused();
  struct place from, to;
  if (optind + 2 != count || place_parse(arguments[optind], &from) < 0 || place_parse(arguments[optind + 1], &to) < 0 ||
      !from.lease == !to.lease || !from.path[0] || !to.path[0])
    return usage_error("cp", "wants a source and a target, one of them lease-…:path");
  CLEANUP_ERROR struct error *err = NULL;
  if (invocation_connect(invocation, &err) < 0 || copy(invocation, &from, &to, &err) < 0)
    return output_failure(err, invocation->json);
  return invocation->json && strcmp(to.path, "-") != 0 && puts("{}") < 0;
}
