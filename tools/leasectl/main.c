/*
 * leasectl: the platform from a shell, over the public gRPC API. A command's own options stand behind its name; those
 * common to all stand anywhere.
 */
#include "base/error.h"
#include "base/version.h"
#include "tools/leasectl/commands.h"
#include "tools/leasectl/output.h"
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct command {
  const char *name, *arguments, *help;
  int (*run)(struct invocation *invocation, int count, char **arguments);
};

static const struct command commands[] = {
    {"acquire", "[--pool POOL] [--ttl SECONDS] [--key KEY]", "acquire a Lease and print its id", command_acquire},
    {"list", "[--pool POOL]", "list this Subject's active Leases", command_list},
    {"get", "LEASE", "show one Lease", command_get},
    {"exec", "[--cwd DIR] [--env NAME=VALUE] [--timeout SECONDS] [-i | -n] LEASE [--] COMMAND…",
     "run a command; ends with its exit code", command_exec},
    {"cp", "FILE LEASE:PATH | LEASE:PATH FILE", "copy one file into a sandbox or out of it", command_copy},
    {"release", "LEASE", "end a Lease and show it", command_release},
    {"delete", "LEASE", "end a Lease", command_delete},
    {"token", "[--lifetime SECONDS]", "mint a Subject token and print it", command_token},
};

static void help_print(FILE *to) {
  fputs("usage: leasectl [OPTION…] COMMAND [ARGUMENT…]\n\nCommands:\n", to);
  for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
    fprintf(to, "  %-8s %s\n           %s\n", commands[i].name, commands[i].arguments, commands[i].help);
  fputs(
      "\nOptions of every command (else from the environment, else from .sandbox-platform/local.json here or above):\n"
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

int usage_refused(void) {
  fputs("See `leasectl --help`.\n", stderr);
  return 2;
}

int usage_error(const char *command, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "leasectl %s: ", command);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  return usage_refused();
}

int number_parse(const char *text, long minimum, long maximum, long *number) {
  char *end;
  errno = 0;
  long value = text[0] >= '0' && text[0] <= '9' ? strtol(text, &end, 10) : -1;
  if (value < minimum || value > maximum || errno || *end)
    return -1;
  *number = value;
  return 0;
}

static const struct command *command_find(const char *name) {
  for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
    if (strcmp(commands[i].name, name) == 0)
      return &commands[i];
  return NULL;
}

bool invocation_option(struct invocation *invocation, int option) {
  struct settings_options *options = &invocation->options;
  const char **const values[] = {&options->address, &options->consumer,    &options->subject, &options->token,
                                 &options->ca,      &options->certificate, &options->key};
  if (option >= COMMON_ADDRESS && option <= COMMON_KEY)
    *values[option - COMMON_ADDRESS] = optarg;
  else if (option == COMMON_JSON)
    invocation->json = true;
  else if (option == COMMON_HELP) {
    help_print(stdout);
    exit(fflush(stdout) == 0 ? 0 : 1);
  } else
    return false;
  return true;
}

int invocation_settle(struct invocation *invocation, struct error **err) {
  return settings_load(&invocation->settings, &invocation->options, err);
}

int invocation_connect(struct invocation *invocation, struct error **err) {
  if (invocation_settle(invocation, err) < 0)
    return -1;
  invocation->connection = connection_open(&invocation->settings, err);
  return invocation->connection ? 0 : -1;
}

static int command_run(const struct command *command, struct invocation *invocation, int count, char **arguments) {
  optind = 0; /* getopt starts anew, on the command's own arguments */
  int status = command->run(invocation, count, arguments);
  connection_close(invocation->connection);
  settings_free(&invocation->settings);
  if (fflush(stdout) != 0 || ferror(stdout)) {
    perror("leasectl: standard output");
    return status ? status : 1;
  }
  return status;
}

int main(int argc, char **argv) {
  enum { VERSION = 1 };
  static const struct option known[] = {{"version", no_argument, NULL, VERSION}, COMMON_OPTIONS};
  struct invocation invocation = {.json = false};
  for (int option; (option = getopt_long(argc, argv, "+", known, NULL)) != -1;) {
    if (option == VERSION)
      return puts("leasectl " PLATFORM_VERSION) < 0;
    if (!invocation_option(&invocation, option))
      return usage_refused();
  }
  if (optind == argc) {
    help_print(stderr);
    return 2;
  }
  const struct command *command = command_find(argv[optind]);
  if (!command)
    return usage_error(argv[optind], "no such command");
  return command_run(command, &invocation, argc - optind, argv + optind);
}
