/*
 * A stream of questions, answered one after the other: the next question is read once the answer to the one before has
 * left. Files are answered together with all they import, so that one question is enough.
 */
#include "server/reflection.h"

#include "base/memory.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "rpc/message.h"
#include "server/descriptor_index.h"
#include "server/descriptors.h"

#include <grpc/grpc.h>
#include <string.h>

#define QUESTION(name) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##name
#define ANSWER(name) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##name

struct stream {
  struct reflection *reflection;
  struct call *call;
  struct stream *previous, *next;
};

struct reflection {
  struct descriptor_index *index;
  /* Room for the largest answer: every file, every service. */
  ProtobufCBinaryData *files;
  size_t file_count;
  Grpc__Reflection__V1__ServiceResponse *services;
  Grpc__Reflection__V1__ServiceResponse **service_pointers;
  size_t service_count;
  struct stream *streams;
};

/* Answers. What they point to is the reflection's, or lasts until the answer is packed. */

static void files_add(struct reflection *reflection, const struct descriptor_file *file) {
  for (size_t i = 0; i < reflection->file_count; i++)
    if (reflection->files[i].data == file->bytes)
      return;
  reflection->files[reflection->file_count++] =
      (ProtobufCBinaryData){.len = file->length, .data = (uint8_t *)file->bytes};
  for (size_t i = 0; i < file->dependency_count; i++) {
    const struct descriptor_file *dependency = descriptor_index_file(reflection->index, file->dependencies[i]);
    if (dependency)
      files_add(reflection, dependency);
  }
}

/* All parts of one answer, so that they live side by side. */
struct answer {
  Grpc__Reflection__V1__ServerReflectionResponse response;
  Grpc__Reflection__V1__FileDescriptorResponse files;
  Grpc__Reflection__V1__ListServiceResponse services;
  Grpc__Reflection__V1__ExtensionNumberResponse extensions;
  Grpc__Reflection__V1__ErrorResponse error;
};

static void answer_not_found(struct answer *answer, const char *message) {
  grpc__reflection__v1__error_response__init(&answer->error);
  answer->error.error_code = GRPC_STATUS_NOT_FOUND;
  answer->error.error_message = (char *)message;
  answer->response.message_response_case = ANSWER(ERROR_RESPONSE);
  answer->response.error_response = &answer->error;
}

static void answer_file(struct reflection *reflection, struct answer *answer, const struct descriptor_file *file) {
  if (!file) {
    answer_not_found(answer, "Not found");
    return;
  }
  reflection->file_count = 0;
  files_add(reflection, file);
  grpc__reflection__v1__file_descriptor_response__init(&answer->files);
  answer->files.n_file_descriptor_proto = reflection->file_count;
  answer->files.file_descriptor_proto = reflection->files;
  answer->response.message_response_case = ANSWER(FILE_DESCRIPTOR_RESPONSE);
  answer->response.file_descriptor_response = &answer->files;
}

static void answer_services(struct reflection *reflection, struct answer *answer) {
  grpc__reflection__v1__list_service_response__init(&answer->services);
  answer->services.n_service = reflection->service_count;
  answer->services.service = reflection->service_pointers;
  answer->response.message_response_case = ANSWER(LIST_SERVICES_RESPONSE);
  answer->response.list_services_response = &answer->services;
}

/* Our protos extend nothing: a type we know has no extension. */
static void answer_extensions(struct reflection *reflection, struct answer *answer, const char *type) {
  if (!descriptor_index_symbol(reflection->index, type)) {
    answer_not_found(answer, "Type not found");
    return;
  }
  grpc__reflection__v1__extension_number_response__init(&answer->extensions);
  answer->extensions.base_type_name = (char *)type;
  answer->response.message_response_case = ANSWER(ALL_EXTENSION_NUMBERS_RESPONSE);
  answer->response.all_extension_numbers_response = &answer->extensions;
}

/* Returns false for a question that is none. */
static bool answer_make(struct reflection *reflection, struct answer *answer,
                        Grpc__Reflection__V1__ServerReflectionRequest *request) {
  grpc__reflection__v1__server_reflection_response__init(&answer->response);
  answer->response.valid_host = request->host;
  answer->response.original_request = request;
  switch (request->message_request_case) {
  case QUESTION(FILE_BY_FILENAME):
    answer_file(reflection, answer, descriptor_index_file(reflection->index, request->file_by_filename));
    return true;
  case QUESTION(FILE_CONTAINING_SYMBOL):
    answer_file(reflection, answer, descriptor_index_symbol(reflection->index, request->file_containing_symbol));
    return true;
  case QUESTION(FILE_CONTAINING_EXTENSION):
    answer_not_found(answer, "Extension not found");
    return true;
  case QUESTION(ALL_EXTENSION_NUMBERS_OF_TYPE):
    answer_extensions(reflection, answer, request->all_extension_numbers_of_type);
    return true;
  case QUESTION(LIST_SERVICES):
    answer_services(reflection, answer);
    return true;
  default:
    return false;
  }
}

