#include "gateway/translate.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

static int refuse_field(struct error **err, const char *name, const char *rule) {
  char message[128];
  snprintf(message, sizeof message, "'%s' %s", name, rule);
  return error_set_field(err, REASON_INVALID_REQUEST, name, message);
}

int translate_text(const struct json *object, const char *name, char **out, struct error **err) {
  static char none[] = "";
  struct json_text text;
  *out = none;
  if (json_get_text(object, name, &text, err) < 0)
    return -1;
  if (!text.data)
    return 0;
  if (memchr(text.data, '\0', text.length))
    return refuse_field(err, name, "must not contain U+0000");
  *out = (char *)text.data; /* protobuf-c's strings are not const; nobody writes to them */
  return 0;
}

int translate_encoding(const struct json *object, enum translate_encoding *encoding, struct error **err) {
  struct json_text text;
  if (json_get_text(object, "encoding", &text, err) < 0)
    return -1;
  struct http_text name = {.data = text.data, .length = text.length};
  bool base64 = text.data && http_text_is(name, HTTP_TEXT("base64"));
  if (text.data && !base64 && !http_text_is(name, HTTP_TEXT("utf8")))
    return refuse_field(err, "encoding", "must be 'utf8' or 'base64'");
  *encoding = base64 ? TRANSLATE_BASE64 : TRANSLATE_UTF8;
  return 0;
}

static const char *status_name(Sandbox__Lease__V1__LeaseStatus status) {
  switch (status) {
  case SANDBOX__LEASE__V1__LEASE_STATUS__LEASE_STATUS_RELEASED:
    return "released";
  case SANDBOX__LEASE__V1__LEASE_STATUS__LEASE_STATUS_EXPIRED:
    return "expired";
  default:
    return "active";
  }
}

static int add_time(struct buffer *out, const char *before, const Google__Protobuf__Timestamp *time) {
  char text[CLOCK_TEXT_SIZE];
  clock_format(time ? time->seconds * CLOCK_SECOND + time->nanos : 0, text);
  return buffer_append_string(out, before) < 0 || buffer_append_string(out, text) < 0 ? -1 : 0;
}

static int add_string(struct buffer *out, const char *before, const char *text) {
  return buffer_append_string(out, before) < 0 ? -1 : json_write_string(out, text, strlen(text));
}

int translate_lease(struct buffer *out, const Sandbox__Lease__V1__Lease *lease) {
  if (add_string(out, "{\"id\":", lease->id) < 0 || add_string(out, ",\"pool\":", lease->pool) < 0 ||
      add_string(out, ",\"status\":", status_name(lease->status)) < 0 ||
      add_time(out, ",\"createdAt\":\"", lease->created_at) < 0 ||
      add_time(out, "\",\"expiresAt\":\"", lease->expires_at) < 0 ||
      add_time(out, "\",\"lastUsedAt\":\"", lease->last_used_at) < 0)
    return -1;
  return buffer_append_string(out, "\"}");
}

int translate_only_lease(struct buffer *out, const Sandbox__Lease__V1__Lease *lease) {
  if (buffer_append_string(out, "{\"lease\":") < 0 || translate_lease(out, lease) < 0)
    return -1;
  return buffer_append_byte(out, '}');
}
