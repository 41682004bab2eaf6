/* Supervisors: how commands end, that nothing escapes a kill, and what becomes of leftovers. */
#include "backend/sandboxd/crew.h"

#include "base/clock.h"
#include "tests/unit/sandboxd/check.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static struct loop loop;
static struct crew crew;
static struct loop_timer patience;
static char mark[32]; /* an argument of `sleep` by which a test finds its processes */

static int marked(void);

/* One command as the tests see it. */
struct command {
  struct crew_supervisor *supervisor;
  int output; /* read end of stdout and stderr */
  bool over;
  enum crew_ended ended;
  int status;
};

static void patience_over(void *context) {
  (void)context;
  fail_msg("nothing happened for too long");
}

static int begin_with(bool scan, bool marks) {
  struct crew_options options = {.environment = environ, .scan = scan, .marks = marks, .oom_score = -1};
  getrlimit(RLIMIT_NOFILE, &options.files);
  snprintf(mark, sizeof mark, "3153.%d", (int)getpid());
  patience = (struct loop_timer){.fired = patience_over};
  return loop_init(&loop, NULL) || crew_init(&crew, &loop, &options, NULL);
}

static int begin(void **state) {
  (void)state;
  return begin_with(false, false);
}

static int begin_scan(void **state) {
  (void)state;
  return begin_with(true, false);
}

static int begin_marks(void **state) {
  (void)state;
  return begin_with(false, true);
}

static int end(void **state) {
  (void)state;
  crew_end(&crew);
  for (int i = 0; marked(); i++) /* without a subreaper they are killed, but somebody else's to wait for */
    if (!crew.options.marks || i == 100 || usleep(10000))
      return -1;
  loop_free(&loop);
  if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
    return -1;
  return 0;
}

/* Processes whose arguments hold the mark. */
static int marked(void) {
  int count = 0;
  DIR *proc = opendir("/proc");
  for (struct dirent *entry; (entry = readdir(proc));) {
    char name[300], text[512];
    snprintf(name, sizeof name, "/proc/%s/cmdline", entry->d_name);
    int file = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' ? open(name, O_RDONLY) : -1;
    if (file < 0)
      continue;
    ssize_t length = read(file, text, sizeof text);
    close(file);
    if (length > 0 && memmem(text, (size_t)length, mark, strlen(mark)))
      count++;
  }
  closedir(proc);
  return count;
}

/* Processes whose parent we are. */
static int children(void) {
  char name[64], text[1024] = "";
  int count = 0;
  snprintf(name, sizeof name, "/proc/%d/task/%d/children", (int)getpid(), (int)getpid());
  int file = open(name, O_RDONLY);
  assert_true(read(file, text, sizeof text - 1) >= 0);
  close(file);
  for (const char *at = text; (at = strchr(at, ' ')); at++)
    count++;
  return count;
}

static void command_ended(void *context, enum crew_ended ended, int status) {
  struct command *command = context;
  assert_false(command->over);
  command->over = true;
  command->ended = ended;
  command->status = status;
  loop_stop(&loop);
}

/* Starts a shell text in which MARK stands for the mark. */
static struct command *start(const char *text) {
  char marked_text[4096];
  const char *at = strstr(text, "MARK");
  int ends[2];
  struct command *command = calloc(1, sizeof *command);
  assert_non_null(command);
  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
  if (at) {
    snprintf(marked_text, sizeof marked_text, "M=%s; %s", mark, text);
    text = marked_text;
  }
  int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int descriptors[3] = {null, ends[1], ends[1]};
  command->output = ends[0];
  command->supervisor = crew_start(&crew, text, strlen(text), descriptors, command_ended, command, NULL);
  assert_non_null(command->supervisor);
  close(null);
  close(ends[1]);
  return command;
}

static void run_for(int64_t milliseconds, bool expected) {
  patience.fired = expected ? (void (*)(void *))loop_stop : patience_over;
  patience.context = &loop;
  loop_timer_set(&loop, &patience, clock_boot() + milliseconds * CLOCK_MILLISECOND);
  assert_int_equal(loop_run(&loop, NULL), 0);
  loop_timer_stop(&loop, &patience);
}

static void wait_end(struct command *command) {
  while (!command->over)
    run_for(20000, false);
}

/* Reads the command's output up to a newline: how a test knows that the command got so far. */
static void wait_line(struct command *command, char *line, size_t size) {
  size_t length = 0;
  while (length < size - 1 && read(command->output, line + length, 1) == 1 && line[length] != '\n')
    length++;
  line[length] = 0;
}

static void release(struct command *command) {
  const int pipes[2] = {command->output, -1};
  fcntl(command->output, F_SETFL, O_NONBLOCK);
  crew_release(command->supervisor, pipes);
  free(command);
}

