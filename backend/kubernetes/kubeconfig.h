/*
 * Reading a kubeconfig: from its text to where a cluster is and how to prove who we are. No I/O: files it names are
 * read by credentials.h. Thread: any.
 */
#ifndef KUBERNETES_KUBECONFIG_H
#define KUBERNETES_KUBECONFIG_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>

/* A program that prints credentials. */
struct kubeconfig_exec {
  char *api_version; /* NULL: there is no such program */
  char *command;
  char **arguments;   /* ends with NULL */
  char **environment; /* "NAME=value", ends with NULL */
  bool cluster_info;  /* it wants to be told about the cluster */
};

/* Texts are NULL where nothing is said; paths are absolute or below the kubeconfig's own folder. */
struct kubeconfig {
  char *server;                     /* "https://host:port" or with a path, without "/" at its end */
  char *server_name;                /* the name its certificate must have, if not that of the URL */
  char *authority, *authority_file; /* PEM, or a file of it */
  char *proxy;                      /* URL */
  char *namespace_;
  char *certificate, *certificate_file; /* PEM */
  char *key, *key_file;                 /* PEM */
  char *token, *token_file;
  struct kubeconfig_exec exec;
};

/* folder: what relative paths are relative to. context: NULL is the current one. Returns 0, or -1 and *err, whose
 * detail names what is wrong and quotes no secret. Verification of the server's certificate cannot be turned off, and a
 * password or auth-provider is refused. Free with kubeconfig_free, also after an error. */
int kubeconfig_parse(struct kubeconfig *config, const char *text, size_t length, const char *folder,
                     const char *context, struct error **err);
/* Wipes. */
void kubeconfig_free(struct kubeconfig *config);

#endif
