/*
 * Nanoseconds for one call of what lies on the path of every request, best of several rounds, and beside our HMAC the
 * one that OpenSSL recommends. Prints one line for each.
 */
#include "base/clock.h"
#include "base/cursor.h"
#include "base/digest.h"
#include "base/identity.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/message.h"
#include "base/text.h"
#include "sandbox/lease/v1/lease.pb-c.h"
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t now = 1999999800;
static const char body[] =
    "{\"command\":\"make -j4 "
    "test\",\"cwd\":\"project\",\"env\":{\"LANG\":\"C.UTF-8\",\"CI\":\"1\"},\"timeoutSeconds\":60}";

static struct key_ring *ring, *rotating_ring;
static char *token, *unknown_token;
static struct digest_key key;
static struct cursor_key cursor_key;
static char *cursor_text;
static uint8_t *packed;
static size_t packed_length;
static EVP_MAC *mac;
static EVP_MAC_CTX *mac_context;
static char *megabyte;

static void check(bool good) {
  if (!good)
    abort();
}

static void verify(void) {
  struct identity identity;
  check(token_verify(ring, token, strlen(token), now, &identity, NULL) == 0);
}

static void verify_rotating(void) {
  struct identity identity;
  check(token_verify(rotating_ring, token, strlen(token), now, &identity, NULL) == 0);
}

static void verify_unknown(void) {
  struct identity identity;
  check(token_verify(ring, unknown_token, strlen(unknown_token), now, &identity, NULL) != 0);
}

static void hmac_ours(void) {
  uint8_t out[DIGEST_SIZE];
  digest_hmac(&key, token, 100, out);
}

static void hmac_evp(void) {
  uint8_t out[DIGEST_SIZE];
  size_t length;
  check(EVP_MAC_init(mac_context, NULL, 0, NULL) == 1 &&
        EVP_MAC_update(mac_context, (const uint8_t *)token, 100) == 1 &&
        EVP_MAC_final(mac_context, out, &length, sizeof out) == 1);
}

static void hmac_evp_new_key(void) {
  uint8_t out[DIGEST_SIZE];
  size_t length;
  OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)"SHA256", 0),
                             OSSL_PARAM_construct_end()};
  EVP_MAC_CTX *context = EVP_MAC_CTX_new(mac);
  check(EVP_MAC_init(context, (const uint8_t *)"top-secret", 10, parameters) == 1 &&
        EVP_MAC_update(context, (const uint8_t *)token, 100) == 1 &&
        EVP_MAC_final(context, out, &length, sizeof out) == 1);
  EVP_MAC_CTX_free(context);
}

static void label(void) {
  char out[LABEL_SIZE];
  check(label_make(&key, (const char *const[]){"scope", "acme", "user-7"}, 3, out) == 0);
}

static void parse_body(void) {
  struct json *json CLEANUP_JSON = json_parse(body, sizeof body - 1, NULL);
  check(json != NULL);
}

static void open_cursor(void) {
  struct cursor cursor;
  check(cursor_open(&cursor_key, cursor_text, strlen(cursor_text), &cursor, NULL) == 0);
}

static void check_message(void) {
  check(message_check(&sandbox__lease__v1__exec_request__descriptor, packed, packed_length, NULL) == 0);
}

static void unpack_message(void) {
  ProtobufCMessage *message =
      message_unpack(&sandbox__lease__v1__exec_request__descriptor, packed, packed_length, NULL);
  check(message != NULL);
  protobuf_c_message_free_unpacked(message, NULL);
}

static void valid_megabyte(void) {
  check(text_valid(megabyte, 1048576));
}

static void repair_megabyte(void) {
  struct buffer out CLEANUP_BUFFER;
  buffer_init(&out, 4194304);
  check(text_repair(&out, megabyte, 1048576) == 0);
}

static void write_megabyte(void) {
  struct buffer out CLEANUP_BUFFER;
  buffer_init(&out, 8388608);
  check(json_write_string(&out, megabyte, 1048576) == 0);
}

