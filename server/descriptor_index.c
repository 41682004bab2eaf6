/*
 * Descriptors are messages themselves; only names and nesting are of interest here, so their wire format is walked by a
 * small table of what contains what, instead of generated code for all of descriptor.proto.
 */
#include "server/descriptor_index.h"

#include "base/buffer.h"
#include "base/memory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { NESTING_MAX = 16, NAME_MAX_BYTES = 1024 };

enum kind { KIND_FILE, KIND_MESSAGE, KIND_ENUM, KIND_SERVICE, KIND_LEAF };

/* Field `number` of a descriptor of kind `parent` declares something of kind `child`. */
static const struct {
  enum kind parent, child;
  uint32_t number;
} DECLARES[] = {
    {KIND_FILE, KIND_MESSAGE, 4}, {KIND_FILE, KIND_ENUM, 5},    {KIND_FILE, KIND_SERVICE, 6},
    {KIND_FILE, KIND_LEAF, 7},    {KIND_MESSAGE, KIND_LEAF, 2}, {KIND_MESSAGE, KIND_MESSAGE, 3},
    {KIND_MESSAGE, KIND_ENUM, 4}, {KIND_MESSAGE, KIND_LEAF, 6}, {KIND_MESSAGE, KIND_LEAF, 8},
    {KIND_ENUM, KIND_LEAF, 2},    {KIND_SERVICE, KIND_LEAF, 2},
};

/* Fields that every descriptor but the set has, or the file alone. */
enum { SET_FILE = 1, NAME = 1, FILE_PACKAGE = 2, FILE_DEPENDENCY = 3 };

struct span {
  const uint8_t *bytes;
  size_t length;
};

struct symbol {
  char *name;
  size_t file;
  enum kind kind;
};

struct descriptor_index {
  struct descriptor_file *files;
  size_t file_count;
  struct symbol *symbols; /* sorted by name */
  size_t symbol_count, symbol_capacity;
};

/* Wire format */

static bool take_varint(struct span *rest, uint64_t *value) {
  *value = 0;
  for (unsigned shift = 0; shift < 64 && rest->length > 0; shift += 7) {
    uint8_t byte = *rest->bytes++;
    rest->length--;
    *value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80)
      return true;
  }
  return false;
}

/* The next length-delimited field; others are skipped. False at the end, or where the bytes make no sense. */
static bool take_field(struct span *rest, uint32_t *number, struct span *value) {
  uint64_t tag, length;
  while (rest->length > 0) {
    if (!take_varint(rest, &tag))
      return false;
    uint64_t wire_type = tag & 7;
    if (wire_type == 0) {
      if (!take_varint(rest, &length))
        return false;
      continue;
    }
    length = wire_type == 1 ? 8 : 4;
    if (wire_type == 2 && !take_varint(rest, &length))
      return false;
    if ((wire_type != 1 && wire_type != 2 && wire_type != 5) || length > rest->length)
      return false;
    *number = (uint32_t)(tag >> 3);
    *value = (struct span){rest->bytes, (size_t)length};
    rest->bytes += length;
    rest->length -= (size_t)length;
    if (wire_type == 2)
      return true;
  }
  return false;
}

/* The first field of that number; empty if there is none. */
static struct span find_field(struct span message, uint32_t wanted) {
  uint32_t number;
  struct span value;
  while (take_field(&message, &number, &value))
    if (number == wanted)
      return value;
  return (struct span){NULL, 0};
}

/* Symbols */

static int symbol_add(struct descriptor_index *index, const char *name, size_t file, enum kind kind) {
  if (index->symbol_count == index->symbol_capacity) {
    size_t capacity = index->symbol_capacity ? 2 * index->symbol_capacity : 256;
    struct symbol *symbols = memory_resize(index->symbols, capacity * sizeof *symbols);
    if (!symbols)
      return -1;
    index->symbols = symbols;
    index->symbol_capacity = capacity;
  }
  char *copy = memory_string(name);
  if (!copy)
    return -1;
  index->symbols[index->symbol_count++] = (struct symbol){.name = copy, .file = file, .kind = kind};
  return 0;
}

static int scope_enter(struct buffer *scope, struct span name) {
  return (scope->length > 0 && buffer_append_byte(scope, '.') < 0) || buffer_append(scope, name.bytes, name.length) < 0
             ? -1
             : 0;
}

static void scope_leave(struct buffer *scope, size_t length) {
  scope->length = length;
  if (scope->data)
    scope->data[length] = '\0';
}

