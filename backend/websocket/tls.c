/*
 * TLS between a piece of what the socket gave and a buffer of what it is to get: see tls.h.
 */
#include "backend/websocket/tls.h"

#include "base/memory.h"
#include <limits.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>

struct tls {
  SSL_CTX *settings;
  SSL *ssl;
  struct buffer *output;
  const uint8_t *input; /* not yet taken */
  size_t input_length;
};

static int wrong(struct error **err, const char *what) {
  char text[160];
  ERR_error_string_n(ERR_peek_last_error(), text, sizeof text);
  ERR_clear_error();
  return error_set_detail(err, REASON_INTERNAL, "TLS: %s: %s", what, text);
}

/* --- credentials --- */

static void free_bio(BIO **bio) {
  BIO_free(*bio);
}
#define CLEANUP_BIO __attribute__((cleanup(free_bio)))

static void free_certificate(X509 **certificate) {
  X509_free(*certificate);
}
#define CLEANUP_CERTIFICATE __attribute__((cleanup(free_certificate)))

static BIO *open_text(const char *pem) {
  size_t length = strlen(pem);
  return length <= INT_MAX ? BIO_new_mem_buf(pem, (int)length) : NULL;
}

/* Never asks for a passphrase on the terminal. */
static int no_passphrase(char *text, int size, int writing, void *context) {
  (void)text;
  (void)size;
  (void)writing;
  (void)context;
  return 0;
}

static int use_authorities(SSL_CTX *settings, const char *pem, struct error **err) {
  if (!pem)
    return SSL_CTX_set_default_verify_paths(settings) == 1 ? 0 : wrong(err, "no authorities");
  CLEANUP_BIO BIO *bio = open_text(pem);
  X509_STORE *store = SSL_CTX_get_cert_store(settings);
  size_t count = 0;
  for (; bio; count++) {
    CLEANUP_CERTIFICATE X509 *certificate = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL);
    if (!certificate)
      break;
    if (X509_STORE_add_cert(store, certificate) != 1)
      return wrong(err, "an authority cannot be used");
  }
  if (count == 0 || ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
    return wrong(err, "the authorities cannot be read");
  ERR_clear_error();
  return 0;
}

static int use_chain(SSL_CTX *settings, BIO *bio, struct error **err) {
  for (;;) {
    X509 *certificate = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL);
    if (!certificate)
      break;
    if (SSL_CTX_add0_chain_cert(settings, certificate) != 1) {
      X509_free(certificate);
      return wrong(err, "the certificate's chain cannot be used");
    }
  }
  if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
    return wrong(err, "the certificate's chain cannot be read");
  ERR_clear_error();
  return 0;
}

static int use_certificate(SSL_CTX *settings, const struct websocket_endpoint *endpoint, struct error **err) {
  if (!endpoint->certificate && !endpoint->key)
    return 0;
  if (!endpoint->certificate || !endpoint->key)
    return error_set_detail(err, REASON_INTERNAL, "TLS: a certificate and its key belong together");
  CLEANUP_BIO BIO *bio = open_text(endpoint->certificate);
  CLEANUP_CERTIFICATE X509 *certificate = bio ? PEM_read_bio_X509(bio, NULL, no_passphrase, NULL) : NULL;
  if (!certificate || SSL_CTX_use_certificate(settings, certificate) != 1)
    return wrong(err, "the certificate cannot be used");
  if (use_chain(settings, bio, err) != 0)
    return -1;
  CLEANUP_BIO BIO *key_bio = open_text(endpoint->key);
  EVP_PKEY *key = key_bio ? PEM_read_bio_PrivateKey(key_bio, NULL, no_passphrase, NULL) : NULL;
  int used = key ? SSL_CTX_use_PrivateKey(settings, key) : 0;
  EVP_PKEY_free(key);
  return used == 1 && SSL_CTX_check_private_key(settings) == 1 ? 0 : wrong(err, "the key cannot be used");
}

static int use_name(SSL *ssl, const struct websocket_endpoint *endpoint, struct error **err) {
  const char *name = endpoint->server_name ? endpoint->server_name : endpoint->host;
  X509_VERIFY_PARAM *rules = SSL_get0_param(ssl);
  X509_VERIFY_PARAM_set_hostflags(rules, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  if (X509_VERIFY_PARAM_set1_ip_asc(rules, name) == 1)
    return 0;
  ERR_clear_error();
  if (X509_VERIFY_PARAM_set1_host(rules, name, strlen(name)) != 1 || SSL_set_tlsext_host_name(ssl, name) != 1)
    return wrong(err, "the server's name cannot be used");
  return 0;
}

/* --- OpenSSL's view of the socket --- */

static int on_write(BIO *bio, const char *bytes, int length) {
  struct tls *tls = BIO_get_data(bio);
  return length > 0 && buffer_append(tls->output, bytes, (size_t)length) == 0 ? length : -1;
}

static int on_read(BIO *bio, char *bytes, int length) {
  struct tls *tls = BIO_get_data(bio);
  size_t some = length <= 0 ? 0 : tls->input_length < (size_t)length ? tls->input_length : (size_t)length;
  BIO_clear_retry_flags(bio);
  if (some == 0) {
    BIO_set_retry_read(bio);
    return -1;
  }
  memcpy(bytes, tls->input, some);
  tls->input += some;
  tls->input_length -= some;
  return (int)some;
}

static long on_control(BIO *bio, int command, long number, void *pointer) {
  (void)bio;
  (void)number;
  (void)pointer;
  return command == BIO_CTRL_FLUSH || command == BIO_CTRL_DUP;
}

static int on_create(BIO *bio) {
  BIO_set_init(bio, 1);
  return 1;
}

/* Made once, and kept. */
static const BIO_METHOD *socket_method(void) {
  static BIO_METHOD *method;
  if (!method) {
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "websocket");
    if (!method || BIO_meth_set_write(method, on_write) != 1 || BIO_meth_set_read(method, on_read) != 1 ||
        BIO_meth_set_ctrl(method, on_control) != 1 || BIO_meth_set_create(method, on_create) != 1)
      return NULL;
  }
  return method;
}

