#include "backend/kubernetes/exec_credential.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include <stdbool.h>
#include <string.h>

/* A text without NUL; *out stays NULL if it is absent or empty. */
static int take(const struct json *object, const char *name, char **out, struct error **err) {
  struct json_text text;
  if (json_get_text(object, name, &text, err) < 0)
    return -1;
  if (!text.data || text.length == 0)
    return 0;
  if (memchr(text.data, 0, text.length) || strchr(text.data, '\r') ||
      (strcmp(name, "token") == 0 && strchr(text.data, '\n')))
    return error_set_detail(err, REASON_INTERNAL, "%s has a control character", name);
  *out = memory_string_of(text.data, text.length);
  return *out ? 0 : error_set_memory(err);
}

static int take_expiry(const struct json *status, int64_t *expires, struct error **err) {
  struct json_text text;
  if (json_get_text(status, "expirationTimestamp", &text, err) < 0)
    return -1;
  *expires = INT64_MAX;
  if (text.data && clock_parse(text.data, text.length, expires) < 0)
    return error_set_detail(err, REASON_INTERNAL, "expirationTimestamp is no time");
  return 0;
}

static int take_status(struct exec_credential *credential, const struct json *json, const char *api_version,
                       struct error **err) {
  struct json_text kind, version;
  const struct json *status = NULL;
  if (json_get_text(json, "kind", &kind, err) < 0 || json_get_text(json, "apiVersion", &version, err) < 0 ||
      json_get_object(json, "status", &status, err) < 0)
    return -1;
  if (!kind.data || strcmp(kind.data, "ExecCredential") != 0 || !version.data || strcmp(version.data, api_version) != 0)
    return error_set_detail(err, REASON_INTERNAL, "it is no ExecCredential of %s", api_version);
  if (!status)
    return error_set_detail(err, REASON_INTERNAL, "it has no status");
  if (take(status, "token", &credential->token, err) < 0 ||
      take(status, "clientCertificateData", &credential->certificate, err) < 0 ||
      take(status, "clientKeyData", &credential->key, err) < 0 || take_expiry(status, &credential->expires, err) < 0)
    return -1;
  if (!credential->certificate != !credential->key)
    return error_set_detail(err, REASON_INTERNAL, "clientCertificateData and clientKeyData belong together");
  if (!credential->token && !credential->certificate)
    return error_set_detail(err, REASON_INTERNAL, "it has neither a token nor a certificate");
  return 0;
}

int exec_credential_parse(struct exec_credential *credential, const char *text, size_t length, const char *api_version,
                          struct error **err) {
  *credential = (struct exec_credential){.expires = INT64_MAX};
  CLEANUP_JSON struct json *json = json_parse(text, length, err);
  if (!json)
    return -1;
  if (take_status(credential, json, api_version, err) == 0)
    return 0;
  exec_credential_free(credential);
  return -1;
}

void exec_credential_free(struct exec_credential *credential) {
  char *texts[] = {credential->token, credential->certificate, credential->key};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    if (texts[i])
      memory_wipe(texts[i], strlen(texts[i]));
    memory_free(texts[i]);
  }
  *credential = (struct exec_credential){.expires = INT64_MAX};
}

static int append_text(struct buffer *out, const char *name, const char *value) {
  if (!value)
    return 0;
  if (buffer_append_format(out, ",\"%s\":", name) < 0)
    return -1;
  return json_write_string(out, value, strlen(value));
}

int exec_credential_info(struct buffer *out, const struct kubeconfig *config) {
  if (buffer_append_format(out, "{\"apiVersion\":\"%s\",\"kind\":\"ExecCredential\",\"spec\":{\"interactive\":false",
                           config->exec.api_version) < 0)
    return -1;
  if (config->exec.cluster_info) {
    CLEANUP_BUFFER struct buffer authority;
    buffer_init(&authority, SIZE_MAX);
    if (config->authority && text_base64(&authority, config->authority, strlen(config->authority)) < 0)
      return -1;
    if (buffer_append_string(out, ",\"cluster\":{\"server\":") < 0 ||
        json_write_string(out, config->server, strlen(config->server)) < 0 ||
        append_text(out, "tls-server-name", config->server_name) < 0 ||
        append_text(out, "proxy-url", config->proxy) < 0 ||
        append_text(out, "certificate-authority-data", authority.length > 0 ? buffer_text(&authority) : NULL) < 0 ||
        buffer_append_byte(out, '}') < 0)
      return -1;
  }
  return buffer_append_string(out, "}}");
}
