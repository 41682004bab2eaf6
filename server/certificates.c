/*
 * A look at the stamps of the files, before each handshake, tells whether there is anything new.
 */
#include "server/certificates.h"

#include "base/buffer.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX_BYTES = 1 << 20, READ_BYTES = 16384 };
enum file_kind { FILE_CERTIFICATE, FILE_KEY, FILE_CLIENT_CA, FILE_COUNT };

/* What tells one version of a file from another. */
struct stamp {
  dev_t device;
  ino_t inode;
  off_t size;
  struct timespec changed;
};

struct certificates {
  char *paths[FILE_COUNT];       /* the client CA's may be NULL */
  struct stamp seen[FILE_COUNT]; /* of the files looked at last */
  SSL_CTX *context;              /* of the last files that were of use */
};

/* The texts of all files. */
struct texts {
  struct buffer files[FILE_COUNT];
};

static void texts_wipe(struct texts *texts) {
  for (int i = 0; i < FILE_COUNT; i++) {
    if (texts->files[i].data)
      memory_wipe(texts->files[i].data, texts->files[i].capacity);
    buffer_free(&texts->files[i]);
  }
}

static void descriptor_close(int *fd) {
  if (*fd >= 0)
    close(*fd);
}

static int file_read(const char *path, struct buffer *text, struct error **err) {
  __attribute__((cleanup(descriptor_close))) int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return error_set_errno(err, errno, "cannot open %s", path);
  for (;;) {
    uint8_t *room = buffer_reserve(text, READ_BYTES);
    if (!room)
      return error_set_detail(err, REASON_INTERNAL, "%s is too large", path);
    ssize_t count = read(fd, room, READ_BYTES);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return error_set_errno(err, errno, "cannot read %s", path);
    if (count == 0)
      return 0;
    buffer_commit(text, (size_t)count);
  }
}

/* A key under a passphrase cannot be used: nobody is there to type it. */
static int no_passphrase(char *buffer, int size, int writing, void *context) {
  (void)buffer;
  (void)size;
  (void)writing;
  (void)context;
  return -1;
}

static EVP_PKEY *key_read(const struct buffer *text) {
  BIO *bio = BIO_new_mem_buf(text->data, (int)text->length);
  EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL) : NULL;
  BIO_free(bio);
  return key;
}

/* Takes the certificates behind the first into the chain. */
static int chain_read(SSL_CTX *context, const struct buffer *text) {
  BIO *bio = BIO_new_mem_buf(text->data, (int)text->length);
  X509 *certificate = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
  int result = certificate && SSL_CTX_use_certificate(context, certificate) == 1 ? 0 : -1;
  X509_free(certificate);
  while (result == 0 && (certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL))) {
    result = SSL_CTX_add1_chain_cert(context, certificate) == 1 ? 0 : -1;
    X509_free(certificate);
  }
  BIO_free(bio);
  ERR_clear_error(); /* the end of the file is one */
  return result;
}

/* Every certificate of the file is trusted, and named to clients. */
static int client_ca_read(SSL_CTX *context, const struct buffer *text) {
  BIO *bio = BIO_new_mem_buf(text->data, (int)text->length);
  X509 *certificate;
  int count = 0, result = 0;
  while (result == 0 && bio && (certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL))) {
    count++;
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), certificate) != 1 ||
        SSL_CTX_add_client_CA(context, certificate) != 1)
      result = -1;
    X509_free(certificate);
  }
  BIO_free(bio);
  ERR_clear_error();
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
  return count > 0 ? result : -1;
}

/* gRPC speaks HTTP/2 alone. */
static int choose_protocol(SSL *ssl, const unsigned char **chosen, unsigned char *length, const unsigned char *offered,
                           unsigned int offered_length, void *context) {
  (void)ssl;
  (void)context;
  static const unsigned char ours[] = {2, 'h', '2'};
  unsigned char *found;
  int result = SSL_select_next_proto(&found, length, ours, sizeof ours, offered, offered_length);
  *chosen = found;
  return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

static void context_prepare(SSL_CTX *context) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
}

