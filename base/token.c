/*
 * Subject tokens: "v1.<claims>.<signature>". Everything that is wrong with one is the same error, and a token that is
 * well formed does the same work whoever it names.
 */
#include "base/identity.h"
#include "base/json.h"
#include "base/key_ring.h"
#include "base/limits.h"
#include "base/memory.h"
#include "base/text.h"
#include <inttypes.h>
#include <string.h>

static const char version[] = "v1.";
enum { VERSION_LENGTH = sizeof version - 1 };

static int refuse(struct error **err) {
  return error_set(err, REASON_UNAUTHORIZED, NULL);
}

/* Copies an identity out of the claims, if it is one. */
static bool take_identity(const struct json *claims, const char *name, char *out, size_t size) {
  struct json_text text;
  if (json_get_text(claims, name, &text, NULL) != 0 || text.data == NULL || text.length >= size ||
      !identity_valid(text.data, text.length))
    return false;
  memcpy(out, text.data, text.length + 1);
  return true;
}

/* The claims' bytes to an identity. Returns 0, or -1 and an error. */
static int read_claims(const struct buffer *bytes, struct identity *identity, struct error **err) {
  struct error *cause CLEANUP_ERROR = NULL;
  struct json *claims CLEANUP_JSON = json_parse(buffer_text(bytes), bytes->length, &cause);
  if (claims == NULL && error_reason(cause) == REASON_INTERNAL)
    return error_move(err, &cause);
  bool present = false;
  if (claims == NULL || !json_is_object(claims) ||
      !take_identity(claims, "consumerId", identity->consumer, sizeof identity->consumer) ||
      !take_identity(claims, "subjectId", identity->subject, sizeof identity->subject) ||
      json_get_integer(claims, "exp", &present, &identity->expires, NULL) != 0 || !present)
    return refuse(err);
  return 0;
}

int token_verify(const struct key_ring *ring, const char *token, size_t length, int64_t now, struct identity *identity,
                 struct error **err) {
  if (length > LIMIT_TOKEN_BYTES || length < VERSION_LENGTH || memcmp(token, version, VERSION_LENGTH) != 0)
    return refuse(err);
  const char *claims = token + VERSION_LENGTH;
  const char *dot = memchr(claims, '.', length - VERSION_LENGTH);
  if (dot == NULL)
    return refuse(err);
  char claims_memory[LIMIT_TOKEN_BYTES], signature_memory[DIGEST_SIZE + 1];
  struct buffer claims_bytes, signature;
  buffer_borrow(&claims_bytes, claims_memory, sizeof claims_memory);
  buffer_borrow(&signature, signature_memory, sizeof signature_memory);
  /* A third dot is no digit of base64url. */
  if (text_unbase64url(&claims_bytes, claims, (size_t)(dot - claims)) != 0 ||
      text_unbase64url(&signature, dot + 1, (size_t)(token + length - dot - 1)) != 0 || signature.length != DIGEST_SIZE)
    return refuse(err);
  struct identity found;
  if (read_claims(&claims_bytes, &found, err) != 0)
    return -1;
  bool good =
      key_ring_verify(ring, found.consumer, strlen(found.consumer), token, (size_t)(dot - token), signature.data);
  if (!good || found.expires <= now || found.expires > now + LIMIT_TOKEN_LIFETIME_SECONDS + LIMIT_TOKEN_SKEW_SECONDS)
    return refuse(err);
  *identity = found;
  return 0;
}

int token_verify_bearer(const struct key_ring *ring, const char *value, size_t length, int64_t now,
                        struct identity *identity, struct error **err) {
  static const char scheme[] = "Bearer ";
  const size_t scheme_length = sizeof scheme - 1;
  if (length < scheme_length || memcmp(value, scheme, scheme_length) != 0)
    return refuse(err);
  return token_verify(ring, value + scheme_length, length - scheme_length, now, identity, err);
}

static int check_name(const char *field, const char *text, struct error **err) {
  if (text_valid(text, strlen(text)) && identity_valid(text, strlen(text)))
    return 0;
  return error_set_field(err, REASON_INVALID_REQUEST, field,
                         "Consumer and Subject must have 1 to 200 characters and not be blank");
}

/* {"consumerId":…,"subjectId":…,"exp":…} */
static int write_claims(struct buffer *out, const char *consumer, const char *subject, int64_t expires) {
  return buffer_append_string(out, "{\"consumerId\":") == 0 &&
                 json_write_string(out, consumer, strlen(consumer)) == 0 &&
                 buffer_append_string(out, ",\"subjectId\":") == 0 &&
                 json_write_string(out, subject, strlen(subject)) == 0 &&
                 buffer_append_format(out, ",\"exp\":%" PRId64 "}", expires) == 0
             ? 0
             : -1;
}

static int append_signature(struct buffer *token, const char *secret) {
  struct digest_key key;
  uint8_t signature[DIGEST_SIZE];
  digest_key_set(&key, secret, strlen(secret));
  digest_hmac(&key, token->data, token->length, signature);
  memory_wipe(&key, sizeof key);
  return buffer_append_byte(token, '.') == 0 ? text_base64url(token, signature, sizeof signature) : -1;
}

char *token_mint(const char *consumer, const char *subject, const char *secret, int64_t expires, struct error **err) {
  if (check_name("consumer_id", consumer, err) != 0 || check_name("subject_id", subject, err) != 0)
    return NULL;
  if (secret[0] == '\0') {
    error_set_field(err, REASON_INVALID_REQUEST, "secret", "The secret must not be empty");
    return NULL;
  }
  struct buffer claims CLEANUP_BUFFER;
  struct buffer token CLEANUP_BUFFER;
  buffer_init(&claims, LIMIT_TOKEN_BYTES);
  buffer_init(&token, LIMIT_TOKEN_BYTES);
  if (write_claims(&claims, consumer, subject, expires) != 0 || buffer_append_string(&token, version) != 0 ||
      text_base64url(&token, claims.data, claims.length) != 0 || append_signature(&token, secret) != 0) {
    error_set_memory(err);
    return NULL;
  }
  return buffer_take(&token);
}
