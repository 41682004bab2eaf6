/*
 * Who this process is to the API server, and how it knows the server: from a kubeconfig, or from the service account of
 * the Pod it runs in. Files are read again when they change, a plug-in is run again before what it printed expires.
 * Thread: the loop's.
 */
#ifndef KUBERNETES_CREDENTIALS_H
#define KUBERNETES_CREDENTIALS_H

#include "base/error.h"
#include <uv.h>

/* Texts are NULL where there is none. Valid until the next turn of the loop. */
struct credential {
  const char *bearer;            /* for Authorization */
  const char *authority;         /* PEM; NULL: the system's */
  const char *certificate, *key; /* PEM */
};

struct credentials;

/* kubeconfig: path, or NULL for the service account. context: or NULL. NULL and *err, whose detail is a line to print:
 * what is missing or wrong. */
struct credentials *credentials_new(uv_loop_t *loop, const char *kubeconfig, const char *context, struct error **err);
/* No waiter is told any more. Frees when the loop allows. */
void credentials_free(struct credentials *credentials);

/* Static for the life of the credentials. */
const char *credentials_server(const struct credentials *credentials);      /* "https://…" without "/" at its end */
const char *credentials_server_name(const struct credentials *credentials); /* of its certificate, or NULL */
const char *credentials_proxy(const struct credentials *credentials);       /* or NULL */
const char *credentials_namespace(const struct credentials *credentials);   /* or NULL */

/* credential NULL with err: freed by the caller of the callback. */
typedef void credentials_done(void *context, const struct credential *credential, struct error *err);

/* In the caller's memory, until done was called or it was cancelled. */
struct credentials_waiter {
  struct credentials_waiter *next;
  credentials_done *done; /* NULL: does not wait */
  void *context;
};
/* done may be called before this returns. */
void credentials_get(struct credentials *credentials, struct credentials_waiter *waiter, credentials_done *done,
                     void *context);
void credentials_cancel(struct credentials *credentials, struct credentials_waiter *waiter);
/* The server did not accept them: they are made anew for the next one who asks. */
void credentials_refused(struct credentials *credentials);

#endif
