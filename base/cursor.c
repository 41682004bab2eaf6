/*
 * List cursors. Sealed: nonce (12 bytes, random) ‖ ciphertext ‖ tag (16 bytes), as base64url. Inside: version, three
 * texts with a length byte each (scope, pool, id), and limit, first_page and created in network order. Whatever is
 * wrong with a cursor is the same error.
 */
#include "base/cursor.h"
#include "base/digest.h"
#include "base/memory.h"
#include "base/text.h"
#include <openssl/evp.h>
#include <string.h>

enum {
  VERSION = 1,
  NONCE_BYTES = 12,
  TAG_BYTES = 16,
  PLAIN_BYTES = 256, /* the longest payload: 1 + 41 + 64 + 39 + 4 + 8 + 8 */
  SEALED_BYTES = NONCE_BYTES + PLAIN_BYTES + TAG_BYTES,
};

static const char purpose[] = "lease-list-cursor/v1";
static const char associated_data[] = "agent-sandbox-platform/lease-list-cursor/v1";

void cursor_key_set(struct cursor_key *key, const void *metadata_secret, size_t length) {
  struct digest_key secret;
  digest_key_set(&secret, metadata_secret, length);
  digest_hmac(&secret, purpose, sizeof purpose - 1, key->bytes);
  memory_wipe(&secret, sizeof secret);
}

static void put_number(struct buffer *out, uint64_t number, unsigned bytes) {
  for (unsigned i = bytes; i > 0; i--)
    buffer_append_byte(out, (uint8_t)(number >> 8 * (i - 1)));
}

static void put_text(struct buffer *out, const char *text, size_t size) {
  size_t length = strnlen(text, size - 1);
  buffer_append_byte(out, (uint8_t)length);
  buffer_append(out, text, length);
}

/* Into a buffer of PLAIN_BYTES, which takes every cursor. */
static void put_cursor(struct buffer *out, const struct cursor *cursor) {
  buffer_append_byte(out, VERSION);
  put_text(out, cursor->scope, sizeof cursor->scope);
  put_text(out, cursor->pool, sizeof cursor->pool);
  put_text(out, cursor->id, sizeof cursor->id);
  put_number(out, cursor->limit, 4);
  put_number(out, (uint64_t)cursor->first_page, 8);
  put_number(out, (uint64_t)cursor->created, 8);
}

struct rest {
  const uint8_t *at, *end;
};

static bool take_number(struct rest *rest, unsigned bytes, uint64_t *number) {
  if ((size_t)(rest->end - rest->at) < bytes)
    return false;
  *number = 0;
  for (unsigned i = 0; i < bytes; i++)
    *number = *number << 8 | *rest->at++;
  return true;
}

static bool take_text(struct rest *rest, char *out, size_t size) {
  uint64_t length;
  if (!take_number(rest, 1, &length) || length >= size || length > (size_t)(rest->end - rest->at) ||
      memchr(rest->at, '\0', length) != NULL)
    return false;
  memcpy(out, rest->at, length);
  out[length] = '\0';
  rest->at += length;
  return true;
}

static bool take_cursor(struct rest rest, struct cursor *cursor) {
  uint64_t version, limit, first_page, created;
  *cursor = (struct cursor){0};
  if (!take_number(&rest, 1, &version) || version != VERSION ||
      !take_text(&rest, cursor->scope, sizeof cursor->scope) || !take_text(&rest, cursor->pool, sizeof cursor->pool) ||
      !take_text(&rest, cursor->id, sizeof cursor->id) || !take_number(&rest, 4, &limit) ||
      !take_number(&rest, 8, &first_page) || !take_number(&rest, 8, &created) || rest.at != rest.end)
    return false;
  cursor->limit = (uint32_t)limit;
  cursor->first_page = (int64_t)first_page;
  cursor->created = (int64_t)created;
  return true;
}

static void free_cipher(EVP_CIPHER_CTX **context) {
  EVP_CIPHER_CTX_free(*context);
}

