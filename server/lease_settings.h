/*
 * What the operator decides about Leases. Read once, at start.
 */
#ifndef SERVER_LEASE_SETTINGS_H
#define SERVER_LEASE_SETTINGS_H

#include "base/config.h"
#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

struct lease_settings {
  const char *metadata_secret; /* the config's; needed only while keys are made from it */
  int64_t ttl_default, ttl_max; /* seconds */
  int64_t per_subject, per_consumer; /* Leases at most; 0: no bound */
  int64_t sweep_interval; /* nanoseconds */
  int64_t transfers, transfers_per_lease;
  int64_t transfer_timeout; /* nanoseconds */
  int64_t answer_bytes;     /* of all unary answers with command output or files */
  char ttl_rule[80]; /* the message of INVALID_LEASE_TTL */
};

/* Returns 0, or -1 and *err whose detail is the line to print. */
int lease_settings_read(struct lease_settings *settings, struct config *config, struct error **err);

#endif
