/*
 * Labels for scopes, Consumers, idempotency keys and Pools: what is stored instead of the names themselves (contract
 * §9). The JSON under the HMAC is spelled as Go's encoding/json does with SetEscapeHTML(false), which is JavaScript's
 * JSON.stringify but for U+2028 and U+2029: Go escapes them. json_write_string is that spelling.
 */
#include "base/identity.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include <string.h>

static int write_parts(struct buffer *out, const char *const *parts, size_t count) {
  if (buffer_append_byte(out, '[') != 0)
    return -1;
  for (size_t i = 0; i < count; i++)
    if ((i > 0 && buffer_append_byte(out, ',') != 0) || json_write_string(out, parts[i], strlen(parts[i])) != 0)
      return -1;
  return buffer_append_byte(out, ']');
}

int label_make(const struct digest_key *metadata_key, const char *const *parts, size_t count,
               char label[static LABEL_SIZE]) {
  struct buffer json CLEANUP_BUFFER;
  buffer_init(&json, SIZE_MAX);
  if (write_parts(&json, parts, count) != 0)
    return -1;
  uint8_t digest[DIGEST_SIZE];
  digest_hmac(metadata_key, json.data, json.length, digest);
  text_hex(digest, (LABEL_SIZE - 1) / 2, label);
  return 0;
}
