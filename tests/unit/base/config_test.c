#include "base/clock.h"
#include "base/config.h"
#include "base/memory.h"
#include "tests/unit/base/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/config_test.XXXXXX";
static const char *const names[] = {"CT_A", "CT_A_FILE", "CT_B"};

static int make_folder(void **state) {
  (void)state;
  return mkdtemp(folder) == NULL ? -1 : 0;
}

static void path_of(const char *name, char path[static 200]) {
  snprintf(path, 200, "%s/%s", folder, name);
}

static int drop_folder(void **state) {
  (void)state;
  char path[200];
  path_of("config", path);
  unlink(path);
  path_of("value", path);
  unlink(path);
  return rmdir(folder);
}

static int clear_environment(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(names); i++)
    unsetenv(names[i]);
  return 0;
}

static void write_file(const char *name, const char *text, size_t length, char path[static 200]) {
  path_of(name, path);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, length, file), length);
  assert_int_equal(fclose(file), 0);
}

static struct config *load(const char *json) {
  char path[200];
  struct error *err CLEANUP_ERROR = NULL;
  write_file("config", json, strlen(json), path);
  struct config *config = config_load(path, &err);
  if (config == NULL)
    fail_msg("%s", error_detail(err));
  return config;
}

#define CLEANUP_CONFIG __attribute__((cleanup(cleanup_config)))
static void cleanup_config(struct config **config) {
  config_free(*config);
}

static void assert_detail(struct error **err, const char *detail) {
  assert_int_equal(error_reason(*err), REASON_INTERNAL);
  assert_string_equal(error_detail(*err), detail);
  error_free(err);
}

static void test_order_of_sources(void **state) {
  (void)state;
  struct error *err CLEANUP_ERROR = NULL;
  const char *value;
  char path[200], json[400];
  CLEANUP_CONFIG struct config *config = load("{\"CT_A\":\"member\",\"CT_A\":\"last member\"}");
  assert_int_equal(config_text(config, "CT_A", "fallback", &value, &err), 0);
  assert_string_equal(value, "last member");
  write_file("value", BYTES("from file\n"), path);
  setenv("CT_A_FILE", path, 1);
  assert_int_equal(config_text(config, "CT_A", "fallback", &value, &err), 0);
  assert_string_equal(value, "from file");
  setenv("CT_A_FILE", "", 1);
  setenv("CT_A", "environment", 1);
  assert_int_equal(config_text(config, "CT_A", "fallback", &value, &err), 0);
  assert_string_equal(value, "environment");
  setenv("CT_A", "", 1);
  assert_int_equal(config_text(config, "CT_A", "fallback", &value, &err), 0);
  assert_string_equal(value, "last member");
  snprintf(json, sizeof json, "{\"CT_A_FILE\":\"%s\",\"CT_A\":null,\"CT_B\":\"\"}", path);
  CLEANUP_CONFIG struct config *by_file = load(json);
  assert_int_equal(config_text(by_file, "CT_A", NULL, &value, &err), 0);
  assert_string_equal(value, "from file");
  assert_int_equal(config_text(by_file, "CT_B", "fallback", &value, &err), 0);
  assert_string_equal(value, "fallback");
}

static void test_two_sources_of_one_rank(void **state) {
  (void)state;
  struct error *err CLEANUP_ERROR = NULL;
  const char *value;
  CLEANUP_CONFIG struct config *config = load("{\"CT_A\":\"x\",\"CT_A_FILE\":\"/nowhere\"}");
  assert_int_equal(config_optional(config, "CT_A", &value, &err), -1);
  assert_detail(&err, "CT_A and CT_A_FILE are both set in the --config file: set one of them");
  setenv("CT_A", "secret", 1);
  setenv("CT_A_FILE", "/nowhere", 1);
  assert_int_equal(config_optional(config, "CT_A", &value, &err), -1);
  assert_detail(&err, "CT_A and CT_A_FILE are both set in the environment: set one of them");
}

static void test_missing(void **state) {
  (void)state;
  struct error *err CLEANUP_ERROR = NULL;
  const char *value = "x";
  CLEANUP_CONFIG struct config *config = config_load(NULL, &err);
  assert_int_equal(config_optional(config, "CT_A", &value, &err), 0);
  assert_null(value);
  assert_int_equal(config_text(config, "CT_A", NULL, &value, &err), -1);
  assert_detail(&err, "CT_A is required: set it, or CT_A_FILE to a file that holds it");
}

