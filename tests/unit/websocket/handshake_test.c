/*
 * The request that opens a WebSocket, and every way its answer can be wrong.
 */
#include "backend/websocket/handshake.h"
#include "base/memory.h"
#include "tests/unit/websocket/check.h"
#include <openssl/sha.h>
#include "base/text.h"
#include <string.h>

static const struct websocket_endpoint endpoint = {.host = "10.0.0.1", .port = 6443, .bearer = "a.b.c"};
static const struct websocket_request request = {
    .endpoint = &endpoint, .target = "/api/exec?command=sh", .protocol = "v5.channel.k8s.io"};

static void test_request(void **state) {
  struct handshake handshake;
  CLEANUP_BUFFER struct buffer out;
  (void)state;
  buffer_init(&out, 65536);
  assert_int_equal(handshake_start(&handshake, &request, &out, NULL), 0);
  const char *text = buffer_text(&out), *key = strstr(text, "Sec-WebSocket-Key: ");
  assert_ptr_equal(strstr(text, "GET /api/exec?command=sh HTTP/1.1\r\nHost: 10.0.0.1:6443\r\n"), text);
  assert_non_null(strstr(text, "\r\nAuthorization: Bearer a.b.c\r\n"));
  assert_non_null(strstr(text, "\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n"));
  assert_string_equal(text + out.length - 4, "\r\n\r\n");
  assert_non_null(key);
  /* What RFC 6455 makes of the key. */
  char joined[64];
  memcpy(joined, key + 19, 24);
  memcpy(joined + 24, "258EAFA5-E914-47DA-95CA-C5AB0DC85B11", 36);
  uint8_t digest[SHA_DIGEST_LENGTH];
  SHA1((const uint8_t *)joined, 60, digest);
  CLEANUP_BUFFER struct buffer accept;
  buffer_init(&accept, 100);
  assert_int_equal(text_base64(&accept, digest, sizeof digest), 0);
  assert_string_equal(buffer_text(&accept), handshake.accept);
  handshake_free(&handshake);
}

static void test_address_of_version_6(void **state) {
  struct handshake handshake;
  CLEANUP_BUFFER struct buffer out;
  const struct websocket_endpoint six = {.host = "fd00::1", .port = 443};
  struct websocket_request other = request;
  (void)state;
  other.endpoint = &six;
  buffer_init(&out, 65536);
  assert_int_equal(handshake_start(&handshake, &other, &out, NULL), 0);
  assert_non_null(strstr(buffer_text(&out), "\r\nHost: [fd00::1]:443\r\n"));
  assert_null(strstr(buffer_text(&out), "Authorization"));
  handshake_free(&handshake);
}

static void test_bad_requests(void **state) {
  static const struct {
    const char *host, *target, *protocol, *bearer;
  } bad[] = {{"h\r\nX: y", "/", "p", NULL}, {"h", "/ x", "p", NULL},      {"h", "/", "p\r\n", NULL},
             {"h", "/", "p", "a b"},        {"h", "/", "p", "a\r\nb: c"}, {"", "/", "p", NULL},
             {"h", "x", "p", NULL},         {"h", "/", "", NULL}};
  (void)state;
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    CLEANUP_ERROR struct error *err = NULL;
    CLEANUP_BUFFER struct buffer out;
    struct handshake handshake;
    const struct websocket_endpoint where = {.host = bad[i].host, .port = 1, .bearer = bad[i].bearer};
    const struct websocket_request what = {.endpoint = &where, .target = bad[i].target, .protocol = bad[i].protocol};
    buffer_init(&out, 65536);
    assert_int_equal(handshake_start(&handshake, &what, &out, &err), -1);
    assert_int_equal(error_reason(err), REASON_INTERNAL);
    assert_int_equal(out.length, 0);
    handshake_free(&handshake);
  }
}

/* '@' stands for the right Sec-WebSocket-Accept. Returns what came of it; *used counts over all pieces. */
static enum handshake_state answer(struct handshake *handshake, const char *text, size_t piece, size_t *used,
                                   struct error **err) {
  CLEANUP_BUFFER struct buffer out;
  CLEANUP_BUFFER struct buffer bytes;
  buffer_init(&out, 65536);
  buffer_init(&bytes, 65536);
  assert_int_equal(handshake_start(handshake, &request, &out, NULL), 0);
  for (const char *at = text; *at; at++)
    assert_int_equal(*at == '@' ? buffer_append_string(&bytes, handshake->accept) : buffer_append(&bytes, at, 1), 0);
  *used = 0;
  while (*used < bytes.length && handshake->state < HANDSHAKE_OPEN) {
    size_t some = bytes.length - *used < piece ? bytes.length - *used : piece, taken;
    CLEANUP_MEMORY uint8_t *copy = memory_new(some);
    memcpy(copy, bytes.data + *used, some);
    if (handshake_receive(handshake, copy, some, &taken, err) != 0)
      return (enum handshake_state)-1;
    assert_true(taken <= some);
    *used += taken;
  }
  *used = bytes.length - *used;
  return handshake->state;
}

#define GOOD                                                                                                           \
  "HTTP/1.1 101 Switching Protocols\r\nupgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n"                      \
  "Sec-Websocket-Accept: @\r\nSec-Websocket-Protocol: v5.channel.k8s.io\r\n"