/* --- life --- */

static SSL_CTX *make_settings(const struct websocket_endpoint *endpoint, struct error **err) {
  SSL_CTX *settings = SSL_CTX_new(TLS_client_method());
  if (!settings || SSL_CTX_set_min_proto_version(settings, TLS1_2_VERSION) != 1) {
    wrong(err, "no TLS");
  } else {
    SSL_CTX_set_verify(settings, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_options(settings, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(settings, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(settings, SSL_SESS_CACHE_OFF);
    if (use_authorities(settings, endpoint->authorities, err) == 0 && use_certificate(settings, endpoint, err) == 0)
      return settings;
  }
  SSL_CTX_free(settings);
  return NULL;
}

static int make_connection(struct tls *tls, const struct websocket_endpoint *endpoint, struct error **err) {
  static const unsigned char protocols[] = "\x08http/1.1";
  const BIO_METHOD *method = socket_method();
  BIO *bio = method ? BIO_new(method) : NULL;
  tls->ssl = SSL_new(tls->settings);
  if (!tls->ssl || !bio) {
    BIO_free(bio);
    return wrong(err, "no connection");
  }
  BIO_set_data(bio, tls);
  SSL_set_bio(tls->ssl, bio, bio);
  SSL_set_connect_state(tls->ssl);
  if (SSL_set_alpn_protos(tls->ssl, protocols, sizeof protocols - 1) != 0)
    return wrong(err, "no protocols");
  return use_name(tls->ssl, endpoint, err);
}

struct tls *tls_new(const struct websocket_endpoint *endpoint, struct buffer *output, struct error **err) {
  struct tls *tls = memory_zero(sizeof *tls);
  ERR_clear_error();
  if (!tls) {
    error_set_memory(err);
    return NULL;
  }
  tls->output = output;
  tls->settings = make_settings(endpoint, err);
  if (tls->settings && make_connection(tls, endpoint, err) == 0)
    return tls;
  tls_free(tls);
  return NULL;
}

void tls_free(struct tls *tls) {
  if (!tls)
    return;
  SSL_free(tls->ssl);
  SSL_CTX_free(tls->settings);
  memory_free(tls);
}

/* --- bytes --- */

static int broken(struct tls *tls, const char *what, struct error **err) {
  long verified = SSL_get_verify_result(tls->ssl);
  char text[160];
  if (verified != X509_V_OK) {
    ERR_clear_error();
    return error_set_detail(err, REASON_SANDBOX_NOT_READY, "TLS: the server's certificate: %s",
                            X509_verify_cert_error_string(verified));
  }
  ERR_error_string_n(ERR_peek_last_error(), text, sizeof text);
  ERR_clear_error();
  return error_set_detail(err, REASON_SANDBOX_NOT_READY, "TLS: %s: %s", what, text);
}

int tls_handshake(struct tls *tls, struct error **err) {
  ERR_clear_error();
  int result = SSL_do_handshake(tls->ssl);
  if (result == 1)
    return 1;
  return SSL_get_error(tls->ssl, result) == SSL_ERROR_WANT_READ ? 0 : broken(tls, "handshake", err);
}

void tls_receive(struct tls *tls, const uint8_t *bytes, size_t length) {
  tls->input = bytes;
  tls->input_length = length;
}

ssize_t tls_read(struct tls *tls, uint8_t *bytes, size_t size, bool *ended, struct error **err) {
  size_t length = 0;
  ERR_clear_error();
  *ended = false;
  int result = SSL_read_ex(tls->ssl, bytes, size, &length);
  if (result == 1)
    return (ssize_t)length;
  int why = SSL_get_error(tls->ssl, result);
  *ended = why == SSL_ERROR_ZERO_RETURN;
  return *ended || why == SSL_ERROR_WANT_READ ? 0 : broken(tls, "read", err);
}

int tls_write(struct tls *tls, const uint8_t *bytes, size_t length, struct error **err) {
  size_t written = 0;
  ERR_clear_error();
  if (length == 0)
    return 0;
  return SSL_write_ex(tls->ssl, bytes, length, &written) == 1 && written == length ? 0 : broken(tls, "write", err);
}

void tls_end(struct tls *tls) {
  ERR_clear_error();
  if (SSL_is_init_finished(tls->ssl))
    SSL_shutdown(tls->ssl);
  ERR_clear_error();
}