static void expect_end(const char *text, enum crew_ended ended, int status) {
  struct command *command = start(text);
  wait_end(command);
  assert_int_equal(command->ended, ended);
  assert_int_equal(command->status, status);
  release(command);
}

static void tells_how_a_command_ended(void **state) {
  (void)state;
  expect_end("exit 0", CREW_ENDED, 0);
  expect_end("exit 255", CREW_ENDED, 255 << 8);
  expect_end("kill -SEGV $$", CREW_ENDED, SIGSEGV);
  expect_end("kill -KILL $$", CREW_ENDED, SIGKILL);
  assert_int_equal(crew.busy, 0);
  assert_int_equal(crew.free, 1); /* one did it all */
}

static void gives_a_command_nothing_but_its_streams(void **state) {
  char line[256];
  (void)state;
  struct command *command = start("ls /proc/self/fd | tr '\\n' ' '; grep SigBlk /proc/self/status | tr -d '\\n\\t'; "
                                  "test \"$(ps -o sid= -p $$)\" -eq $$ && echo leader; grep SigIgn /proc/self/status");
  wait_line(command, line, sizeof line);
  assert_string_equal(line, "0 1 2 3 SigBlk:0000000000000000leader");
  wait_line(command, line, sizeof line);
  assert_int_equal(strtoull(line + strlen("SigIgn:"), NULL, 16) & (1u << (SIGPIPE - 1)), 0);
  wait_end(command);
  release(command);
}

static void runs_a_script_longer_than_an_argument_may_be(void **state) {
  static char text[700000];
  char line[64];
  (void)state;
  static const char begin_text[] = ": '", end_text[] = "'; ls /proc/self/fd | wc -l; exit 9";
  memset(text, ' ', sizeof text);
  memcpy(text, begin_text, sizeof begin_text - 1);
  memcpy(text + sizeof text - sizeof end_text, end_text, sizeof end_text);
  struct command *command = start(text);
  wait_line(command, line, sizeof line);
  assert_string_equal(line, "4");
  wait_end(command);
  assert_int_equal(command->status, 9 << 8);
  release(command);
}

/* Sessions, groups, double forks, processes that ignore what can be ignored, and one that is stopped. */
static const char tree[] = "(setsid sh -c \"trap '' TERM HUP INT; sleep $M & sleep $M & wait\" &) ; "
                           "setsid setsid sleep $M & "
                           "(sleep $M & kill -STOP $!; (setsid sh -c \"sh -c 'sleep $M & sleep $M'& \" &) ) ; "
                           "sleep 0.2; echo ready; wait; sleep $M # MARK";

/* All are dead when the command ends; those found by their marks are killed, but waited for by somebody else. */
static void expect_none(void) {
  for (int i = 0; crew.options.marks && marked() && i < 100; i++)
    run_for(10, true);
  assert_int_equal(marked(), 0);
}

static void kills_every_descendant(void **state) {
  char line[16];
  (void)state;
  struct command *command = start(tree);
  wait_line(command, line, sizeof line);
  assert_string_equal(line, "ready");
  assert_true(marked() >= 7);
  crew_kill(command->supervisor);
  wait_end(command);
  expect_none();
  assert_int_equal(command->ended, CREW_ENDED);
  assert_int_equal(command->status, SIGKILL);
  release(command);
  assert_int_equal(crew.free, 1);
}

static void kills_what_forks_all_the_time(void **state) {
  char line[16];
  (void)state;
  struct command *command = start("f() { (setsid sleep $M &); }; g() { while :; do f; f; f; done; }; "
                                  "g & g & (g &) & (setsid sh -c \"while :; do sleep $M & done\" &) ; "
                                  "sleep 0.3; echo ready; wait # MARK");
  wait_line(command, line, sizeof line);
  assert_true(marked() > 20);
  crew_kill(command->supervisor);
  wait_end(command);
  assert_int_equal(marked(), 0);
  release(command);
}

static void leaves_a_daemon_alive_and_its_pipe_open(void **state) {
  char line[64];
  (void)state;
  struct command *command = start("setsid sh -c 'while echo x; do sleep 0.01; done' $M & echo ready; exit 3 # MARK");
  wait_line(command, line, sizeof line);
  wait_end(command);
  assert_int_equal(command->status, 3 << 8);
  release(command);
  assert_int_equal(crew.lingering, !crew.options.marks); /* where the kernel lets it leave its supervisor's tree */
  assert_int_equal(crew.busy, 0);
  run_for(100, true);
  assert_in_range(marked(), 1, 2); /* itself, and perhaps a child about to become `sleep`: its pipe is not broken */
  assert_int_equal(crew.leftovers.count, 1);
  expect_end("true", CREW_ENDED, 0); /* by another supervisor */
  assert_int_equal(crew.lingering, !crew.options.marks);
  assert_int_equal(crew.free, 1);
}

