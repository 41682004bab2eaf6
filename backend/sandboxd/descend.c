/*
 * Finding descendants in /proc: see descend.h. A round walks the tree breadth first through a queue of fixed size. When
 * it is full, the rest is left to a later round: the parents in the queue are killed, so their children move up to the
 * root. Nothing is allocated: this must work when memory has run out.
 */
#include "backend/sandboxd/descend.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DESCEND_QUEUE 4096
#define DESCEND_READ 4096 /* bytes read at once */
#define DESCEND_NAME 64   /* "PID/task/TID/children" */
#define DESCEND_MARK 64   /* longest mark */
#define DESCEND_ENVIRONMENT (1 << 20) /* bytes of one that are looked through */
#define DESCEND_ROUNDS 32

/* One round is made at a time. */
static struct {
  pid_t pids[DESCEND_QUEUE];
  size_t next, count;
} queue;

/* All processes, where they must be looked through for each other's parents. */
struct descend_entry {
  pid_t pid, parent;
};
static struct {
  struct descend_entry entries[DESCEND_QUEUE];
  size_t count;
} family;

static void descend_push(pid_t pid) {
  if (queue.count < DESCEND_QUEUE)
    queue.pids[queue.count++] = pid;
}

/* The number a directory entry is named after, or 0. */
static pid_t descend_number(const char *text) {
  char *end;
  if (*text < '1' || *text > '9')
    return 0;
  long number = strtol(text, &end, 10);
  return *end || number > INT32_MAX ? 0 : (pid_t)number;
}

/* Calls `each` with every number that names an entry of this directory in /proc. */
static void descend_each(const struct descend *descend, const char *name, pid_t parent,
                         void (*each)(const struct descend *descend, pid_t parent, pid_t number)) {
  char entries[DESCEND_READ] __attribute__((aligned(8)));
  ssize_t length;
  int directory = openat(descend->proc, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0)
    return;
  while ((length = getdents64(directory, entries, sizeof entries)) > 0)
    for (ssize_t at = 0; at < length;) {
      const struct dirent64 *entry = (const void *)(entries + at);
      pid_t number = descend_number(entry->d_name);
      if (number)
        each(descend, parent, number);
      at += entry->d_reclen;
    }
  close(directory);
}

/* Queues the pids in the children list of one thread: decimal numbers, each with a space behind it. */
static void descend_read_children(const struct descend *descend, pid_t parent, pid_t task) {
  char name[DESCEND_NAME], text[DESCEND_READ];
  pid_t pid = 0;
  ssize_t length;
  snprintf(name, sizeof name, "%d/task/%d/children", (int)parent, (int)task);
  int list = openat(descend->proc, name, O_RDONLY | O_CLOEXEC);
  if (list < 0)
    return;
  while ((length = read(list, text, sizeof text)) > 0)
    for (ssize_t i = 0; i < length; i++) {
      if (text[i] >= '0' && text[i] <= '9') {
        pid = pid * 10 + (text[i] - '0');
      } else if (pid) {
        descend_push(pid);
        pid = 0;
      }
    }
  if (pid)
    descend_push(pid);
  close(list);
}

/* State and parent: the first two fields behind the last ')' of /proc/PID/stat, since a program's name may hold
 * anything. Returns 0, or -1 if there is no such process. */