/* Adds what `descriptor` declares, itself left out, under the names that begin with `scope`. */
static int declared_add(struct descriptor_index *index, size_t file, enum kind kind, struct span descriptor,
                        struct buffer *scope, unsigned depth) {
  uint32_t number;
  struct span value;
  size_t outside = scope->length;
  if (depth == NESTING_MAX)
    return -1;
  while (take_field(&descriptor, &number, &value)) {
    for (size_t i = 0; i < sizeof DECLARES / sizeof DECLARES[0]; i++) {
      if (DECLARES[i].parent != kind || DECLARES[i].number != number)
        continue;
      enum kind child = DECLARES[i].child;
      if (scope_enter(scope, find_field(value, NAME)) < 0 || symbol_add(index, buffer_text(scope), file, child) < 0)
        return -1;
      if (child == KIND_ENUM) /* its values stand beside it, not inside */
        scope_leave(scope, outside);
      if (child != KIND_LEAF && declared_add(index, file, child, value, scope, depth + 1) < 0)
        return -1;
      scope_leave(scope, outside);
    }
  }
  return 0;
}

/* Files */

static int file_read(struct descriptor_index *index, size_t place, struct span bytes) {
  struct descriptor_file *file = &index->files[place];
  file->bytes = bytes.bytes;
  file->length = bytes.length;
  struct span name = find_field(bytes, NAME), package = find_field(bytes, FILE_PACKAGE);
  file->name = memory_string_of((const char *)name.bytes, name.length);

  uint32_t number;
  struct span value;
  size_t count = 0;
  for (struct span rest = bytes; take_field(&rest, &number, &value);)
    count += number == FILE_DEPENDENCY;
  file->dependencies = memory_array(count + 1, sizeof *file->dependencies);
  if (!file->name || !file->dependencies)
    return -1;
  for (struct span rest = bytes; take_field(&rest, &number, &value);) {
    if (number != FILE_DEPENDENCY)
      continue;
    char *dependency = memory_string_of((const char *)value.bytes, value.length);
    if (!dependency)
      return -1;
    file->dependencies[file->dependency_count++] = dependency;
  }

  CLEANUP_BUFFER struct buffer scope;
  buffer_init(&scope, NAME_MAX_BYTES);
  if (package.length > 0 && scope_enter(&scope, package) < 0)
    return -1;
  return declared_add(index, place, KIND_FILE, bytes, &scope, 0);
}

static int set_read(struct descriptor_index *index, struct span set) {
  uint32_t number;
  struct span value;
  size_t count = 0;
  for (struct span rest = set; take_field(&rest, &number, &value);)
    count += number == SET_FILE;
  index->files = memory_array(count + 1, sizeof *index->files);
  if (!index->files)
    return -1;
  while (take_field(&set, &number, &value))
    if (number == SET_FILE && file_read(index, index->file_count++, value) < 0)
      return -1;
  return 0;
}

static int symbol_compare(const void *left, const void *right) {
  return strcmp(((const struct symbol *)left)->name, ((const struct symbol *)right)->name);
}

struct descriptor_index *descriptor_index_new(const uint8_t *set, size_t length, struct error **err) {
  struct descriptor_index *index = memory_zero(sizeof *index);
  if (!index || set_read(index, (struct span){set, length}) < 0) {
    descriptor_index_free(index);
    error_set_memory(err);
    return NULL;
  }
  if (index->symbol_count > 0)
    qsort(index->symbols, index->symbol_count, sizeof *index->symbols, symbol_compare);
  return index;
}

void descriptor_index_free(struct descriptor_index *index) {
  if (!index)
    return;
  for (size_t i = 0; i < index->file_count; i++) {
    struct descriptor_file *file = &index->files[i];
    memory_free(file->name);
    for (size_t k = 0; k < file->dependency_count; k++)
      memory_free(file->dependencies[k]);
    memory_free(file->dependencies);
  }
  memory_free(index->files);
  for (size_t i = 0; i < index->symbol_count; i++)
    memory_free(index->symbols[i].name);
  memory_free(index->symbols);
  memory_free(index);
}

/* Looking up */

size_t descriptor_index_count(const struct descriptor_index *index) { return index->file_count; }

const struct descriptor_file *descriptor_index_file(const struct descriptor_index *index, const char *name) {
  for (size_t i = 0; i < index->file_count; i++)
    if (strcmp(index->files[i].name, name) == 0)
      return &index->files[i];
  return NULL;
}

const struct descriptor_file *descriptor_index_symbol(const struct descriptor_index *index, const char *symbol) {
  if (index->symbol_count == 0)
    return NULL;
  struct symbol wanted = {.name = (char *)symbol};
  const struct symbol *found =
      bsearch(&wanted, index->symbols, index->symbol_count, sizeof *index->symbols, symbol_compare);
  return found ? &index->files[found->file] : NULL;
}

const char *descriptor_index_service(const struct descriptor_index *index, size_t *position) {
  while (*position < index->symbol_count) {
    const struct symbol *symbol = &index->symbols[(*position)++];
    if (symbol->kind == KIND_SERVICE)
      return symbol->name;
  }
  return NULL;
}
