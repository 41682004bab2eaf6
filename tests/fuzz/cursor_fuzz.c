/*
 * List cursors. The first byte chooses: the rest is a cursor as it came, or a payload that is sealed here, so that what
 * lies behind the seal is reached too.
 */
// Sources: base/*.c
// Libraries: -lcjson -lcrypto -lprotobuf-c
#include "base/cursor.h"
#include "base/memory.h"
#include "base/text.h"
#include "tests/fuzz/fuzz.h"
#include <openssl/evp.h>
#include <string.h>

static const char associated_data[] = "agent-sandbox-platform/lease-list-cursor/v1";

/* The cursor of any payload, under a nonce of zeros. */
static void seal(const struct cursor_key *key, const uint8_t *payload, size_t size, struct buffer *text) {
  uint8_t sealed[12 + 512 + 16] = {0};
  int written;
  EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
  PROMISE(EVP_EncryptInit_ex(context, EVP_aes_256_gcm(), NULL, key->bytes, sealed) == 1 &&
          EVP_EncryptUpdate(context, NULL, &written, (const uint8_t *)associated_data, sizeof associated_data - 1) ==
              1 &&
          EVP_EncryptUpdate(context, sealed + 12, &written, payload, (int)size) == 1 &&
          EVP_EncryptFinal_ex(context, sealed + 12 + size, &written) == 1 &&
          EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, 16, sealed + 12 + size) == 1);
  EVP_CIPHER_CTX_free(context);
  text_base64url(text, sealed, 12 + size + 16);
}

/* What was opened can be sealed and opened again, and is the same. */
static void check_cursor(const struct cursor_key *key, const struct cursor *cursor) {
  struct cursor again;
  CLEANUP_MEMORY char *text = cursor_seal(key, cursor, NULL);
  PROMISE(text != NULL && cursor_open(key, text, strlen(text), &again, NULL) == 0);
  PROMISE(strcmp(cursor->scope, again.scope) == 0 && strcmp(cursor->pool, again.pool) == 0 &&
          strcmp(cursor->id, again.id) == 0);
  PROMISE(cursor->limit == again.limit && cursor->first_page == again.first_page && cursor->created == again.created);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct cursor_key key;
  cursor_key_set(&key, "metadata-secret", 15);
  if (size == 0 || (data[0] % 2 == 1 && size > 512))
    return 0;
  struct buffer text CLEANUP_BUFFER;
  buffer_init(&text, SIZE_MAX);
  if (data[0] % 2 == 1)
    seal(&key, data + 1, size - 1, &text);
  else
    buffer_append(&text, data + 1, size - 1);
  struct cursor cursor;
  struct error *err CLEANUP_ERROR = NULL;
  if (cursor_open(&key, buffer_text(&text), text.length, &cursor, &err) == 0)
    check_cursor(&key, &cursor);
  else
    PROMISE(error_reason(err) == REASON_INVALID_CURSOR);
  return 0;
}
