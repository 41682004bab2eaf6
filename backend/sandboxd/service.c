/*
 * The methods of AgentService, and Configure: see service.h.
 */
#include "backend/sandboxd/service.h"

#include "backend/sandboxd/reply.h"
#include "base/log.h"
#include "base/message.h"
#include <string.h>

static void service_configure(struct service *service, struct wire_call *call, const uint8_t *bytes, size_t length) {
  struct error *err = NULL;
  Sandbox__Agent__V1__ConfigureResponse response = SANDBOX__AGENT__V1__CONFIGURE_RESPONSE__INIT;
  Sandbox__Agent__V1__ConfigureRequest *request =
      (void *)message_unpack(&sandbox__agent__v1__configure_request__descriptor, bytes, length, &err);
  if (!request || agent_configure(service->agent, request, &err)) {
    reply_failure(call, &err);
  } else {
    service->configured = true;
    response.protocol = AGENT_PROTOCOL;
    response.instance.data = service->agent->instance;
    response.instance.len = AGENT_INSTANCE_BYTES;
    int failed = reply_message(call, &response.base);
    wire_call_finish(call, failed ? WIRE_RESOURCE_EXHAUSTED : WIRE_OK, failed ? "INTERNAL out of memory" : "");
  }
  if (request)
    protobuf_c_message_free_unpacked(&request->base, NULL);
}

static void service_configure_message(struct wire_call *call, void *context, const uint8_t *bytes, size_t length) {
  service_configure(context, call, bytes, length);
  wire_call_consume(call, length);
}

static void service_configure_half_closed(struct wire_call *call, void *context) {
  (void)context;
  wire_call_finish(call, WIRE_UNKNOWN, "INVALID_REQUEST there is no message"); /* does nothing behind an answer */
}

static void service_configure_ended(struct wire_call *call, void *context, int status, const char *text) {
  (void)call;
  (void)context;
  (void)status;
  (void)text;
}

static const struct wire_call_events service_configure_events = {.message = service_configure_message,
                                                                 .half_closed = service_configure_half_closed,
                                                                 .ended = service_configure_ended};

void service_call_opened(struct wire *wire, void *context, struct wire_call *call, const char *path) {
  static const char prefix[] = "/sandbox.agent.v1.AgentService/";
  struct service *service = context;
  (void)wire;
  const char *method = strncmp(path, prefix, sizeof prefix - 1) ? "" : path + sizeof prefix - 1;
  if (!strcmp(method, "Configure"))
    wire_call_accept(call, &service_configure_events, service);
  else if (!service->configured)
    wire_call_finish(call, WIRE_UNKNOWN, "INVALID_REQUEST the first call must be Configure");
  else if (!strcmp(method, "Run"))
    run_call_opened(service->agent, call);
  else if (!strcmp(method, "ReadFile"))
    read_call_opened(service->agent, call);
  else if (!strcmp(method, "WriteFile"))
    write_call_opened(service->agent, call);
  else
    wire_call_finish(call, WIRE_UNIMPLEMENTED, "");
}
