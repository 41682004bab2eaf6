#define _GNU_SOURCE
#include "record.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RECORD_LIMIT = 8192, FORMAT = 1 };

static void close_cleanup(int *fd)
{
  if (*fd >= 0)
    close(*fd);
}
#define CLEANUP_FD __attribute__((cleanup(close_cleanup)))

static int record_format(struct buffer *out, const struct record *record)
{
  const struct backend_sandbox *sandbox = &record->sandbox;
  if (buffer_append_format(out,
                           "{\"format\":%d,\"pool\":\"%s\",\"boot\":\"%s\",\"monitor\":%d,\"monitorStart\":\"%" PRIu64
                           "\",\"init\":%d,\"initStart\":\"%" PRIu64 "\",\"uid\":%" PRIu32,
                           FORMAT, record->pool, record->boot, record->monitor, record->monitor_start, record->init,
                           record->init_start, record->uid) < 0)
    return -1;
  if (record->bound &&
      buffer_append_format(out,
                           ",\"id\":\"%s\",\"scope\":\"%s\",\"consumer\":\"%s\",\"idempotency\":\"%s\",\"createdAt\":\"%" PRId64
                           "\",\"expiresAt\":\"%" PRId64 "\",\"deadline\":\"%" PRId64 "\"",
                           sandbox->id, sandbox->scope, sandbox->consumer, sandbox->idempotency, sandbox->created_at,
                           sandbox->expires_at, sandbox->deadline) < 0)
    return -1;
  return buffer_append_string(out, "}\n");
}

int record_write(const char *path, const struct record *record, struct error **err)
{
  CLEANUP_BUFFER struct buffer text, temporary;
  buffer_init(&text, RECORD_LIMIT);
  buffer_init(&temporary, 4096);
  if (record_format(&text, record) < 0 || buffer_append_format(&temporary, "%s.new", path) < 0)
    return error_set_memory(err);
  CLEANUP_FD int fd = open(buffer_text(&temporary), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, text.data, text.length) != (ssize_t)text.length || rename(buffer_text(&temporary), path) < 0)
    return error_set_errno(err, errno, "cannot write %s", path);
  /* The file's time is the last use, which comes back after a restart. */
  int64_t used = record->sandbox.last_used_at;
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = used / CLOCK_SECOND, .tv_nsec = used % CLOCK_SECOND}};
  if (record->bound)
    futimens(fd, times);
  return 0;
}

static int text_field(const struct json *json, const char *name, char *to, size_t size)
{
  struct json_text text;
  if (json_get_text(json, name, &text, NULL) < 0 || !text.data || text.length >= size || strlen(text.data) != text.length)
    return -1;
  memcpy(to, text.data, text.length + 1);
  return 0;
}

/* 64-bit numbers are kept as text: JSON's numbers hold 53 bits. */
static int wide_field(const struct json *json, const char *name, int64_t *number)
{
  char text[24], *end;
  if (text_field(json, name, text, sizeof text) < 0)
    return -1;
  errno = 0;
  *number = strtoll(text, &end, 10);
  return errno || end == text || *end ? -1 : 0;
}

static int number_field(const struct json *json, const char *name, int64_t maximum, int64_t *number)
{
  bool present;
  return json_get_integer(json, name, &present, number, NULL) < 0 || !present || *number < 0 || *number > maximum ? -1 : 0;
}

static int process_fields(const struct json *json, struct record *record)
{
  int64_t format, monitor, init, monitor_start, init_start, uid;
  if (number_field(json, "format", FORMAT, &format) < 0 || format != FORMAT ||
      text_field(json, "pool", record->pool, sizeof record->pool) < 0 ||
      text_field(json, "boot", record->boot, sizeof record->boot) < 0 ||
      number_field(json, "monitor", INT32_MAX, &monitor) < 0 || number_field(json, "init", INT32_MAX, &init) < 0 ||
      wide_field(json, "monitorStart", &monitor_start) < 0 || wide_field(json, "initStart", &init_start) < 0 ||
      number_field(json, "uid", UINT32_MAX, &uid) < 0)
    return -1;
  record->monitor = (pid_t)monitor;
  record->init = (pid_t)init;
  record->monitor_start = (uint64_t)monitor_start;
  record->init_start = (uint64_t)init_start;
  record->uid = (uint32_t)uid;
  return 0;
}

static int sandbox_fields(const struct json *json, struct record *record)
{
  struct backend_sandbox *sandbox = &record->sandbox;
  struct json_text id;
  if (json_get_text(json, "id", &id, NULL) < 0)
    return -1;
  record->bound = id.data != NULL;
  if (!record->bound)
    return 0;
  memcpy(sandbox->pool, record->pool, sizeof sandbox->pool);
  if (text_field(json, "id", sandbox->id, sizeof sandbox->id) < 0 ||
      text_field(json, "scope", sandbox->scope, sizeof sandbox->scope) < 0 ||
      text_field(json, "consumer", sandbox->consumer, sizeof sandbox->consumer) < 0 ||
      text_field(json, "idempotency", sandbox->idempotency, sizeof sandbox->idempotency) < 0)
    return -1;
  return wide_field(json, "createdAt", &sandbox->created_at) < 0 || wide_field(json, "expiresAt", &sandbox->expires_at) < 0 ||
                 wide_field(json, "deadline", &sandbox->deadline) < 0
             ? -1
             : 0;
}

static ssize_t file_read(const char *path, char *text, size_t size)
{
  CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);
  if (length >= 0)
    text[length] = '\0';
  return length;
}

int record_read(const char *path, struct record *record, struct error **err)
{
  char text[RECORD_LIMIT];
  *record = (struct record){0};
  ssize_t length = file_read(path, text, sizeof text);
  if (length < 0)
    return error_set_errno(err, errno, "cannot read %s", path);
  CLEANUP_JSON struct json *json = json_parse(text, (size_t)length, NULL);
  if (!json || !json_is_object(json) || process_fields(json, record) < 0 || sandbox_fields(json, record) < 0)
    return error_set_detail(err, REASON_INTERNAL, "%s is malformed", path);
  return 0;
}

int boot_id_read(char boot[static BOOT_ID_SIZE], struct error **err)
{
  if (file_read("/proc/sys/kernel/random/boot_id", boot, BOOT_ID_SIZE) != BOOT_ID_SIZE - 1)
    return error_set_detail(err, REASON_INTERNAL, "cannot read the kernel's boot id");
  return 0;
}

/* Field 22 of /proc/PID/stat, counted behind the name, which may hold anything. */
uint64_t process_start(pid_t pid)
{
  char path[64], text[2048];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  if (pid <= 0 || file_read(path, text, sizeof text) <= 0)
    return 0;
  const char *at = strrchr(text, ')');
  for (int field = 2; at && field < 22; field++)
    at = strchr(at + 1, ' ');
  return at ? strtoull(at + 1, NULL, 10) : 0;
}
