/*
 * Protobuf messages: whatever message_check lets pass, protobuf-c unpacks, with memory in proportion. The first byte
 * chooses the message type.
 */
// Sources: base/*.c
// Libraries: -lcjson -lcrypto -lprotobuf-c
// Protos: sandbox/lease/v1/lease.proto google/protobuf/timestamp.proto grpc/reflection/v1/reflection.proto sandbox/agent/v1/agent.proto
// Sample: tests/unit/base/sample.proto
#include "base/limits.h"
#include "base/memory.h"
#include "base/message.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "sample.pb-c.h"
#include "sandbox/agent/v1/agent.pb-c.h"
#include "sandbox/lease/v1/lease.pb-c.h"
#include "tests/fuzz/fuzz.h"

static const ProtobufCMessageDescriptor *const types[] = {
    &sample__sample__descriptor,
    &sandbox__lease__v1__exec_request__descriptor,
    &sandbox__lease__v1__acquire_lease_request__descriptor,
    &sandbox__lease__v1__list_leases_response__descriptor,
    &sandbox__lease__v1__stream_exec_request__descriptor,
    &sandbox__lease__v1__upload_file_request__descriptor,
    &grpc__reflection__v1__server_reflection_request__descriptor,
    &sandbox__agent__v1__run_response__descriptor,
    &sandbox__agent__v1__read_file_response__descriptor,
};

static size_t allocated;

static void *allocate(void *context, size_t size) {
  (void)context;
  allocated += size;
  return memory_new(size);
}

static void deallocate(void *context, void *block) {
  (void)context;
  memory_free(block);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  const ProtobufCMessageDescriptor *type = types[data[0] % (sizeof types / sizeof types[0])];
  struct error *err CLEANUP_ERROR = NULL;
  if (message_check(type, data + 1, size - 1, &err) != 0) {
    PROMISE(error_reason(err) == REASON_INVALID_REQUEST);
    return 0;
  }
  ProtobufCAllocator allocator = {.alloc = allocate, .free = deallocate};
  allocated = 0;
  ProtobufCMessage *message = protobuf_c_message_unpack(type, &allocator, size - 1, data + 1);
  PROMISE(message != NULL);
  /* Every field costs a bounded number of bytes (its place while scanning, a message of its own), and every byte is
   * copied once. */
  PROMISE(allocated <= 1024 + (size - 1) + 512 * (size_t)LIMIT_MESSAGE_FIELDS);
  size_t length = 0;
  uint8_t *packed = message_pack(message, &length);
  PROMISE(packed != NULL);
  memory_free(packed);
  protobuf_c_message_free_unpacked(message, &allocator);
  return 0;
}
