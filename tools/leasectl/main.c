/*
 * leasectl: the platform from a shell, over the public gRPC API. Options before the subcommand are common to all.
 */
#include "base/error.h"
#include "tools/leasectl/commands.h"
#include "tools/leasectl/output.h"
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION "0.1.0"

struct command {
  const char *name, *arguments, *help;
  int (*run)(struct invocation *invocation, int count, char **arguments);
  bool connects;
  void (*prepare)(void); /* before any thread is made; may be NULL */
};

static const struct command commands[] = {
    {"acquire", "[--pool POOL] [--ttl SECONDS] [--key KEY]", "acquire a Lease and print its id", command_acquire, true, NULL},
    {"list", "[--pool POOL]", "list this Subject's active Leases", command_list, true, NULL},
    {"get", "LEASE", "show one Lease", command_get, true, NULL},
    {"exec", "[--cwd DIR] [--env NAME=VALUE] [--timeout SECONDS] [-i | -n] LEASE [--] COMMAND…",
     "run a command; ends with its exit code", command_exec, true, command_exec_prepare},
    {"cp", "FILE LEASE:PATH | LEASE:PATH FILE", "copy one file into a sandbox or out of it", command_copy, true, NULL},
    {"release", "LEASE", "end a Lease and show it", command_release, true, NULL},
    {"delete", "LEASE", "end a Lease", command_delete, true, NULL},
    {"token", "[--lifetime SECONDS]", "mint a Subject token and print it", command_token, false, NULL},
};

static void help_print(FILE *to)
{
  fputs("usage: leasectl [OPTION…] COMMAND [ARGUMENT…]\n\nCommands:\n", to);
  for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
    fprintf(to, "  %-8s %s\n           %s\n", commands[i].name, commands[i].arguments, commands[i].help);
  fputs("\nOptions (else from the environment, else from .sandbox-platform/local.json here or above):\n"
        "  --address ADDRESS    unix:/path or host:port           SANDBOX_GRPC_ADDRESS\n"
        "  --consumer ID        who calls …                       SANDBOX_CONSUMER_ID\n"
        "  --subject ID         … for whom                        SANDBOX_SUBJECT_ID\n"
        "                       the Consumer's secret             SANDBOX_CONSUMER_SECRET\n"
        "  --token TOKEN        a ready token instead             SANDBOX_TOKEN\n"
        "  --tls-ca FILE        verify the server by TLS          SANDBOX_GRPC_TLS_CA\n"
        "  --tls-cert FILE, --tls-key FILE   client certificate   SANDBOX_GRPC_TLS_CERT, SANDBOX_GRPC_TLS_KEY\n"
        "  --json               print JSON\n"
        "  --help, --version\n",
        to);
}

int usage_error(const char *command, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "leasectl %s: ", command);
  vfprintf(stderr, format, arguments);
  fputs("\nSee `leasectl --help`.\n", stderr);
  va_end(arguments);
  return 2;
}

int number_parse(const char *text, long minimum, long maximum, long *number)
{
  char *end;
  errno = 0;
  long value = text[0] >= '0' && text[0] <= '9' ? strtol(text, &end, 10) : -1;
  if (value < minimum || value > maximum || errno || *end)
    return -1;
  *number = value;
  return 0;
}

static const struct command *command_find(const char *name)
{
  for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
    if (strcmp(commands[i].name, name) == 0)
      return &commands[i];
  return NULL;
}

static int command_run(const struct command *command, const struct settings_options *options, bool json, int count,
                       char **arguments)
{
  struct settings settings = {0};
  CLEANUP_ERROR struct error *err = NULL;
  if (command->prepare)
    command->prepare();
  struct invocation invocation = {.settings = &settings, .json = json};
  int status;
  if (settings_load(&settings, options, &err) < 0 ||
      (command->connects && !(invocation.connection = connection_open(&settings, &err))))
    status = output_failure(err, json);
  else {
    optind = 0; /* getopt starts anew, on the command's own arguments */
    status = command->run(&invocation, count, arguments);
  }
  connection_close(invocation.connection);
  settings_free(&settings);
  return status;
}

int main(int argc, char **argv)
{
  enum { ADDRESS = 256, CONSUMER, SUBJECT, TOKEN, CA, CERTIFICATE, KEY, JSON, HELP, VERSION_OPTION };
  static const struct option known[] = {
      {"address", required_argument, NULL, ADDRESS}, {"consumer", required_argument, NULL, CONSUMER},
      {"subject", required_argument, NULL, SUBJECT}, {"token", required_argument, NULL, TOKEN},
      {"tls-ca", required_argument, NULL, CA},       {"tls-cert", required_argument, NULL, CERTIFICATE},
      {"tls-key", required_argument, NULL, KEY},     {"json", no_argument, NULL, JSON},
      {"help", no_argument, NULL, HELP},             {"version", no_argument, NULL, VERSION_OPTION},
      {0}};
  struct settings_options options = {0};
  const char **const values[] = {&options.address, &options.consumer, &options.subject, &options.token,
                                 &options.ca,      &options.certificate, &options.key};
  bool json = false;
  for (int option; (option = getopt_long(argc, argv, "+h", known, NULL)) != -1;) {
    if (option >= ADDRESS && option <= KEY)
      *values[option - ADDRESS] = optarg;
    else if (option == JSON)
      json = true;
    else if (option == HELP || option == 'h') {
      help_print(stdout);
      return 0;
    } else if (option == VERSION_OPTION)
      return puts("leasectl " VERSION) < 0;
    else {
      help_print(stderr);
      return 2;
    }
  }
  if (optind == argc) {
    help_print(stderr);
    return 2;
  }
  const struct command *command = command_find(argv[optind]);
  if (!command)
    return usage_error(argv[optind], "no such command");
  return command_run(command, &options, json, argc - optind, argv + optind);
}
