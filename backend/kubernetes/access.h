/*
 * What transports through pods/exec have to know: where the API server is, and who we are to it at this moment. Thread:
 * the loop's.
 */
#ifndef KUBERNETES_ACCESS_H
#define KUBERNETES_ACCESS_H

#include "backend/kubernetes/credentials.h"
#include "backend/podexec/podexec.h"
#include "base/error.h"
#include <stdint.h>

struct access {
  struct podexec_access podexec;
  struct credentials *credentials;
  char *host, *prefix;
  uint16_t port;
};

/* The credentials must outlive it, and it the transports. Returns 0, or -1 and *err: the server's address is no URL. */
int access_init(struct access *access, struct credentials *credentials, struct error **err);
void access_free(struct access *access);

#endif
