/*
 * One connection to the control plane: moves bytes between its descriptors and its wire.
 */
#ifndef BACKEND_SANDBOXD_CONNECTION_H
#define BACKEND_SANDBOXD_CONNECTION_H

#include "backend/sandboxd/agent.h"
#include "base/error.h"

/* input and output: may be the two ends of one socket, but not one descriptor. holder: a socket whose other end lives as
 * long as the connection is to, or -1. All taken over, on failure too. Returns 0, or -1 and *err. */
int connection_open(struct agent *agent, int input, int output, int holder, struct error **err);
/* Not from within a call's callbacks. */
void connection_close_oldest(struct agent *agent);
/* Writes what is to be written on every connection. */
void connection_flush_all(struct agent *agent);

#endif
