/*
 * Processes by /proc: see process.h.
 */
#include "backend/local/process.h"

#include "base/clock.h"
#include "base/memory.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

enum { ROUNDS = 20, END_MILLISECONDS = 10000, KILLED_MAX = 1024 };

static ssize_t read_text(const char *path, char *text, size_t size) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? -1 : read(file, text, size - 1);
  if (file >= 0)
    close(file);
  if (length >= 0)
    text[length] = '\0';
  return length;
}

int local_boot_id(char boot[static BOOT_ID_SIZE], struct error **err) {
  if (read_text("/proc/sys/kernel/random/boot_id", boot, BOOT_ID_SIZE) != BOOT_ID_SIZE - 1)
    return error_set_detail(err, REASON_INTERNAL, "cannot read the kernel's boot id");
  return 0;
}

/* Fields are counted behind the name, which may hold anything: state is the third, parent the fourth, start the
 * 22nd. */
int local_process_read(pid_t pid, struct local_process *process, pid_t *parent) {
  char path[64], text[2048];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  if (pid <= 0 || read_text(path, text, sizeof text) <= 0)
    return -1;
  const char *at = strrchr(text, ')');
  for (int field = 2; at != NULL && field < 22; field++) {
    at = strchr(at + 1, ' ');
    if (at != NULL && field == 3 && parent != NULL)
      *parent = (pid_t)strtol(at + 1, NULL, 10);
  }
  if (at == NULL)
    return -1;
  *process = (struct local_process){.pid = pid, .start = strtoull(at + 1, NULL, 10)};
  return 0;
}

int local_process_open(const struct local_process *process) {
  struct local_process now;
  int handle = process->pid > 0 ? pidfd_open(process->pid, 0) : -1;
  /* Read after the handle was opened: if the start is the right one, the handle is of that process. */
  if (handle >= 0 && (local_process_read(process->pid, &now, NULL) != 0 || now.start != process->start)) {
    close(handle);
    handle = -1;
  }
  return handle;
}

/* --- by mark --- */

static bool runs_as(pid_t pid, uint32_t uid) {
  char path[64], text[4096];
  if (uid == 0)
    return true;
  /* /proc shows a process that cannot be dumped as root's: the status file says who it is. */
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  if (read_text(path, text, sizeof text) <= 0)
    return false;
  const char *line = strstr(text, "\nUid:");
  return line != NULL && strtoul(line + 5, NULL, 10) == uid;
}

/* A mount's source is the last but one word of its line: " - tmpfs MARK options". */
static bool line_marked(const char *line, const char *mark) {
  const char *at = strstr(line, " - tmpfs ");
  size_t length = strlen(mark);
  return at != NULL && strncmp(at + 9, mark, length) == 0 && at[9 + length] == ' ';
}

/* The index of the mark that a process has, or -1. */
static int find_mark(pid_t pid, const struct local_mark *marks, size_t count) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/mountinfo", (int)pid);
  FILE *file = fopen(path, "re");
  char *line = NULL;
  size_t size = 0;
  int found = -1;
  while (file != NULL && found < 0 && getline(&line, &size, file) > 0)
    for (size_t i = 0; i < count && found < 0; i++)
      if (line_marked(line, marks[i].mark))
        found = (int)i;
  free(line);
  if (file != NULL)
    fclose(file);
  return found >= 0 && runs_as(pid, marks[found].uid) ? found : -1;
}

bool local_process_marked(pid_t pid, const struct local_mark *mark) { return find_mark(pid, mark, 1) == 0; }

/* Kills what is marked; the handles of those killed are stored for waiting. */
static size_t kill_marked(const struct local_mark *marks, size_t count, struct pollfd *killed) {
  DIR *directory = opendir("/proc");
  size_t number = 0;
  for (struct dirent *entry; directory != NULL && number < KILLED_MAX && (entry = readdir(directory)) != NULL;) {
    pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? (pid_t)strtol(entry->d_name, NULL, 10) : 0;
    if (pid <= 1 || pid == getpid())
      continue;
    int handle = find_mark(pid, marks, count) >= 0 ? pidfd_open(pid, 0) : -1;
    /* Looked at again: only now is it certain that the handle is of a process with the mark. */
    if (handle >= 0 && find_mark(pid, marks, count) >= 0 && pidfd_send_signal(handle, SIGKILL, NULL, 0) == 0)
      killed[number++] = (struct pollfd){.fd = handle, .events = POLLIN};
    else if (handle >= 0)
      close(handle);
  }
  if (directory != NULL)
    closedir(directory);
  return number;
}

/* Waits for all until `deadline` (boot clock) and closes the handles. Returns 0, or -1. */
static int wait_killed(struct pollfd *killed, size_t count, int64_t deadline) {
  int result = 0;
  for (size_t i = 0; i < count; i++) {
    int64_t left = (deadline - clock_boot()) / CLOCK_MILLISECOND;
    while (left > 0 && poll(&killed[i], 1, (int)left) < 0 && errno == EINTR)
      left = (deadline - clock_boot()) / CLOCK_MILLISECOND;
    if ((killed[i].revents & POLLIN) == 0)
      result = -1;
    close(killed[i].fd);
  }
  return result;
}

int local_process_end_marked(const struct local_mark *marks, size_t count) {
  CLEANUP_MEMORY struct pollfd *killed = memory_array(KILLED_MAX, sizeof *killed);
  int64_t deadline = clock_boot() + END_MILLISECONDS * CLOCK_MILLISECOND;
  size_t all = 0;
  if (killed == NULL)
    return -1;
  for (int round = 0; round < ROUNDS; round++) {
    size_t number = kill_marked(marks, count, killed);
    if (number == 0)
      return (int)all;
    all += number;
    if (wait_killed(killed, number, deadline) != 0)
      return -1;
  }
  return -1;
}
