/*
 * Configuration: environment variables, `<NAME>_FILE` for values kept in files, and a JSON file whose members have the
 * same names (a string, a number, or for JSON-valued settings the JSON itself). The environment wins over the file; a
 * name and its `_FILE` form set in the same place are an error. A bad value is one line that names the variable and
 * what it must be; a secret's value is never shown. Thread: one, at start.
 */
#ifndef BASE_CONFIG_H
#define BASE_CONFIG_H

#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

struct config;

/* path: the --config file, or NULL. Returns NULL and *err for an unreadable or malformed file; the detail is the line
 * to print. */
struct config *config_load(const char *path, struct error **err);
/* Wipes values. */
void config_free(struct config *config);

/* Strings belong to the config. Each returns 0, or -1 and *err whose detail is the line to print. */
/* fallback NULL: the setting is required. An empty value counts as missing. A newline at the end of a _FILE is
 * dropped. */
int config_text(struct config *config, const char *name, const char *fallback, const char **value, struct error **err);
/* *value NULL if it is not set. */
int config_optional(struct config *config, const char *name, const char **value, struct error **err);
int config_integer(struct config *config, const char *name, int64_t fallback, int64_t minimum, int64_t maximum,
                   int64_t *value, struct error **err);
/* "true" or "false". */
int config_boolean(struct config *config, const char *name, bool fallback, bool *value, struct error **err);
/* Nanoseconds. */
int config_duration(struct config *config, const char *name, int64_t fallback, int64_t minimum, int64_t maximum,
                    int64_t *value, struct error **err);
/* One of the choices (NULL-terminated); *index is its place. fallback NULL: required. */
int config_choice(struct config *config, const char *name, const char *fallback, const char *const *choices, int *index,
                  struct error **err);

#endif
