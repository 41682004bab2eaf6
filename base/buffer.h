/*
 * A growing byte buffer with a bound: the one buffer type of the platform. It always holds a NUL behind its bytes once
 * anything was appended, so that `data` can be read as a string. Thread: one owner at a time.
 */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct buffer {
  uint8_t *data;   /* NULL while nothing was ever appended; owned */
  size_t length;   /* bytes in use */
  size_t capacity; /* bytes allocated, the NUL's place included */
  size_t limit;    /* the most `length` may become */
};

/* Allocates nothing. */
void buffer_init(struct buffer *buffer, size_t limit);
/* A buffer on the caller's memory of `size` (at least 1) bytes: it allocates nothing and its limit is size - 1. Neither
 * buffer_free nor buffer_take may be called on it. */
void buffer_borrow(struct buffer *buffer, void *memory, size_t size);
/* Frees the bytes; the buffer is then as after buffer_init. */
void buffer_free(struct buffer *buffer);

/* Return 0, or -1 when the limit would be passed or there is no memory; the buffer is then unchanged. */
int buffer_append(struct buffer *buffer, const void *data, size_t length);
int buffer_append_string(struct buffer *buffer, const char *text);
int buffer_append_byte(struct buffer *buffer, uint8_t byte);
int buffer_append_format(struct buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
int buffer_append_format_list(struct buffer *buffer, const char *format, va_list arguments);
/* Makes room for `extra` more bytes and returns where to write them (then call buffer_commit), or NULL. */
uint8_t *buffer_reserve(struct buffer *buffer, size_t extra);
void buffer_commit(struct buffer *buffer, size_t written);
/* Drops bytes from the front; cheap when all are dropped. */
void buffer_consume(struct buffer *buffer, size_t length);
/* Drops bytes from the end, down to `length`; no change if there are not more. */
void buffer_truncate(struct buffer *buffer, size_t length);
void buffer_clear(struct buffer *buffer);
/* "" while empty; valid until the next change. */
const char *buffer_text(const struct buffer *buffer);
/* Gives the bytes (NUL behind them) to the caller, who frees with memory_free; NULL if empty. */
char *buffer_take(struct buffer *buffer);

#define CLEANUP_BUFFER __attribute__((cleanup(buffer_free)))

#endif
