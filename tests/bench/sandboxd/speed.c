/*
 * What sandboxd adds to the cost of a command, and how fast it moves bytes. Every figure stands beside the floor that
 * was measured in the same run, in turns with it: spawning the same `sh -lc` without sandboxd.
 *
 *   speed PROGRAM          starts PROGRAM on this machine, without isolation
 *   speed PROGRAM SOCKET   talks to one in a sandbox, which listens there; a command in it measures the floor
 */
#include "base/digest.h"
#include "tests/unit/sandboxd/check.h"
#include "tests/unit/sandboxd/client.h"
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 300
#define PARALLEL 8
#define TRANSFER (32u << 20)

static struct daemon agent;
static struct client client;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void step(int milliseconds) {
  client_step(&client, milliseconds);
  if (!client.broken)
    return;
  fprintf(stderr, "the connection broke\n");
  daemon_stop(&agent);
  exit(1);
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double percentile(double *samples, int count, double p) {
  qsort(samples, (size_t)count, sizeof *samples, compare);
  return samples[(int)((double)(count - 1) * p)];
}

static pid_t spawn(void) {
  char name[] = "sh", flags[] = "-lc", text[] = "true";
  char *arguments[] = {name, flags, text, NULL};
  pid_t pid;
  if (posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ))
    exit(1);
  return pid;
}

static void exec_one(void) {
  struct run run;
  run_start(&run, &client, "true", NULL);
  run_wait(&run);
  assert_true(run.ended && run.exit_code == 0);
  run_free(&run);
}

static void measure_latency(void) {
  static double bare[ROUNDS], with[ROUNDS];
  for (int i = -20; i < ROUNDS; i++) {
    double begun = now();
    waitpid(spawn(), NULL, 0);
    double between = now();
    exec_one();
    if (i >= 0) {
      bare[i] = between - begun;
      with[i] = now() - between;
    }
  }
  double p50 = percentile(bare, ROUNDS, 0.5), p99 = percentile(bare, ROUNDS, 0.99);
  printf("sh -lc true         bare p50 %.3f ms p99 %.3f   exec p50 %.3f ms p99 %.3f   added p50 %.3f ms\n", p50, p99,
         percentile(with, ROUNDS, 0.5), percentile(with, ROUNDS, 0.99), percentile(with, ROUNDS, 0.5) - p50);
}

/* What a shell in the sandbox needs for the same, `times` times and `at_once` at a time: milliseconds for all. */
static double inside(int times, int at_once) {
  char command[256];
  struct run run;
  snprintf(command, sizeof command,
           "j=0; while [ $j -lt %d ]; do "
           "(i=0; while [ $i -lt %d ]; do sh -lc true; i=$((i+1)); done) & j=$((j+1)); done; wait",
           at_once, times / at_once);
  double begun = now();
  run_start(&run, &client, command, NULL);
  run_wait(&run);
  run_free(&run);
  return now() - begun;
}

static double bare_rate(void) {
  double begun = now();
  for (int i = 0; i < PARALLEL; i++)
    spawn();
  for (int i = 0; i < ROUNDS; i++) {
    wait(NULL);
    if (i < ROUNDS - PARALLEL)
      spawn();
  }
  return ROUNDS / (now() - begun) * 1e3;
}

static double exec_rate(void) {
  static struct run runs[PARALLEL];
  int started = 0, ended = 0;
  double begun = now();
  for (; started < PARALLEL; started++)
    run_start(&runs[started], &client, "true", NULL);
  while (ended < ROUNDS) {
    step(100);
    for (int i = 0; i < PARALLEL; i++) {
      if (!runs[i].talk.over || !runs[i].ended)
        continue;
      runs[i].ended = false;
      ended++;
      run_free(&runs[i]);
      if (started++ < ROUNDS)
        run_start(&runs[i], &client, "true", NULL);
    }
  }
  return ROUNDS / (now() - begun) * 1e3;
}

