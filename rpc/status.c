/*
 * Errors to google.rpc.Status and back. The table of reasons decides the code; what a client reads back is an equal
 * error, so that the gateway and leasectl say what the server said.
 */
#include "rpc/status.h"

#include "base/memory.h"
#include "base/message.h"
#include "google/protobuf/any.pb-c.h"
#include "google/protobuf/duration.pb-c.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"

#include <grpc/slice.h>
#include <string.h>

#define TYPE_PREFIX "type.googleapis.com/"
#define DETAILS_KEY "grpc-status-details-bin"

enum { DETAILS_MAX = 3, MILLISECONDS = 1000, NANOSECONDS_IN_MILLISECOND = 1000000 };

/* One `Any` after another, each owning its packed bytes. */
struct details {
  Google__Protobuf__Any items[DETAILS_MAX];
  Google__Protobuf__Any *pointers[DETAILS_MAX];
  size_t count;
};

static void details_free(struct details *details) {
  for (size_t i = 0; i < details->count; i++)
    memory_free(details->items[i].value.data);
}

static int details_add(struct details *details, const char *type, const ProtobufCMessage *message) {
  size_t length;
  uint8_t *bytes = message_pack(message, &length);
  if (!bytes)
    return -1;
  Google__Protobuf__Any *any = &details->items[details->count];
  google__protobuf__any__init(any);
  any->type_url = (char *)type;
  any->value = (ProtobufCBinaryData){.len = length, .data = bytes};
  details->pointers[details->count++] = any;
  return 0;
}

static int details_add_reason(struct details *details, const struct error *err) {
  Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
  info.domain = (char *)RPC_ERROR_DOMAIN;
  info.reason = (char *)reason_name(error_reason(err));
  return details_add(details, TYPE_PREFIX "google.rpc.ErrorInfo", &info.base);
}

static int details_add_retry(struct details *details, const struct error *err) {
  unsigned milliseconds = error_retry_after(err);
  if (milliseconds == 0)
    return 0;
  Google__Protobuf__Duration delay = GOOGLE__PROTOBUF__DURATION__INIT;
  delay.seconds = milliseconds / MILLISECONDS;
  delay.nanos = (int32_t)(milliseconds % MILLISECONDS) * NANOSECONDS_IN_MILLISECOND;
  Google__Rpc__RetryInfo retry = GOOGLE__RPC__RETRY_INFO__INIT;
  retry.retry_delay = &delay;
  return details_add(details, TYPE_PREFIX "google.rpc.RetryInfo", &retry.base);
}

static int details_add_field(struct details *details, const struct error *err) {
  if (!error_field(err))
    return 0;
  Google__Rpc__BadRequest__FieldViolation violation = GOOGLE__RPC__BAD_REQUEST__FIELD_VIOLATION__INIT;
  violation.field = (char *)error_field(err);
  violation.description = (char *)error_message(err);
  Google__Rpc__BadRequest__FieldViolation *violations[] = {&violation};
  Google__Rpc__BadRequest request = GOOGLE__RPC__BAD_REQUEST__INIT;
  request.n_field_violations = 1;
  request.field_violations = violations;
  return details_add(details, TYPE_PREFIX "google.rpc.BadRequest", &request.base);
}

grpc_slice rpc_status_details(const struct error *err) {
  __attribute__((cleanup(details_free))) struct details details = {.count = 0};
  if (details_add_reason(&details, err) < 0 || details_add_retry(&details, err) < 0 ||
      details_add_field(&details, err) < 0)
    return grpc_empty_slice();
  Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
  status.code = reason_grpc_code(error_reason(err));
  status.message = (char *)error_message(err);
  status.n_details = details.count;
  status.details = details.pointers;
  grpc_slice slice = grpc_slice_malloc(google__rpc__status__get_packed_size(&status));
  google__rpc__status__pack(&status, GRPC_SLICE_START_PTR(slice));
  return slice;
}

/* What the details of a received status say. */
struct reading {
  enum reason reason;
  char *field; /* owned; NULL if none */
  unsigned retry_after;
};

static void message_cleanup(ProtobufCMessage **message) {
  if (*message)
    protobuf_c_message_free_unpacked(*message, NULL);
}

