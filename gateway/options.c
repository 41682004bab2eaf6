#include "gateway/options.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  DESCRIPTORS_KEPT = 128, /* for everything but connections */
  PEM_BYTES = 1 << 20,
  CONNECTIONS = 20000,
};

/* Reads a PEM file named by a setting. *text NULL if it is not set. */
static int read_pem(struct config *config, const char *name, char **text, struct error **err) {
  const char *path;
  struct stat file;
  if (config_optional(config, name, &path, err) < 0)
    return -1;
  if (!path)
    return 0;
  int opened = open(path, O_RDONLY | O_CLOEXEC);
  if (opened < 0)
    return error_set_errno(err, errno, "%s must be a readable PEM file", name);
  size_t length = fstat(opened, &file) == 0 && file.st_size > 0 && file.st_size <= PEM_BYTES ? (size_t)file.st_size : 0;
  *text = length > 0 ? memory_zero(length + 1) : NULL;
  ssize_t got = *text ? read(opened, *text, length) : -1;
  close(opened);
  return got > 0 ? 0 : error_set_detail(err, REASON_INTERNAL, "%s must be a PEM file of at most 1 MiB", name);
}

static int read_grpc(struct options *options, struct error **err) {
  struct config *config = options->config;
  if (config_text(config, "SANDBOX_GRPC_ADDRESS", NULL, &options->grpc_address, err) < 0 ||
      read_pem(config, "SANDBOX_GRPC_TLS_CA", &options->grpc_ca, err) < 0 ||
      read_pem(config, "SANDBOX_GRPC_TLS_CERT", &options->grpc_certificate, err) < 0 ||
      read_pem(config, "SANDBOX_GRPC_TLS_KEY", &options->grpc_key, err) < 0 ||
      config_optional(config, "SANDBOX_GRPC_TLS_NAME", &options->grpc_authority, err) < 0)
    return -1;
  if (!options->grpc_certificate != !options->grpc_key)
    return error_set_detail(err, REASON_INTERNAL, "SANDBOX_GRPC_TLS_CERT and SANDBOX_GRPC_TLS_KEY must be set together");
  if (options->grpc_certificate && !options->grpc_ca)
    return error_set_detail(err, REASON_INTERNAL, "SANDBOX_GRPC_TLS_CERT needs SANDBOX_GRPC_TLS_CA");
  return 0;
}

static int read_tls(struct options *options, struct error **err) {
  if (config_optional(options->config, "SANDBOX_TLS_CERT", &options->tls_certificate, err) < 0 ||
      config_optional(options->config, "SANDBOX_TLS_KEY", &options->tls_key, err) < 0)
    return -1;
  if (!options->tls_certificate != !options->tls_key)
    return error_set_detail(err, REASON_INTERNAL, "SANDBOX_TLS_CERT and SANDBOX_TLS_KEY must be set together");
  return 0;
}

/* As many descriptors as the system allows, and not more connections than that. */
static int64_t connections_possible(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
    return 1;
  if (limit.rlim_cur < limit.rlim_max) {
    struct rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
      limit = raised;
  }
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > INT32_MAX)
    return INT32_MAX;
  return limit.rlim_cur > 2 * DESCRIPTORS_KEPT ? (int64_t)limit.rlim_cur - DESCRIPTORS_KEPT : (int64_t)limit.rlim_cur / 2;
}

/* More than one loop pays from three processors on: the queue's thread and the server want one, too. */
static int64_t default_loops(void) {
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  return processors <= 2 ? 1 : processors < 2 * OPTIONS_LOOPS ? processors / 2 : OPTIONS_LOOPS;
}

static int read_sizes(struct options *options, struct error **err) {
  int64_t possible = connections_possible();
  if (config_integer(options->config, "SANDBOX_GATEWAY_LOOPS", default_loops(), 1, OPTIONS_LOOPS, &options->loops, err) < 0 ||
      config_integer(options->config, "SANDBOX_GATEWAY_CONNECTIONS", CONNECTIONS, 1, 1000000, &options->connections, err) < 0)
    return -1;
  if (options->connections > possible)
    options->connections = possible;
  if (options->connections < options->loops)
    options->connections = options->loops;
  return 0;
}

int options_read(struct options *options, const char *config_path, struct error **err) {
  *options = (struct options){.config = config_load(config_path, err)};
  if (!options->config)
    return -1;
  if (config_text(options->config, "SANDBOX_ADDRESS", "127.0.0.1:8787", &options->address, err) < 0 ||
      read_grpc(options, err) < 0 || read_tls(options, err) < 0)
    return -1;
  return read_sizes(options, err);
}

void options_free(struct options *options) {
  memory_free(options->grpc_ca);
  memory_free(options->grpc_certificate);
  if (options->grpc_key)
    memory_wipe(options->grpc_key, 1);
  memory_free(options->grpc_key);
  if (options->config)
    config_free(options->config);
}
