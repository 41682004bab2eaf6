/*
 * Writing and reading records: see record.h. Numbers of 64 bits are kept as text, for JSON's hold 53.
 */
#include "backend/local/record.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RECORD_LIMIT = 8192, FORMAT = 2 };

static void close_cleanup(int *file) {
  if (*file >= 0)
    close(*file);
}
#define CLEANUP_FILE __attribute__((cleanup(close_cleanup)))

/* --- writing --- */

static int write_text(struct buffer *out, const char *name, const char *text) {
  return buffer_append_format(out, ",\"%s\":", name) | json_write_string(out, text, strlen(text));
}

static int write_wide(struct buffer *out, const char *name, int64_t number) {
  return buffer_append_format(out, ",\"%s\":\"%" PRId64 "\"", name, number);
}

static int write_process(struct buffer *out, const char *name, const struct local_process *process) {
  return buffer_append_format(out, ",\"%s\":{\"pid\":%d,\"start\":\"%" PRIu64 "\"}", name, (int)process->pid,
                              process->start);
}

static int write_groups(struct buffer *out, const struct local_cgroup *cgroup) {
  int failed = buffer_append_string(out, ",\"cgroups\":[");
  for (size_t i = 0; i < cgroup->count; i++) {
    failed |= i > 0 ? buffer_append_byte(out, ',') : 0;
    failed |= json_write_string(out, cgroup->paths[i], strlen(cgroup->paths[i]));
  }
  return failed | buffer_append_byte(out, ']');
}

static int write_bound(struct buffer *out, const struct backend_sandbox *sandbox) {
  int failed = write_text(out, "id", sandbox->id) | write_text(out, "scope", sandbox->scope);
  failed |= write_text(out, "consumer", sandbox->consumer) | write_text(out, "idempotency", sandbox->idempotency);
  failed |= write_wide(out, "createdAt", sandbox->created_at) | write_wide(out, "expiresAt", sandbox->expires_at);
  return failed | write_wide(out, "deadline", sandbox->deadline);
}

static int format_record(struct buffer *out, const struct local_record *record) {
  int failed = buffer_append_format(out, "{\"format\":%d,\"runtime\":\"%s\",\"uid\":%" PRIu32, FORMAT,
                                    record->runtime == LOCAL_GVISOR ? "gvisor" : "bubblewrap", record->uid);
  failed |= write_text(out, "pool", record->pool) | write_text(out, "boot", record->boot);
  failed |= write_groups(out, &record->cgroup);
  failed |= write_process(out, "monitor", &record->monitor) | write_process(out, "first", &record->first);
  if (record->bound)
    failed |= write_bound(out, &record->sandbox);
  return failed | buffer_append_string(out, "}\n");
}

int local_record_write(const char *path, const struct local_record *record, struct error **err) {
  CLEANUP_BUFFER struct buffer text, temporary;
  buffer_init(&text, RECORD_LIMIT);
  buffer_init(&temporary, 4096);
  if (format_record(&text, record) != 0 || buffer_append_format(&temporary, "%s.new", path) != 0)
    return error_set_memory(err);
  CLEANUP_FILE int file = open(buffer_text(&temporary), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0 || write(file, text.data, text.length) != (ssize_t)text.length ||
      rename(buffer_text(&temporary), path) != 0)
    return error_set_errno(err, errno, "cannot write %s", path);
  /* The file's time is the last use, which comes back after a restart. */
  int64_t used = record->sandbox.last_used_at;
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = used / CLOCK_SECOND, .tv_nsec = used % CLOCK_SECOND}};
  if (record->bound)
    futimens(file, times);
  return 0;
}

/* --- reading --- */

static int read_text(const struct json *json, const char *name, char *to, size_t size) {
  struct json_text text;
  if (json_get_text(json, name, &text, NULL) != 0 || text.data == NULL || text.length >= size ||
      strlen(text.data) != text.length)
    return -1;
  memcpy(to, text.data, text.length + 1);
  return 0;
}

static int read_wide(const struct json *json, const char *name, int64_t *number) {
  char text[24], *end = NULL;
  if (read_text(json, name, text, sizeof text) != 0)
    return -1;
  errno = 0;
  *number = strtoll(text, &end, 10);
  return errno != 0 || end == text || *end != '\0' || *number < 0 ? -1 : 0;
}

static int read_number(const struct json *json, const char *name, int64_t maximum, int64_t *number) {
  bool present = false;
  if (json_get_integer(json, name, &present, number, NULL) != 0)
    return -1;
  return !present || *number < 0 || *number > maximum ? -1 : 0;
}

