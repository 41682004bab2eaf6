#include "gateway/content.h"

#include "base/text.h"
#include "gateway/exchange.h"

#include <string.h>

static int refuse(struct error **err) {
  return error_set_field(err, REASON_INVALID_REQUEST, "path", "'path' must be a non-empty string");
}

int content_path(struct exchange *exchange, char *path, size_t size, struct error **err) {
  struct http_text name, value, found = {.data = NULL};
  int more;
  while ((more = target_next_parameter(&exchange->target, &name, &value, err)) > 0) {
    if (!http_text_is(name, HTTP_TEXT("path")))
      continue;
    if (found.data)
      return refuse(err);
    found = value;
  }
  if (more < 0)
    return -1;
  if (!found.data || text_blank(found.data, found.length))
    return refuse(err);
  if (!text_valid(found.data, found.length) || memchr(found.data, '\0', found.length))
    return error_set_field(err, REASON_INVALID_REQUEST, "path", "'path' must be text without U+0000");
  size_t length = found.length < size - 1 ? found.length : size - 1;
  /* Not in the middle of a character. */
  while (length < found.length && length > 0 && ((unsigned char)found.data[length] & 0xc0) == 0x80)
    length--;
  memcpy(path, found.data, length);
  path[length] = '\0';
  return 0;
}