static int descend_read_stat(const struct descend *descend, pid_t pid, char *state, pid_t *parent) {
  char name[DESCEND_NAME], text[512];
  snprintf(name, sizeof name, "%d/stat", (int)pid);
  int file = openat(descend->proc, name, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return -1;
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  text[length > 0 ? length : 0] = 0;
  const char *at = strrchr(text, ')');
  return at && sscanf(at, ") %c %d", state, parent) == 2 ? 0 : -1;
}

static void descend_note(const struct descend *descend, pid_t unused, pid_t pid) {
  char state;
  pid_t parent;
  (void)unused;
  if (family.count < DESCEND_QUEUE && !descend_read_stat(descend, pid, &state, &parent))
    family.entries[family.count++] = (struct descend_entry){pid, parent};
}

static void descend_list(const struct descend *descend, pid_t parent) {
  char name[DESCEND_NAME];
  if (descend->scan) {
    for (size_t i = 0; i < family.count; i++)
      if (family.entries[i].parent == parent)
        descend_push(family.entries[i].pid);
    return;
  }
  snprintf(name, sizeof name, "%d/task", (int)parent);
  descend_each(descend, name, parent, descend_read_children);
}

void descend_open(struct descend *descend, bool scan) {
  char name[DESCEND_NAME];
  descend->proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
  snprintf(name, sizeof name, "%d/task/%d/children", (int)getpid(), (int)getpid());
  descend->scan = scan || faccessat(descend->proc, name, F_OK, 0);
}

void descend_close(struct descend *descend) {
  if (descend->proc >= 0)
    close(descend->proc);
  descend->proc = -1;
}

static bool descend_spares(pid_t pid, const pid_t *spared, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (spared[i] == pid)
      return true;
  return false;
}

size_t descend_kill(const struct descend *descend, pid_t root, const pid_t *spared, size_t spared_count) {
  size_t killed = 0;
  pid_t parent = root;
  queue.next = queue.count = family.count = 0;
  if (descend->scan)
    descend_each(descend, ".", 0, descend_note);
  for (;;) {
    descend_list(descend, parent);
    do {
      if (queue.next == queue.count)
        return killed;
      parent = queue.pids[queue.next++];
    } while (descend_spares(parent, spared, spared_count));
    if (!kill(parent, SIGKILL))
      killed++;
  }
}

/* --- by mark --- */

static struct {
  char text[DESCEND_MARK + 1]; /* a NUL in front: where an entry begins */
  size_t length;
  size_t killed;
  size_t unsure; /* processes that have no environment just now, since they are within execve */
} mark;

/* Returns 1, 0, or -1 if there is no environment. */
static int descend_is_marked(const struct descend *descend, pid_t pid) {
  char name[DESCEND_NAME], bytes[DESCEND_MARK + DESCEND_READ] = "";
  size_t kept = 1, total = 0; /* as if a NUL stood in front of all */
  bool found = false;
  snprintf(name, sizeof name, "%d/environ", (int)pid);
  int file = openat(descend->proc, name, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return 0;
  while (!found && total < DESCEND_ENVIRONMENT) {
    ssize_t length = read(file, bytes + kept, DESCEND_READ);
    if (length <= 0)
      break;
    size_t have = kept + (size_t)length;
    found = memmem(bytes, have, mark.text, mark.length) != NULL;
    total += (size_t)length;
    kept = have < mark.length ? have : mark.length;
    memmove(bytes, bytes + have - kept, kept);
  }
  close(file);
  return found ? 1 : total ? 0 : -1;
}

/* Neither a zombie nor a thread of the kernel. */
static bool descend_has_program(const struct descend *descend, pid_t pid) {
  char state;
  pid_t parent;
  return !descend_read_stat(descend, pid, &state, &parent) && !strchr("ZX", state) && pid != 2 && parent != 2;
}

static void descend_kill_if_marked(const struct descend *descend, pid_t self, pid_t pid) {
  int marked = pid == self ? 0 : descend_is_marked(descend, pid);
  if (marked > 0 && !kill(pid, SIGKILL))
    mark.killed++;
  if (marked < 0 && descend_has_program(descend, pid))
    mark.unsure++;
}

void descend_kill_marked(const struct descend *descend, const char *text) {
  mark.length = strnlen(text, DESCEND_MARK - 1) + 1;
  memcpy(mark.text + 1, text, mark.length - 1);
  for (int round = 0; round < DESCEND_ROUNDS; round++) {
    mark.killed = mark.unsure = 0;
    descend_each(descend, ".", getpid(), descend_kill_if_marked);
    if (!mark.killed && !mark.unsure)
      return;
    sched_yield();
  }
}
