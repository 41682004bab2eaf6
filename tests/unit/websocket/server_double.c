/*
 * A WebSocket server for tests: see server_double.h.
 */
#include "tests/unit/websocket/server_double.h"

#include "base/memory.h"
#include "base/text.h"
#include "tests/unit/websocket/check.h"
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

struct double_write {
  uv_write_t request;
  uint8_t bytes[];
};

static void on_written(uv_write_t *request, int status) {
  (void)status;
  memory_free(request->data);
}

static void write_raw(struct server_double *server, const void *bytes, size_t length) {
  struct double_write *write = memory_new(sizeof *write + length);
  memcpy(write->bytes, bytes, length);
  write->request.data = write;
  uv_buf_t buffer = uv_buf_init((char *)write->bytes, (unsigned)length);
  if (uv_write(&write->request, (uv_stream_t *)&server->peer, &buffer, 1, on_written) != 0)
    memory_free(write);
}

static void flush_cipher(struct server_double *server) {
  char bytes[16384];
  int some;
  while ((some = BIO_read(SSL_get_wbio(server->ssl), bytes, sizeof bytes)) > 0)
    write_raw(server, bytes, (size_t)some);
}

void server_double_write(struct server_double *server, const void *bytes, size_t length) {
  if (!server->has_peer)
    return;
  if (!server->ssl) {
    write_raw(server, bytes, length);
    return;
  }
  SSL_write(server->ssl, bytes, (int)length);
  flush_cipher(server);
}

/* --- frames --- */

static ssize_t on_pull(wslay_event_context_ptr frames, uint8_t *bytes, size_t length, int flags, void *context) {
  struct server_double *server = context;
  size_t some = server->input.length < length ? server->input.length : length;
  (void)flags;
  if (some == 0) {
    wslay_event_set_error(frames, WSLAY_ERR_WOULDBLOCK);
    return -1;
  }
  memcpy(bytes, server->input.data, some);
  buffer_consume(&server->input, some);
  return (ssize_t)some;
}

static ssize_t on_push(wslay_event_context_ptr frames, const uint8_t *bytes, size_t length, int flags, void *context) {
  (void)frames;
  (void)flags;
  server_double_write(context, bytes, length);
  return (ssize_t)length;
}

static void on_message(wslay_event_context_ptr frames, const struct wslay_event_on_msg_recv_arg *message,
                       void *context) {
  struct server_double *server = context;
  (void)frames;
  if (wslay_is_ctrl_frame(message->opcode))
    return;
  server->taken += message->msg_length;
  if (server->message)
    server->message(server, message->msg, message->msg_length);
  if (server->echo)
    server_double_send(server, message->msg, message->msg_length);
}

void server_double_send(struct server_double *server, const void *bytes, size_t length) {
  const struct wslay_event_msg message = {.opcode = WSLAY_BINARY_FRAME, .msg = bytes, .msg_length = length};
  assert_int_equal(wslay_event_queue_msg(server->frames, &message), 0);
  wslay_event_send(server->frames);
}

void server_double_bye(struct server_double *server, unsigned code) {
  wslay_event_queue_close(server->frames, (uint16_t)code, NULL, 0);
  wslay_event_send(server->frames);
}

static void take_frames(struct server_double *server) {
  if (server->deaf)
    return;
  wslay_event_recv(server->frames);
  wslay_event_send(server->frames);
}

/* --- the request --- */

static void make_accept(const struct server_double *server, struct buffer *accept) {
  const char *key = strstr(buffer_text(&server->request), "Sec-WebSocket-Key: ");
  char joined[60];
  uint8_t digest[SHA_DIGEST_LENGTH];
  assert_non_null(key);
  memcpy(joined, key + 19, 24);
  memcpy(joined + 24, "258EAFA5-E914-47DA-95CA-C5AB0DC85B11", 36);
  SHA1((const uint8_t *)joined, sizeof joined, digest);
  text_base64(accept, digest, sizeof digest);
}

