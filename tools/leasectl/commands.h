/*
 * The subcommands of leasectl. Each gets its own arguments (arguments[0] is its name) and returns the exit status: 0,
 * 1 when the platform refused or failed, 2 for wrong usage; `exec` returns the command's own code, or 125 when
 * the command could not be run to its end.
 */
#ifndef LEASECTL_COMMANDS_H
#define LEASECTL_COMMANDS_H

#include "base/error.h"
#include "tools/leasectl/call.h"
#include "tools/leasectl/settings.h"
#include <stdbool.h>

struct invocation {
  struct settings_options options; /* as given on the command line */
  struct settings settings;        /* once invocation_settle was called */
  struct connection *connection;   /* once invocation_connect was called */
  bool json;
};

/* Options that every command knows, before its name and behind it: they end each command's table of options. */
enum common_option {
  COMMON_ADDRESS = 256,
  COMMON_CONSUMER,
  COMMON_SUBJECT,
  COMMON_TOKEN,
  COMMON_CA,
  COMMON_CERTIFICATE,
  COMMON_KEY,
  COMMON_JSON,
  COMMON_HELP,
};
#define COMMON_OPTIONS                                                                                                 \
  {"address", required_argument, NULL, COMMON_ADDRESS}, {"consumer", required_argument, NULL, COMMON_CONSUMER},        \
      {"subject", required_argument, NULL, COMMON_SUBJECT}, {"token", required_argument, NULL, COMMON_TOKEN},          \
      {"tls-ca", required_argument, NULL, COMMON_CA}, {"tls-cert", required_argument, NULL, COMMON_CERTIFICATE},       \
      {"tls-key", required_argument, NULL, COMMON_KEY}, {"json", no_argument, NULL, COMMON_JSON},                      \
      {"help", no_argument, NULL, COMMON_HELP}, {                                                                      \
    0                                                                                                                  \
  }
/* Takes such an option, whose value is getopt's optarg; --help prints and ends the program. False if it is another one.
 */
bool invocation_option(struct invocation *invocation, int option);

/* Reads the settings; opens the connection too. For a command, when it knows all its options. 0, or -1 and *err. */
int invocation_settle(struct invocation *invocation, struct error **err);
int invocation_connect(struct invocation *invocation, struct error **err);

int command_acquire(struct invocation *invocation, int count, char **arguments);
int command_list(struct invocation *invocation, int count, char **arguments);
int command_get(struct invocation *invocation, int count, char **arguments);
int command_release(struct invocation *invocation, int count, char **arguments);
int command_delete(struct invocation *invocation, int count, char **arguments);
int command_token(struct invocation *invocation, int count, char **arguments);
int command_exec(struct invocation *invocation, int count, char **arguments);
int command_copy(struct invocation *invocation, int count, char **arguments);

/* "leasectl: <text>" and where to read more, on standard error. Returns 2. */
int usage_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Where to read more alone, as getopt has said what is wrong with an option. Returns 2. */
int usage_refused(void);
/* A whole decimal number in [minimum, maximum]: 0, or -1. */
int number_parse(const char *text, long minimum, long maximum, long *number);

#endif
