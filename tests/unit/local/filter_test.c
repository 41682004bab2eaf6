/* The seccomp filter, run by a small interpreter of its instructions: which call gets which answer. */
#include "backend/local/filter.h"
#include "tests/unit/local/check.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#else
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#define REFUSED(number) (SECCOMP_RET_ERRNO | (number))

static struct sock_filter program[LOCAL_FILTER_SIZE];
static size_t program_length;

static uint32_t run(const struct seccomp_data *data) {
  uint32_t accumulator = 0;
  for (size_t at = 0; at < program_length;) {
    const struct sock_filter *step = &program[at++];
    bool yes = false;
    switch (step->code) {
    case BPF_LD | BPF_W | BPF_ABS:
      assert_true(step->k % 4 == 0 && step->k + 4 <= sizeof *data);
      memcpy(&accumulator, (const char *)data + step->k, 4);
      continue;
    case BPF_RET | BPF_K: return step->k;
    case BPF_JMP | BPF_JEQ | BPF_K: yes = accumulator == step->k; break;
    case BPF_JMP | BPF_JGE | BPF_K: yes = accumulator >= step->k; break;
    case BPF_JMP | BPF_JSET | BPF_K: yes = (accumulator & step->k) != 0; break;
    default: fail_msg("instruction %#x", step->code);
    }
    at += yes ? step->jt : step->jf;
  }
  fail_msg("the program has no answer");
  return 0;
}

static uint32_t answer(long call, uint64_t first, uint64_t second, uint64_t third) {
  return run(&(struct seccomp_data){.nr = (int)call, .arch = ARCHITECTURE, .args = {first, second, third}});
}

static int build(void **state) {
  (void)state;
  int length = local_filter_build(program);
  program_length = length > 0 ? (size_t)length : 0;
  return length > 0 ? 0 : -1;
}

static void everyday_calls_are_allowed(void **state) {
  (void)state;
  static const long calls[] = {SYS_read,       SYS_write, SYS_openat, SYS_close,      SYS_execve, SYS_mmap,
                               SYS_futex,      SYS_wait4, SYS_kill,   SYS_exit_group, SYS_getpid, SYS_pipe2,
                               SYS_epoll_wait, SYS_rseq,  SYS_statx,  SYS_getrandom};
  for (size_t i = 0; i < COUNT_OF(calls); i++)
    if (answer(calls[i], 0, 0, 0) != SECCOMP_RET_ALLOW)
      fail_msg("call %ld", calls[i]);
}

static void calls_into_the_kernel_are_not(void **state) {
  (void)state;
  static const long calls[] = {SYS_mount,
                               SYS_umount2,
                               SYS_pivot_root,
                               SYS_chroot,
                               SYS_swapon,
                               SYS_reboot,
                               SYS_init_module,
                               SYS_kexec_load,
                               SYS_add_key,
                               SYS_request_key,
                               SYS_keyctl,
                               SYS_perf_event_open,
                               SYS_setns,
                               SYS_open_by_handle_at,
                               SYS_bpf,
                               SYS_userfaultfd,
                               SYS_io_uring_setup,
                               SYS_open_tree,
                               SYS_move_mount,
                               SYS_fsopen,
                               SYS_clone3,
                               SYS_fanotify_init,
                               SYS_acct,
                               SYS_settimeofday,
                               1000};
  for (size_t i = 0; i < COUNT_OF(calls); i++) {
    uint32_t given = answer(calls[i], 0, 0, 0);
    if (given != REFUSED(EPERM) && given != REFUSED(ENOSYS))
      fail_msg("call %ld: %#x", calls[i], given);
  }
}

static void other_architectures_end_the_process(void **state) {
  (void)state;
  assert_int_equal(run(&(struct seccomp_data){.nr = SYS_read, .arch = AUDIT_ARCH_I386}), SECCOMP_RET_KILL_PROCESS);
  assert_int_equal(answer(SYS_read | 0x40000000, 0, 0, 0), SECCOMP_RET_KILL_PROCESS);
  assert_int_equal(answer(-1, 0, 0, 0), SECCOMP_RET_KILL_PROCESS);
}

