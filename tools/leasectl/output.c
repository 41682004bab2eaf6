#include "tools/leasectl/output.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int64_t stamp_wall(const Google__Protobuf__Timestamp *stamp) {
  /* a year beyond 2261 does not fit nanoseconds; nothing of ours is that far away */
  if (!stamp || stamp->seconds < 0 || stamp->seconds > INT64_C(9000000000) || stamp->nanos < 0 ||
      stamp->nanos > 999999999)
    return 0;
  return stamp->seconds * CLOCK_SECOND + stamp->nanos;
}

static const char *status_name(Sandbox__Lease__V1__LeaseStatus status) {
  switch (status) {
  case SANDBOX__LEASE__V1__LEASE_STATUS__LEASE_STATUS_ACTIVE:
    return "active";
  case SANDBOX__LEASE__V1__LEASE_STATUS__LEASE_STATUS_RELEASED:
    return "released";
  case SANDBOX__LEASE__V1__LEASE_STATUS__LEASE_STATUS_EXPIRED:
    return "expired";
  default:
    return "unknown";
  }
}

static int member(struct buffer *out, const char *before, const char *text) {
  return buffer_append_string(out, before) < 0 ? -1 : json_write_string(out, text, strlen(text));
}

static int time_member(struct buffer *out, const char *before, const Google__Protobuf__Timestamp *stamp) {
  char text[CLOCK_TEXT_SIZE];
  clock_format(stamp_wall(stamp), text);
  return member(out, before, text);
}

int output_lease_json(struct buffer *out, const Sandbox__Lease__V1__Lease *lease) {
  return member(out, "{\"id\":", lease->id) < 0 || member(out, ",\"pool\":", lease->pool) < 0 ||
                 member(out, ",\"status\":", status_name(lease->status)) < 0 ||
                 time_member(out, ",\"createdAt\":", lease->created_at) < 0 ||
                 time_member(out, ",\"expiresAt\":", lease->expires_at) < 0 ||
                 time_member(out, ",\"lastUsedAt\":", lease->last_used_at) < 0
             ? -1
             : buffer_append_byte(out, '}');
}

static void left_format(int64_t left, char *text, size_t size) {
  int64_t seconds = left / CLOCK_SECOND;
  if (left <= 0)
    snprintf(text, size, "-");
  else if (seconds < 60)
    snprintf(text, size, "%" PRId64 "s", seconds);
  else
    snprintf(text, size, "%" PRId64 "m%02" PRId64 "s", seconds / 60, seconds % 60);
}

void output_lease_table(Sandbox__Lease__V1__Lease *const *leases, size_t count, bool head) {
  if (head)
    printf("%-38s  %-16s  %-8s  %-8s  %s\n", "LEASE", "POOL", "STATUS", "LEFT", "EXPIRES");
  for (size_t i = 0; i < count; i++) {
    const Sandbox__Lease__V1__Lease *lease = leases[i];
    int64_t expires = stamp_wall(lease->expires_at);
    char left[32], text[CLOCK_TEXT_SIZE];
    bool active = lease->status == SANDBOX__LEASE__V1__LEASE_STATUS__LEASE_STATUS_ACTIVE;
    left_format(active ? expires - clock_wall() : 0, left, sizeof left);
    clock_format(expires, text);
    printf("%-38s  %-16s  %-8s  %-8s  %.19sZ\n", lease->id, lease->pool, status_name(lease->status), left, text);
  }
}

/* What the person at the keyboard can do about it. */
static const char *failure_hint(enum reason reason) {
  switch (reason) {
  case REASON_UNAUTHORIZED:
    return "check Consumer id and secret, and this machine's clock; tokens are good for at most 300 seconds";
  case REASON_SERVER_UNAVAILABLE:
    return "is lease-server running at this address? `tools/up` starts one on this machine";
  case REASON_LEASE_NOT_FOUND:
    return "`leasectl list` shows this Subject's Leases";
  case REASON_LEASE_NOT_ACTIVE:
    return "it was released or has expired; `leasectl acquire` gets a new one";
  case REASON_INVALID_PATH:
    return "a path in a sandbox is below /workspace, in a folder that exists, and passes no symbolic link";
  case REASON_LEASE_QUOTA_EXCEEDED:
    return "release a Lease that is no longer needed (`leasectl list`, `leasectl release`)";
  case REASON_IDEMPOTENCY_CONFLICT:
    return "this key has an active Lease on another Pool; use another --key";
  default:
    return reason_retryable(reason) ? "this may pass: try again" : NULL;
  }
}

static int failure_json(struct buffer *out, const struct error *err, const char *message) {
  return member(out, "{\"error\":{\"code\":", reason_name(error_reason(err))) < 0 ||
                 member(out, ",\"message\":", message) < 0
             ? -1
             : buffer_append_string(out, "}}\n");
}

int output_failure(const struct error *err, bool json) {
  enum reason reason = error_reason(err);
  /* An internal error's message says nothing; here its detail is for the person who runs this program. */
  const char *detail = error_detail(err);
  const char *message = reason == REASON_INTERNAL && detail[0] ? detail : error_message(err);
  if (json) {
    CLEANUP_BUFFER struct buffer out;
    buffer_init(&out, 65536);
    if (failure_json(&out, err, message) == 0)
      fputs(buffer_text(&out), stderr);
    return 1;
  }
  if (reason == REASON_INTERNAL)
    fprintf(stderr, "leasectl: %s\n", message);
  else
    fprintf(stderr, "leasectl: %s: %s\n", reason_name(reason), message);
  if (error_field(err))
    fprintf(stderr, "  field: %s\n", error_field(err));
  if (reason != REASON_INTERNAL && detail[0] && strcmp(detail, message) != 0)
    fprintf(stderr, "  detail: %s\n", detail);
  if (error_retry_after(err) > 0)
    fprintf(stderr, "  try again in %u s\n", (error_retry_after(err) + 999) / 1000);
  const char *hint = failure_hint(reason);
  if (hint)
    fprintf(stderr, "  hint: %s\n", hint);
  return 1;
}

int output_write(const struct buffer *out) {
  return fwrite(buffer_text(out), 1, out->length, stdout) == out->length && fflush(stdout) == 0 ? 0 : -1;
}