static int texts_use(SSL_CTX *context, const struct certificates *certificates, const struct texts *texts,
                     struct error **err) {
  char *const *paths = certificates->paths;
  if (chain_read(context, &texts->files[FILE_CERTIFICATE]) < 0)
    return error_set_detail(err, REASON_INTERNAL, "%s holds no PEM certificate", paths[FILE_CERTIFICATE]);
  EVP_PKEY *key = key_read(&texts->files[FILE_KEY]);
  if (!key)
    return error_set_detail(err, REASON_INTERNAL, "%s holds no usable PEM private key", paths[FILE_KEY]);
  bool fits = SSL_CTX_use_PrivateKey(context, key) == 1 && SSL_CTX_check_private_key(context) == 1;
  EVP_PKEY_free(key);
  ERR_clear_error();
  if (!fits)
    return error_set_detail(err, REASON_INTERNAL, "the key in %s is not the one of the certificate in %s",
                            paths[FILE_KEY], paths[FILE_CERTIFICATE]);
  if (paths[FILE_CLIENT_CA] && client_ca_read(context, &texts->files[FILE_CLIENT_CA]) < 0)
    return error_set_detail(err, REASON_INTERNAL, "%s holds no PEM certificate", paths[FILE_CLIENT_CA]);
  return 0;
}

/* NULL and *err if the files are no use. */
static SSL_CTX *context_read(const struct certificates *certificates, struct error **err) {
  __attribute__((cleanup(texts_wipe))) struct texts texts;
  for (int i = 0; i < FILE_COUNT; i++)
    buffer_init(&texts.files[i], FILE_MAX_BYTES);
  for (int i = 0; i < FILE_COUNT; i++)
    if (certificates->paths[i] && file_read(certificates->paths[i], &texts.files[i], err) < 0)
      return NULL;
  SSL_CTX *context = SSL_CTX_new(TLS_server_method());
  if (!context) {
    error_set_memory(err);
    return NULL;
  }
  context_prepare(context);
  if (texts_use(context, certificates, &texts, err) == 0)
    return context;
  SSL_CTX_free(context);
  return NULL;
}

/* Returns whether any file differs from what was seen last, and remembers how they look now. A file that cannot be
 * looked at has an empty stamp. */
static bool stamps_take(struct certificates *certificates) {
  bool differ = false;
  for (int i = 0; i < FILE_COUNT; i++) {
    struct stat found;
    struct stamp now;
    memset(&now, 0, sizeof now);
    if (certificates->paths[i] && stat(certificates->paths[i], &found) == 0) {
      now.device = found.st_dev;
      now.inode = found.st_ino;
      now.size = found.st_size;
      now.changed = found.st_mtim;
    }
    const struct stamp *seen = &certificates->seen[i];
    differ = differ || now.device != seen->device || now.inode != seen->inode || now.size != seen->size ||
             now.changed.tv_sec != seen->changed.tv_sec || now.changed.tv_nsec != seen->changed.tv_nsec;
    certificates->seen[i] = now;
  }
  return differ;
}

SSL_CTX *certificates_context(struct certificates *certificates) {
  if (!stamps_take(certificates))
    return certificates->context;
  CLEANUP_ERROR struct error *err = NULL;
  SSL_CTX *context = context_read(certificates, &err);
  if (!context) {
    log_write(LOG_WARNING, "certificates_unusable", LOG_DETAIL(err));
    return certificates->context; /* the ones in use stay */
  }
  log_write(LOG_INFO, "certificates_read", LOG_TEXT("file", certificates->paths[FILE_CERTIFICATE]));
  SSL_CTX_free(certificates->context);
  certificates->context = context;
  return context;
}

struct certificates *certificates_new(const char *certificate, const char *key, const char *client_ca,
                                      struct error **err) {
  struct certificates *certificates = memory_zero(sizeof *certificates);
  if (!certificates) {
    error_set_memory(err);
    return NULL;
  }
  const char *paths[FILE_COUNT] = {certificate, key, client_ca};
  for (int i = 0; i < FILE_COUNT; i++) {
    certificates->paths[i] = paths[i] ? memory_string(paths[i]) : NULL;
    if (paths[i] && !certificates->paths[i]) {
      certificates_free(certificates);
      error_set_memory(err);
      return NULL;
    }
  }
  stamps_take(certificates);
  certificates->context = context_read(certificates, err);
  if (certificates->context)
    return certificates;
  certificates_free(certificates);
  return NULL;
}

void certificates_free(struct certificates *certificates) {
  if (!certificates)
    return;
  for (int i = 0; i < FILE_COUNT; i++)
    memory_free(certificates->paths[i]);
  SSL_CTX_free(certificates->context); /* connections hold references of their own */
  memory_free(certificates);
}
