/*
 * The library logs through a function that can be replaced; its levels are fewer than ours and map one to one.
 */
#include "rpc/log.h"

#include "base/log.h"

#include <grpc/support/log.h>

static enum log_level level_of(gpr_log_severity severity) {
  switch (severity) {
  case GPR_LOG_SEVERITY_ERROR:
    return LOG_ERROR;
  case GPR_LOG_SEVERITY_INFO:
    return LOG_INFO;
  default:
    return LOG_DEBUG;
  }
}

static void write_line(gpr_log_func_args *line) {
  log_write(level_of(line->severity), "grpc", LOG_TEXT("detail", line->message));
}

void rpc_log_install(void) { gpr_set_log_function(write_line); }
