/*
 * The request that brings sandboxd up, what its script answers, and the script itself in real shells of poor
 * containers: read-only root, another user, no capabilities.
 */
#include "backend/podexec/script.h"
#include "base/memory.h"
#include "tests/unit/websocket/check.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct podexec_program program;
static const char *program_path;

static void test_target(void **state) {
  static const struct podexec_options where = {
      .program = &program, .namespace_ = "a b", .pod = "p/..", .container = "c&d=e"};
  CLEANUP_BUFFER struct buffer out;
  (void)state;
  buffer_init(&out, 65536);
  const char *const words[] = {"sh", "-c", "echo $1\n", "\xc3\xa4", NULL};
  assert_int_equal(script_target(&out, "/prefix", &where, words), 0);
  assert_string_equal(buffer_text(&out), "/prefix/api/v1/namespaces/a%20b/pods/p%2F../exec?stdin=true&stdout=true"
                                         "&stderr=true&tty=false&container=c%26d%3De&command=sh&command=-c"
                                         "&command=echo%20%241%0A&command=%C3%A4");
  buffer_clear(&out);
  assert_int_equal(script_target_start(&out, "", &where), 0);
  assert_true(out.length < 8192);
  struct buffer small;
  char memory[1000];
  buffer_borrow(&small, memory, sizeof memory);
  assert_int_equal(script_target_start(&small, "", &where), -1);
}

static void test_answers(void **state) {
  static const struct {
    const char *text;
    enum script_answer answer;
    size_t used;
  } cases[] = {
      {"sandboxd: want\nrest", SCRIPT_WANT, 15},
      {"sandboxd: ready\n", SCRIPT_READY, 16},
      {"sandboxd: none\n", SCRIPT_NONE, 15},
      {"noise\n\nsandboxd: ready\nx", SCRIPT_READY, 23},
      {"sandboxd: read", SCRIPT_NOTHING, 14},
      {"sandboxd: ready \n", SCRIPT_NOTHING, 17},
      {" sandboxd: ready\n", SCRIPT_NOTHING, 17},
      {"0123456789012345678901234567890123456789012345678901234567890123456789\nsandboxd: want\n", SCRIPT_WANT, 86},
  };
  (void)state;
  for (size_t i = 0; i < COUNT_OF(cases); i++)
    for (size_t piece = 1; piece < 90; piece += 11) {
      struct script_reader reader = {0};
      size_t length = strlen(cases[i].text), at = 0, used;
      enum script_answer answer = SCRIPT_NOTHING;
      for (; at < length && answer == SCRIPT_NOTHING; at += used) {
        size_t some = length - at < piece ? length - at : piece;
        answer = script_read(&reader, (const uint8_t *)cases[i].text + at, some, &used);
      }
      assert_int_equal(answer, cases[i].answer);
      assert_int_equal(at, cases[i].used);
      assert_int_equal(reader.noise, at);
    }
}

/* --- in a container --- */

static char top[] = "/tmp/script-test-XXXXXX";

struct container {
  pid_t pid;
  int input, output;
};

/* more: further arguments for bubblewrap, NULL at the end. */
static struct container start(const struct podexec_options *where, const char *const *more) {
  static const char *const usual[] = {
      "bwrap", "--unshare-all", "--unshare-user", "--uid",  "10001",          "--gid", "10001",
      "--cap-drop", "ALL",      "--die-with-parent", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin",
      "--proc", "/proc",        "--dev",          "/dev",   "--remount-ro",   "/dev",  NULL};
  const char *words[16], *arguments[80];
  char size[24];
  int in[2], out[2];
  size_t count = 0;
  script_words(where, words, size);
  for (size_t i = 0; usual[i]; i++)
    arguments[count++] = usual[i];
  for (; *more; more++)
    arguments[count++] = *more;
  for (size_t i = 0; words[i]; i++)
    arguments[count++] = words[i];
  arguments[count] = NULL;
  assert_int_equal(pipe2(in, O_CLOEXEC), 0);
  assert_int_equal(pipe2(out, O_CLOEXEC), 0);
  struct container container = {.pid = fork(), .input = in[1], .output = out[0]};
  if (container.pid == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    execv("/usr/bin/bwrap", (char *const *)(uintptr_t)arguments);
    _exit(125);
  }
  close(in[0]);
  close(out[1]);
  return container;
}

