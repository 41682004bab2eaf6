/*
 * RFC 3339 times and durations: a time that is read is written and read again as the same instant.
 */
// Sources: base/*.c
// Libraries: -lcjson -lcrypto -lprotobuf-c
#include "base/clock.h"
#include "base/memory.h"
#include "tests/fuzz/fuzz.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  int64_t wall, again, duration;
  char text[CLOCK_TEXT_SIZE];
  if (clock_parse(size > 0 ? (const char *)data : "", size, &wall) == 0) {
    clock_format(wall, text);
    PROMISE(strlen(text) == 30 && clock_parse(text, strlen(text), &again) == 0 && again == wall);
  }
  CLEANUP_MEMORY char *copy = memory_string_of((const char *)data, size);
  if (clock_parse_duration(copy, &duration) == 0)
    PROMISE(duration > 0 && duration <= 86400 * CLOCK_SECOND);
  return 0;
}