static void test_json_values(void **state) {
  (void)state;
  struct error *err CLEANUP_ERROR = NULL;
  static const struct {
    const char *json, *value;
  } cases[] = {{"{\"CT_A\":{ \"a\" : [\"x\", 1.50] }}", "{\"a\":[\"x\",1.50]}"},
               {"{\"CT_A\":[]}", "[]"},
               {"{\"CT_A\":12}", "12"},
               {"{\"CT_A\":true}", "true"},
               {"{\"CT_A\":\"\\u00e4\"}", "\xc3\xa4"},
               {"{\"CT_A\":\"null\"}", "null"}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    const char *value;
    CLEANUP_CONFIG struct config *config = load(cases[i].json);
    assert_int_equal(config_text(config, "CT_A", NULL, &value, &err), 0);
    assert_string_equal(value, cases[i].value);
  }
}

static void test_files_of_values(void **state) {
  (void)state;
  struct error *err CLEANUP_ERROR = NULL;
  static const struct {
    const char *bytes;
    size_t length;
    const char *value;
  } cases[] = {{BYTES("secret"), "secret"},
               {BYTES("secret\n"), "secret"},
               {BYTES("secret\r\n"), "secret"},
               {BYTES("secret\n\n"), "secret\n"},
               {BYTES("secret \n"), "secret "},
               {BYTES("secret\r"), "secret\r"},
               {BYTES("\n"), NULL},
               {BYTES("\r\n"), NULL},
               {BYTES(""), NULL}};
  char path[200];
  CLEANUP_CONFIG struct config *config = config_load(NULL, &err);
  path_of("value", path);
  setenv("CT_A_FILE", path, 1);
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    const char *value;
    write_file("value", cases[i].bytes, cases[i].length, path);
    assert_int_equal(config_optional(config, "CT_A", &value, &err), 0);
    if (cases[i].value == NULL)
      assert_null(value);
    else
      assert_string_equal(value, cases[i].value);
  }
  const char *value;
  write_file("value", BYTES("se\0cret"), path);
  assert_int_equal(config_optional(config, "CT_A", &value, &err), -1);
  assert_detail(&err, "CT_A_FILE must not contain U+0000");
  setenv("CT_A_FILE", "/nowhere/at/all", 1);
  assert_int_equal(config_optional(config, "CT_A", &value, &err), -1);
  assert_detail(&err, "CT_A_FILE: cannot open /nowhere/at/all: No such file or directory");
  setenv("CT_A_FILE", "/", 1);
  assert_int_equal(config_optional(config, "CT_A", &value, &err), -1);
  assert_detail(&err, "CT_A_FILE: cannot read /: Is a directory");
  setenv("CT_A_FILE", "/dev/zero", 1);
  assert_int_equal(config_optional(config, "CT_A", &value, &err), -1);
  assert_detail(&err, "CT_A_FILE: /dev/zero must have at most 1048576 bytes");
}

static void test_bad_config_files(void **state) {
  (void)state;
  struct error *err CLEANUP_ERROR = NULL;
  char path[200], wanted[400];
  assert_null(config_load("/nowhere/config.json", &err));
  assert_detail(&err, "--config: cannot open /nowhere/config.json: No such file or directory");
  write_file("config", BYTES("{\"CT_A\":\n \"secret}"), path);
  assert_null(config_load(path, &err));
  snprintf(wanted, sizeof wanted, "--config: %s: not valid JSON at line 2, column 10", path);
  assert_detail(&err, wanted);
  write_file("config", BYTES("[\"secret\"]"), path);
  assert_null(config_load(path, &err));
  snprintf(wanted, sizeof wanted, "--config: %s must hold a JSON object", path);
  assert_detail(&err, wanted);
  write_file("config", BYTES("{\"CT_A\":\"a\\u0000b\"}"), path);
  CLEANUP_CONFIG struct config *config = config_load(path, &err);
  const char *value;
  assert_int_equal(config_optional(config, "CT_A", &value, &err), -1);
  assert_detail(&err, "CT_A must not contain U+0000");
}

