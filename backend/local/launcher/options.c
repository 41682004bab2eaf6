/*
 * The command line of the launcher. The server writes it, so there is no help and nothing optional to be kind about;
 * but a wrong one is refused with the option's name.
 */
#include "backend/local/launcher/launch.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum {
  OPTION_RUNTIME = 1,
  OPTION_PROGRAM,
  OPTION_PLATFORM,
  OPTION_AGENT,
  OPTION_ETC,
  OPTION_EVENTS,
  OPTION_MARK,
  OPTION_LIVE,
  OPTION_JOIN,
  OPTION_PARENT,
  OPTION_UID,
  OPTION_BYTES,
  OPTION_FILES,
  OPTION_PROCESSES,
  OPTION_MEMORY
};

static const struct option options[] = {
  {"runtime", required_argument, NULL, OPTION_RUNTIME}, {"program", required_argument, NULL, OPTION_PROGRAM},
  {"platform", required_argument, NULL, OPTION_PLATFORM}, {"agent", required_argument, NULL, OPTION_AGENT},
  {"etc", required_argument, NULL, OPTION_ETC}, {"events", required_argument, NULL, OPTION_EVENTS},
  {"mark", required_argument, NULL, OPTION_MARK}, {"live", required_argument, NULL, OPTION_LIVE},
  {"join", required_argument, NULL, OPTION_JOIN}, {"parent", required_argument, NULL, OPTION_PARENT},
  {"uid", required_argument, NULL, OPTION_UID}, {"bytes", required_argument, NULL, OPTION_BYTES},
  {"files", required_argument, NULL, OPTION_FILES}, {"processes", required_argument, NULL, OPTION_PROCESSES},
  {"memory", required_argument, NULL, OPTION_MEMORY}, {NULL, 0, NULL, 0},
};

static int refuse(const char *name, struct error **err) {
  return error_set_detail(err, REASON_INVALID_REQUEST, "bad option --%s", name);
}

static int parse_number(const char *name, const char *text, uint64_t maximum, uint64_t *value, struct error **err) {
  char *end = NULL;
  errno = 0;
  if (*text < '0' || *text > '9')
    return refuse(name, err);
  unsigned long long number = strtoull(text, &end, 10);
  if (errno != 0 || *end != '\0' || number > maximum)
    return refuse(name, err);
  *value = number;
  return 0;
}

static int parse_runtime(const char *text, struct launch *launch, struct error **err) {
  if (strcmp(text, "bubblewrap") == 0)
    launch->runtime = LAUNCH_BUBBLEWRAP;
  else if (strcmp(text, "gvisor") == 0)
    launch->runtime = LAUNCH_GVISOR;
  else
    return refuse("runtime", err);
  return 0;
}

static int parse_list(const char *name, const char **list, size_t *count, size_t limit, struct error **err) {
  if (*count == limit)
    return refuse(name, err);
  list[(*count)++] = optarg;
  return 0;
}

static int parse_one(int option, const char *name, struct launch *launch, struct error **err) {
  uint64_t number = 0;
  switch (option) {
  case OPTION_RUNTIME: return parse_runtime(optarg, launch, err);
  case OPTION_PROGRAM: launch->program = optarg; return 0;
  case OPTION_PLATFORM: launch->platform = optarg; return 0;
  case OPTION_AGENT: launch->agent = optarg; return 0;
  case OPTION_ETC: launch->etc = optarg; return 0;
  case OPTION_EVENTS: launch->events = optarg; return 0;
  case OPTION_MARK: launch->mark = optarg; return 0;
  case OPTION_LIVE: return parse_list(name, launch->live, &launch->live_count, LAUNCH_LIVE, err);
  case OPTION_JOIN: return parse_list(name, launch->joins, &launch->join_count, LAUNCH_JOINS, err);
  case OPTION_PARENT:
    if (parse_number(name, optarg, INT32_MAX, &number, err) != 0)
      return -1;
    launch->parent = (pid_t)number;
    return 0;
  case OPTION_UID:
    if (parse_number(name, optarg, UINT32_MAX - 1, &number, err) != 0)
      return -1;
    launch->uid = (uid_t)number;
    return 0;
  case OPTION_BYTES: return parse_number(name, optarg, UINT64_MAX, &launch->bytes, err);
  case OPTION_FILES: return parse_number(name, optarg, UINT64_MAX / 2, &launch->files, err);
  case OPTION_PROCESSES: return parse_number(name, optarg, UINT32_MAX, &launch->processes, err);
  case OPTION_MEMORY: return parse_number(name, optarg, UINT64_MAX, &launch->memory, err);
  default: return error_set_detail(err, REASON_INVALID_REQUEST, "unknown option or missing value");
  }
}

int launch_parse(int count, char **arguments, struct launch *launch, struct error **err) {
  *launch = (struct launch){.mark = "sandbox"};
  opterr = 0;
  for (int index = 0, option; (option = getopt_long(count, arguments, "", options, &index)) != -1;)
    if (parse_one(option, options[index].name, launch, err) != 0)
      return -1;
  if (optind != count)
    return error_set_detail(err, REASON_INVALID_REQUEST, "an argument that is no option");
  if (launch->program == NULL)
    return refuse("program", err);
  if (launch->agent == NULL)
    return refuse("agent", err);
  if (launch->etc == NULL)
    return refuse("etc", err);
  if (launch->parent == 0)
    return refuse("parent", err);
  if (launch->bytes == 0)
    return refuse("bytes", err);
  if (launch->files == 0)
    return refuse("files", err);
  return 0;
}
