#include "backend/kubernetes/credentials.h"

#include "backend/kubernetes/exec_plugin.h"
#include "backend/kubernetes/kubeconfig.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ACCOUNT_FOLDER "/var/run/secrets/kubernetes.io/serviceaccount"

enum { FILE_BYTES = 1 << 20 };

/* A plug-in's credentials are made anew so long before they expire. */
#define EXPIRY_MARGIN (10 * CLOCK_SECOND)

/* A file whose text is kept until the file changes. */
struct kept_file {
  const char *path; /* NULL: none */
  struct stat seen;
  char *text; /* NULL: never read */
};

struct credentials {
  uv_loop_t *loop;
  struct kubeconfig config;
  struct kept_file authority, certificate, key, token;
  struct exec_plugin *plugin; /* runs */
  struct exec_credential printed;
  bool has_printed;
  struct credentials_waiter *waiters;
};

/* --- files --- */

static int file_read(const char *path, struct stat *seen, char **text, struct error **err) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return error_set_errno(err, errno, "%s", path);
  CLEANUP_BUFFER struct buffer bytes;
  buffer_init(&bytes, FILE_BYTES);
  ssize_t length = -1;
  if (fstat(fd, seen) == 0)
    for (uint8_t *room; (room = buffer_reserve(&bytes, 4096)) && (length = read(fd, room, 4096)) > 0;)
      buffer_commit(&bytes, (size_t)length);
  int failure = errno;
  close(fd);
  if (length < 0)
    return error_set_errno(err, failure, "%s", path);
  if (length > 0)
    return error_set_detail(err, REASON_INTERNAL, "%s is larger than 1 MiB", path);
  if (bytes.length == 0 || memchr(bytes.data, 0, bytes.length))
    return error_set_detail(err, REASON_INTERNAL, "%s is empty or no text", path);
  *text = buffer_take(&bytes);
  return 0;
}

static bool file_changed(const struct kept_file *file) {
  struct stat now;
  return !file->text || stat(file->path, &now) < 0 || now.st_ino != file->seen.st_ino ||
         now.st_dev != file->seen.st_dev || now.st_size != file->seen.st_size ||
         now.st_mtim.tv_sec != file->seen.st_mtim.tv_sec || now.st_mtim.tv_nsec != file->seen.st_mtim.tv_nsec;
}

static void text_drop(char **text) {
  if (*text)
    memory_wipe(*text, strlen(*text));
  memory_free(*text);
  *text = NULL;
}

/* Reads it again if it changed. What was read before stays in force when that fails. */
static int file_update(struct kept_file *file, struct error **err) {
  if (!file->path || !file_changed(file))
    return 0;
  char *text = NULL;
  CLEANUP_ERROR struct error *problem = NULL;
  if (file_read(file->path, &file->seen, &text, &problem) < 0) {
    if (!file->text)
      return error_move(err, &problem);
    log_write(LOG_WARNING, "credential_file_unusable", LOG_TEXT("path", file->path), LOG_DETAIL(problem));
    return 0;
  }
  text_drop(&file->text);
  file->text = text;
  return 0;
}

static int token_update(struct credentials *credentials, struct error **err) {
  if (file_update(&credentials->token, err) < 0)
    return -1;
  char *text = credentials->token.text;
  if (!text)
    return 0;
  size_t length = strlen(text);
  while (length > 0 && strchr(" \t\r\n", text[length - 1]))
    text[--length] = 0;
  if (length == 0 || strpbrk(text, "\r\n")) {
    text_drop(&credentials->token.text);
    return error_set_detail(err, REASON_INTERNAL, "%s holds no token", credentials->token.path);
  }
  return 0;
}

static int files_update(struct credentials *credentials, struct error **err) {
  if (file_update(&credentials->authority, err) < 0 || file_update(&credentials->certificate, err) < 0 ||
      file_update(&credentials->key, err) < 0)
    return -1;
  return token_update(credentials, err);
}

/* --- handing out --- */

static void credential_fill(const struct credentials *credentials, struct credential *credential) {
  const struct kubeconfig *config = &credentials->config;
  const struct exec_credential *printed = &credentials->printed;
  *credential = (struct credential){
      .bearer = credentials->token.text ? credentials->token.text : config->token,
      .authority = credentials->authority.text ? credentials->authority.text : config->authority,
      .certificate = credentials->certificate.text ? credentials->certificate.text : config->certificate,
      .key = credentials->key.text ? credentials->key.text : config->key};
  if (credentials->has_printed && printed->token)
    credential->bearer = printed->token;
  if (credentials->has_printed && printed->certificate) {
    credential->certificate = printed->certificate;
    credential->key = printed->key;
  }
}

static void waiters_tell(struct credentials *credentials, const struct error *failure) {
  struct credential credential;
  credential_fill(credentials, &credential);
  struct credentials_waiter *waiter;
  /* One at a time from the front: a waiter may cancel another, or ask again. */
  struct credentials_waiter *last = credentials->waiters;
  while (last && last->next)
    last = last->next;
  while ((waiter = credentials->waiters)) {
    bool end = waiter == last;
    credentials_done *done = waiter->done;
    credentials->waiters = waiter->next;
    waiter->done = NULL;
    struct error *err = NULL;
    if (failure)
      error_set_detail(&err, error_reason(failure), "%s", error_detail(failure));
    done(waiter->context, failure ? NULL : &credential, err);
    error_free(&err);
    if (end)
      return;
  }
}

static void on_printed(void *context, struct exec_credential *printed, struct error *err) {
  struct credentials *credentials = context;
  credentials->plugin = NULL;
  if (printed) {
    exec_credential_free(&credentials->printed);
    credentials->printed = *printed;
    credentials->has_printed = true;
    *printed = (struct exec_credential){.expires = INT64_MAX};
  } else {
    log_write(LOG_WARNING, "credential_plugin_failed", LOG_REASON(err), LOG_DETAIL(err));
  }
  waiters_tell(credentials, err);
}