/* The kernel reads the low half of these arguments: the upper one must not open a way around. */
static void arguments_decide_by_their_low_half(void **state) {
  (void)state;
  const uint64_t high = UINT64_C(1) << 32;
  static const uint32_t spaces[] = {CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
                                    CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET};
  for (size_t i = 0; i < COUNT_OF(spaces); i++) {
    assert_int_equal(answer(SYS_clone, spaces[i] | 17, 0, 0), REFUSED(EPERM));
    assert_int_equal(answer(SYS_clone, high | spaces[i], 0, 0), REFUSED(EPERM));
    assert_int_equal(answer(SYS_unshare, spaces[i], 0, 0), REFUSED(EPERM));
  }
  assert_int_equal(answer(SYS_clone, 17, 0, 0), SECCOMP_RET_ALLOW);
  assert_int_equal(answer(SYS_unshare, CLONE_FILES, 0, 0), SECCOMP_RET_ALLOW);
  assert_int_equal(answer(SYS_ioctl, 0, TIOCSTI, 0), REFUSED(EPERM));
  assert_int_equal(answer(SYS_ioctl, 0, high | TIOCSTI, 0), REFUSED(EPERM));
  assert_int_equal(answer(SYS_ioctl, 0, TIOCLINUX, 0), REFUSED(EPERM));
  assert_int_equal(answer(SYS_ioctl, 0, FIONREAD, 0), SECCOMP_RET_ALLOW);
  assert_int_equal(answer(SYS_personality, ADDR_NO_RANDOMIZE, 0, 0), SECCOMP_RET_ALLOW);
  assert_int_equal(answer(SYS_personality, READ_IMPLIES_EXEC, 0, 0), REFUSED(EPERM));
}

static void only_plain_sockets_can_be_made(void **state) {
  (void)state;
  const uint64_t high = UINT64_C(1) << 32;
  assert_int_equal(answer(SYS_socket, AF_UNIX, SOCK_STREAM, 0), SECCOMP_RET_ALLOW);
  assert_int_equal(answer(SYS_socket, AF_INET, SOCK_STREAM, 0), SECCOMP_RET_ALLOW);
  assert_int_equal(answer(SYS_socket, AF_INET, SOCK_STREAM, 6), SECCOMP_RET_ALLOW);
  assert_int_equal(answer(SYS_socket, AF_INET6, SOCK_DGRAM, 17), SECCOMP_RET_ALLOW);
  assert_int_equal(answer(SYS_socket, AF_INET, SOCK_STREAM, 262 /* MPTCP */), REFUSED(EPROTONOSUPPORT));
  assert_int_equal(answer(SYS_socket, AF_INET, SOCK_STREAM, 132 /* SCTP */), REFUSED(EPROTONOSUPPORT));
  assert_int_equal(answer(SYS_socket, AF_NETLINK, SOCK_RAW, 0), SECCOMP_RET_ALLOW);
  assert_int_equal(answer(SYS_socket, AF_NETLINK, SOCK_RAW, 12 /* netfilter */), REFUSED(EPROTONOSUPPORT));
  static const uint32_t families[] = {AF_PACKET, AF_VSOCK, AF_ALG, AF_BLUETOOTH, AF_CAN, AF_TIPC, AF_KEY, AF_XDP, 46};
  for (size_t i = 0; i < COUNT_OF(families); i++) {
    assert_int_equal(answer(SYS_socket, families[i], SOCK_RAW, 0), REFUSED(EAFNOSUPPORT));
    assert_int_equal(answer(SYS_socket, high | families[i], SOCK_RAW, 0), REFUSED(EAFNOSUPPORT));
  }
  assert_int_equal(answer(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0), SECCOMP_RET_ALLOW);
  assert_int_equal(answer(SYS_socketpair, AF_TIPC, SOCK_STREAM, 0), REFUSED(EAFNOSUPPORT));
}

static void the_file_cannot_be_changed(void **state) {
  (void)state;
  CLEANUP_ERROR struct error *err = NULL;
  int file = local_filter_open(&err);
  assert_true(file >= 0);
  assert_int_equal(pwrite(file, "x", 1, 0), -1);
  assert_int_equal(ftruncate(file, 0), -1);
  assert_int_equal(lseek(file, 0, SEEK_END), program_length * sizeof *program);
  close(file);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(everyday_calls_are_allowed),         cmocka_unit_test(calls_into_the_kernel_are_not),
    cmocka_unit_test(other_architectures_end_the_process), cmocka_unit_test(arguments_decide_by_their_low_half),
    cmocka_unit_test(only_plain_sockets_can_be_made),     cmocka_unit_test(the_file_cannot_be_changed),
  };
  return cmocka_run_group_tests(tests, build, NULL);
}
