/*
 * The growing, bounded byte buffer. Growth doubles, so that appending byte by byte stays linear, and never passes
 * limit + 1 bytes of memory.
 */
#include "base/buffer.h"
#include "base/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 64 };
static const size_t LARGEST = PTRDIFF_MAX - 1; /* no block of memory is larger, its NUL included */

void buffer_init(struct buffer *buffer, size_t limit) {
  *buffer = (struct buffer){.limit = limit < LARGEST ? limit : LARGEST};
}

void buffer_borrow(struct buffer *buffer, void *memory, size_t size) {
  *buffer = (struct buffer){.data = memory, .capacity = size, .limit = size - 1};
  buffer->data[0] = '\0';
}

void buffer_free(struct buffer *buffer) {
  memory_free(buffer->data);
  buffer_init(buffer, buffer->limit);
}

/* Makes capacity for `extra` more bytes and a NUL. */
static int buffer_grow(struct buffer *buffer, size_t extra) {
  if (extra > buffer->limit - buffer->length)
    return -1;
  size_t needed = buffer->length + extra + 1;
  if (needed <= buffer->capacity)
    return 0;
  size_t capacity = buffer->capacity > 0 ? buffer->capacity : FIRST_CAPACITY;
  while (capacity < needed)
    capacity *= 2; /* at most 2 * PTRDIFF_MAX: no overflow */
  if (capacity > buffer->limit + 1)
    capacity = buffer->limit + 1;
  uint8_t *data = memory_resize(buffer->data, capacity);
  if (data == NULL)
    return -1;
  buffer->data = data;
  buffer->capacity = capacity;
  buffer->data[buffer->length] = '\0';
  return 0;
}

int buffer_append(struct buffer *buffer, const void *data, size_t length) {
  if (length == 0)
    return 0;
  if (buffer_grow(buffer, length) != 0)
    return -1;
  memcpy(buffer->data + buffer->length, data, length);
  buffer->length += length;
  buffer->data[buffer->length] = '\0';
  return 0;
}

int buffer_append_string(struct buffer *buffer, const char *text) {
  return buffer_append(buffer, text, strlen(text));
}

int buffer_append_byte(struct buffer *buffer, uint8_t byte) {
  return buffer_append(buffer, &byte, 1);
}

int buffer_append_format(struct buffer *buffer, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int result = buffer_append_format_list(buffer, format, arguments);
  va_end(arguments);
  return result;
}

int buffer_append_format_list(struct buffer *buffer, const char *format, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  int length = vsnprintf(NULL, 0, format, again);
  va_end(again);
  if (length < 0 || buffer_grow(buffer, (size_t)length) != 0)
    return -1;
  vsnprintf((char *)buffer->data + buffer->length, (size_t)length + 1, format, arguments);
  buffer->length += (size_t)length;
  return 0;
}

uint8_t *buffer_reserve(struct buffer *buffer, size_t extra) {
  return buffer_grow(buffer, extra) == 0 ? buffer->data + buffer->length : NULL;
}

void buffer_commit(struct buffer *buffer, size_t written) {
  if (written == 0)
    return;
  /* More than was reserved: the memory behind the buffer is already damaged. */
  if (written >= buffer->capacity - buffer->length)
    abort();
  buffer->length += written;
  buffer->data[buffer->length] = '\0';
}

void buffer_consume(struct buffer *buffer, size_t length) {
  if (length >= buffer->length) {
    buffer_clear(buffer);
    return;
  }
  buffer->length -= length;
  memmove(buffer->data, buffer->data + length, buffer->length + 1);
}

void buffer_truncate(struct buffer *buffer, size_t length) {
  if (length >= buffer->length)
    return;
  buffer->length = length;
  buffer->data[length] = '\0';
}

void buffer_clear(struct buffer *buffer) {
  buffer_truncate(buffer, 0);
}

const char *buffer_text(const struct buffer *buffer) {
  return buffer->data != NULL ? (const char *)buffer->data : "";
}

char *buffer_take(struct buffer *buffer) {
  if (buffer->length == 0)
    return NULL;
  char *data = (char *)buffer->data;
  buffer_init(buffer, buffer->limit);
  return data;
}
