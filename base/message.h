/*
 * Protobuf messages from somebody we do not trust. protobuf-c has no recursion limit, accepts invalid UTF-8, cuts
 * strings at an embedded NUL and allocates for every repeated element it is told of; so the bytes are walked against
 * the descriptor first. Thread: any.
 */
#ifndef BASE_MESSAGE_H
#define BASE_MESSAGE_H

#include "base/error.h"
#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

/* Checks wire format, nesting (LIMIT_MESSAGE_DEPTH), number of fields (LIMIT_MESSAGE_FIELDS), that every string is UTF-8
 * without NUL, and that no singular message field stands twice. Returns 0, or -1 and REASON_INVALID_REQUEST with the
 * field's path, such as "command.env.key" (error_field), where one is at fault. For proto3. */
int message_check(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes, size_t length,
                  struct error **err);
/* message_check, then unpack. Free with protobuf_c_message_free_unpacked(message, NULL). NULL and *err. */
ProtobufCMessage *message_unpack(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes, size_t length,
                                 struct error **err);
/* Packed into one new block of *length bytes (memory_free); NULL without memory. An empty message gives a block too. */
uint8_t *message_pack(const ProtobufCMessage *message, size_t *length);

#endif
