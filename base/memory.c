/*
 * Memory: malloc behind one gate, so that a test can make any allocation fail. In production the gate costs one
 * predictable branch; allocations are counted only after memory_fail_after was called once.
 */
#include "base/memory.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static atomic_bool watched;
static atomic_size_t made;    /* allocations since the last memory_fail_after */
static atomic_size_t fail_at; /* the value of `made` that fails; 0 is none */
static atomic_bool fail_forever;

/* The slow half: counts, and says whether this allocation is to fail. */
static bool watched_refuses(void) {
  size_t number = atomic_fetch_add(&made, 1) + 1;
  size_t at = atomic_load(&fail_at);
  return at != 0 && (number == at || (number > at && atomic_load(&fail_forever)));
}

static bool refused(void) {
  return __builtin_expect(atomic_load_explicit(&watched, memory_order_relaxed), 0) && watched_refuses();
}

void *memory_new(size_t size) {
  return refused() ? NULL : malloc(size > 0 ? size : 1);
}

void *memory_zero(size_t size) {
  return memory_array(1, size);
}

void *memory_array(size_t count, size_t size) {
  size_t total;
  if (__builtin_mul_overflow(count, size, &total) || refused())
    return NULL;
  return calloc(1, total > 0 ? total : 1);
}

void *memory_resize(void *block, size_t size) {
  return refused() ? NULL : realloc(block, size > 0 ? size : 1);
}

char *memory_string(const char *text) {
  return memory_string_of(text, strlen(text));
}

char *memory_string_of(const char *text, size_t length) {
  if (length == SIZE_MAX)
    return NULL;
  char *copy = memory_new(length + 1);
  if (copy == NULL)
    return NULL;
  if (length > 0)
    memcpy(copy, text, length);
  copy[length] = '\0';
  return copy;
}

void memory_free(void *block) {
  free(block);
}

void memory_wipe(void *block, size_t size) {
  if (size > 0)
    explicit_bzero(block, size);
}

size_t memory_fail_after(size_t n, int forever) {
  atomic_store(&fail_at, 0);
  size_t count = atomic_exchange(&made, 0);
  atomic_store(&fail_forever, forever != 0);
  atomic_store(&fail_at, n);
  atomic_store(&watched, true);
  return count;
}

void memory_cleanup(void *variable) {
  void *block;
  memcpy(&block, variable, sizeof block);
  memory_free(block);
}
