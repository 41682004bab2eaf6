#include "tools/leasectl/settings.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/identity.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_LIMIT = 1048576 };

static const char local_name[] = ".sandbox-platform/local.json";

static void close_cleanup(int *fd) {
  if (*fd >= 0)
    close(*fd);
}

static int file_read(int fd, const char *name, struct buffer *content, struct error **err) {
  for (;;) {
    uint8_t *room = buffer_reserve(content, 4096);
    if (!room)
      return error_set_detail(err, REASON_INTERNAL, "%s is larger than 1 MiB", name);
    ssize_t got = read(fd, room, 4096);
    if (got == 0)
      return 0;
    if (got > 0)
      buffer_commit(content, (size_t)got);
    else if (errno != EINTR)
      return error_set_errno(err, errno, "cannot read %s", name);
  }
}

/* *text: the file's whole content, memory_free. */
static int text_read(const char *path, char **text, struct error **err) {
  __attribute__((cleanup(close_cleanup))) int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return error_set_errno(err, errno, "cannot read %s", path);
  CLEANUP_BUFFER struct buffer content;
  buffer_init(&content, FILE_LIMIT);
  if (file_read(fd, path, &content, err) < 0)
    return -1;
  *text = memory_string(buffer_text(&content));
  return *text ? 0 : error_set_memory(err);
}

static int field_take(const struct json *object, const char *name, char **to, struct error **err) {
  struct json_text text;
  if (json_get_text(object, name, &text, err) < 0)
    return error_context(err, "%s: %s", local_name, name);
  if (*to || !text.data)
    return 0;
  *to = memory_string(text.data);
  return *to ? 0 : error_set_memory(err);
}

static int local_parse(struct settings *settings, const struct buffer *content, struct error **err) {
  CLEANUP_JSON struct json *json = json_parse(buffer_text(content), content->length, err);
  if (!json)
    return error_context(err, "%s", settings->local_file);
  if (!json_is_object(json))
    return error_set_detail(err, REASON_INTERNAL, "%s: not a JSON object", settings->local_file);
  if (field_take(json, "grpcAddress", &settings->address, err) < 0)
    return -1;
  if (settings->token) /* a given token goes with the given address; the file's identity is another one */
    return 0;
  return field_take(json, "consumerId", &settings->consumer, err) < 0 ||
                 field_take(json, "subjectId", &settings->subject, err) < 0 ||
                 field_take(json, "consumerSecret", &settings->secret, err) < 0
             ? -1
             : 0;
}

/* Looks for local.json from the current directory upward; finding none is no error. */
static int local_load(struct settings *settings, struct error **err) {
  CLEANUP_MEMORY char *folder = realpath(".", NULL);
  while (folder && folder[0] == '/') {
    CLEANUP_BUFFER struct buffer path;
    buffer_init(&path, 8192);
    if (buffer_append_format(&path, "%s/%s", folder[1] ? folder : "", local_name) < 0)
      return error_set_memory(err);
    __attribute__((cleanup(close_cleanup))) int fd = open(buffer_text(&path), O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
      CLEANUP_BUFFER struct buffer content;
      buffer_init(&content, FILE_LIMIT);
      settings->local_file = memory_string(buffer_text(&path));
      if (!settings->local_file)
        return error_set_memory(err);
      return file_read(fd, settings->local_file, &content, err) < 0 ? -1 : local_parse(settings, &content, err);
    }
    if (errno == EACCES)
      return error_set_errno(err, errno, "cannot read %s", buffer_text(&path));
    char *slash = strrchr(folder, '/');
    if (slash == folder && !folder[1])
      return 0;
    slash[slash == folder ? 1 : 0] = '\0';
  }
  return 0;
}

static int choose(char **to, const char *option, const char *variable, struct error **err) {
  const char *value = option ? option : getenv(variable);
  if (!value || !*value)
    return 0;
  *to = memory_string(value);
  return *to ? 0 : error_set_memory(err);
}

static int choose_file(char **to, const char *option, const char *variable, struct error **err) {
  const char *path = option ? option : getenv(variable);
  return path && *path ? text_read(path, to, err) : 0;
}

int settings_load(struct settings *settings, const struct settings_options *options, struct error **err) {
  *settings = (struct settings){0};
  if (choose(&settings->address, options->address, "SANDBOX_GRPC_ADDRESS", err) < 0 ||
      choose(&settings->consumer, options->consumer, "SANDBOX_CONSUMER_ID", err) < 0 ||
      choose(&settings->subject, options->subject, "SANDBOX_SUBJECT_ID", err) < 0 ||
      choose(&settings->secret, NULL, "SANDBOX_CONSUMER_SECRET", err) < 0 ||
      choose(&settings->token, options->token, "SANDBOX_TOKEN", err) < 0 ||
      choose_file(&settings->ca, options->ca, "SANDBOX_GRPC_TLS_CA", err) < 0 ||
      choose_file(&settings->certificate, options->certificate, "SANDBOX_GRPC_TLS_CERT", err) < 0 ||
      choose_file(&settings->key, options->key, "SANDBOX_GRPC_TLS_KEY", err) < 0)
    return -1;
  return local_load(settings, err);
}

static void secret_free(char *text) {
  if (text)
    memory_wipe(text, strlen(text));
  memory_free(text);
}

void settings_free(struct settings *settings) {
  memory_free(settings->address);
  memory_free(settings->consumer);
  memory_free(settings->subject);
  secret_free(settings->secret);
  secret_free(settings->token);
  memory_free(settings->ca);
  memory_free(settings->certificate);
  secret_free(settings->key);
  memory_free(settings->local_file);
  *settings = (struct settings){0};
}

char *settings_mint(const struct settings *settings, int lifetime, struct error **err) {
  const char *missing = !settings->consumer  ? "a Consumer id (--consumer or SANDBOX_CONSUMER_ID)"
                        : !settings->subject ? "a Subject id (--subject or SANDBOX_SUBJECT_ID)"
                        : !settings->secret  ? "the Consumer's secret (SANDBOX_CONSUMER_SECRET)"
                                             : NULL;
  if (missing) {
    error_set_detail(err, REASON_INTERNAL,
                     "to make a token, %s is needed; or give a token (--token or SANDBOX_TOKEN), or run from a "
                     "checkout where tools/up has run",
                     missing);
    return NULL;
  }
  return token_mint(settings->consumer, settings->subject, settings->secret, clock_wall() / CLOCK_SECOND + lifetime,
                    err);
}

char *settings_authorization(const struct settings *settings, struct error **err) {
  CLEANUP_MEMORY char *minted = settings->token ? NULL : settings_mint(settings, LIMIT_TOKEN_LIFETIME_SECONDS, err);
  const char *token = settings->token ? settings->token : minted;
  if (!token)
    return NULL;
  CLEANUP_BUFFER struct buffer value;
  buffer_init(&value, LIMIT_TOKEN_BYTES + 16);
  if (buffer_append_string(&value, "Bearer ") < 0 || buffer_append_string(&value, token) < 0) {
    error_set_detail(err, REASON_INTERNAL, "the token is too long");
    return NULL;
  }
  char *taken = buffer_take(&value);
  if (!taken)
    error_set_memory(err);
  return taken;
}
