/*
 * Checking protobuf bytes before protobuf-c sees them. What is refused here and not there:
 *   - nesting and numbers of fields that would exhaust stack or memory, groups, over-long varints, field number 0;
 *   - strings that are not UTF-8 or hold a NUL;
 *   - a singular message field that stands twice. The standard says to merge the two; protobuf-c's merge reads outside
 * of its tables when the message has a oneof that neither sets, and no encoder writes such a thing. After a check,
 * protobuf_c_message_unpack fails for want of memory alone.
 */
#include "base/message.h"
#include "base/limits.h"
#include "base/memory.h"
#include "base/text.h"
#include <string.h>

enum {
  FIELD_PATH_BYTES = 256,
  FIELDS_OF_A_MESSAGE = 256, /* in a descriptor: ours have a tenth of it */
  KEY_BYTES = 5,             /* of a field's key or length: 32 bits */
  VARINT_BYTES = 10,
};

struct span {
  const uint8_t *at, *end;
};

struct walk {
  const char *path[LIMIT_MESSAGE_DEPTH]; /* names of the fields we are in */
  unsigned depth;                        /* messages we are in */
  unsigned fields;                       /* seen so far, everywhere */
  struct error **err;
};

static size_t span_length(struct span span) {
  return (size_t)(span.end - span.at);
}

/* Stores the error with the path of the field; field NULL: of no field that has a name. */
static int refuse(const struct walk *walk, const ProtobufCFieldDescriptor *field, const char *rule) {
  if (field == NULL)
    return error_set(walk->err, REASON_INVALID_REQUEST, rule);
  char memory[FIELD_PATH_BYTES], text[2 * FIELD_PATH_BYTES];
  struct buffer path, message;
  buffer_borrow(&path, memory, sizeof memory);
  buffer_borrow(&message, text, sizeof text);
  for (unsigned i = 0; i + 1 < walk->depth; i++)
    buffer_append_format(&path, "%s.", walk->path[i]);
  buffer_append_string(&path, field->name);
  buffer_append_format(&message, "'%s' %s", memory, rule);
  return error_set_field(walk->err, REASON_INVALID_REQUEST, memory, text);
}

/* Reads a varint of at most `longest` bytes. Returns 0, or -1 if it does not end, or does not fit in 64 bits. */
static int read_varint(struct span *span, size_t longest, uint64_t *value) {
  *value = 0;
  for (size_t i = 0; i < longest && span->at < span->end; i++) {
    uint8_t byte = *span->at++;
    if (i == VARINT_BYTES - 1 && byte > 1)
      return -1;
    *value |= (uint64_t)(byte & 0x7F) << (7 * i);
    if (byte < 0x80)
      return 0;
  }
  return -1;
}

static int skip_bytes(struct span *span, size_t length) {
  if (length > span_length(*span))
    return -1;
  span->at += length;
  return 0;
}

/* Takes the value behind a key. *payload: the bytes of a length-prefixed value. */
static int read_value(struct span *span, uint32_t wire_type, struct span *payload) {
  uint64_t number;
  switch (wire_type) {
  case PROTOBUF_C_WIRE_TYPE_VARINT:
    return read_varint(span, VARINT_BYTES, &number);
  case PROTOBUF_C_WIRE_TYPE_64BIT:
    return skip_bytes(span, 8);
  case PROTOBUF_C_WIRE_TYPE_32BIT:
    return skip_bytes(span, 4);
  case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
    if (read_varint(span, KEY_BYTES, &number) != 0 || number > span_length(*span))
      return -1;
    *payload = (struct span){span->at, span->at + number};
    span->at += number;
    return 0;
  default:
    return -1; /* groups, and what does not exist */
  }
}

static uint32_t wire_type_of(ProtobufCType type) {
  switch (type) {
  case PROTOBUF_C_TYPE_STRING:
  case PROTOBUF_C_TYPE_BYTES:
  case PROTOBUF_C_TYPE_MESSAGE:
    return PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
  case PROTOBUF_C_TYPE_FIXED32:
  case PROTOBUF_C_TYPE_SFIXED32:
  case PROTOBUF_C_TYPE_FLOAT:
    return PROTOBUF_C_WIRE_TYPE_32BIT;
  case PROTOBUF_C_TYPE_FIXED64:
  case PROTOBUF_C_TYPE_SFIXED64:
  case PROTOBUF_C_TYPE_DOUBLE:
    return PROTOBUF_C_WIRE_TYPE_64BIT;
  default:
    return PROTOBUF_C_WIRE_TYPE_VARINT;
  }
}

static int count_field(struct walk *walk, const ProtobufCFieldDescriptor *field) {
  if (++walk->fields > LIMIT_MESSAGE_FIELDS)
    return refuse(walk, field,
                  field != NULL ? "makes the message hold too many fields" : "Message holds too many fields");
  return 0;
}

