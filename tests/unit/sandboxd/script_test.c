/* Shell text from a RunStart, run by the real shell. */
#include "backend/sandboxd/script.h"

#include "base/limits.h"
#include "tests/unit/sandboxd/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static uint8_t id[16];

static Sandbox__Agent__V1__RunStart start_of(const char *cwd, const char *command) {
  Sandbox__Agent__V1__RunStart start = SANDBOX__AGENT__V1__RUN_START__INIT;
  start.id.data = id;
  start.id.len = sizeof id;
  start.cwd = (char *)(uintptr_t)cwd;
  start.command = (char *)(uintptr_t)command;
  return start;
}

/* Runs the text as a command is run; returns the exit code and what came out, standard error included. */
static int run(const char *text, char *out, size_t size) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  pid_t pid = fork();
  if (!pid) {
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    close(ends[0]);
    close(ends[1]);
    execl("/bin/sh", "sh", "-lc", text, (char *)NULL);
    _exit(126);
  }
  close(ends[1]);
  size_t length = 0;
  for (ssize_t got; length < size - 1 && (got = read(ends[0], out + length, size - 1 - length)) > 0;)
    length += (size_t)got;
  out[length] = 0;
  close(ends[0]);
  int status;
  waitpid(pid, &status, 0);
  return WEXITSTATUS(status);
}

static int build_and_run(const Sandbox__Agent__V1__RunStart *start, char *out, size_t size) {
  CLEANUP_BUFFER struct buffer text;
  buffer_init(&text, SCRIPT_LIMIT);
  assert_int_equal(script_build(start, &text, NULL), 0);
  return run(buffer_text(&text), out, size);
}

static void runs_the_command_in_its_directory(void **state) {
  char out[256];
  (void)state;
  Sandbox__Agent__V1__RunStart start = start_of("/usr", "pwd; exit 7");
  assert_int_equal(build_and_run(&start, out, sizeof out), 7);
  assert_string_equal(out, "/usr\n");
}

static void leaves_the_failure_to_the_shell(void **state) {
  char out[256];
  (void)state;
  Sandbox__Agent__V1__RunStart start = start_of("/no such 'place'", "echo ran");
  assert_int_equal(build_and_run(&start, out, sizeof out), 2);
  assert_non_null(strstr(out, "cd: can't cd to /no such 'place'"));
  assert_null(strstr(out, "ran"));
}

static void exports_values_as_they_are_even_what_the_profile_sets(void **state) {
  char out[512];
  const char *values[] = {"plain", "it's $HOME `id` \\ \"x\"\n*", "", "/only/this"};
  const char *names[] = {"A", "_b2", "EMPTY", "PATH"};
  Sandbox__Agent__V1__EnvironmentVariable variables[4], *pointers[4];
  (void)state;
  for (size_t i = 0; i < 4; i++) {
    sandbox__agent__v1__environment_variable__init(&variables[i]);
    variables[i].name = (char *)(uintptr_t)names[i];
    variables[i].value = (char *)(uintptr_t)values[i];
    pointers[i] = &variables[i];
  }
  Sandbox__Agent__V1__RunStart start =
      start_of("/", "exec /bin/sh -c 'printf \"%s|%s|%s|%s\" \"$A\" \"$_b2\" \"${EMPTY-unset}\" \"$PATH\"'");
  start.environment = pointers;
  start.n_environment = 4;
  assert_int_equal(build_and_run(&start, out, sizeof out), 0);
  assert_string_equal(out, "plain|it's $HOME `id` \\ \"x\"\n*||/only/this");
}

static void keeps_the_command_exact(void **state) {
  char out[256];
  (void)state;
  Sandbox__Agent__V1__RunStart start = start_of("/", "nosuchcommand_x\ncat <<END\n$0 $#\nEND\n# a comment");
  assert_int_equal(build_and_run(&start, out, sizeof out), 0);
  assert_string_equal(out, "sh: 1: nosuchcommand_x: not found\nsh 0\n");
}

static void expect_refusal(const Sandbox__Agent__V1__RunStart *start, const char *field) {
  CLEANUP_ERROR struct error *err = NULL;
  CLEANUP_BUFFER struct buffer text;
  buffer_init(&text, SCRIPT_LIMIT);
  assert_int_equal(script_build(start, &text, &err), -1);
  assert_int_equal(error_reason(err), REASON_INVALID_REQUEST);
  assert_string_equal(error_field(err), field);
}

static void refuses_what_could_not_be_meant(void **state) {
  const char *names[] = {"", "1A", "A B", "A=B", "A;id", "É"};
  Sandbox__Agent__V1__EnvironmentVariable variable = SANDBOX__AGENT__V1__ENVIRONMENT_VARIABLE__INIT;
  Sandbox__Agent__V1__EnvironmentVariable *pointers[LIMIT_ENV_ENTRIES + 1];
  (void)state;
  for (size_t i = 0; i < LIMIT_ENV_ENTRIES + 1; i++)
    pointers[i] = &variable;
  Sandbox__Agent__V1__RunStart start = start_of("/", "true");
  start.environment = pointers;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    variable.name = (char *)(uintptr_t)names[i];
    start.n_environment = 1;
    expect_refusal(&start, "environment");
  }
  variable.name = (char *)(uintptr_t)"A";
  start.n_environment = LIMIT_ENV_ENTRIES + 1;
  expect_refusal(&start, "environment");
  start.n_environment = 0;
  start.id.len = 15;
  expect_refusal(&start, "id");
  start = start_of("relative", "true");
  expect_refusal(&start, "cwd");
}

static void takes_everything_at_its_limit(void **state) {
  char *command = malloc(LIMIT_COMMAND_BYTES + 2);
  char *value = malloc(LIMIT_ENV_BYTES), *cwd = malloc(LIMIT_PATH_BYTES + 1);
  (void)state;
  memset(command, '\'', LIMIT_COMMAND_BYTES + 1);
  memset(value, '\'', LIMIT_ENV_BYTES);
  memset(cwd, '\'', LIMIT_PATH_BYTES);
  command[LIMIT_COMMAND_BYTES] = value[LIMIT_ENV_BYTES - 1] = cwd[LIMIT_PATH_BYTES] = 0;
  cwd[0] = '/';
  Sandbox__Agent__V1__EnvironmentVariable variable = SANDBOX__AGENT__V1__ENVIRONMENT_VARIABLE__INIT;
  Sandbox__Agent__V1__EnvironmentVariable *pointer = &variable;
  variable.name = (char *)(uintptr_t)"A";
  variable.value = value;
  Sandbox__Agent__V1__RunStart start = start_of(cwd, command);
  start.environment = &pointer;
  start.n_environment = 1;
  CLEANUP_BUFFER struct buffer text;
  buffer_init(&text, SCRIPT_LIMIT);
  assert_int_equal(script_build(&start, &text, NULL), 0);
  command[LIMIT_COMMAND_BYTES] = 'x';
  command[LIMIT_COMMAND_BYTES + 1] = 0;
  expect_refusal(&start, "command");
  free(command);
  free(value);
  free(cwd);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(runs_the_command_in_its_directory),
      cmocka_unit_test(leaves_the_failure_to_the_shell),
      cmocka_unit_test(exports_values_as_they_are_even_what_the_profile_sets),
      cmocka_unit_test(keeps_the_command_exact),
      cmocka_unit_test(refuses_what_could_not_be_meant),
      cmocka_unit_test(takes_everything_at_its_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