static ProtobufCMessage *any_unpack(const Google__Protobuf__Any *any, const char *type,
                                    const ProtobufCMessageDescriptor *descriptor) {
  if (!any->type_url || strcmp(any->type_url, type) != 0)
    return NULL;
  return message_unpack(descriptor, any->value.data, any->value.len, NULL);
}

static unsigned duration_milliseconds(const Google__Protobuf__Duration *duration) {
  const int64_t day = 86400;
  if (!duration || duration->seconds < 0 || duration->seconds > day || duration->nanos < 0 ||
      duration->nanos >= MILLISECONDS * NANOSECONDS_IN_MILLISECOND)
    return 0;
  return (unsigned)duration->seconds * MILLISECONDS + (unsigned)duration->nanos / NANOSECONDS_IN_MILLISECOND;
}

static void reading_add(struct reading *reading, const Google__Protobuf__Any *any) {
  __attribute__((cleanup(message_cleanup))) ProtobufCMessage *info =
      any_unpack(any, TYPE_PREFIX "google.rpc.ErrorInfo", &google__rpc__error_info__descriptor);
  if (info) {
    const Google__Rpc__ErrorInfo *error_info = (const Google__Rpc__ErrorInfo *)info;
    if (strcmp(error_info->domain, RPC_ERROR_DOMAIN) == 0)
      reading->reason = reason_find(error_info->reason);
    return;
  }
  __attribute__((cleanup(message_cleanup))) ProtobufCMessage *retry =
      any_unpack(any, TYPE_PREFIX "google.rpc.RetryInfo", &google__rpc__retry_info__descriptor);
  if (retry) {
    reading->retry_after = duration_milliseconds(((const Google__Rpc__RetryInfo *)retry)->retry_delay);
    return;
  }
  __attribute__((cleanup(message_cleanup))) ProtobufCMessage *bad =
      any_unpack(any, TYPE_PREFIX "google.rpc.BadRequest", &google__rpc__bad_request__descriptor);
  const Google__Rpc__BadRequest *request = (const Google__Rpc__BadRequest *)bad;
  if (request && request->n_field_violations > 0 && !reading->field)
    reading->field = memory_string(request->field_violations[0]->field);
}

static Google__Rpc__Status *trailing_status(const grpc_metadata_array *trailing) {
  for (size_t i = 0; trailing && i < trailing->count; i++) {
    if (grpc_slice_str_cmp(trailing->metadata[i].key, DETAILS_KEY) != 0)
      continue;
    grpc_slice value = trailing->metadata[i].value;
    return (Google__Rpc__Status *)message_unpack(&google__rpc__status__descriptor, GRPC_SLICE_START_PTR(value),
                                                 GRPC_SLICE_LENGTH(value), NULL);
  }
  return NULL;
}

/* For a status of somebody else's making: gRPC's own library, a proxy, an older server. */
static enum reason code_reason(grpc_status_code code) {
  switch (code) {
  case GRPC_STATUS_UNAVAILABLE:
    return REASON_SERVER_UNAVAILABLE;
  case GRPC_STATUS_CANCELLED:
  case GRPC_STATUS_DEADLINE_EXCEEDED:
    return REASON_ABORTED;
  default:
    return REASON_INTERNAL;
  }
}

int rpc_status_read(grpc_status_code code, grpc_slice message, const grpc_metadata_array *trailing,
                    struct error **err) {
  if (code == GRPC_STATUS_OK)
    return 0;
  Google__Rpc__Status *status = trailing_status(trailing);
  struct reading reading = {.reason = REASON_NONE};
  for (size_t i = 0; status && i < status->n_details; i++)
    reading_add(&reading, status->details[i]);

  const char *text = status && status->message[0] != '\0' ? status->message : NULL;
  struct error *made = NULL;
  if (reading.reason == REASON_NONE)
    error_set_detail(&made, code_reason(code), "gRPC status %d: %.*s", (int)code, (int)GRPC_SLICE_LENGTH(message),
                     (const char *)GRPC_SLICE_START_PTR(message));
  else if (reading.field)
    error_set_field(&made, reading.reason, reading.field, text);
  else
    error_set(&made, reading.reason, text);
  if (reading.retry_after > 0)
    error_set_retry_after(made, reading.retry_after);

  memory_free(reading.field);
  if (status)
    google__rpc__status__free_unpacked(status, NULL);
  return error_move(err, &made);
}