static void base64_megabyte(void) {
  struct buffer out CLEANUP_BUFFER;
  buffer_init(&out, 8388608);
  check(text_base64(&out, megabyte, 1048576) == 0);
}

static void unbase64_megabyte(void) {
  static struct buffer text;
  struct buffer out CLEANUP_BUFFER;
  buffer_init(&out, 8388608);
  if (text.data == NULL) {
    buffer_init(&text, 8388608);
    check(text_base64(&text, megabyte, 1048576) == 0);
  }
  check(text_unbase64(&out, buffer_text(&text), text.length) == 0);
}

static void make_message(void) {
  Sandbox__Lease__V1__ExecRequest request = SANDBOX__LEASE__V1__EXEC_REQUEST__INIT;
  Sandbox__Lease__V1__Command command = SANDBOX__LEASE__V1__COMMAND__INIT;
  request.lease_id = (char *)"lease-0123456789abcdef0123456789abcdef";
  request.command = &command;
  command.command = (char *)"make -j4 test";
  command.cwd = (char *)"project";
  packed = message_pack(&request.base, &packed_length);
}

static void set_up(void) {
  static const char one[] = "{\"acme\":\"top-secret\",\"beta\":\"b\"}", two[] = "{\"acme\":[\"new\",\"top-secret\"]}";
  ring = key_ring_parse(one, sizeof one - 1, NULL);
  rotating_ring = key_ring_parse(two, sizeof two - 1, NULL);
  token = token_mint("acme", "user-7", "top-secret", now + 200, NULL);
  unknown_token = token_mint("acmf", "user-7", "top-secret", now + 200, NULL);
  digest_key_set(&key, "top-secret", 10);
  cursor_key_set(&cursor_key, "top-secret", 10);
  cursor_text = cursor_seal(&cursor_key,
                            &(struct cursor){.pool = "coding", .id = "lease-0123456789abcdef0123456789abcdef"}, NULL);
  mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
  mac_context = EVP_MAC_CTX_new(mac);
  OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)"SHA256", 0),
                             OSSL_PARAM_construct_end()};
  check(EVP_MAC_init(mac_context, (const uint8_t *)"top-secret", 10, parameters) == 1);
  megabyte = memory_new(1048577);
  for (size_t i = 0; i < 1048576; i++)
    megabyte[i] = i % 64 == 63 ? '\n' : (char)('a' + i % 26);
  make_message();
}

/* Best of ten rounds of about 20 ms each. */
static void measure(const char *name, void (*call)(void)) {
  int64_t best = INT64_MAX;
  int calls = 1;
  for (int64_t took = 0; took < 20 * CLOCK_MILLISECOND; calls *= 2) {
    int64_t start = clock_boot();
    for (int i = 0; i < calls; i++)
      call();
    took = clock_boot() - start;
  }
  calls /= 2;
  for (int round = 0; round < 10; round++) {
    int64_t start = clock_boot();
    for (int i = 0; i < calls; i++)
      call();
    int64_t took = (clock_boot() - start) / calls;
    best = took < best ? took : best;
  }
  printf("%-40s %10.3f us\n", name, (double)best / 1000);
}

int main(void) {
  set_up();
  measure("token_verify", verify);
  measure("token_verify, two secrets", verify_rotating);
  measure("token_verify, unknown Consumer", verify_unknown);
  measure("HMAC of 100 bytes, ours", hmac_ours);
  measure("HMAC of 100 bytes, EVP_MAC kept", hmac_evp);
  measure("HMAC of 100 bytes, EVP_MAC new", hmac_evp_new_key);
  measure("label_make", label);
  measure("json_parse of an exec body", parse_body);
  measure("cursor_open", open_cursor);
  measure("message_check of an ExecRequest", check_message);
  measure("message_unpack of an ExecRequest", unpack_message);
  measure("text_valid of 1 MiB", valid_megabyte);
  measure("text_repair of 1 MiB", repair_megabyte);
  measure("json_write_string of 1 MiB", write_megabyte);
  measure("text_base64 of 1 MiB", base64_megabyte);
  measure("text_unbase64 of 1 MiB", unbase64_megabyte);
  return 0;
}