/* Streams */

/* err NULL: OK; else taken over. */
static void stream_end(struct stream *stream, struct error *err) {
  if (err)
    call_fail(stream->call, err);
  else
    call_finish(stream->call);
  if (stream->previous)
    stream->previous->next = stream->next;
  else
    stream->reflection->streams = stream->next;
  if (stream->next)
    stream->next->previous = stream->previous;
  memory_free(stream);
}

static void stream_fail(struct stream *stream, enum reason reason, const char *message) {
  struct error *err = NULL;
  error_set(&err, reason, message);
  stream_end(stream, err);
}

static void stream_answer(struct stream *stream, const ProtobufCMessage *request) {
  struct answer answer;
  /* The request is echoed in the answer, which does not write to it. */
  if (answer_make(stream->reflection, &answer, (Grpc__Reflection__V1__ServerReflectionRequest *)(void *)request))
    call_send(stream->call, rpc_pack(&answer.response.base));
  else
    stream_fail(stream, REASON_INVALID_REQUEST, "The request asks nothing");
}

static void stream_message(void *context, grpc_byte_buffer *message) {
  struct stream *stream = context;
  if (!message) {
    stream_end(stream, NULL);
    return;
  }
  struct error *err = NULL;
  ProtobufCMessage *request = rpc_unpack(&grpc__reflection__v1__server_reflection_request__descriptor, message, &err);
  if (!request) {
    stream_end(stream, err);
    return;
  }
  stream_answer(stream, request);
  protobuf_c_message_free_unpacked(request, NULL);
}

static void stream_sent(void *context) { call_receive(((struct stream *)context)->call); }

static void stream_cancelled(void *context) { stream_fail(context, REASON_ABORTED, NULL); }

static void reflection_handle(struct call *call, const ProtobufCMessage *request, void *context) {
  static const struct call_events events = {
      .message = stream_message, .sent = stream_sent, .cancelled = stream_cancelled};
  struct reflection *reflection = context;
  struct stream *stream = memory_zero(sizeof *stream);
  if (!stream) {
    struct error *err = NULL;
    error_set_memory(&err);
    call_fail(call, err);
    return;
  }
  stream->reflection = reflection;
  stream->call = call;
  stream->next = reflection->streams;
  if (stream->next)
    stream->next->previous = stream;
  reflection->streams = stream;
  call_watch(call, &events, stream);
  stream_answer(stream, request);
}

/* Public */

static int services_list(struct reflection *reflection) {
  size_t position = 0, count = 0;
  while (descriptor_index_service(reflection->index, &position))
    count++;
  reflection->services = memory_array(count, sizeof *reflection->services);
  reflection->service_pointers = memory_array(count, sizeof *reflection->service_pointers);
  reflection->files = memory_array(descriptor_index_count(reflection->index), sizeof *reflection->files);
  if (!reflection->services || !reflection->service_pointers || !reflection->files)
    return -1;
  position = 0;
  for (const char *name; (name = descriptor_index_service(reflection->index, &position));) {
    Grpc__Reflection__V1__ServiceResponse *service = &reflection->services[reflection->service_count];
    grpc__reflection__v1__service_response__init(service);
    service->name = (char *)name;
    reflection->service_pointers[reflection->service_count++] = service;
  }
  return 0;
}

struct reflection *reflection_new(struct error **err) {
  struct reflection *reflection = memory_zero(sizeof *reflection);
  if (!reflection) {
    error_set_memory(err);
    return NULL;
  }
  reflection->index = descriptor_index_new(DESCRIPTORS, DESCRIPTORS_LENGTH, err);
  if (reflection->index && services_list(reflection) < 0)
    error_set_memory(err);
  if (reflection->index && reflection->service_count > 0)
    return reflection;
  reflection_free(reflection);
  return NULL;
}

void reflection_free(struct reflection *reflection) {
  if (!reflection)
    return;
  descriptor_index_free(reflection->index);
  memory_free(reflection->files);
  memory_free(reflection->services);
  memory_free(reflection->service_pointers);
  memory_free(reflection);
}

void reflection_stop(struct reflection *reflection) {
  while (reflection->streams)
    stream_fail(reflection->streams, REASON_SERVER_UNAVAILABLE, NULL);
}

const struct call_method *reflection_methods(size_t *count) {
  static const struct call_method methods[] = {
      {.path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
       .kind = CALL_BIDIRECTIONAL,
       .request = &grpc__reflection__v1__server_reflection_request__descriptor,
       .handle = reflection_handle},
      {.path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
       .kind = CALL_BIDIRECTIONAL,
       .request = &grpc__reflection__v1__server_reflection_request__descriptor,
       .handle = reflection_handle},
  };
  *count = sizeof methods / sizeof methods[0];
  return methods;
}