static void measure_inside(void) {
  double bare = 0, with = 0;
  for (int i = 0; i < 10; i++) {
    bare += inside(ROUNDS / 10, 1);
    double begun = now();
    for (int j = 0; j < ROUNDS / 10; j++)
      exec_one();
    with += now() - begun;
  }
  printf("sh -lc true         inside mean %.3f ms   exec mean %.3f ms   added mean %.3f ms\n", bare / ROUNDS,
         with / ROUNDS, (with - bare) / ROUNDS);
  bare = ROUNDS / inside(ROUNDS, PARALLEL) * 1e3;
  with = exec_rate();
  printf("8 at once           inside %.0f/s   exec %.0f/s   ratio %.2f\n", bare, with, with / bare);
}

static void measure_rate(void) {
  double bare = 0, with = 0;
  for (int i = 0; i < 3; i++) {
    double one = bare_rate(), other = exec_rate();
    bare = one > bare ? one : bare;
    with = other > with ? other : with;
  }
  printf("8 at once           bare %.0f/s   exec %.0f/s   ratio %.2f\n", bare, with, with / bare);
}

static void measure_output(void) {
  struct run run;
  double begun = now();
  run_start(&run, &client, "exec head -c 104857600 /dev/zero", NULL);
  run_wait(&run);
  assert_int_equal(run.totals[0], 104857600);
  printf("100 MiB of stdout   %.0f MiB/s\n", 100 / (now() - begun) * 1e3);
  run_free(&run);
}

static void measure_files(void) {
  struct file_write write;
  struct file_read read;
  struct digest digest;
  uint8_t sha256[32], *bytes = calloc(1, TRANSFER);
  digest_start(&digest);
  digest_update(&digest, bytes, TRANSFER);
  digest_finish(&digest, sha256);
  double begun = now();
  file_write_start(&write, &client, "file", TRANSFER, sha256, false);
  for (size_t at = 0; at < TRANSFER; at += 131072) {
    file_write_data(&write, bytes + at, 131072);
    while (wire_call_queued(write.talk.call) > 1048576)
      step(10);
  }
  file_write_finish(&write);
  assert_int_equal(write.talk.status, WIRE_OK);
  printf("32 MiB up           %.0f MiB/s\n", 32 / (now() - begun) * 1e3);
  for (int with = 1; with >= 0; with--) {
    begun = now();
    file_read_start(&read, &client, "file", TRANSFER, with);
    client_until(&client, &read.talk.over);
    assert_int_equal(read.data.length, TRANSFER);
    printf("32 MiB down         %.0f MiB/s %s digest\n", 32 / (now() - begun) * 1e3, with ? "with" : "without");
    file_read_free(&read);
  }
  free(bytes);
}

/* Resident bytes of the agent and of its supervisors, from /proc/PID/smaps_rollup. */
static void print_memory(const char *when, pid_t pid) {
  char name[64], line[256];
  snprintf(name, sizeof name, "/proc/%d/smaps_rollup", (int)pid);
  FILE *file = fopen(name, "r");
  printf("%-20s", when);
  while (file && fgets(line, sizeof line, file))
    if (!strncmp(line, "Rss:", 4) || !strncmp(line, "Private_Dirty:", 14) || !strncmp(line, "Pss:", 4)) {
      line[strcspn(line, "\n")] = 0;
      printf("%s  ", line);
    }
  printf("\n");
  if (file)
    fclose(file);
}

int main(int count, char **arguments) {
  bool own = count < 3;
  signal(SIGPIPE, SIG_IGN);
  client_program = count > 1 ? arguments[1] : "";
  if (own)
    daemon_start(&agent, NULL);
  else
    snprintf(agent.socket, sizeof agent.socket, "%s", arguments[2]);
  client_connect(&client, &agent);
  client_configure(&client, 600000, 0, 0, NULL);
  if (own)
    print_memory("idle", agent.pid);
  if (own) {
    measure_latency();
    measure_rate();
  } else {
    measure_inside();
  }
  if (own)
    print_memory("after commands", agent.pid);
  measure_output();
  measure_files();
  if (own)
    client_for(&client, 1000), print_memory("after transfers", agent.pid);
  client_close(&client);
  daemon_stop(&agent);
  return 0;
}
