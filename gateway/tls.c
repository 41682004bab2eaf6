#include "gateway/tls.h"

#include "base/log.h"
#include "base/memory.h"

#include <h2o/socket.h>
#include <openssl/err.h>
#include <string.h>
#include <sys/stat.h>

/* What tells one state of a file from another. */
struct stamp {
  struct timespec changed;
  off_t size;
  ino_t inode;
};

struct tls {
  const char *certificate, *key;
  SSL_CTX *context;
  struct stamp stamps[2]; /* of the files when they were last read */
};

static struct stamp stamp_of(const char *path) {
  struct stat file;
  if (stat(path, &file) < 0)
    return (struct stamp){.inode = 0};
  return (struct stamp){.changed = file.st_mtim, .size = file.st_size, .inode = file.st_ino};
}

static bool stamp_is(const struct stamp *a, const struct stamp *b) {
  return a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec && a->size == b->size &&
         a->inode == b->inode;
}

/* Makes *err of OpenSSL's queue of errors. */
static int ssl_error(struct error **err, const char *what) {
  char text[256];
  ERR_error_string_n(ERR_peek_last_error(), text, sizeof text);
  ERR_clear_error();
  return error_set_detail(err, REASON_INTERNAL, "%s: %s", what, text);
}

static int context_set(SSL_CTX *context, const struct tls *tls, struct error **err) {
  static const h2o_iovec_t protocols[] = {{(char *)(uintptr_t) "http/1.1", 8}, {NULL, 0}};
  if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1)
    return ssl_error(err, "TLS");
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS); /* idle connections are cheap */
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  h2o_ssl_register_alpn_protocols(context, protocols);
  if (SSL_CTX_use_certificate_chain_file(context, tls->certificate) != 1)
    return ssl_error(err, "SANDBOX_TLS_CERT must be a file with a certificate chain in PEM");
  if (SSL_CTX_use_PrivateKey_file(context, tls->key, SSL_FILETYPE_PEM) != 1 || SSL_CTX_check_private_key(context) != 1)
    return ssl_error(err, "SANDBOX_TLS_KEY must be a file with the certificate's private key in PEM");
  return 0;
}

/* NULL and *err. */
static SSL_CTX *context_read(struct tls *tls, struct error **err) {
  SSL_CTX *context = SSL_CTX_new(TLS_server_method());
  if (!context) {
    ssl_error(err, "TLS");
    return NULL;
  }
  if (context_set(context, tls, err) < 0) {
    SSL_CTX_free(context);
    return NULL;
  }
  return context;
}

struct tls *tls_new(const char *certificate, const char *key, struct error **err) {
  struct tls *tls = memory_zero(sizeof *tls);
  if (!tls) {
    error_set_memory(err);
    return NULL;
  }
  tls->certificate = certificate;
  tls->key = key;
  tls->stamps[0] = stamp_of(certificate);
  tls->stamps[1] = stamp_of(key);
  tls->context = context_read(tls, err);
  if (tls->context)
    return tls;
  memory_free(tls);
  return NULL;
}

void tls_free(struct tls *tls) {
  if (!tls)
    return;
  SSL_CTX_free(tls->context); /* connections hold references of their own */
  memory_free(tls);
}

SSL_CTX *tls_context(struct tls *tls) {
  struct stamp stamps[2] = {stamp_of(tls->certificate), stamp_of(tls->key)};
  if (stamp_is(&stamps[0], &tls->stamps[0]) && stamp_is(&stamps[1], &tls->stamps[1]))
    return tls->context;
  memcpy(tls->stamps, stamps, sizeof stamps);
  struct error *err CLEANUP_ERROR = NULL;
  SSL_CTX *context = context_read(tls, &err);
  if (!context) {
    log_write(LOG_WARNING, "certificate_not_usable", LOG_DETAIL(err));
    return tls->context;
  }
  SSL_CTX_free(tls->context);
  tls->context = context;
  log_write(LOG_INFO, "certificate_read");
  return context;
}