static void test_integers(void **state) {
  (void)state;
  struct error *err CLEANUP_ERROR = NULL;
  CLEANUP_CONFIG struct config *config = load("{\"CT_B\":7}");
  int64_t value = 0;
  assert_int_equal(config_integer(config, "CT_A", 42, -5, 10, &value, &err), 0);
  assert_true(value == 42);
  assert_int_equal(config_integer(config, "CT_B", 42, -5, 10, &value, &err), 0);
  assert_true(value == 7);
  setenv("CT_A", "-5", 1);
  assert_int_equal(config_integer(config, "CT_A", 42, -5, 10, &value, &err), 0);
  assert_true(value == -5);
  static const char *const bad[] = {"-6", "11",  "1.0", "1e0", " 1",  "1 ",
                                    "+1", "0x1", "x",   "-",   "--1", "99999999999999999999"};
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    setenv("CT_A", bad[i], 1);
    assert_int_equal(config_integer(config, "CT_A", 42, -5, 10, &value, &err), -1);
    assert_detail(&err, "CT_A must be an integer between -5 and 10");
    assert_true(value == -5);
  }
}

static void test_booleans(void **state) {
  (void)state;
  struct error *err CLEANUP_ERROR = NULL;
  CLEANUP_CONFIG struct config *config = load("{\"CT_B\":false}");
  bool value = false;
  assert_int_equal(config_boolean(config, "CT_A", true, &value, &err), 0);
  assert_true(value);
  assert_int_equal(config_boolean(config, "CT_B", true, &value, &err), 0);
  assert_false(value);
  setenv("CT_A", "true", 1);
  assert_int_equal(config_boolean(config, "CT_A", false, &value, &err), 0);
  assert_true(value);
  setenv("CT_A", "yes", 1);
  assert_int_equal(config_boolean(config, "CT_A", false, &value, &err), -1);
  assert_detail(&err, "CT_A must be true or false");
}

static void test_durations(void **state) {
  (void)state;
  struct error *err CLEANUP_ERROR = NULL;
  CLEANUP_CONFIG struct config *config = load("{\"CT_B\":\"1m30s\"}");
  const int64_t least = 500 * CLOCK_MILLISECOND, most = 5400 * CLOCK_SECOND;
  int64_t value = 0;
  assert_int_equal(config_duration(config, "CT_A", 42, least, most, &value, &err), 0);
  assert_true(value == 42);
  assert_int_equal(config_duration(config, "CT_B", 42, least, most, &value, &err), 0);
  assert_true(value == 90 * CLOCK_SECOND);
  static const char *const bad[] = {"499ms", "2h", "90", "1.5s", "forever"};
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    setenv("CT_A", bad[i], 1);
    assert_int_equal(config_duration(config, "CT_A", 42, least, most, &value, &err), -1);
    assert_detail(&err, "CT_A must be a duration such as 90s or 1m30s, between 500ms and 1h30m");
  }
  assert_int_equal(config_duration(config, "CT_A", 42, 0, CLOCK_MILLISECOND, &value, &err), -1);
  assert_detail(&err, "CT_A must be a duration such as 90s or 1m30s, between 0s and 1ms");
}

static void test_choices(void **state) {
  (void)state;
  struct error *err CLEANUP_ERROR = NULL;
  static const char *const choices[] = {"kubernetes", "local", NULL};
  CLEANUP_CONFIG struct config *config = load("{\"CT_B\":\"kubernetes\"}");
  int index = -1;
  assert_int_equal(config_choice(config, "CT_A", "local", choices, &index, &err), 0);
  assert_int_equal(index, 1);
  assert_int_equal(config_choice(config, "CT_B", NULL, choices, &index, &err), 0);
  assert_int_equal(index, 0);
  assert_int_equal(config_choice(config, "CT_A", NULL, choices, &index, &err), -1);
  assert_detail(&err, "CT_A is required and must be one of: kubernetes, local");
  setenv("CT_A", "Local", 1);
  assert_int_equal(config_choice(config, "CT_A", "local", choices, &index, &err), -1);
  assert_detail(&err, "CT_A must be one of: kubernetes, local");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_order_of_sources, clear_environment),
      cmocka_unit_test_setup(test_two_sources_of_one_rank, clear_environment),
      cmocka_unit_test_setup(test_missing, clear_environment),
      cmocka_unit_test_setup(test_json_values, clear_environment),
      cmocka_unit_test_setup(test_files_of_values, clear_environment),
      cmocka_unit_test_setup(test_bad_config_files, clear_environment),
      cmocka_unit_test_setup(test_integers, clear_environment),
      cmocka_unit_test_setup(test_booleans, clear_environment),
      cmocka_unit_test_setup(test_durations, clear_environment),
      cmocka_unit_test_setup(test_choices, clear_environment),
  };
  return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
