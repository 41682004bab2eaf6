/*
 * What the gateway is told at start. Thread: one, at start; read only afterwards.
 */
#ifndef GATEWAY_OPTIONS_H
#define GATEWAY_OPTIONS_H

#include "base/config.h"
#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

enum { OPTIONS_ADDRESSES = 8, OPTIONS_LOOPS = 64 };

struct options {
  struct config *config;
  const char *address;       /* SANDBOX_ADDRESS: host:port, several separated by commas */
  const char *grpc_address;  /* SANDBOX_GRPC_ADDRESS */
  char *grpc_ca, *grpc_certificate, *grpc_key; /* PEM texts, or NULL; owned */
  const char *grpc_authority;            /* or NULL */
  const char *tls_certificate, *tls_key; /* paths, or NULL */
  int64_t loops;                         /* 1 to OPTIONS_LOOPS */
  int64_t connections;                   /* the most at once, of all loops together */
};

/* Returns 0, or -1 and *err whose detail is the line to print. Then, too, options_free is called. */
int options_read(struct options *options, const char *config_path, struct error **err);
void options_free(struct options *options);

#endif
