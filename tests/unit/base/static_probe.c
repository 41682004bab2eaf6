/* A program that uses a function of every file of //base:core, linked statically: see static_test.sh. */
#include "base/buffer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include <stdio.h>

int main(void) {
  struct buffer out CLEANUP_BUFFER;
  buffer_init(&out, 1000);
  struct error *err CLEANUP_ERROR = NULL;
  error_set_errno(&err, 2, "opening %s", "x");
  int64_t wall = 0;
  if (clock_parse("2026-01-02T03:04:05Z", 20, &wall) != 0 || text_base64(&out, "ab", 2) != 0 ||
      json_write_string(&out, "\xff", 1) != 0 || reason_find("INTERNAL") != error_reason(err))
    return 1;
  log_write(LOG_INFO, "static_probe", LOG_DETAIL(err), LOG_NUMBER("wall", wall));
  puts(buffer_text(&out));
  return 0;
}
