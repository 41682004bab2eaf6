/*
 * Running an exec plug-in: a program that prints credentials. It gets no input, and of our environment everything but
 * the platform's own settings, which hold secrets. Its standard error is not read. Thread: the loop's.
 */
#ifndef KUBERNETES_EXEC_PLUGIN_H
#define KUBERNETES_EXEC_PLUGIN_H

#include "backend/kubernetes/exec_credential.h"
#include <uv.h>

/* credential is valid for the call and may be taken (then zeroed by the taker); NULL with err, freed by the caller of
 * the callback. */
typedef void exec_plugin_done(void *context, struct exec_credential *credential, struct error *err);

struct exec_plugin;

/* Comes to an end within 60 s; never calls done from within. NULL and *err if it cannot be started. config must live
 * until then. */
struct exec_plugin *exec_plugin_run(uv_loop_t *loop, const struct kubeconfig *config, exec_plugin_done *done,
                                    void *context, struct error **err);
/* Kills it; done is not called any more. It frees itself. */
void exec_plugin_cancel(struct exec_plugin *plugin);

#endif