static enum script_answer hear(const struct container *container) {
  struct script_reader reader = {0};
  enum script_answer answer = SCRIPT_NOTHING;
  uint8_t byte;
  size_t used;
  while (answer == SCRIPT_NOTHING && read(container->output, &byte, 1) == 1)
    answer = script_read(&reader, &byte, 1, &used);
  return answer;
}

static void send_bytes(const struct container *container, const uint8_t *bytes, size_t length) {
  while (length > 0) {
    ssize_t some = write(container->input, bytes, length);
    if (some <= 0)
      return; /* it does not want them */
    bytes += some;
    length -= (size_t)some;
  }
}

static int end(struct container *container) {
  int status;
  close(container->input);
  close(container->output);
  assert_int_equal(waitpid(container->pid, &status, 0), container->pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static struct podexec_options where(const char *workspace) {
  return (struct podexec_options){.program = &program, .namespace_ = "n", .pod = "p", .workspace = workspace};
}

#define DEBIAN                                                                                                         \
  "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink",            \
      "usr/lib64", "/lib64"
#define BUSYBOX "--ro-bind", busybox, "/bin"

static char busybox[64]; /* a folder with busybox and `sh` alone, or "" */

static void bring_up(const char *const *more) {
  struct podexec_options options = where("/workspace");
  struct container container = start(&options, more);
  assert_int_equal(hear(&container), SCRIPT_WANT);
  send_bytes(&container, program.bytes, program.length);
  assert_int_equal(hear(&container), SCRIPT_READY);
  assert_int_equal(end(&container), 0);
}

static void test_debian(void **state) {
  (void)state;
  bring_up((const char *const[]){DEBIAN, "--dir", "/workspace", "--tmpfs", "/tmp", "--remount-ro", "/", NULL});
  bring_up((const char *const[]){DEBIAN, "--bind", top, "/workspace", "--remount-ro", "/", NULL});
  assert_int_equal(rmdir(top), 0); /* nothing is left there */
  assert_int_equal(mkdir(top, 0777), 0);
}

static void test_busybox(void **state) {
  (void)state;
  if (!busybox[0] || SANITIZER) /* with a sanitizer sandboxd needs libraries, which are not there */
    skip();
  bring_up((const char *const[]){BUSYBOX, "--tmpfs", "/workspace", "--remount-ro", "/", NULL});
}

static void expect_none(const char *const *more) {
  struct podexec_options options = where("/workspace");
  struct container container = start(&options, more);
  assert_int_equal(hear(&container), SCRIPT_NONE);
  assert_int_equal(end(&container), 0);
}

static void test_none(void **state) {
  (void)state;
  expect_none((const char *const[]){DEBIAN, "--dir", "/workspace", "--remount-ro", "/", NULL});
  expect_none((const char *const[]){"--ro-bind", "/usr/bin/dash", "/bin/sh", "--ro-bind", "/usr/lib", "/usr/lib",
                                    "--ro-bind", "/usr/lib64", "/usr/lib64", "--symlink", "usr/lib", "/lib",
                                    "--symlink", "usr/lib64", "/lib64", "--tmpfs", "/tmp", "--remount-ro", "/",
                                    NULL}); /* no tool at all */
}

/* A connection that breaks in the middle leaves nothing behind and starts nothing. */
static void test_cut(void **state) {
  struct podexec_options options = where("/workspace");
  struct container container =
      start(&options, (const char *const[]){DEBIAN, "--bind", top, "/workspace", "--remount-ro", "/", NULL});
  (void)state;
  assert_int_equal(hear(&container), SCRIPT_WANT);
  send_bytes(&container, program.bytes, program.length / 2);
  assert_true(end(&container) != 0);
  assert_int_equal(rmdir(top), 0);
  assert_int_equal(mkdir(top, 0777), 0);
}

/* What arrives changed is not run for sandboxd. */
static void test_changed(void **state) {
  struct podexec_options options = where("/workspace");
  CLEANUP_MEMORY uint8_t *copy = memory_new(program.length);
  (void)state;
  memcpy(copy, program.bytes, program.length);
  copy[program.length - 1] ^= 1;
  struct container container =
      start(&options, (const char *const[]){DEBIAN, "--bind", top, "/workspace", "--remount-ro", "/", NULL});
  assert_int_equal(hear(&container), SCRIPT_WANT);
  send_bytes(&container, copy, program.length);
  assert_int_equal(hear(&container), SCRIPT_NOTHING);
  assert_int_equal(end(&container), 3);
}

static void test_installed(void **state) {
  struct podexec_options options = where("/workspace");
  (void)state;
  options.installed = "/opt/sandboxd";
  const char *const good[] = {DEBIAN, "--ro-bind", program_path, "/opt/sandboxd", "--tmpfs", "/workspace", NULL};
  struct container container = start(&options, good);
  assert_int_equal(hear(&container), SCRIPT_READY);
  assert_int_equal(end(&container), 0);
  /* Another program, and one that this machine cannot run: ours is brought. */
  const char *const other[] = {DEBIAN, "--ro-bind", "/usr/bin/false", "/opt/sandboxd", "--tmpfs", "/workspace", NULL};
  container = start(&options, other);
  assert_int_equal(hear(&container), SCRIPT_NOTHING); /* it failed by itself: that is no reason to go on */
  assert_int_equal(end(&container), 1);
  options.installed = "/etc/none";
  container = start(&options, good);
  assert_int_equal(hear(&container), SCRIPT_WANT);
  end(&container);
  struct podexec_program changed = program;
  changed.digest[0] = changed.digest[0] == '0' ? '1' : '0';
  options.program = &changed;
  options.installed = "/opt/sandboxd";
  container = start(&options, good);
  assert_int_equal(hear(&container), SCRIPT_WANT);
  end(&container);
}

static void make_busybox(void) {
  char path[128];
  if (access("/bin/busybox", X_OK) != 0)
    return;
  snprintf(busybox, sizeof busybox, "%s-busybox", top);
  assert_int_equal(mkdir(busybox, 0755), 0);
  static const char *const names[] = {"sh", "head", "chmod", "rm"};
  snprintf(path, sizeof path, "%s/busybox", busybox);
  assert_int_equal(symlink("/bin/busybox", path) == 0 ? unlink(path) : -1, 0);
  int from = open("/bin/busybox", O_RDONLY), to = open(path, O_WRONLY | O_CREAT | O_EXCL, 0755);
  static char bytes[65536];
  for (ssize_t some; (some = read(from, bytes, sizeof bytes)) > 0;)
    assert_int_equal(write(to, bytes, (size_t)some), some);
  close(from);
  close(to);
  for (size_t i = 0; i < COUNT_OF(names); i++) {
    snprintf(path, sizeof path, "%s/%s", busybox, names[i]);
    assert_int_equal(symlink("busybox", path), 0);
  }
}

static int set_up(void **state) {
  (void)state;
  assert_non_null(mkdtemp(top));
  chmod(top, 0777);
  make_busybox();
  return podexec_program_read(&program, program_path, NULL);
}

static int tear_down(void **state) {
  static const char *const names[] = {"busybox", "sh", "head", "chmod", "rm"};
  char path[128];
  (void)state;
  for (size_t i = 0; busybox[0] && i < COUNT_OF(names); i++) {
    snprintf(path, sizeof path, "%s/%s", busybox, names[i]);
    unlink(path);
  }
  if (busybox[0])
    rmdir(busybox);
  rmdir(top);
  podexec_program_free(&program);
  return 0;
}

int main(int count, char **texts) {
  assert_int_equal(count, 2);
  program_path = realpath(texts[1], NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_target),  cmocka_unit_test(test_answers), cmocka_unit_test(test_debian),
      cmocka_unit_test(test_busybox), cmocka_unit_test(test_none),    cmocka_unit_test(test_cut),
      cmocka_unit_test(test_changed), cmocka_unit_test(test_installed),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
