/*
 * What the operator decides about lease-server itself; the Lease service and the backends read their own settings.
 * Thread: the start's.
 */
#ifndef SERVER_SERVER_SETTINGS_H
#define SERVER_SERVER_SETTINGS_H

#include "base/config.h"
#include "base/error.h"
#include "base/log.h"

struct server_settings {
  const char *addresses;                                 /* SANDBOX_GRPC_ADDRESS: comma-separated */
  const char *backend;                                   /* SANDBOX_BACKEND */
  const char *consumer_secrets;                          /* SANDBOX_CONSUMER_SECRETS: JSON */
  const char *tls_certificate, *tls_key, *tls_client_ca; /* files, or NULL; certificate and key come together */
  enum log_level log_level;
  unsigned threads; /* SANDBOX_GRPC_THREADS */
};

/* Strings are the config's. Returns 0, or -1 and *err whose detail is the line to print. */
int server_settings_read(struct server_settings *settings, struct config *config, struct error **err);

#endif