/* plain → sealed, which has room for NONCE_BYTES + length + TAG_BYTES. Returns 0, or -1 without memory. */
static int seal(const struct cursor_key *key, const uint8_t *plain, size_t length, uint8_t *sealed) {
  __attribute__((cleanup(free_cipher))) EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
  uint8_t *ciphertext = sealed + NONCE_BYTES;
  int written;
  random_bytes(sealed, NONCE_BYTES);
  return context != NULL && EVP_EncryptInit_ex(context, EVP_aes_256_gcm(), NULL, key->bytes, sealed) == 1 &&
                 EVP_EncryptUpdate(context, NULL, &written, (const uint8_t *)associated_data,
                                   sizeof associated_data - 1) == 1 &&
                 EVP_EncryptUpdate(context, ciphertext, &written, plain, (int)length) == 1 &&
                 EVP_EncryptFinal_ex(context, ciphertext + length, &written) == 1 &&
                 EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, TAG_BYTES, ciphertext + length) == 1
             ? 0
             : -1;
}

/* sealed → plain, which has room for as many bytes. Returns the plain text's length, or -1 if it is not genuine. */
static int unseal(const struct cursor_key *key, EVP_CIPHER_CTX *context, const uint8_t *sealed, size_t length,
                  uint8_t *plain) {
  if (length < NONCE_BYTES + TAG_BYTES)
    return -1;
  const uint8_t *ciphertext = sealed + NONCE_BYTES;
  int size = (int)(length - NONCE_BYTES - TAG_BYTES), written;
  uint8_t tag[TAG_BYTES];
  memcpy(tag, ciphertext + size, sizeof tag);
  return EVP_DecryptInit_ex(context, EVP_aes_256_gcm(), NULL, key->bytes, sealed) == 1 &&
                 EVP_DecryptUpdate(context, NULL, &written, (const uint8_t *)associated_data,
                                   sizeof associated_data - 1) == 1 &&
                 EVP_DecryptUpdate(context, plain, &written, ciphertext, size) == 1 &&
                 EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, TAG_BYTES, tag) == 1 &&
                 EVP_DecryptFinal_ex(context, plain + size, &written) == 1
             ? size
             : -1;
}

char *cursor_seal(const struct cursor_key *key, const struct cursor *cursor, struct error **err) {
  uint8_t plain_memory[PLAIN_BYTES], sealed[SEALED_BYTES];
  struct buffer plain;
  struct buffer text CLEANUP_BUFFER;
  buffer_borrow(&plain, plain_memory, sizeof plain_memory);
  buffer_init(&text, LIMIT_CURSOR_BYTES);
  put_cursor(&plain, cursor);
  if (seal(key, plain.data, plain.length, sealed) != 0 ||
      text_base64url(&text, sealed, NONCE_BYTES + plain.length + TAG_BYTES) != 0) {
    error_set_memory(err);
    return NULL;
  }
  return buffer_take(&text);
}

int cursor_open(const struct cursor_key *key, const char *text, size_t length, struct cursor *cursor,
                struct error **err) {
  uint8_t sealed_memory[SEALED_BYTES + 1], plain[SEALED_BYTES];
  struct buffer sealed;
  buffer_borrow(&sealed, sealed_memory, sizeof sealed_memory);
  /* A text that decodes to more than the longest cursor is none. */
  if (length > LIMIT_CURSOR_BYTES || text_unbase64url(&sealed, text, length) != 0)
    return error_set(err, REASON_INVALID_CURSOR, NULL);
  __attribute__((cleanup(free_cipher))) EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
  if (context == NULL)
    return error_set_memory(err);
  int size = unseal(key, context, sealed.data, sealed.length, plain);
  struct cursor found;
  if (size < 0 || !take_cursor((struct rest){plain, plain + size}, &found))
    return error_set(err, REASON_INVALID_CURSOR, NULL);
  *cursor = found;
  return 0;
}
