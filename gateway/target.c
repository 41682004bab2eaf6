#include "gateway/target.h"

#include <string.h>

static int hexadecimal(char byte) {
  if (byte >= '0' && byte <= '9')
    return byte - '0';
  if (byte >= 'a' && byte <= 'f')
    return byte - 'a' + 10;
  return byte >= 'A' && byte <= 'F' ? byte - 'A' + 10 : -1;
}

/* Decodes in place. Returns false if a '%' is not followed by two hexadecimal digits; it then stays as it is. */
static bool decode(char *text, size_t length, bool plus_is_space, struct http_text *out) {
  bool good = true;
  size_t to = 0;
  for (size_t from = 0; from < length; from++) {
    char byte = text[from];
    int high = byte == '%' && length - from > 2 ? hexadecimal(text[from + 1]) : -1;
    int low = high >= 0 ? hexadecimal(text[from + 2]) : -1;
    if (low >= 0) {
      byte = (char)(high * 16 + low);
      from += 2;
    } else if (byte == '%') {
      good = false;
    } else if (byte == '+' && plus_is_space) {
      byte = ' ';
    }
    text[to++] = byte;
  }
  *out = (struct http_text){.data = text, .length = to};
  return good;
}

/* How long the front of the text is that has none of the delimiter. */
static size_t span(const char *text, size_t length, char delimiter) {
  const char *found = length > 0 ? memchr(text, delimiter, length) : NULL;
  return found ? (size_t)(found - text) : length;
}

/* "http://host:80/path" names the same resource as "/path". */
static void skip_authority(char **text, size_t *length) {
  static const struct http_text schemes[] = {{"http://", 7}, {"https://", 8}};
  for (size_t i = 0; i < 2; i++) {
    struct http_text front = {.data = *text, .length = schemes[i].length};
    if (*length < schemes[i].length || !http_text_is_any_case(front, schemes[i]))
      continue;
    size_t skipped = schemes[i].length;
    while (skipped < *length && (*text)[skipped] != '/' && (*text)[skipped] != '?')
      skipped++;
    *text += skipped;
    *length -= skipped;
    return;
  }
}

void target_read(char *text, size_t length, struct target *target) {
  *target = (struct target){.count = 0};
  skip_authority(&text, &length);
  size_t path = span(text, length, '?');
  if (path < length) {
    target->query = text + path + 1;
    target->query_length = length - path - 1;
  }
  if (path == 0 || text[0] != '/')
    return;
  for (size_t at = 0; at < path && target->count < TARGET_SEGMENTS;) {
    size_t start = at + 1, piece = span(text + start, path - start, '/');
    decode(text + start, piece, false, &target->segments[target->count++]);
    at = start + piece;
  }
}

int target_next_parameter(struct target *target, struct http_text *name, struct http_text *value, struct error **err) {
  size_t piece = 0;
  while (target->query_length > 0 && (piece = span(target->query, target->query_length, '&')) == 0) {
    target->query++;
    target->query_length--;
  }
  if (target->query_length == 0)
    return 0;
  char *text = target->query;
  size_t name_length = span(text, piece, '=');
  size_t value_start = name_length < piece ? name_length + 1 : piece;
  size_t used = piece < target->query_length ? piece + 1 : piece;
  target->query += used;
  target->query_length -= used;
  if (!decode(text, name_length, true, name) || !decode(text + value_start, piece - value_start, true, value))
    return error_set(err, REASON_INVALID_REQUEST, "Malformed percent-encoding in the query");
  return 1;
}