static void answer(struct server_double *server) {
  static const struct wslay_event_callbacks callbacks = {
      .recv_callback = on_pull, .send_callback = on_push, .on_msg_recv_callback = on_message};
  static const char usual[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                              "Sec-WebSocket-Accept: @\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n";
  const char *text = server->answer ? server->answer : usual;
  CLEANUP_BUFFER struct buffer accept;
  buffer_init(&accept, 100);
  make_accept(server, &accept);
  const char *at = strchr(text, '@');
  if (at) {
    server_double_write(server, text, (size_t)(at - text));
    server_double_write(server, accept.data, accept.length);
    text = at + 1;
  }
  server_double_write(server, text, strlen(text));
  wslay_event_context_server_init(&server->frames, &callbacks, server);
  if (server->opened)
    server->opened(server);
}

static void take_plain(struct server_double *server, const uint8_t *bytes, size_t length) {
  if (server->asked) {
    assert_int_equal(buffer_append(&server->input, bytes, length), 0);
    if (server->frames)
      take_frames(server);
    return;
  }
  assert_int_equal(buffer_append(&server->request, bytes, length), 0);
  if (!strstr(buffer_text(&server->request), "\r\n\r\n") || server->silent)
    return;
  server->asked = true;
  answer(server);
}

/* --- the connection --- */

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer) {
  static char bytes[65536];
  (void)handle;
  (void)suggested;
  *buffer = uv_buf_init(bytes, sizeof bytes);
}

void server_double_cut(struct server_double *server) {
  if (server->has_peer)
    uv_close((uv_handle_t *)&server->peer, NULL);
  server->has_peer = false;
}

static void on_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer) {
  struct server_double *server = stream->data;
  uint8_t plain[16384];
  int some;
  if (length < 0) {
    server_double_cut(server);
  } else if (!server->ssl) {
    take_plain(server, (const uint8_t *)buffer->base, (size_t)length);
  } else {
    BIO_write(SSL_get_rbio(server->ssl), buffer->base, (int)length);
    while (server->has_peer && (some = SSL_read(server->ssl, plain, sizeof plain)) > 0)
      take_plain(server, plain, (size_t)some);
    if (server->has_peer)
      flush_cipher(server);
  }
}

static void on_connection(uv_stream_t *listener, int status) {
  struct server_double *server = listener->data;
  assert_int_equal(status, 0);
  uv_tcp_init(listener->loop, &server->peer);
  server->peer.data = server;
  server->has_peer = true;
  assert_int_equal(uv_accept(listener, (uv_stream_t *)&server->peer), 0);
  if (server->settings) {
    server->ssl = SSL_new(server->settings);
    SSL_set_bio(server->ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_accept_state(server->ssl);
  }
  uv_read_start((uv_stream_t *)&server->peer, on_room, on_read);
}

static void use_identity(struct server_double *server, const struct identity *identity,
                         const struct identity *authority) {
  server->settings = SSL_CTX_new(TLS_server_method());
  BIO *certificate_text = BIO_new_mem_buf(identity->certificate, -1), *key_text = BIO_new_mem_buf(identity->key, -1);
  X509 *certificate = PEM_read_bio_X509(certificate_text, NULL, NULL, NULL);
  EVP_PKEY *key = PEM_read_bio_PrivateKey(key_text, NULL, NULL, NULL);
  assert_int_equal(SSL_CTX_use_certificate(server->settings, certificate), 1);
  assert_int_equal(SSL_CTX_use_PrivateKey(server->settings, key), 1);
  X509_free(certificate);
  EVP_PKEY_free(key);
  BIO_free(certificate_text);
  BIO_free(key_text);
  if (!authority)
    return;
  BIO *bio = BIO_new_mem_buf(authority->certificate, -1);
  X509 *root = PEM_read_bio_X509(bio, NULL, NULL, NULL);
  X509_STORE_add_cert(SSL_CTX_get_cert_store(server->settings), root);
  SSL_CTX_set_verify(server->settings, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
  X509_free(root);
  BIO_free(bio);
}

void server_double_start(struct server_double *server, uv_loop_t *loop, const struct identity *identity,
                         const struct identity *authority) {
  struct sockaddr_in address;
  int length = sizeof address;
  *server = (struct server_double){0};
  buffer_init(&server->request, 65536);
  buffer_init(&server->input, 1 << 26);
  if (identity)
    use_identity(server, identity, authority);
  uv_ip4_addr("127.0.0.1", 0, &address);
  uv_tcp_init(loop, &server->listener);
  server->listener.data = server;
  assert_int_equal(uv_tcp_bind(&server->listener, (const struct sockaddr *)&address, 0), 0);
  assert_int_equal(uv_listen((uv_stream_t *)&server->listener, 8, on_connection), 0);
  uv_tcp_getsockname(&server->listener, (struct sockaddr *)&address, &length);
  server->port = ntohs(address.sin_port);
}

void server_double_stop(struct server_double *server) {
  uv_loop_t *loop = server->listener.loop;
  server_double_cut(server);
  uv_close((uv_handle_t *)&server->listener, NULL);
  uv_run(loop, UV_RUN_DEFAULT);
  if (server->frames)
    wslay_event_context_free(server->frames);
  SSL_free(server->ssl);
  SSL_CTX_free(server->settings);
  buffer_free(&server->request);
  buffer_free(&server->input);
}
