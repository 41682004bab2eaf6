/*
 * The filter as a BPF program, written out by hand: libseccomp gives the numbers of the calls, but an argument of 32
 * bits must be compared as the kernel reads it, its low half alone, and "whatever is none of these" must have its own
 * answer for each call.
 *
 * The program: another architecture's call kills the process; six calls are decided by their arguments; then a binary
 * search over ranges of call numbers that share an answer.
 */
#include "backend/local/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "say which calls this architecture has"
#endif

/* x86-64 kernels may also serve x32, whose calls have this bit. */
#define FOREIGN_BIT 0x40000000U

enum { CALLS_MAX = 1024 };

#define NAMESPACES                                                                                                     \
  (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)
#define REFUSE(number) (SECCOMP_RET_ERRNO | (number))

struct writer {
  struct sock_filter *program;
  size_t count, size;
  bool full;
};

static void put(struct writer *writer, uint16_t code, uint32_t value, size_t if_true, size_t if_false) {
  if (writer->count == writer->size || if_true > UINT8_MAX || if_false > UINT8_MAX) {
    writer->full = true;
    return;
  }
  writer->program[writer->count++] =
    (struct sock_filter){.code = code, .k = value, .jt = (uint8_t)if_true, .jf = (uint8_t)if_false};
}

static void put_answer(struct writer *writer, uint32_t answer) { put(writer, BPF_RET | BPF_K, answer, 0, 0); }

/* The low half of an argument (little-endian). */
static void put_argument(struct writer *writer, unsigned number) {
  put(writer, BPF_LD | BPF_W | BPF_ABS, (uint32_t)(offsetof(struct seccomp_data, args) + number * sizeof(uint64_t)), 0,
      0);
}

/* What was loaded is `value`: give the answer; else go on. */
static void put_equal(struct writer *writer, uint32_t value, uint32_t answer) {
  put(writer, BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
  put_answer(writer, answer);
}

/* --- by argument --- */

/* Typing into a terminal, and the console's clipboard. */
static void decide_ioctl(struct writer *writer) {
  put_argument(writer, 1);
  put_equal(writer, TIOCSTI, REFUSE(EPERM));
  put_equal(writer, TIOCLINUX, REFUSE(EPERM));
  put_answer(writer, SECCOMP_RET_ALLOW);
}

/* Only what a namespace holds back: unix sockets, the plain internet protocols, and asking about one's own network. */
static void decide_socket(struct writer *writer) {
  static const uint32_t protocols[] = {0, IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMPV6};
  const size_t count = sizeof protocols / sizeof *protocols;
  put_argument(writer, 0);
  put_equal(writer, AF_UNIX, SECCOMP_RET_ALLOW);
  put(writer, BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 4);
  put_argument(writer, 2);
  put_equal(writer, 0 /* NETLINK_ROUTE */, SECCOMP_RET_ALLOW);
  put_answer(writer, REFUSE(EPROTONOSUPPORT));
  put(writer, BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 1, 0);
  put(writer, BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 2 * count + 2);
  put_argument(writer, 2);
  for (size_t i = 0; i < count; i++)
    put_equal(writer, protocols[i], SECCOMP_RET_ALLOW);
  put_answer(writer, REFUSE(EPROTONOSUPPORT));
  put_answer(writer, REFUSE(EAFNOSUPPORT));
}

static void decide_socketpair(struct writer *writer) {
  put_argument(writer, 0);
  put_equal(writer, AF_UNIX, SECCOMP_RET_ALLOW);
  put_answer(writer, REFUSE(EAFNOSUPPORT));
}

/* Threads and processes, in the namespaces there are. clone3 keeps its flags in memory, where a filter cannot look: it
 * does not exist here, and the C library falls back to clone. */
static void decide_clone(struct writer *writer) {
  put_argument(writer, 0);
  put(writer, BPF_JMP | BPF_JSET | BPF_K, NAMESPACES, 0, 1);
  put_answer(writer, REFUSE(EPERM));
  put_answer(writer, SECCOMP_RET_ALLOW);
}

static void decide_unshare(struct writer *writer) {
  put_argument(writer, 0);
  put(writer, BPF_JMP | BPF_JSET | BPF_K, NAMESPACES | CLONE_NEWTIME, 0, 1);
  put_answer(writer, REFUSE(EPERM));
  put_answer(writer, SECCOMP_RET_ALLOW);
}

/* The usual ones, an address space that is not random (debuggers want it), and asking. */
static void decide_personality(struct writer *writer) {
  static const uint32_t allowed[] = {PER_LINUX,         PER_LINUX32, UNAME26, PER_LINUX32 | UNAME26,
                                     ADDR_NO_RANDOMIZE, UINT32_MAX};
  put_argument(writer, 0);
  for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
    put_equal(writer, allowed[i], SECCOMP_RET_ALLOW);
  put_answer(writer, REFUSE(EPERM));
}

static const struct {
  uint32_t call;
  void (*decide)(struct writer *writer);
} decided[] = {{SYS_ioctl, decide_ioctl},   {SYS_socket, decide_socket},   {SYS_socketpair, decide_socketpair},
               {SYS_clone, decide_clone},   {SYS_unshare, decide_unshare}, {SYS_personality, decide_personality}};

static void put_decided(struct writer *writer, uint32_t call, void (*decide)(struct writer *writer)) {
  struct sock_filter body[64];
  struct writer inner = {.program = body, .size = sizeof body / sizeof *body};
  decide(&inner);
  writer->full |= inner.full;
  put(writer, BPF_JMP | BPF_JEQ | BPF_K, call, 0, inner.count);
  for (size_t i = 0; i < inner.count; i++)
    put(writer, body[i].code, body[i].k, body[i].jt, body[i].jf);
}

/* --- by number --- */

struct range {
  uint32_t first; /* up to the next one's first */
  uint32_t answer;
};

static size_t make_ranges(struct range *ranges) {
  static const struct {
    const char *name;
    uint32_t answer;
  } calls[] = {
#define CALL(name) {#name, SECCOMP_RET_ALLOW},
#define REFUSED(name) {#name, REFUSE(EPERM)},
#include "backend/local/filter_calls.h"
#undef CALL
#undef REFUSED
  };
  uint32_t answers[CALLS_MAX];
  size_t count = 0;
  for (size_t i = 0; i < CALLS_MAX; i++)
    answers[i] = REFUSE(ENOSYS);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    int number = seccomp_syscall_resolve_name(calls[i].name);
    if (number >= 0 && number < CALLS_MAX)
      answers[number] = calls[i].answer;
  }
  for (size_t i = 0; i < CALLS_MAX; i++)
    if (i == 0 || answers[i] != answers[i - 1])
      ranges[count++] = (struct range){.first = (uint32_t)i, .answer = answers[i]};
  return count;
}

