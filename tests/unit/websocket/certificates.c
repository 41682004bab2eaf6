/*
 * Keys and certificates for tests: see certificates.h.
 */
#include "tests/unit/websocket/certificates.h"

#include "tests/unit/websocket/check.h"
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *take_text(BIO *bio) {
  char *data;
  long length = BIO_get_mem_data(bio, &data);
  assert_true(length > 0);
  char *text = strndup(data, (size_t)length);
  BIO_free(bio);
  return text;
}

static void extend(X509 *certificate, int what, const char *value) {
  X509_EXTENSION *extension = X509V3_EXT_nconf_nid(NULL, NULL, what, value);
  assert_non_null(extension);
  assert_int_equal(X509_add_ext(certificate, extension, -1), 1);
  X509_EXTENSION_free(extension);
}

static X509 *read_certificate(const char *pem) {
  BIO *bio = BIO_new_mem_buf(pem, -1);
  X509 *certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL);
  BIO_free(bio);
  return certificate;
}

static EVP_PKEY *read_key(const char *pem) {
  BIO *bio = BIO_new_mem_buf(pem, -1);
  EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
  BIO_free(bio);
  return key;
}

static X509 *make(const char *name, EVP_PKEY *key, long seconds, long serial) {
  char names[128];
  X509 *certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate), seconds);
  X509_set_pubkey(certificate, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC, (const unsigned char *)name, -1,
                             -1, 0);
  snprintf(names, sizeof names, "DNS:%s,IP:127.0.0.1", name);
  extend(certificate, NID_subject_alt_name, names);
  return certificate;
}

struct identity identity_new(const char *name, const struct identity *issuer, long seconds) {
  static long serial;
  EVP_PKEY *key = EVP_EC_gen("P-256");
  assert_non_null(key);
  X509 *certificate = make(name, key, seconds, ++serial);
  X509 *parent = issuer ? read_certificate(issuer->certificate) : NULL;
  EVP_PKEY *signer = issuer ? read_key(issuer->key) : key;
  extend(certificate, NID_basic_constraints, issuer ? "CA:FALSE" : "critical,CA:TRUE");
  X509_set_issuer_name(certificate, X509_get_subject_name(parent ? parent : certificate));
  assert_true(X509_sign(certificate, signer, EVP_sha256()) > 0);
  BIO *certificate_text = BIO_new(BIO_s_mem()), *key_text = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(certificate_text, certificate);
  PEM_write_bio_PrivateKey(key_text, key, NULL, NULL, 0, NULL, NULL);
  X509_free(parent);
  X509_free(certificate);
  if (issuer)
    EVP_PKEY_free(signer);
  EVP_PKEY_free(key);
  return (struct identity){take_text(certificate_text), take_text(key_text)};
}

void identity_free(struct identity *identity) {
  free(identity->certificate);
  free(identity->key);
}