static void test_open(void **state) {
  (void)state;
  for (size_t piece = 1; piece < 400; piece += 3) {
    struct handshake handshake;
    size_t rest;
    CLEANUP_ERROR struct error *err = NULL;
    assert_int_equal(answer(&handshake, GOOD "\r\n\x82\x01z", piece, &rest, &err), HANDSHAKE_OPEN);
    assert_int_equal(rest, 3);
    handshake_free(&handshake);
  }
}

static void test_broken(void **state) {
  static const char *const answers[] = {
      "HTTP/1.0 101 Switching Protocols\r\n\r\n",
      "HTTP/1.1 1x1 Switching\r\n\r\n",
      "HTTP/1.1 099 No\r\n\r\n",
      "SSH-2.0-OpenSSH\r\n\r\n",
      "\r\n\r\n",
      "HTTP/1.1 101 S\r\n\r\n",
      "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
      "AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n",
      "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: @\r\n\r\n",
      "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: @\r\n"
      "Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n",
      "HTTP/1.1 101 S\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: @\r\n"
      "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n",
      GOOD "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
      GOOD " folded\r\n\r\n",
      GOOD "no colon\r\n\r\n",
      GOOD "space : x\r\n\r\n",
      GOOD ": x\r\n\r\n",
      GOOD "bare: x\ry\r\n\r\n",
      "HTTP/1.1 500 E\r\nContent-Length: -1\r\n\r\n",
      "HTTP/1.1 500 E\r\nContent-Length: 99999999999999999999\r\n\r\n",
  };
  (void)state;
  for (size_t i = 0; i < COUNT_OF(answers); i++) {
    struct handshake handshake;
    size_t rest;
    CLEANUP_ERROR struct error *err = NULL;
    if (answer(&handshake, answers[i], 1000, &rest, &err) != (enum handshake_state)-1)
      fail_msg("taken: %s", answers[i]);
    assert_int_equal(error_reason(err), REASON_SANDBOX_NOT_READY);
    handshake_free(&handshake);
  }
}

static void test_endless_head(void **state) {
  struct handshake handshake;
  size_t rest;
  CLEANUP_ERROR struct error *err = NULL;
  CLEANUP_BUFFER struct buffer text;
  (void)state;
  buffer_init(&text, 65536);
  buffer_append_string(&text, "HTTP/1.1 101 S\r\n");
  while (text.length < 20000)
    buffer_append_string(&text, "X: 0123456789\r\n");
  assert_int_equal(answer(&handshake, buffer_text(&text), 700, &rest, &err), (enum handshake_state)-1);
  assert_non_null(strstr(error_detail(err), "too long"));
  handshake_free(&handshake);
}

static void test_refused(void **state) {
  static const struct {
    const char *text;
    int status;
    unsigned retry_after;
    const char *body;
  } cases[] = {
      {"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnopemore", 404, 0, "nope"},
      {"HTTP/1.1 429 Too Many\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n", 429, 3000, ""},
      {"HTTP/1.1 503 X\r\nRetry-After: 99999\r\n\r\n", 503, 3600000, ""},
      {"HTTP/1.1 503 X\r\nRetry-After: soon\r\n\r\n", 503, 0, ""},
      {"HTTP/1.1 500\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n", 500, 0, ""},
      {"HTTP/1.1 500 X\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 500, 0, ""},
      {"HTTP/1.1 500 X\r\nContent-Length: 5000\r\n\r\nabcd", 500, 0, ""},
  };
  (void)state;
  for (size_t i = 0; i < COUNT_OF(cases); i++)
    for (size_t piece = 1; piece < 200; piece += 13) {
      struct handshake handshake;
      size_t rest;
      CLEANUP_ERROR struct error *err = NULL;
      assert_int_equal(answer(&handshake, cases[i].text, piece, &rest, &err), HANDSHAKE_REFUSED);
      assert_int_equal(handshake.refusal.status, cases[i].status);
      assert_int_equal(handshake.refusal.retry_after, cases[i].retry_after);
      assert_string_equal(handshake.refusal.body, cases[i].body);
      handshake_free(&handshake);
    }
}

static void test_no_memory(void **state) {
  (void)state;
  for (size_t n = 1;; n++) {
    struct handshake handshake;
    size_t taken = 0;
    static const char text[] = "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope";
    CLEANUP_BUFFER struct buffer out;
    buffer_init(&out, 65536);
    memory_fail_after(n, 0);
    int result = handshake_start(&handshake, &request, &out, NULL);
    if (result == 0)
      result = handshake_receive(&handshake, (const uint8_t *)text, sizeof text - 1, &taken, NULL);
    memory_fail_after(0, 0);
    handshake_free(&handshake);
    assert_true(n < 30);
    if (result == 0)
      return;
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_request),      cmocka_unit_test(test_address_of_version_6),
      cmocka_unit_test(test_bad_requests), cmocka_unit_test(test_open),
      cmocka_unit_test(test_broken),       cmocka_unit_test(test_endless_head),
      cmocka_unit_test(test_refused),      cmocka_unit_test(test_no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
