#include "backend/kubernetes/status.h"

#include "backend/kubernetes/retry.h"
#include "base/json.h"
#include <stdbool.h>
#include <string.h>

enum { MESSAGE_BYTES = 300, UNAUTHORIZED = 401, FORBIDDEN = 403 };

static struct json_text text_of(const struct json *object, const char *name) {
  struct json_text text = {NULL, 0};
  return object && json_get_text(object, name, &text, NULL) == 0 && text.data ? text : (struct json_text){"", 0};
}

int status_error(int code, const char *body, size_t length, char reason[static STATUS_REASON_SIZE],
                 struct error **err) {
  CLEANUP_JSON struct json *json = length > 0 ? json_parse(body, length, NULL) : NULL;
  const struct json *status = json && json_is_object(json) ? json : NULL;
  struct json_text word = text_of(status, "reason"), message = text_of(status, "message");
  size_t kept = strnlen(word.data, STATUS_REASON_SIZE - 1);
  memcpy(reason, word.data, kept);
  reason[kept] = 0;
  bool passes = retry_may_pass(code) || code == UNAUTHORIZED || code == FORBIDDEN;
  return error_set_detail(err, passes ? REASON_SERVER_UNAVAILABLE : REASON_INTERNAL,
                          "the API server answered %d %s: %.*s", code, reason, MESSAGE_BYTES, message.data);
}
