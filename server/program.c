/*
 * The life of lease-server. Start: configuration, backend, Lease service, listeners, and only once Leases can be served
 * the first call. End: no new calls, what runs may finish, then the Lease service and the backend stop. Whatever hangs,
 * a last timer ends the process; a second signal ends it at once.
 */
#include "server/program.h"

#include "base/buffer.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/version.h"
#include "rpc/library.h"
#include "rpc/log.h"
#include "server/acceptor.h"
#include "server/end_leases.h"
#include "server/health.h"
#include "server/lease_service.h"
#include "server/listeners.h"
#include "server/reflection.h"
#include "server/server_settings.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
  EXIT_USAGE = 2,
  NAMES_MAX_BYTES = 256,
  MILLISECONDS = 1000,
  HANG_SECONDS = 10, /* past LIMIT_SHUTDOWN_SECONDS: something hangs */
};

enum phase { PHASE_STARTING, PHASE_SERVING, PHASE_STOPPING };

struct program {
  enum phase phase;
  int exit_code;
  uv_loop_t loop;
  uv_signal_t signals[2];
  uv_timer_t last_timer;
  struct config *config;
  struct server_settings settings;
  struct key_ring *ring;
  struct backend *backend;
  struct lease_service *service;
  struct health *health;
  struct reflection *reflection;
  struct acceptor *acceptor;
  struct listeners *listeners;
};

static const char USAGE[] =
    "Usage: lease-server [--config FILE] [--end-leases] [--help] [--version]\n"
    "\n"
    "Lends sandboxes over gRPC. Settings are environment variables, or members of the JSON file of --config;\n"
    "NAME_FILE names a file that holds the value of NAME.\n"
    "\n"
    "  --end-leases  serve nobody: end every Lease of the backend, whoever holds it, and exit\n"
    "\n"
    "  SANDBOX_GRPC_ADDRESS        required: comma-separated list of unix:/path and host:port\n"
    "  SANDBOX_BACKEND             required: where sandboxes come from\n"
    "  SANDBOX_CONSUMER_SECRETS    required: JSON object, Consumer id to secret or list of secrets\n"
    "  SANDBOX_METADATA_SECRET     required: the key of labels and cursors\n"
    "  SANDBOX_GRPC_TLS_CERT       PEM file: TLS on every host:port; read again when it changes\n"
    "  SANDBOX_GRPC_TLS_KEY        PEM file: its key\n"
    "  SANDBOX_GRPC_TLS_CLIENT_CA  PEM file: clients must have a certificate of this CA\n"
    "  SANDBOX_GRPC_THREADS        threads that decode and authenticate, 1 to 16\n"
    "  SANDBOX_LOG_LEVEL           debug, info (default), warning, error\n"
    "\n"
    "TTL, quotas, transfers and the settings of each backend: see docs/.\n";

/* End */

static void exit_at_once(struct program *program, int code) {
  if (program->listeners)
    listeners_remove_sockets(program->listeners);
  _exit(code);
}

static void on_hang(uv_timer_t *timer) {
  log_write(LOG_ERROR, "stop_hangs", LOG_TEXT("detail", "ending without waiting any longer"));
  exit_at_once(timer->data, EXIT_FAILURE);
}

static void close_handles(struct program *program) {
  for (size_t i = 0; i < sizeof program->signals / sizeof program->signals[0]; i++)
    uv_close((uv_handle_t *)&program->signals[i], NULL);
  uv_close((uv_handle_t *)&program->last_timer, NULL);
}

static void on_service_stopped(void *context, struct error *err) {
  struct program *program = context;
  if (err)
    log_write(LOG_ERROR, "stop_failed", LOG_REASON(err), LOG_DETAIL(err));
  error_free(&err);
  acceptor_free(program->acceptor);
  program->acceptor = NULL;
  close_handles(program);
}

static void on_calls_ended(void *context) {
  struct program *program = context;
  lease_service_stop(program->service, on_service_stopped, program);
}

static void begin_stop(struct program *program, int exit_code) {
  enum phase before = program->phase;
  program->phase = PHASE_STOPPING;
  program->exit_code = exit_code;
  uv_timer_start(&program->last_timer, on_hang, (LIMIT_SHUTDOWN_SECONDS + HANG_SECONDS) * MILLISECONDS, 0);
  health_stop(program->health);
  reflection_stop(program->reflection);
  if (before == PHASE_SERVING)
    acceptor_stop(program->acceptor, LIMIT_SHUTDOWN_SECONDS * MILLISECONDS, on_calls_ended, program);
  else
    on_calls_ended(program);
}

