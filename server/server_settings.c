/*
 * Reading the settings: every rule about a value is here, every default too.
 */
#include "server/server_settings.h"

#include "server/acceptor.h"

#include <stddef.h>
#include <unistd.h>

/* Measured on two cores, 64 calls at once: with one queue thread a GetLease costs the server 19 us of processor time,
 * with two 27 us. A second one pays where cores are idle, and keeps one busy connection from holding up the others. */
static unsigned threads_default(void) { return sysconf(_SC_NPROCESSORS_ONLN) >= 4 ? 2 : 1; }

static int read_log_level(struct server_settings *settings, struct config *config, struct error **err) {
  static const char *const names[] = {"debug", "info", "warning", "error", NULL};
  static const enum log_level levels[] = {LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR};
  int index;
  if (config_choice(config, "SANDBOX_LOG_LEVEL", "info", names, &index, err) < 0)
    return -1;
  settings->log_level = levels[index];
  return 0;
}

static int read_tls(struct server_settings *settings, struct config *config, struct error **err) {
  if (config_optional(config, "SANDBOX_GRPC_TLS_CERT", &settings->tls_certificate, err) < 0 ||
      config_optional(config, "SANDBOX_GRPC_TLS_KEY", &settings->tls_key, err) < 0 ||
      config_optional(config, "SANDBOX_GRPC_TLS_CLIENT_CA", &settings->tls_client_ca, err) < 0)
    return -1;
  if (!settings->tls_certificate != !settings->tls_key)
    return error_set_detail(err, REASON_INTERNAL, "%s must be set, because %s is",
                            settings->tls_key ? "SANDBOX_GRPC_TLS_CERT" : "SANDBOX_GRPC_TLS_KEY",
                            settings->tls_key ? "SANDBOX_GRPC_TLS_KEY" : "SANDBOX_GRPC_TLS_CERT");
  if (settings->tls_client_ca && !settings->tls_certificate)
    return error_set_detail(err, REASON_INTERNAL,
                            "SANDBOX_GRPC_TLS_CERT must be set, because SANDBOX_GRPC_TLS_CLIENT_CA is");
  return 0;
}

int server_settings_read(struct server_settings *settings, struct config *config, struct error **err) {
  int64_t threads;
  if (read_log_level(settings, config, err) < 0 ||
      config_text(config, "SANDBOX_GRPC_ADDRESS", NULL, &settings->addresses, err) < 0 ||
      config_text(config, "SANDBOX_BACKEND", NULL, &settings->backend, err) < 0 ||
      config_text(config, "SANDBOX_CONSUMER_SECRETS", NULL, &settings->consumer_secrets, err) < 0 ||
      config_integer(config, "SANDBOX_GRPC_THREADS", threads_default(), 1, ACCEPTOR_THREADS_MAX, &threads, err) < 0)
    return -1;
  settings->threads = (unsigned)threads;
  return read_tls(settings, config, err);
}
