/*
 * The descriptors of our protos, as server reflection looks them up: by file name and by symbol. Thread: any, once
 * made.
 */
#ifndef SERVER_DESCRIPTOR_INDEX_H
#define SERVER_DESCRIPTOR_INDEX_H

#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

struct descriptor_index;

/* One google.protobuf.FileDescriptorProto. */
struct descriptor_file {
  char *name; /* "sandbox/lease/v1/lease.proto" */
  const uint8_t *bytes;
  size_t length;
  char **dependencies; /* names of files, in the order of import */
  size_t dependency_count;
};

/* `set`: a google.protobuf.FileDescriptorSet with all imports, ours and hence trusted; it must outlive the index. NULL
 * and *err. */
struct descriptor_index *descriptor_index_new(const uint8_t *set, size_t length, struct error **err);
void descriptor_index_free(struct descriptor_index *index);

size_t descriptor_index_count(const struct descriptor_index *index); /* of files */
/* NULL if there is none. */
const struct descriptor_file *descriptor_index_file(const struct descriptor_index *index, const char *name);
/* The file that declares a package-qualified message, field, enum, value, service or method. */
const struct descriptor_file *descriptor_index_symbol(const struct descriptor_index *index, const char *symbol);
/* The services' names, one after another, starting with *position 0; NULL at the end. */
const char *descriptor_index_service(const struct descriptor_index *index, size_t *position);

#endif
