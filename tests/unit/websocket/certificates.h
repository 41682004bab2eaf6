/*
 * Keys and certificates for one test run, made anew each time.
 */
#ifndef TESTS_UNIT_WEBSOCKET_CERTIFICATES_H
#define TESTS_UNIT_WEBSOCKET_CERTIFICATES_H

struct identity {
  char *certificate, *key; /* PEM */
};

/* name: DNS name that the certificate has, beside the address 127.0.0.1. issuer NULL: signs itself, and may sign
 * others. seconds: from now, until it expires; may be negative. */
struct identity identity_new(const char *name, const struct identity *issuer, long seconds);
void identity_free(struct identity *identity);

#endif
