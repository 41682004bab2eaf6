/*
 * The descriptor set of proto/, built into the program: a google.protobuf.FileDescriptorSet with all imports.
 */
#ifndef SERVER_DESCRIPTORS_H
#define SERVER_DESCRIPTORS_H

#include <stddef.h>
#include <stdint.h>

extern const uint8_t DESCRIPTORS[];
extern const size_t DESCRIPTORS_LENGTH;

#endif