static bool needs_plugin(const struct credentials *credentials) {
  if (!credentials->config.exec.command)
    return false;
  return !credentials->has_printed ||
         (credentials->printed.expires != INT64_MAX && clock_wall() >= credentials->printed.expires - EXPIRY_MARGIN);
}

void credentials_get(struct credentials *credentials, struct credentials_waiter *waiter, credentials_done *done,
                     void *context) {
  CLEANUP_ERROR struct error *err = NULL;
  if (files_update(credentials, &err) == 0 && needs_plugin(credentials)) {
    if (!credentials->plugin)
      credentials->plugin = exec_plugin_run(credentials->loop, &credentials->config, on_printed, credentials, &err);
    if (credentials->plugin) {
      struct credentials_waiter **place = &credentials->waiters;
      while (*place)
        place = &(*place)->next;
      *waiter = (struct credentials_waiter){.done = done, .context = context};
      *place = waiter;
      return;
    }
  }
  struct credential credential;
  credential_fill(credentials, &credential);
  waiter->done = NULL;
  done(context, err ? NULL : &credential, err);
}

void credentials_cancel(struct credentials *credentials, struct credentials_waiter *waiter) {
  if (!waiter->done)
    return;
  struct credentials_waiter **place = &credentials->waiters;
  while (*place != waiter)
    place = &(*place)->next;
  *place = waiter->next;
  waiter->done = NULL;
}

void credentials_refused(struct credentials *credentials) {
  credentials->has_printed = false;
  struct kept_file *files[] = {&credentials->authority, &credentials->certificate, &credentials->key,
                               &credentials->token};
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
    memset(&files[i]->seen, 0, sizeof files[i]->seen);
}

/* --- the beginning and the end --- */

static char *format_text(const char *format, const char *one, const char *two) {
  CLEANUP_BUFFER struct buffer text;
  buffer_init(&text, 4096);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  int result = buffer_append_format(&text, format, one, two);
#pragma GCC diagnostic pop
  return result < 0 ? NULL : buffer_take(&text);
}

static int account_read(struct kubeconfig *config, struct error **err) {
  const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
  if (!host || !port || access(ACCOUNT_FOLDER "/token", R_OK) < 0)
    return error_set_detail(err, REASON_INTERNAL,
                            "SANDBOX_KUBECONFIG must name a kubeconfig: this is no Pod with a service account");
  config->server = format_text(strchr(host, ':') ? "https://[%s]:%s" : "https://%s:%s", host, port);
  config->token_file = memory_string(ACCOUNT_FOLDER "/token");
  config->authority_file = memory_string(ACCOUNT_FOLDER "/ca.crt");
  if (!config->server || !config->token_file || !config->authority_file)
    return error_set_memory(err);
  struct stat seen;
  CLEANUP_MEMORY char *text = NULL;
  if (file_read(ACCOUNT_FOLDER "/namespace", &seen, &text, NULL) < 0)
    return 0;
  text[strcspn(text, " \r\n")] = 0;
  config->namespace_ = memory_string(text);
  return config->namespace_ ? 0 : error_set_memory(err);
}

static int kubeconfig_read(struct kubeconfig *config, const char *path, const char *context, struct error **err) {
  struct stat seen;
  CLEANUP_MEMORY char *text = NULL, *whole = realpath(path, NULL);
  CLEANUP_MEMORY char *folder = NULL;
  if (!whole || file_read(whole, &seen, &text, err) < 0) {
    if (!whole)
      error_set_errno(err, errno, "%s", path);
    return error_context(err, "SANDBOX_KUBECONFIG");
  }
  folder = memory_string(whole);
  if (!folder)
    return error_set_memory(err);
  int result = kubeconfig_parse(config, text, strlen(text), dirname(folder), context, err);
  memory_wipe(text, strlen(text));
  return result < 0 ? error_context(err, "SANDBOX_KUBECONFIG %s", path) : 0;
}

struct credentials *credentials_new(uv_loop_t *loop, const char *kubeconfig, const char *context, struct error **err) {
  struct credentials *credentials = memory_zero(sizeof *credentials);
  if (!credentials) {
    error_set_memory(err);
    return NULL;
  }
  struct kubeconfig *config = &credentials->config;
  credentials->loop = loop;
  int result = kubeconfig ? kubeconfig_read(config, kubeconfig, context, err) : account_read(config, err);
  if (result == 0) {
    credentials->authority.path = config->authority_file;
    credentials->certificate.path = config->certificate_file;
    credentials->key.path = config->key_file;
    credentials->token.path = config->token_file;
    result = files_update(credentials, err);
  }
  if (result == 0)
    return credentials;
  credentials_free(credentials);
  return NULL;
}

void credentials_free(struct credentials *credentials) {
  if (!credentials)
    return;
  if (credentials->plugin)
    exec_plugin_cancel(credentials->plugin);
  struct kept_file *files[] = {&credentials->authority, &credentials->certificate, &credentials->key,
                               &credentials->token};
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
    text_drop(&files[i]->text);
  exec_credential_free(&credentials->printed);
  kubeconfig_free(&credentials->config);
  memory_free(credentials);
}

const char *credentials_server(const struct credentials *credentials) {
  return credentials->config.server;
}

const char *credentials_server_name(const struct credentials *credentials) {
  return credentials->config.server_name;
}

const char *credentials_proxy(const struct credentials *credentials) {
  return credentials->config.proxy;
}

const char *credentials_namespace(const struct credentials *credentials) {
  return credentials->config.namespace_;
}
