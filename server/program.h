/*
 * lease-server as a program, but for the choice of backends, which is main.c's: configuration, start, signals, end.
 */
#ifndef SERVER_PROGRAM_H
#define SERVER_PROGRAM_H

#include "backend/backend.h"

/* A value of SANDBOX_BACKEND. */
struct program_backend {
  const char *name;
  /* NULL: this build does not have it. */
  struct backend *(*make)(uv_loop_t *loop, struct config *config, struct error **err);
};

/* `backends` ends with a NULL name. Returns the exit code. */
int program_run(int argc, char **argv, const struct program_backend *backends);

#endif