static void takes_a_supervisor_back_when_the_last_leftover_ends(void **state) {
  (void)state;
  struct command *command = start("sleep 0.1 &");
  wait_end(command);
  release(command);
  assert_int_equal(crew.lingering, 1);
  while (crew.lingering)
    run_for(300, true);
  assert_int_equal(crew.free, 1);
}

static void kills_leftovers_if_told_before_release(void **state) {
  char line[16];
  (void)state;
  struct command *command = start("sh -c 'echo ready; sleep $M; true' & exit 0 # MARK");
  wait_line(command, line, sizeof line);
  wait_end(command);
  crew_kill(command->supervisor);
  release(command);
  while (crew.lingering)
    run_for(300, true);
  expect_none();
}

/* The supervisor's report and the order to kill cross. */
static void kills_leftovers_of_a_command_that_has_just_ended(void **state) {
  char line[16];
  (void)state;
  struct command *command = start("sh -c 'echo ready; sleep $M; true' & exit 3 # MARK");
  wait_line(command, line, sizeof line);
  usleep(100000);
  assert_false(command->over);
  crew_kill(command->supervisor);
  wait_end(command);
  assert_int_equal(command->status, 3 << 8);
  expect_none();
  release(command);
  assert_int_equal(crew.free, 1);
}

/* The shell's parent is the supervisor. */
static void loses_a_command_that_kills_its_supervisor_and_kills_the_rest(void **state) {
  (void)state;
  struct command *command = start("(setsid sleep $M &) ; sleep $M & sleep 0.2; kill -9 $PPID; sleep $M # MARK");
  wait_end(command);
  assert_int_equal(command->ended, CREW_LOST);
  while (marked())
    run_for(50, true);
  release(command);
  assert_int_equal(crew.busy, 0);
  expect_end("exit 4", CREW_ENDED, 4 << 8);
}

static void spares_other_commands_then(void **state) {
  char line[16];
  (void)state;
  struct command *other = start("echo ready; sleep $M # MARK");
  wait_line(other, line, sizeof line);
  struct command *command = start("(setsid sleep 3153 &) ; kill -9 $PPID; sleep 3153");
  wait_end(command);
  release(command);
  while (crew.purging)
    run_for(50, true);
  assert_false(other->over);
  assert_in_range(marked(), 1, 2); /* the shell and its sleep */
  crew_kill(other->supervisor);
  wait_end(other);
  release(other);
}

static void kills_a_command_that_stopped_its_supervisor(void **state) {
  char line[16];
  (void)state;
  struct command *command =
      start("(setsid sh -c \"while kill -STOP $PPID; do :; done; sleep $M\" &) ; echo ready; sleep $M # MARK");
  wait_line(command, line, sizeof line);
  crew_kill(command->supervisor);
  wait_end(command);
  assert_int_equal(command->ended, CREW_ENDED);
  assert_int_equal(marked(), 0);
  release(command);
}

/* An entry of the environment that no program can be given. */
static void tells_that_the_shell_cannot_be_started(void **state) {
  static char entry[200000];
  char *environment[] = {entry, NULL};
  (void)state;
  memset(entry, 'x', sizeof entry - 1);
  crew.options.environment = environment;
  expect_end("true", CREW_FAILED, E2BIG);
  expect_end("true", CREW_FAILED, E2BIG);
  assert_int_equal(crew.free, 1);
}

static void sends_signals_to_the_group(void **state) {
  char line[16];
  (void)state;
  struct command *command = start("trap 'exit 5' USR1; (trap '' USR1; echo ready; sleep 0.3) & wait");
  wait_line(command, line, sizeof line);
  crew_signal(command->supervisor, SIGUSR1);
  wait_end(command);
  assert_int_equal(command->status, 5 << 8);
  release(command);
}

static void refuses_too_many_at_once(void **state) {
  struct command *commands[CREW_COMMANDS];
  (void)state;
  for (int i = 0; i < CREW_COMMANDS; i++)
    commands[i] = start("exec sleep $M # MARK");
  CLEANUP_ERROR struct error *err = NULL;
  const int descriptors[3] = {0, 1, 2};
  assert_null(crew_start(&crew, "true", 4, descriptors, command_ended, NULL, &err));
  assert_int_equal(error_reason(err), REASON_SANDBOX_NOT_READY);
  for (int i = 0; i < CREW_COMMANDS; i++)
    crew_kill(commands[i]->supervisor);
  for (int i = 0; i < CREW_COMMANDS; i++) {
    wait_end(commands[i]);
    release(commands[i]);
  }
  assert_int_equal(marked(), 0);
  assert_int_equal(crew.busy, 0);
  assert_int_equal(crew.free, CREW_FREE);
}

