/*
 * What the operator decides about Leases.
 */
#include "server/lease_settings.h"

#include "base/clock.h"
#include "base/limits.h"
#include <inttypes.h>
#include <stdio.h>

enum { QUOTA_MAX = 1000000, TRANSFERS_MAX = 1024 };

/* One answer always fits, with the room that its buffers have to spare. */
#define ANSWERS_LEAST (4 * (int64_t)LIMIT_OUTPUT_BYTES)
#define ANSWERS_MOST (INT64_C(1) << 40)

static int settings_read_ttl(struct lease_settings *settings, struct config *config, struct error **err) {
  if (config_integer(config, "SANDBOX_MAX_TTL_SECONDS", LIMIT_TTL_MAX_SECONDS, 1, LIMIT_TTL_MAX_SECONDS,
                     &settings->ttl_max, err) < 0)
    return -1;
  int64_t fallback = settings->ttl_max < LIMIT_TTL_DEFAULT_SECONDS ? settings->ttl_max : LIMIT_TTL_DEFAULT_SECONDS;
  if (config_integer(config, "SANDBOX_DEFAULT_TTL_SECONDS", fallback, 1, settings->ttl_max, &settings->ttl_default,
                     err) < 0)
    return -1;
  snprintf(settings->ttl_rule, sizeof(settings->ttl_rule), "ttlSeconds must be an integer between 1 and %" PRId64,
           settings->ttl_max);
  return 0;
}

static int settings_read_transfers(struct lease_settings *settings, struct config *config, struct error **err) {
  if (config_integer(config, "SANDBOX_FILE_TRANSFER_MAX_CONCURRENT", LIMIT_TRANSFERS, 1, TRANSFERS_MAX,
                     &settings->transfers, err) < 0)
    return -1;
  if (config_integer(config, "SANDBOX_FILE_TRANSFER_MAX_PER_LEASE", LIMIT_TRANSFERS_PER_LEASE, 1, TRANSFERS_MAX,
                     &settings->transfers_per_lease, err) < 0)
    return -1;
  return config_duration(config, "SANDBOX_FILE_TRANSFER_TIMEOUT", LIMIT_TRANSFER_SECONDS * CLOCK_SECOND,
                         CLOCK_SECOND, 3600 * CLOCK_SECOND, &settings->transfer_timeout, err);
}

int lease_settings_read(struct lease_settings *settings, struct config *config, struct error **err) {
  *settings = (struct lease_settings){0};
  if (config_text(config, "SANDBOX_METADATA_SECRET", NULL, &settings->metadata_secret, err) < 0 ||
      settings_read_ttl(settings, config, err) < 0 || settings_read_transfers(settings, config, err) < 0)
    return -1;
  if (config_integer(config, "SANDBOX_MAX_LEASES_PER_SUBJECT", 0, 0, QUOTA_MAX, &settings->per_subject, err) < 0 ||
      config_integer(config, "SANDBOX_MAX_LEASES_PER_CONSUMER", 0, 0, QUOTA_MAX, &settings->per_consumer, err) < 0)
    return -1;
  if (config_integer(config, "SANDBOX_ANSWER_MAX_BYTES", LIMIT_ANSWER_BYTES, ANSWERS_LEAST, ANSWERS_MOST,
                     &settings->answer_bytes, err) < 0)
    return -1;
  return config_duration(config, "SANDBOX_SWEEP_INTERVAL", 30 * CLOCK_SECOND, CLOCK_SECOND, 3600 * CLOCK_SECOND,
                         &settings->sweep_interval, err);
}
