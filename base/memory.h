/*
 * Memory. All code of base/ and the codecs allocates here, so that a test can make each allocation fail in turn.
 * Thread: any.
 */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stddef.h>

/* As malloc, calloc, realloc, strdup and strndup: NULL when there is no memory. The caller frees with memory_free.
 * memory_array checks count * size for overflow and zeroes; memory_resize keeps the old block when it fails. */
void *memory_new(size_t size) __attribute__((malloc));
void *memory_zero(size_t size) __attribute__((malloc));
void *memory_array(size_t count, size_t size) __attribute__((malloc));
void *memory_resize(void *block, size_t size);
char *memory_string(const char *text) __attribute__((malloc));
char *memory_string_of(const char *text, size_t length) __attribute__((malloc)); /* length bytes, then NUL */
void memory_free(void *block);

/* Wipes secrets in a way the compiler keeps. */
void memory_wipe(void *block, size_t size);

/* Tests only: the n-th allocation from now (1 is the next) fails, and so do all after it if `forever`; 0 turns failing
 * off. Returns how many allocations were made since the last call; they are counted from the first call on. Of the
 * whole process. */
size_t memory_fail_after(size_t n, int forever);

/* For __attribute__((cleanup)): frees what the variable points to. */
void memory_cleanup(void *variable);
#define CLEANUP_MEMORY __attribute__((cleanup(memory_cleanup)))

#endif
