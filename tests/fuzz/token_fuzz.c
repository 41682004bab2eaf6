/*
 * Subject tokens. The first byte chooses: the rest is a token as it came, an `authorization` value, or claims that are
 * signed here, so that what lies behind the signature is reached too.
 */
// Sources: base/*.c
// Libraries: -lcjson -lcrypto -lprotobuf-c
#include "base/identity.h"
#include "base/memory.h"
#include "base/text.h"
#include "tests/fuzz/fuzz.h"
#include <string.h>

static const int64_t now = 1999999800;
static const char secrets[] = "{\"acme\":\"top-secret\",\"beta\":[\"new\",\"old\"]}";

/* "v1.<claims>.<signature>" of any claims. */
static void sign(struct buffer *token, const uint8_t *claims, size_t size) {
  struct digest_key key;
  uint8_t signature[DIGEST_SIZE];
  buffer_append_string(token, "v1.");
  text_base64url(token, claims, size);
  digest_key_set(&key, "top-secret", 10);
  digest_hmac(&key, token->data, token->length, signature);
  buffer_append_byte(token, '.');
  text_base64url(token, signature, sizeof signature);
}

static int verify_claims(const struct key_ring *ring, const uint8_t *claims, size_t size, struct identity *identity,
                         struct error **err) {
  struct buffer token CLEANUP_BUFFER;
  buffer_init(&token, SIZE_MAX);
  sign(&token, claims, size);
  return token_verify(ring, buffer_text(&token), token.length, now, identity, err);
}

static void check_identity(const struct identity *identity) {
  const char *const names[] = {identity->consumer, identity->subject};
  for (int i = 0; i < 2; i++) {
    size_t length = strlen(names[i]);
    PROMISE(length > 0 && length <= 800 && text_valid(names[i], length) && text_characters(names[i], length) <= 200 &&
            !text_blank(names[i], length));
  }
  PROMISE(identity->expires > now && identity->expires <= now + 305);
  PROMISE(strcmp(identity->consumer, "acme") == 0 || strcmp(identity->consumer, "beta") == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct key_ring *ring;
  if (ring == NULL)
    ring = key_ring_parse(secrets, sizeof secrets - 1, NULL);
  if (size == 0)
    return 0;
  struct identity identity;
  struct error *err CLEANUP_ERROR = NULL;
  const char *text = (const char *)data + 1;
  int result = data[0] % 3 == 0   ? token_verify(ring, text, size - 1, now, &identity, &err)
               : data[0] % 3 == 1 ? token_verify_bearer(ring, text, size - 1, now, &identity, &err)
                                  : verify_claims(ring, data + 1, size - 1, &identity, &err);
  if (result == 0)
    check_identity(&identity);
  else
    PROMISE(error_reason(err) == REASON_UNAUTHORIZED &&
            strcmp(error_message(err), "Invalid or expired subject token") == 0);
  return 0;
}