static void bounds_the_supervisors_of_leftovers(void **state) {
  char line[16];
  (void)state;
  for (int i = 0; i < CREW_LINGERING + 3; i++) {
    struct command *command = start("sh -c 'echo ready; sleep 1000; true' $M & # MARK");
    wait_line(command, line, sizeof line);
    wait_end(command);
    release(command);
  }
  run_for(100, true);
  assert_int_equal(crew.lingering, CREW_LINGERING);
  assert_int_equal(marked(), CREW_LINGERING + 3); /* all live on */
}

static void keeps_one_free_supervisor_after_a_while(void **state) {
  struct command *commands[5];
  (void)state;
  for (int i = 0; i < 5; i++)
    commands[i] = start("sleep 0.1");
  for (int i = 0; i < 5; i++) {
    wait_end(commands[i]);
    release(commands[i]);
  }
  assert_int_equal(crew.free, 5);
  assert_true(crew.idle.armed);
  loop_timer_set(&loop, &crew.idle, clock_boot());
  while (crew.all && crew.free != 1)
    run_for(50, true);
  run_for(50, true);
  for (int i = 0; children() > 1 && i < 100; i++)
    run_for(10, true);
  assert_int_equal(children(), 1);
  expect_end("exit 8", CREW_ENDED, 8 << 8);
}

static void replaces_a_free_one_that_was_killed(void **state) {
  char line[32];
  (void)state;
  struct command *command = start("echo $PPID");
  wait_line(command, line, sizeof line);
  wait_end(command);
  release(command);
  pid_t pid = (pid_t)strtol(line, NULL, 10);
  siginfo_t information;
  kill(pid, SIGKILL);
  assert_int_equal(waitid(P_PID, (id_t)pid, &information, WEXITED | WNOWAIT), 0);
  expect_end("exit 6", CREW_ENDED, 6 << 8);
  command = start("echo $PPID");
  wait_line(command, line, sizeof line);
  wait_end(command);
  release(command);
  kill((pid_t)strtol(line, NULL, 10), SIGSTOP);
  expect_end("exit 7", CREW_ENDED, 7 << 8);
}

static void leaves_no_descriptor_open(void **state) {
  (void)state;
  expect_end("true", CREW_ENDED, 0);
  int before = dup(0);
  close(before);
  for (int i = 0; i < 20; i++)
    expect_end("sleep 0 &", CREW_ENDED, 0);
  while (crew.lingering)
    run_for(50, true);
  int after = dup(0);
  close(after);
  assert_true(after <= before + CREW_FREE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(tells_how_a_command_ended),
      TEST(gives_a_command_nothing_but_its_streams),
      TEST(runs_a_script_longer_than_an_argument_may_be),
      TEST(kills_every_descendant),
      {"scan: kills_every_descendant", kills_every_descendant, begin_scan, end, NULL},
      TEST(kills_what_forks_all_the_time),
      {"scan: kills_what_forks_all_the_time", kills_what_forks_all_the_time, begin_scan, end, NULL},
      {"marks: kills_every_descendant", kills_every_descendant, begin_marks, end, NULL},
      {"marks: leaves_a_daemon_alive_and_its_pipe_open", leaves_a_daemon_alive_and_its_pipe_open, begin_marks, end,
       NULL},
      {"marks: kills_leftovers_if_told_before_release", kills_leftovers_if_told_before_release, begin_marks, end, NULL},
      {"marks: loses_a_command_that_kills_its_supervisor_and_kills_the_rest",
       loses_a_command_that_kills_its_supervisor_and_kills_the_rest, begin_marks, end, NULL},
      {"marks: spares_other_commands_then", spares_other_commands_then, begin_marks, end, NULL},
      {"marks: leaves_no_descriptor_open", leaves_no_descriptor_open, begin_marks, end, NULL},
      TEST(leaves_a_daemon_alive_and_its_pipe_open),
      TEST(takes_a_supervisor_back_when_the_last_leftover_ends),
      TEST(kills_leftovers_if_told_before_release),
      TEST(kills_leftovers_of_a_command_that_has_just_ended),
      TEST(loses_a_command_that_kills_its_supervisor_and_kills_the_rest),
      TEST(spares_other_commands_then),
      TEST(kills_a_command_that_stopped_its_supervisor),
      TEST(tells_that_the_shell_cannot_be_started),
      TEST(sends_signals_to_the_group),
      TEST(refuses_too_many_at_once),
      TEST(bounds_the_supervisors_of_leftovers),
      TEST(keeps_one_free_supervisor_after_a_while),
      TEST(replaces_a_free_one_that_was_killed),
      TEST(leaves_no_descriptor_open),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
