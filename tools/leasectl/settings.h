/*
 * Where leasectl gets its connection from, strongest first: options, environment, `.sandbox-platform/local.json` in the
 * current directory or one above it (written by tools/up). Thread: one.
 */
#ifndef LEASECTL_SETTINGS_H
#define LEASECTL_SETTINGS_H

#include "base/error.h"
#include <stdbool.h>

/* Strings are owned by the settings; NULL where nothing gave one. */
struct settings {
  char *address;                     /* SANDBOX_GRPC_ADDRESS */
  char *consumer, *subject, *secret; /* SANDBOX_CONSUMER_ID, SANDBOX_SUBJECT_ID, SANDBOX_CONSUMER_SECRET */
  char *token;                       /* SANDBOX_TOKEN: instead of the three above */
  char *ca, *certificate, *key;      /* PEM texts, from SANDBOX_GRPC_TLS_CA, _CERT, _KEY (files) */
  char *local_file;                  /* the local.json that was read */
};

/* What the command line gave; NULL where it did not. */
struct settings_options {
  const char *address, *consumer, *subject, *token, *ca, *certificate, *key;
};

/* Returns 0, or -1 and *err: its detail says what is missing or unreadable, and how to give it. */
int settings_load(struct settings *settings, const struct settings_options *options, struct error **err);
/* Wipes secrets. */
void settings_free(struct settings *settings);

/* "Bearer <token>", minted now for 300 s or the given one; memory_free. NULL and *err when something is missing. */
char *settings_authorization(const struct settings *settings, struct error **err);
/* The token alone, for `lifetime` seconds. */
char *settings_mint(const struct settings *settings, int lifetime, struct error **err);

#endif
