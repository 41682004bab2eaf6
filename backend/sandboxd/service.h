/*
 * AgentService: which call is which. Each method has a file of its own; what they are given is here.
 */
#ifndef BACKEND_SANDBOXD_SERVICE_H
#define BACKEND_SANDBOXD_SERVICE_H

#include "backend/sandboxd/agent.h"
#include "backend/wire/wire.h"
#include <stdbool.h>

/* One for each connection. */
struct service {
  struct agent *agent;
  bool configured; /* Configure succeeded on this connection; nothing else is served before */
};

/* For wire_events; the context is a struct service. */
void service_call_opened(struct wire *wire, void *context, struct wire_call *call, const char *path);

/* Each takes a new call over: accepts it, or finishes it at once. */
void run_call_opened(struct agent *agent, struct wire_call *call);
void read_call_opened(struct agent *agent, struct wire_call *call);
void write_call_opened(struct agent *agent, struct wire_call *call);

#endif
