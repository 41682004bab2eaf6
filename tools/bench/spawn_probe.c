/*
 * What a command costs inside a sandbox before any platform is involved: this static program is uploaded into a sandbox
 * and run there. It starts `sh -lc true` again and again by posix_spawn and prints nanoseconds, one start a line:
 *
 *   spawn-probe one COUNT          one after the other: COUNT lines
 *   spawn-probe many WORKERS SECONDS   from WORKERS processes at once: one line, starts per second
 */
#include <errno.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static int64_t now(void)
{
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Returns nanoseconds, or -1. */
static int64_t spawn_once(void)
{
  char *const arguments[] = {(char *)"sh", (char *)"-lc", (char *)"true", NULL};
  int64_t start = now();
  pid_t pid;
  int status;
  if (posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ) != 0)
    return -1;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR)
      return -1;
  return status == 0 ? now() - start : -1;
}

static int run_one(long count)
{
  for (long i = 0; i < count; i++) {
    int64_t taken = spawn_once();
    if (taken < 0)
      return 1;
    printf("%lld\n", (long long)taken);
  }
  return 0;
}

static int run_many(long workers, long seconds)
{
  long *counts = mmap(NULL, (size_t)workers * sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (counts == MAP_FAILED)
    return 1;
  int64_t start = now(), end = start + seconds * 1000000000;
  for (long i = 0; i < workers; i++) {
    pid_t pid = fork();
    if (pid < 0)
      return 1;
    if (pid == 0) {
      while (now() < end) {
        if (spawn_once() < 0)
          _exit(1);
        counts[i]++;
      }
      _exit(0);
    }
  }
  bool good = true;
  int status;
  while (wait(&status) > 0)
    good = good && status == 0;
  long total = 0;
  for (long i = 0; i < workers; i++)
    total += counts[i];
  printf("%.1f\n", (double)total * 1e9 / (double)(now() - start));
  return good ? 0 : 1;
}

int main(int argc, char **argv)
{
  if (argc == 3 && strcmp(argv[1], "one") == 0)
    return run_one(strtol(argv[2], NULL, 10));
  if (argc == 4 && strcmp(argv[1], "many") == 0)
    return run_many(strtol(argv[2], NULL, 10), strtol(argv[3], NULL, 10));
  fprintf(stderr, "usage: spawn-probe one COUNT | many WORKERS SECONDS\n");
  return 2;
}