static int read_process(const struct json *json, const char *name, struct local_process *process) {
  const struct json *value = NULL;
  int64_t pid, start;
  if (json_get_object(json, name, &value, NULL) != 0 || value == NULL ||
      read_number(value, "pid", INT32_MAX, &pid) != 0 || read_wide(value, "start", &start) != 0)
    return -1;
  *process = (struct local_process){.pid = (pid_t)pid, .start = (uint64_t)start};
  return 0;
}

/* The members of the object itself; json_get_object wants an object, and cgroups are an array. */
static const struct json *find_member(const struct json *json, const char *wanted) {
  const void *position = NULL;
  struct json_text name;
  const struct json *value, *found = NULL;
  while (json_next(json, &position, &name, &value))
    if (strcmp(name.data, wanted) == 0)
      found = value;
  return found;
}

static int read_groups(const struct json *json, struct local_cgroup *cgroup) {
  const struct json *list = find_member(json, "cgroups"), *value;
  const void *position = NULL;
  struct json_text name, text;
  if (list == NULL || !json_is_array(list))
    return -1;
  while (json_next(list, &position, &name, &value))
    if (json_as_text(value, &text) != 0 || local_cgroup_add(cgroup, text.data) != 0)
      return -1;
  return 0;
}

static int read_runtime(const struct json *json, struct local_record *record) {
  char name[16];
  if (read_text(json, "runtime", name, sizeof name) != 0)
    return -1;
  record->runtime = strcmp(name, "gvisor") == 0 ? LOCAL_GVISOR : LOCAL_BUBBLEWRAP;
  return record->runtime == LOCAL_GVISOR || strcmp(name, "bubblewrap") == 0 ? 0 : -1;
}

static int read_bound(const struct json *json, struct local_record *record) {
  struct backend_sandbox *sandbox = &record->sandbox;
  record->bound = find_member(json, "id") != NULL;
  if (!record->bound)
    return 0;
  memcpy(sandbox->pool, record->pool, sizeof sandbox->pool);
  if (read_text(json, "id", sandbox->id, sizeof sandbox->id) != 0 ||
      read_text(json, "scope", sandbox->scope, sizeof sandbox->scope) != 0 ||
      read_text(json, "consumer", sandbox->consumer, sizeof sandbox->consumer) != 0 ||
      read_text(json, "idempotency", sandbox->idempotency, sizeof sandbox->idempotency) != 0)
    return -1;
  if (read_wide(json, "createdAt", &sandbox->created_at) != 0 ||
      read_wide(json, "expiresAt", &sandbox->expires_at) != 0 || read_wide(json, "deadline", &sandbox->deadline) != 0)
    return -1;
  return record->first.pid > 0 ? 0 : -1;
}

static int read_all(const struct json *json, struct local_record *record) {
  int64_t number;
  if (read_number(json, "format", FORMAT, &number) != 0 || number != FORMAT || read_runtime(json, record) != 0)
    return -1;
  if (read_number(json, "uid", UINT32_MAX, &number) != 0)
    return -1;
  record->uid = (uint32_t)number;
  if (read_text(json, "pool", record->pool, sizeof record->pool) != 0 ||
      read_text(json, "boot", record->boot, sizeof record->boot) != 0 || read_groups(json, &record->cgroup) != 0)
    return -1;
  if (read_process(json, "monitor", &record->monitor) != 0 || read_process(json, "first", &record->first) != 0)
    return -1;
  return read_bound(json, record);
}

int local_record_parse(const char *text, size_t length, struct local_record *record, struct error **err) {
  CLEANUP_JSON struct json *json = json_parse(text, length, NULL);
  *record = (struct local_record){0};
  if (json != NULL && json_is_object(json) && read_all(json, record) == 0)
    return 0;
  local_record_free(record);
  return error_set_detail(err, REASON_INTERNAL, "the record is malformed");
}

int local_record_read(const char *path, struct local_record *record, struct error **err) {
  char text[RECORD_LIMIT];
  struct stat status;
  CLEANUP_FILE int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? -1 : read(file, text, sizeof text);
  *record = (struct local_record){0};
  if (length < 0 || fstat(file, &status) != 0)
    return error_set_errno(err, errno, "cannot read %s", path);
  if (local_record_parse(text, (size_t)length, record, err) != 0)
    return -1;
  int64_t used = (int64_t)status.st_mtim.tv_sec * CLOCK_SECOND + status.st_mtim.tv_nsec;
  record->sandbox.last_used_at = used > record->sandbox.created_at ? used : record->sandbox.created_at;
  return 0;
}

void local_record_free(struct local_record *record) {
  local_cgroup_free(&record->cgroup);
  *record = (struct local_record){0};
}