/* The elements of a packed repeated field: each counts as a field. */
static int check_packed(struct walk *walk, const ProtobufCFieldDescriptor *field, struct span payload) {
  uint32_t wire_type = wire_type_of(field->type);
  while (payload.at < payload.end) {
    struct span none;
    const uint8_t *start = payload.at;
    if (count_field(walk, field) != 0)
      return -1;
    /* protobuf-c takes one byte for each packed boolean. */
    if (read_value(&payload, wire_type, &none) != 0 ||
        (field->type == PROTOBUF_C_TYPE_BOOL && (payload.at - start != 1 || *start > 1)))
      return refuse(walk, field, "is malformed");
  }
  return 0;
}

static int walk_message(struct walk *walk, const ProtobufCMessageDescriptor *descriptor, struct span span);

static int check_payload(struct walk *walk, const ProtobufCFieldDescriptor *field, struct span payload) {
  switch (field->type) {
  case PROTOBUF_C_TYPE_STRING:
    if (memchr(payload.at, '\0', span_length(payload)) != NULL || !text_valid(payload.at, span_length(payload)))
      return refuse(walk, field, "must be valid UTF-8 without U+0000");
    return 0;
  case PROTOBUF_C_TYPE_MESSAGE:
    if (walk->depth == LIMIT_MESSAGE_DEPTH)
      return refuse(walk, field, "is nested too deeply");
    walk->path[walk->depth - 1] = field->name;
    return walk_message(walk, field->descriptor, payload);
  default:
    return 0;
  }
}

/* One field with its value. `seen` has a bit for each field of the descriptor. */
static int check_field(struct walk *walk, const ProtobufCMessageDescriptor *descriptor, uint64_t *seen,
                       const ProtobufCFieldDescriptor *field, uint32_t wire_type, struct span payload) {
  uint32_t wanted = wire_type_of(field->type);
  if (field->label == PROTOBUF_C_LABEL_REPEATED && wire_type == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED &&
      wanted != wire_type)
    return check_packed(walk, field, payload);
  if (wire_type != wanted)
    return refuse(walk, field, "has the wrong type");
  if (field->type == PROTOBUF_C_TYPE_MESSAGE && field->label != PROTOBUF_C_LABEL_REPEATED) {
    size_t index = (size_t)(field - descriptor->fields);
    if ((seen[index / 64] >> index % 64 & 1) != 0)
      return refuse(walk, field, "stands twice");
    seen[index / 64] |= UINT64_C(1) << index % 64;
  }
  return wanted == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED ? check_payload(walk, field, payload) : 0;
}

static int walk_message(struct walk *walk, const ProtobufCMessageDescriptor *descriptor, struct span span) {
  uint64_t seen[FIELDS_OF_A_MESSAGE / 64] = {0};
  if (descriptor->n_fields > FIELDS_OF_A_MESSAGE)
    return error_set_detail(walk->err, REASON_INTERNAL, "%s has too many fields", descriptor->name);
  walk->depth++;
  while (span.at < span.end) {
    uint64_t key;
    if (read_varint(&span, KEY_BYTES, &key) != 0 || key > UINT32_MAX || key >> 3 == 0)
      return refuse(walk, NULL, "Message is malformed");
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(descriptor, (unsigned)(key >> 3));
    uint32_t wire_type = (uint32_t)key & 7;
    struct span payload = {NULL, NULL};
    if (read_value(&span, wire_type, &payload) != 0)
      return refuse(walk, field, field != NULL ? "is malformed" : "Message is malformed");
    if (count_field(walk, field) != 0 ||
        (field != NULL && check_field(walk, descriptor, seen, field, wire_type, payload) != 0))
      return -1;
  }
  walk->depth--;
  return 0;
}

int message_check(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes, size_t length,
                  struct error **err) {
  if (length > INT32_MAX)
    return error_set(err, REASON_INVALID_REQUEST, "Message is too large");
  struct walk walk = {.err = err};
  struct span span = {bytes, bytes};
  if (length > 0)
    span.end += length;
  return walk_message(&walk, descriptor, span);
}

static void *allocate(void *context, size_t size) {
  (void)context;
  return memory_new(size);
}

static void deallocate(void *context, void *block) {
  (void)context;
  memory_free(block);
}

ProtobufCMessage *message_unpack(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes, size_t length,
                                 struct error **err) {
  static ProtobufCAllocator allocator = {.alloc = allocate, .free = deallocate};
  if (message_check(descriptor, bytes, length, err) != 0)
    return NULL;
  ProtobufCMessage *message = protobuf_c_message_unpack(descriptor, &allocator, length, bytes);
  if (message == NULL)
    error_set_memory(err);
  return message;
}

uint8_t *message_pack(const ProtobufCMessage *message, size_t *length) {
  size_t size = protobuf_c_message_get_packed_size(message);
  uint8_t *bytes = memory_new(size);
  if (bytes == NULL)
    return NULL;
  *length = protobuf_c_message_pack(message, bytes);
  return bytes;
}
