/*
 * Request targets: whatever stands there, decoding stays inside it.
 */
// Sources: gateway/target.c gateway/http_head.c base/*.c
// Libraries: -lh2o-evloop -lcjson -lcrypto -lprotobuf-c
#include "base/memory.h"
#include "gateway/target.h"
#include "tests/fuzz/fuzz.h"
#include <string.h>

static void check_inside(struct http_text text, const char *start, size_t size) {
  PROMISE(text.data >= start && text.data + text.length <= start + size);
}

static void check(char *text, size_t size) {
  struct target target;
  struct http_text name, value;
  struct error *err CLEANUP_ERROR = NULL;
  target_read(text, size, &target);
  PROMISE(target.count <= TARGET_SEGMENTS);
  for (size_t i = 0; i < target.count; i++)
    check_inside(target.segments[i], text, size);
  int more;
  while ((more = target_next_parameter(&target, &name, &value, &err)) > 0) {
    check_inside(name, text, size);
    check_inside(value, text, size);
  }
  PROMISE(more == 0 || error_reason(err) == REASON_INVALID_REQUEST);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  char *text CLEANUP_MEMORY = memory_string_of((const char *)data, size);
  PROMISE(text != NULL);
  check(text, size);
  return 0;
}
