/*
 * lease-gateway: the /v1 HTTP API in front of a lease-server. Stateless; run as many as needed.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/version.h"
#include "gateway/listener.h"
#include "gateway/loop.h"
#include "gateway/options.h"
#include "rpc/library.h"
#include "rpc/log.h"

#include <getopt.h>
#include <grpc/grpc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char help[] =
    "Usage: lease-gateway [--config FILE]\n"
    "\n"
    "Serves the /v1 HTTP API and calls a lease-server by gRPC.\n"
    "\n"
    "  --config FILE  JSON object with settings; environment variables win over it\n"
    "  --version      print the version\n"
    "  --help         print this\n"
    "\n"
    "Settings:\n"
    "  SANDBOX_GRPC_ADDRESS         lease-server: unix:/path or host:port (required)\n"
    "  SANDBOX_GRPC_TLS_CA          CA of the server's certificate; turns TLS on\n"
    "  SANDBOX_GRPC_TLS_CERT, _KEY  certificate and key of this client\n"
    "  SANDBOX_GRPC_TLS_NAME        name to look for in the server's certificate\n"
    "  SANDBOX_ADDRESS              host:port, several separated by commas (127.0.0.1:8787)\n"
    "  SANDBOX_TLS_CERT, _KEY       certificate chain and key of this server; turn HTTPS on\n"
    "  SANDBOX_GATEWAY_LOOPS        event loops (half the processors, at least 1)\n"
    "  SANDBOX_GATEWAY_CONNECTIONS  connections at once, of all loops (20000)\n"
    "  SANDBOX_LOG_LEVEL            debug, info, warning or error (info)\n";

/* What the command line says: 0 to go on, 1 when all is done, or -1. */
static int read_arguments(int count, char **arguments, const char **config_path) {
  static const struct option known[] = {
      {"config", required_argument, NULL, 'c'},
      {"version", no_argument, NULL, 'v'},
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  int option;
  while ((option = getopt_long(count, arguments, "", known, NULL)) != -1) {
    switch (option) {
    case 'c':
      *config_path = optarg;
      break;
    case 'v':
      puts("lease-gateway " PLATFORM_VERSION);
      return 1;
    case 'h':
      fputs(help, stdout);
      return 1;
    default:
      return -1;
    }
  }
  if (optind == count)
    return 0;
  fprintf(stderr, "lease-gateway: unexpected argument '%s'\n", arguments[optind]);
  return -1;
}

static int set_log_level(struct config *config, struct error **err) {
  static const char *const names[] = {"debug", "info", "warning", "error", NULL};
  int level;
  if (config_choice(config, "SANDBOX_LOG_LEVEL", "info", names, &level, err) < 0)
    return -1;
  log_set_level((enum log_level)level);
  return 0;
}

static void log_started(const int *listeners, int count) {
  for (int i = 0; i < count; i++) {
    char name[LISTENER_NAME_BYTES];
    listener_name(listeners[i], name);
    log_write(LOG_INFO, "gateway_listening", LOG_TEXT("address", name));
  }
}

/* SIGTERM and SIGINT are blocked in every thread and waited for in the first. */
static void block_signals(sigset_t *signals) {
  signal(SIGPIPE, SIG_IGN);
  sigemptyset(signals);
  sigaddset(signals, SIGTERM);
  sigaddset(signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, signals, NULL);
}

static void *wait_for_second_signal(void *signals) {
  int number;
  sigwait(signals, &number);
  log_write(LOG_WARNING, "gateway_killed", LOG_NUMBER("signal", number));
  _exit(1);
}

static void stop(struct loop **loops, int64_t count, sigset_t *signals) {
  pthread_t impatient;
  if (pthread_create(&impatient, NULL, wait_for_second_signal, signals) == 0)
    pthread_detach(impatient);
  for (int64_t i = 0; i < count; i++)
    loop_stop(loops[i]);
  for (int64_t i = 0; i < count; i++)
    loop_join(loops[i]);
}

static int serve(const struct options *options, sigset_t *signals, struct error **err) {
  int listeners[OPTIONS_ADDRESSES], number;
  struct loop *loops[OPTIONS_LOOPS];
  int count = listener_open_all(options->address, listeners, OPTIONS_ADDRESSES, err);
  if (count < 0)
    return -1;
  for (int64_t i = 0; i < options->loops; i++)
    if (!(loops[i] = loop_start(options, listeners, (size_t)count, err)))
      return -1;
  log_started(listeners, count);
  for (int i = 0; i < count; i++)
    close(listeners[i]);
  sigwait(signals, &number);
  log_write(LOG_INFO, "gateway_stopping", LOG_NUMBER("signal", number));
  stop(loops, options->loops, signals);
  log_write(LOG_INFO, "gateway_stopped");
  return 0;
}

static int run(struct options *options, const char *config_path, struct error **err) {
  sigset_t signals;
  if (options_read(options, config_path, err) < 0 || set_log_level(options->config, err) < 0)
    return -1;
  block_signals(&signals);
  rpc_log_install();
  rpc_library_init();
  if (serve(options, &signals, err) < 0)
    return -1;
  grpc_shutdown();
  return 0;
}

int main(int count, char **arguments) {
  const char *config_path = NULL;
  struct options options;
  struct error *err CLEANUP_ERROR = NULL;
  int result = read_arguments(count, arguments, &config_path);
  if (result != 0)
    return result < 0 ? 2 : 0;
  result = run(&options, config_path, &err);
  options_free(&options);
  if (result == 0)
    return 0;
  fprintf(stderr, "lease-gateway: %s\n", error_detail(err)[0] != '\0' ? error_detail(err) : error_message(err));
  return 1;
}
