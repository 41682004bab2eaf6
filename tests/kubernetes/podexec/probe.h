/*
 * What the scenarios of the probe share: one session, one loop.
 */
#ifndef TESTS_KUBERNETES_PODEXEC_PROBE_H
#define TESTS_KUBERNETES_PODEXEC_PROBE_H

#include "backend/session/session.h"
#include <uv.h>

extern struct session *session;
extern uv_loop_t *loop;

/* Says what was wrong and exits with 1. err may be NULL. */
void fail(const char *what, const struct error *err) __attribute__((noreturn));

/* manners.c: what commands and files promise, each once. Returns how many checks were made. */
int manners_check(void);

#endif
