#include "backend/kubernetes/claim.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include <stdio.h>
#include <string.h>

static const char PREFIX[] = "lease-";

enum {
  PREFIX_BYTES = 6,
  NAME_DIGITS = 20,
  UID_DIGITS = 12,
  ID_DIGITS = 32,
};

int claim_name(const struct digest_key *metadata_key, const char *idempotency, unsigned generation,
               char name[static CLAIM_NAME_SIZE]) {
  char number[16], label[LABEL_SIZE];
  snprintf(number, sizeof number, "%u", generation);
  const char *parts[] = {"claim", idempotency, number};
  if (label_make(metadata_key, parts, 3, label) < 0)
    return -1;
  memcpy(name, PREFIX, PREFIX_BYTES);
  memcpy(name + PREFIX_BYTES, label, NAME_DIGITS);
  name[PREFIX_BYTES + NAME_DIGITS] = 0;
  return 0;
}

/* How many lower-case hexadecimal digits follow "lease-", if nothing else does; else 0. */
static size_t digits_of(const char *name) {
  if (strncmp(name, PREFIX, PREFIX_BYTES) != 0)
    return 0;
  size_t count = strspn(name + PREFIX_BYTES, "0123456789abcdef");
  return name[PREFIX_BYTES + count] == 0 ? count : 0;
}

bool claim_lease_id(const char *name, const char *uid, char id[static LIMIT_LEASE_ID_BYTES + 1]) {
  size_t digits = digits_of(name);
  if (digits != NAME_DIGITS && digits != ID_DIGITS)
    return false;
  memcpy(id, name, PREFIX_BYTES + digits);
  if (digits == NAME_DIGITS) {
    char *at = id + PREFIX_BYTES + NAME_DIGITS, *end = id + LIMIT_LEASE_ID_BYTES;
    for (; *uid && at < end; uid++) {
      if (*uid == '-')
        continue;
      if (!strchr("0123456789abcdef", *uid))
        return false;
      *at++ = *uid;
    }
    if (at < end)
      return false;
  }
  id[LIMIT_LEASE_ID_BYTES] = 0;
  return true;
}

bool claim_name_of_id(const char *id, char name[static CLAIM_NAME_SIZE]) {
  if (digits_of(id) != ID_DIGITS)
    return false;
  memcpy(name, id, CLAIM_NAME_SIZE - 1);
  name[CLAIM_NAME_SIZE - 1] = 0;
  return true;
}

/* Appends `"name":"value"` and what follows it. */
static int field(struct buffer *out, const char *name, const char *value, const char *tail) {
  if (json_write_string(out, name, strlen(name)) < 0 || buffer_append_byte(out, ':') < 0 ||
      json_write_string(out, value, strlen(value)) < 0)
    return -1;
  return buffer_append_string(out, tail);
}

/* Whole seconds, rounded up: what a Kubernetes time can say. */
static void shutdown_time(int64_t expires_at, char text[static CLOCK_TEXT_SIZE]) {
  int64_t seconds = (expires_at + CLOCK_SECOND - 1) / CLOCK_SECOND + CLAIM_SHUTDOWN_SLACK_SECONDS;
  clock_format(seconds * CLOCK_SECOND, text);
  memcpy(text + strlen("2026-01-02T03:04:05"), "Z", 2);
}

static int encode_lifecycle(struct buffer *out, int64_t expires_at) {
  char text[CLOCK_TEXT_SIZE];
  shutdown_time(expires_at, text);
  if (buffer_append_string(out, "\"lifecycle\":{\"shutdownPolicy\":\"DeleteForeground\",") < 0)
    return -1;
  return field(out, "shutdownTime", text, "}");
}

int claim_encode(struct buffer *out, const struct claim_order *order) {
  char created[CLOCK_TEXT_SIZE], expires[CLOCK_TEXT_SIZE];
  clock_format(order->created_at, created);
  clock_format(order->expires_at, expires);
  if (buffer_append_string(out, "{\"apiVersion\":\"extensions.agents.x-k8s.io/v1beta1\",\"kind\":\"SandboxClaim\","
                                "\"metadata\":{") < 0 ||
      field(out, "name", order->name, ",\"labels\":{") < 0 || field(out, CLAIM_LABEL_MANAGED, "true", ",") < 0 ||
      field(out, CLAIM_LABEL_SCOPE, order->scope, ",") < 0 ||
      field(out, CLAIM_LABEL_CONSUMER, order->consumer, ",") < 0 ||
      field(out, CLAIM_LABEL_IDEMPOTENCY, order->idempotency, ",") < 0 ||
      field(out, CLAIM_LABEL_POOL, order->pool_label, "},\"annotations\":{") < 0)
    return -1;
  if (field(out, CLAIM_POOL_NAME, order->pool, ",") < 0 || field(out, CLAIM_CREATED_AT, created, ",") < 0 ||
      field(out, CLAIM_EXPIRES_AT, expires, ",") < 0 ||
      field(out, CLAIM_ATTEMPT, order->attempt, "}},\"spec\":{") < 0 ||
      buffer_append_string(out, "\"warmPoolRef\":{") < 0 || field(out, "name", order->warm_pool, "},") < 0 ||
      encode_lifecycle(out, order->expires_at) < 0)
    return -1;
  return buffer_append_string(out, "}}");
}

int claim_encode_expiry(struct buffer *out, const char *uid, int64_t expires_at) {
  char expires[CLOCK_TEXT_SIZE];
  clock_format(expires_at, expires);
  if (buffer_append_string(out, "{\"metadata\":{") < 0 || field(out, "uid", uid, ",\"annotations\":{") < 0 ||
      field(out, CLAIM_EXPIRES_AT, expires, "}},\"spec\":{") < 0 || encode_lifecycle(out, expires_at) < 0)
    return -1;
  return buffer_append_string(out, "}}");
}

int claim_encode_delete(struct buffer *out, const char *uid) {
  if (buffer_append_string(out,
                           "{\"apiVersion\":\"v1\",\"kind\":\"DeleteOptions\",\"propagationPolicy\":\"Foreground\","
                           "\"preconditions\":{") < 0)
    return -1;
  return field(out, "uid", uid, "}}");
}