static void on_signal(uv_signal_t *signal, int number) {
  struct program *program = signal->data;
  log_write(LOG_INFO, "stopping", LOG_NUMBER("signal", number));
  if (program->phase == PHASE_STOPPING)
    exit_at_once(program, 128 + number);
  begin_stop(program, EXIT_SUCCESS);
}

/* Start */

static void on_service_started(void *context, struct error *err) {
  struct program *program = context;
  struct error *own = NULL;
  if (program->phase == PHASE_STOPPING) { /* a signal came first */
    error_free(&err);
    return;
  }
  if (err || acceptor_start(program->acceptor, &own) < 0) {
    log_write(LOG_ERROR, "start_failed", LOG_REASON(err ? err : own), LOG_DETAIL(err ? err : own));
    error_free(&err);
    error_free(&own);
    begin_stop(program, EXIT_FAILURE);
    return;
  }
  program->phase = PHASE_SERVING;
  health_changed(program->health);
  log_write(LOG_INFO, "started", LOG_TEXT("version", PLATFORM_VERSION), LOG_TEXT("backend", program->settings.backend));
}

static bool is_ready(void *context) {
  struct program *program = context;
  return program->phase == PHASE_SERVING && lease_service_ready(program->service);
}

static int ring_make(struct program *program, struct error **err) {
  const char *secrets = program->settings.consumer_secrets;
  program->ring = key_ring_parse(secrets, strlen(secrets), err);
  return program->ring ? 0 : error_context(err, "SANDBOX_CONSUMER_SECRETS");
}

static int backend_make(struct program *program, const struct program_backend *backends, struct error **err) {
  for (const struct program_backend *backend = backends; backend->name; backend++) {
    if (strcmp(backend->name, program->settings.backend) != 0)
      continue;
    if (!backend->make)
      return error_set_detail(err, REASON_INTERNAL, "SANDBOX_BACKEND: this build does not have the %s backend yet",
                              backend->name);
    program->backend = backend->make(&program->loop, program->config, err);
    return program->backend ? 0 : -1;
  }
  CLEANUP_BUFFER struct buffer names;
  buffer_init(&names, NAMES_MAX_BYTES);
  for (const struct program_backend *backend = backends; backend->name; backend++)
    buffer_append_format(&names, "%s%s", names.length > 0 ? ", " : "", backend->name);
  return error_set_detail(err, REASON_INTERNAL, "SANDBOX_BACKEND must be one of: %s", buffer_text(&names));
}

static int acceptor_make(struct program *program, struct error **err) {
  struct acceptor_service services[] = {
      {.context = program->service}, {.context = program->health}, {.context = program->reflection}};
  services[0].methods = lease_service_methods(&services[0].count);
  services[1].methods = health_methods(&services[1].count);
  services[2].methods = reflection_methods(&services[2].count);
  program->acceptor = acceptor_new(&(struct acceptor_options){.loop = &program->loop,
                                                              .ring = program->ring,
                                                              .services = services,
                                                              .service_count = sizeof services / sizeof services[0],
                                                              .threads = program->settings.threads},
                                   err);
  return program->acceptor ? 0 : -1;
}

static int parts_make(struct program *program, const struct program_backend *backends, struct error **err) {
  if (server_settings_read(&program->settings, program->config, err) < 0)
    return -1;
  log_set_level(program->settings.log_level);
  if (ring_make(program, err) < 0 || backend_make(program, backends, err) < 0)
    return -1;
  program->service = lease_service_new(&program->loop, program->backend, program->config, err);
  if (!program->service)
    return -1;
  program->health = health_new(is_ready, program, err);
  program->reflection = program->health ? reflection_new(err) : NULL;
  if (!program->reflection || acceptor_make(program, err) < 0)
    return -1;
  program->listeners = listeners_new();
  if (!program->listeners)
    return error_set_memory(err);
  return listeners_open(program->listeners, program->acceptor, &program->settings, err);
}

static void parts_free(struct program *program) {
  if (program->service)
    lease_service_free(program->service);
  if (program->backend)
    program->backend->operations->free(program->backend);
  health_free(program->health);
  reflection_free(program->reflection);
  listeners_free(program->listeners);
  key_ring_free(program->ring);
  config_free(program->config);
}

