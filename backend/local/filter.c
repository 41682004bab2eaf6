/*
 * A deny-list over everything the kernel would otherwise let a process without capabilities do in its own namespaces:
 * what reaches the host's kernel by rarely used and often vulnerable doors, what makes new namespaces, and what talks to
 * other machines' sockets by address families that a network namespace does not hold back. A refused call fails with
 * EPERM, or ENOSYS where programs then fall back to another call. Calls of other architectures kill the process.
 *
 * The reasons are those of the default profiles of container runtimes; unlike theirs this is a list of what is refused,
 * because a command in a sandbox may be any program and the sandbox has no capability to begin with.
 */
#define _GNU_SOURCE
#include "filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Refused whatever the arguments. */
static const int denied[] = {
    /* kernel memory, modules, tracing, performance counters */
    SCMP_SYS(bpf), SCMP_SYS(perf_event_open), SCMP_SYS(init_module), SCMP_SYS(finit_module), SCMP_SYS(delete_module),
    SCMP_SYS(create_module), SCMP_SYS(get_kernel_syms), SCMP_SYS(query_module), SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load), SCMP_SYS(lookup_dcookie), SCMP_SYS(iopl), SCMP_SYS(ioperm), SCMP_SYS(syslog),
    /* asynchronous doors with a history of holes */
    SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter), SCMP_SYS(io_uring_register), SCMP_SYS(userfaultfd),
    SCMP_SYS(vmsplice),
    /* keys are not divided by namespaces */
    SCMP_SYS(add_key), SCMP_SYS(request_key), SCMP_SYS(keyctl),
    /* mounts and namespaces */
    SCMP_SYS(mount), SCMP_SYS(umount), SCMP_SYS(umount2), SCMP_SYS(pivot_root), SCMP_SYS(chroot), SCMP_SYS(setns),
    SCMP_SYS(unshare), SCMP_SYS(open_tree), SCMP_SYS(move_mount), SCMP_SYS(fsopen), SCMP_SYS(fsconfig), SCMP_SYS(fsmount),
    SCMP_SYS(fspick), SCMP_SYS(mount_setattr), SCMP_SYS(quotactl), SCMP_SYS(quotactl_fd), SCMP_SYS(swapon),
    SCMP_SYS(swapoff), SCMP_SYS(nfsservctl), SCMP_SYS(ustat), SCMP_SYS(sysfs), SCMP_SYS(uselib),
    /* files by handle reach outside of the mount namespace */
    SCMP_SYS(name_to_handle_at), SCMP_SYS(open_by_handle_at), SCMP_SYS(fanotify_init),
    /* the machine's clock, name, accounting and power */
    SCMP_SYS(settimeofday), SCMP_SYS(stime), SCMP_SYS(clock_settime), SCMP_SYS(clock_adjtime), SCMP_SYS(adjtimex),
    SCMP_SYS(sethostname), SCMP_SYS(setdomainname), SCMP_SYS(acct), SCMP_SYS(reboot), SCMP_SYS(vhangup),
    /* other processes' memory placement, and 16-bit segments */
    SCMP_SYS(move_pages), SCMP_SYS(migrate_pages), SCMP_SYS(mbind), SCMP_SYS(set_mempolicy), SCMP_SYS(modify_ldt),
    SCMP_SYS(vm86), SCMP_SYS(vm86old), SCMP_SYS(process_madvise), SCMP_SYS(memfd_secret),
};

/* clone's flags for what a sandbox may not make. */
static const uint64_t namespaces[] = {CLONE_NEWNS,  CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
                                      CLONE_NEWUSER, CLONE_NEWPID,   CLONE_NEWNET, 0x00000080 /* CLONE_NEWTIME */};

static int deny(scmp_filter_ctx filter, uint32_t action, int call)
{
  int result = seccomp_rule_add(filter, action, call, 0);
  return result == -EDOM || result == -EFAULT ? 0 : result; /* no such call on this architecture */
}

static int deny_calls(scmp_filter_ctx filter)
{
  for (size_t i = 0; i < sizeof denied / sizeof denied[0]; i++)
    if (deny(filter, SCMP_ACT_ERRNO(EPERM), denied[i]) < 0)
      return -1;
  for (size_t i = 0; i < sizeof namespaces / sizeof namespaces[0]; i++)
    if (seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                         SCMP_A0_64(SCMP_CMP_MASKED_EQ, namespaces[i], namespaces[i])) < 0)
      return -1;
  /* its flags lie in memory, where a filter cannot look; the C library falls back to clone */
  return deny(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3));
}

/* Only unix and internet sockets, and netlink for asking about one's own network. */
static int deny_sockets(scmp_filter_ctx filter)
{
  for (unsigned family = 0; family < 64; family++) {
    if (family == AF_UNIX || family == AF_INET || family == AF_INET6)
      continue;
    if (family == AF_NETLINK) {
      if (seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 2, SCMP_A0_32(SCMP_CMP_EQ, family),
                           SCMP_A2_32(SCMP_CMP_NE, 0 /* NETLINK_ROUTE */)) < 0)
        return -1;
    } else if (seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                                SCMP_A0_32(SCMP_CMP_EQ, family)) < 0)
      return -1;
  }
  return seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1, SCMP_A0_32(SCMP_CMP_GE, 64));
}

/* Typing into a terminal that is not one's own. */
static int deny_arguments(scmp_filter_ctx filter)
{
  const unsigned long requests[] = {TIOCSTI, TIOCLINUX};
  for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++)
    if (seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1, SCMP_A1_32(SCMP_CMP_EQ, (uint32_t)requests[i])) < 0)
      return -1;
  return 0;
}

int filter_make(struct error **err)
{
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  if (!filter)
    return error_set_memory(err);
  int fd = -1;
  if (seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS) < 0 || deny_calls(filter) < 0 ||
      deny_sockets(filter) < 0 || deny_arguments(filter) < 0)
    error_set_detail(err, REASON_INTERNAL, "cannot build the seccomp filter");
  else if ((fd = memfd_create("seccomp", MFD_CLOEXEC | MFD_ALLOW_SEALING)) < 0)
    error_set_errno(err, errno, "cannot hold the seccomp filter");
  else if (seccomp_export_bpf(filter, fd) < 0 || lseek(fd, 0, SEEK_SET) < 0) {
    error_set_detail(err, REASON_INTERNAL, "cannot write the seccomp filter");
    close(fd);
    fd = -1;
  }
  seccomp_release(filter);
  return fd;
}