static void put_search(struct writer *writer, const struct range *ranges, size_t count) {
  if (count == 1) {
    put_answer(writer, ranges[0].answer);
    return;
  }
  /* The lower half of n ranges takes 2n - 1 instructions. */
  size_t half = count / 2;
  put(writer, BPF_JMP | BPF_JGE | BPF_K, ranges[half].first, 2 * half - 1, 0);
  put_search(writer, ranges, half);
  put_search(writer, ranges + half, count - half);
}

int local_filter_build(struct sock_filter program[static LOCAL_FILTER_SIZE]) {
  struct writer writer = {.program = program, .size = LOCAL_FILTER_SIZE};
  struct range ranges[CALLS_MAX];
  put(&writer, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
  put(&writer, BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
  put_answer(&writer, SECCOMP_RET_KILL_PROCESS);
  put(&writer, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
  put(&writer, BPF_JMP | BPF_JGE | BPF_K, FOREIGN_BIT, 0, 1);
  put_answer(&writer, SECCOMP_RET_KILL_PROCESS);
  for (size_t i = 0; i < sizeof decided / sizeof *decided; i++)
    put_decided(&writer, decided[i].call, decided[i].decide);
  put_search(&writer, ranges, make_ranges(ranges));
  return writer.full ? -1 : (int)writer.count;
}

int local_filter_open(struct error **err) {
  struct sock_filter program[LOCAL_FILTER_SIZE];
  int count = local_filter_build(program);
  if (count < 0)
    return error_set_detail(err, REASON_INTERNAL, "the seccomp filter does not fit");
  int file = memfd_create("seccomp", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0)
    return error_set_errno(err, errno, "cannot hold the seccomp filter");
  ssize_t size = (ssize_t)((size_t)count * sizeof *program);
  if (write(file, program, (size_t)size) != size ||
      fcntl(file, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0) {
    error_set_errno(err, errno, "cannot write the seccomp filter");
    close(file);
    return -1;
  }
  return file;
}