/* Ten thousand connections are ten thousand descriptors. */
static void raise_descriptor_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
    return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

static void watch_signals(struct program *program) {
  static const int numbers[] = {SIGTERM, SIGINT};
  signal(SIGPIPE, SIG_IGN);
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    uv_signal_init(&program->loop, &program->signals[i]);
    program->signals[i].data = program;
    uv_signal_start(&program->signals[i], on_signal, numbers[i]);
  }
  uv_timer_init(&program->loop, &program->last_timer);
  program->last_timer.data = program;
}

static int serve(const char *config_path, const struct program_backend *backends) {
  struct program program = {.exit_code = EXIT_FAILURE};
  CLEANUP_ERROR struct error *err = NULL;
  if (uv_loop_init(&program.loop) < 0) {
    fprintf(stderr, "lease-server: cannot make an event loop\n");
    return EXIT_FAILURE;
  }
  watch_signals(&program);
  program.config = config_load(config_path, &err);
  if (program.config && parts_make(&program, backends, &err) == 0) {
    lease_service_start(program.service, on_service_started, &program);
  } else {
    fprintf(stderr, "lease-server: %s\n", error_detail(err));
    acceptor_free(program.acceptor);
    close_handles(&program);
  }
  uv_run(&program.loop, UV_RUN_DEFAULT);
  parts_free(&program);
  uv_run(&program.loop, UV_RUN_DEFAULT); /* for handles that close while their owners are freed */
  uv_loop_close(&program.loop);
  if (program.phase == PHASE_STOPPING)
    log_write(LOG_INFO, "stopped", LOG_NUMBER("exit_code", program.exit_code));
  return program.exit_code;
}

/* --end-leases */

static void on_leases_ended(void *context, size_t ended, size_t failed, struct error *err) {
  struct program *program = context;
  if (err)
    log_write(LOG_ERROR, "start_failed", LOG_REASON(err), LOG_DETAIL(err));
  log_write(LOG_INFO, "leases_ended", LOG_NUMBER("ended", ended), LOG_NUMBER("failed", failed));
  program->exit_code = err || failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int ending_start(struct program *program, const char *config_path, const struct program_backend *backends,
                        struct error **err) {
  program->config = config_load(config_path, err);
  if (!program->config || config_text(program->config, "SANDBOX_BACKEND", NULL, &program->settings.backend, err) < 0 ||
      backend_make(program, backends, err) < 0)
    return -1;
  return end_leases_start(program->backend, on_leases_ended, program, err);
}

static int end_all_leases(const char *config_path, const struct program_backend *backends) {
  struct program program = {.exit_code = EXIT_FAILURE};
  CLEANUP_ERROR struct error *err = NULL;
  if (uv_loop_init(&program.loop) < 0) {
    fprintf(stderr, "lease-server: cannot make an event loop\n");
    return EXIT_FAILURE;
  }
  if (ending_start(&program, config_path, backends, &err) < 0)
    fprintf(stderr, "lease-server: %s\n", error_detail(err));
  uv_run(&program.loop, UV_RUN_DEFAULT);
  parts_free(&program);
  uv_run(&program.loop, UV_RUN_DEFAULT); /* for handles that close while their owner is freed */
  uv_loop_close(&program.loop);
  return program.exit_code;
}

int program_run(int argc, char **argv, const struct program_backend *backends) {
  static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                          {"end-leases", no_argument, NULL, 'e'},
                                          {"help", no_argument, NULL, 'h'},
                                          {"version", no_argument, NULL, 'v'},
                                          {NULL, 0, NULL, 0}};
  const char *config_path = NULL;
  bool ending = false;
  for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    switch (option) {
    case 'c':
      config_path = optarg;
      break;
    case 'e':
      ending = true;
      break;
    case 'h':
      fputs(USAGE, stdout);
      return EXIT_SUCCESS;
    case 'v':
      puts("lease-server " PLATFORM_VERSION);
      return EXIT_SUCCESS;
    default:
      fputs("Try lease-server --help\n", stderr);
      return EXIT_USAGE;
    }
  }
  if (optind < argc) {
    fprintf(stderr, "lease-server: unexpected argument %s\nTry lease-server --help\n", argv[optind]);
    return EXIT_USAGE;
  }
  raise_descriptor_limit();
  if (ending)
    return end_all_leases(config_path, backends);
  rpc_log_install();
  rpc_library_init();
  int code = serve(config_path, backends);
  grpc_shutdown();
  return code;
}
