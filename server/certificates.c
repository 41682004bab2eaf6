/*
 * gRPC asks for certificates before each handshake; a look at the files' stamps tells whether there is anything new.
 * What gRPC would find out only in a handshake (no certificate in it, the key of another one) is checked here, where
 * the answer can still be "keep the old ones".
 */
#include "server/certificates.h"

#include "base/buffer.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <pthread.h>
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
  pthread_mutex_t mutex;
  char *paths[FILE_COUNT];       /* the client CA's may be NULL */
  struct stamp seen[FILE_COUNT]; /* under the mutex: of the files looked at last */
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

static X509 *certificate_read(const struct buffer *text) {
  BIO *bio = BIO_new_mem_buf(text->data, (int)text->length);
  X509 *certificate = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
  BIO_free(bio);
  return certificate;
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

/* What gRPC would find out only in a handshake. */
static int texts_check(const struct certificates *certificates, const struct texts *texts, struct error **err) {
  X509 *certificate = certificate_read(&texts->files[FILE_CERTIFICATE]);
  EVP_PKEY *key = key_read(&texts->files[FILE_KEY]);
  X509 *client_ca = certificates->paths[FILE_CLIENT_CA] ? certificate_read(&texts->files[FILE_CLIENT_CA]) : NULL;
  int result = 0;
  if (!certificate)
    result =
        error_set_detail(err, REASON_INTERNAL, "%s holds no PEM certificate", certificates->paths[FILE_CERTIFICATE]);
  else if (!key)
    result =
        error_set_detail(err, REASON_INTERNAL, "%s holds no usable PEM private key", certificates->paths[FILE_KEY]);
  else if (X509_check_private_key(certificate, key) != 1)
    result = error_set_detail(err, REASON_INTERNAL, "the key in %s is not the one of the certificate in %s",
                              certificates->paths[FILE_KEY], certificates->paths[FILE_CERTIFICATE]);
  else if (certificates->paths[FILE_CLIENT_CA] && !client_ca)
    result = error_set_detail(err, REASON_INTERNAL, "%s holds no PEM certificate", certificates->paths[FILE_CLIENT_CA]);
  X509_free(certificate);
  EVP_PKEY_free(key);
  X509_free(client_ca);
  return result;
}

/* NULL and *err if the files are no use. */
static grpc_ssl_server_certificate_config *config_read(const struct certificates *certificates, struct error **err) {
  __attribute__((cleanup(texts_wipe))) struct texts texts;
  for (int i = 0; i < FILE_COUNT; i++)
    buffer_init(&texts.files[i], FILE_MAX_BYTES);
  for (int i = 0; i < FILE_COUNT; i++)
    if (certificates->paths[i] && file_read(certificates->paths[i], &texts.files[i], err) < 0)
      return NULL;
  if (texts_check(certificates, &texts, err) < 0)
    return NULL;
  grpc_ssl_pem_key_cert_pair pair = {.private_key = buffer_text(&texts.files[FILE_KEY]),
                                     .cert_chain = buffer_text(&texts.files[FILE_CERTIFICATE])};
  /* gRPC insists on a CA; where clients need no certificate it is not used. */
  const char *client_ca =
      buffer_text(&texts.files[certificates->paths[FILE_CLIENT_CA] ? FILE_CLIENT_CA : FILE_CERTIFICATE]);
  return grpc_ssl_server_certificate_config_create(client_ca, &pair, 1);
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

static grpc_ssl_certificate_config_reload_status fetch(void *context, grpc_ssl_server_certificate_config **config) {
  struct certificates *certificates = context;
  pthread_mutex_lock(&certificates->mutex);
  bool differ = stamps_take(certificates);
  pthread_mutex_unlock(&certificates->mutex);
  if (!differ)
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  CLEANUP_ERROR struct error *err = NULL;
  *config = config_read(certificates, &err);
  if (*config) {
    log_write(LOG_INFO, "certificates_read", LOG_TEXT("file", certificates->paths[FILE_CERTIFICATE]));
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }
  log_write(LOG_WARNING, "certificates_unusable", LOG_DETAIL(err));
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL; /* the ones in use stay */
}

struct certificates *certificates_new(const char *certificate, const char *key, const char *client_ca,
                                      struct error **err) {
  struct certificates *certificates = memory_zero(sizeof *certificates);
  if (!certificates) {
    error_set_memory(err);
    return NULL;
  }
  pthread_mutex_init(&certificates->mutex, NULL);
  const char *paths[FILE_COUNT] = {certificate, key, client_ca};
  for (int i = 0; i < FILE_COUNT; i++) {
    certificates->paths[i] = paths[i] ? memory_string(paths[i]) : NULL;
    if (paths[i] && !certificates->paths[i]) {
      certificates_free(certificates);
      error_set_memory(err);
      return NULL;
    }
  }
  grpc_ssl_server_certificate_config *config = config_read(certificates, err);
  if (!config) {
    certificates_free(certificates);
    return NULL;
  }
  grpc_ssl_server_certificate_config_destroy(config);
  return certificates;
}

grpc_server_credentials *certificates_credentials(struct certificates *certificates, struct error **err) {
  grpc_ssl_client_certificate_request_type request = certificates->paths[FILE_CLIENT_CA]
                                                         ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                                         : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
  grpc_server_credentials *credentials = grpc_ssl_server_credentials_create_with_options(
      grpc_ssl_server_credentials_create_options_using_config_fetcher(request, fetch, certificates));
  if (!credentials)
    error_set_detail(err, REASON_INTERNAL, "gRPC does not take the certificates");
  return credentials;
}

void certificates_free(struct certificates *certificates) {
  if (!certificates)
    return;
  for (int i = 0; i < FILE_COUNT; i++)
    memory_free(certificates->paths[i]);
  pthread_mutex_destroy(&certificates->mutex);
  memory_free(certificates);
}
