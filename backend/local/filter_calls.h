/*
 * The system calls of filter.c, by what they are for. CALL(name) is allowed whatever its arguments; REFUSED(name) fails
 * with EPERM; everything else fails with ENOSYS, except those that filter.c decides by their arguments. A name
 * that this architecture does not have is left out.
 */

/* Processes and threads. Tracing is allowed: since Linux 4.8 the filter holds for a traced process too, and
 * without capabilities it reaches only what the same user runs in the same namespace, except sandboxd, which is
 * not dumpable. */
CALL(fork) CALL(vfork) CALL(execve) CALL(execveat) CALL(exit) CALL(exit_group) CALL(wait4) CALL(waitid) CALL(kill)
CALL(tkill) CALL(tgkill) CALL(ptrace) CALL(process_vm_readv) CALL(process_vm_writev) CALL(pidfd_open)
CALL(pidfd_send_signal) CALL(process_mrelease) CALL(getpid) CALL(getppid) CALL(gettid) CALL(getpgid) CALL(getpgrp)
CALL(setpgid) CALL(getsid) CALL(setsid) CALL(prctl) CALL(arch_prctl) CALL(set_tid_address) CALL(set_robust_list)
CALL(get_robust_list) CALL(set_thread_area) CALL(get_thread_area) CALL(rseq) CALL(futex) CALL(futex_waitv)
CALL(restart_syscall) CALL(membarrier) CALL(getcpu) CALL(seccomp) CALL(landlock_create_ruleset)
CALL(landlock_add_rule) CALL(landlock_restrict_self)

/* Who and how much. */
CALL(getuid) CALL(geteuid) CALL(getgid) CALL(getegid) CALL(getgroups) CALL(getresuid) CALL(getresgid) CALL(setuid)
CALL(setgid) CALL(setreuid) CALL(setregid) CALL(setresuid) CALL(setresgid) CALL(setfsuid) CALL(setfsgid)
CALL(setgroups) CALL(capget) CALL(capset) CALL(getrlimit) CALL(setrlimit) CALL(prlimit64) CALL(getrusage)
CALL(getpriority) CALL(setpriority) CALL(ioprio_get) CALL(ioprio_set) CALL(sysinfo) CALL(uname) CALL(times)
CALL(umask)

/* Scheduling. */
CALL(sched_yield) CALL(sched_getaffinity) CALL(sched_setaffinity) CALL(sched_getattr) CALL(sched_setattr)
CALL(sched_getparam) CALL(sched_setparam) CALL(sched_getscheduler) CALL(sched_setscheduler)
CALL(sched_get_priority_max) CALL(sched_get_priority_min) CALL(sched_rr_get_interval)

/* Memory. */
CALL(brk) CALL(mmap) CALL(munmap) CALL(mremap) CALL(mprotect) CALL(madvise) CALL(mincore) CALL(msync) CALL(mlock)
CALL(mlock2) CALL(munlock) CALL(mlockall) CALL(munlockall) CALL(memfd_create) CALL(remap_file_pages)
CALL(pkey_alloc) CALL(pkey_free) CALL(pkey_mprotect)

/* Signals and time. */
CALL(rt_sigaction) CALL(rt_sigprocmask) CALL(rt_sigreturn) CALL(rt_sigpending) CALL(rt_sigsuspend)
CALL(rt_sigtimedwait) CALL(rt_sigqueueinfo) CALL(rt_tgsigqueueinfo) CALL(sigaltstack) CALL(signalfd) CALL(signalfd4)
CALL(pause) CALL(alarm) CALL(getitimer) CALL(setitimer) CALL(nanosleep) CALL(clock_gettime) CALL(clock_getres)
CALL(clock_nanosleep) CALL(gettimeofday) CALL(time) CALL(timer_create) CALL(timer_delete) CALL(timer_getoverrun)
CALL(timer_gettime) CALL(timer_settime) CALL(timerfd_create) CALL(timerfd_gettime) CALL(timerfd_settime)

/* Descriptors. */
CALL(read) CALL(write) CALL(readv) CALL(writev) CALL(pread64) CALL(pwrite64) CALL(preadv) CALL(pwritev) CALL(preadv2)
CALL(pwritev2) CALL(lseek) CALL(close) CALL(close_range) CALL(dup) CALL(dup2) CALL(dup3) CALL(fcntl) CALL(flock)
CALL(pipe) CALL(pipe2) CALL(tee) CALL(splice) CALL(sendfile) CALL(copy_file_range) CALL(select) CALL(pselect6)
CALL(poll) CALL(ppoll) CALL(epoll_create) CALL(epoll_create1) CALL(epoll_ctl) CALL(epoll_wait) CALL(epoll_pwait)
CALL(epoll_pwait2) CALL(eventfd) CALL(eventfd2) CALL(inotify_init) CALL(inotify_init1) CALL(inotify_add_watch)
CALL(inotify_rm_watch) CALL(io_setup) CALL(io_destroy) CALL(io_submit) CALL(io_cancel) CALL(io_getevents)
CALL(io_pgetevents)

/* Files. Device nodes are refused by the kernel: nobody here is root of the host. */
CALL(open) CALL(openat) CALL(openat2) CALL(creat) CALL(stat) CALL(lstat) CALL(fstat) CALL(newfstatat) CALL(statx)
CALL(statfs) CALL(fstatfs) CALL(access) CALL(faccessat) CALL(faccessat2) CALL(readlink) CALL(readlinkat) CALL(getcwd)
CALL(chdir) CALL(fchdir) CALL(getdents) CALL(getdents64) CALL(mkdir) CALL(mkdirat) CALL(rmdir) CALL(link) CALL(linkat)
CALL(symlink) CALL(symlinkat) CALL(unlink) CALL(unlinkat) CALL(rename) CALL(renameat) CALL(renameat2) CALL(mknod)
CALL(mknodat) CALL(chmod) CALL(fchmod) CALL(fchmodat) CALL(chown) CALL(fchown) CALL(lchown) CALL(fchownat)
CALL(utime) CALL(utimes) CALL(utimensat) CALL(futimesat) CALL(truncate) CALL(ftruncate) CALL(fallocate)
CALL(fadvise64) CALL(readahead) CALL(sync) CALL(syncfs) CALL(fsync) CALL(fdatasync) CALL(sync_file_range)
CALL(getxattr) CALL(lgetxattr) CALL(fgetxattr) CALL(setxattr) CALL(lsetxattr) CALL(fsetxattr) CALL(listxattr)
CALL(llistxattr) CALL(flistxattr) CALL(removexattr) CALL(lremovexattr) CALL(fremovexattr)

/* Talking to each other, in the sandbox's own network and ipc namespace. */
CALL(bind) CALL(listen) CALL(accept) CALL(accept4) CALL(connect) CALL(getsockname) CALL(getpeername) CALL(getsockopt)
CALL(setsockopt) CALL(sendto) CALL(recvfrom) CALL(sendmsg) CALL(recvmsg) CALL(sendmmsg) CALL(recvmmsg) CALL(shutdown)
CALL(getrandom) CALL(shmget) CALL(shmat) CALL(shmdt) CALL(shmctl) CALL(semget) CALL(semop) CALL(semtimedop)
CALL(semctl) CALL(msgget) CALL(msgsnd) CALL(msgrcv) CALL(msgctl) CALL(mq_open) CALL(mq_unlink) CALL(mq_timedsend)
CALL(mq_timedreceive) CALL(mq_notify) CALL(mq_getsetattr)

/* Mounts and namespaces: what a sandbox is made of. */
REFUSED(mount) REFUSED(umount2) REFUSED(pivot_root) REFUSED(chroot) REFUSED(setns) REFUSED(open_tree)
REFUSED(move_mount) REFUSED(fsopen) REFUSED(fsconfig) REFUSED(fsmount) REFUSED(fspick) REFUSED(mount_setattr)
/* Files by handle would reach around the mount namespace. */
REFUSED(name_to_handle_at) REFUSED(open_by_handle_at) REFUSED(fanotify_init) REFUSED(fanotify_mark)
REFUSED(quotactl) REFUSED(quotactl_fd) REFUSED(swapon) REFUSED(swapoff)
/* The kernel itself: code, tracing, its log, its keys, which no namespace divides. */
REFUSED(init_module) REFUSED(finit_module) REFUSED(delete_module) REFUSED(kexec_load) REFUSED(kexec_file_load)
REFUSED(bpf) REFUSED(perf_event_open) REFUSED(userfaultfd) REFUSED(syslog) REFUSED(add_key) REFUSED(request_key)
REFUSED(keyctl) REFUSED(lookup_dcookie)
/* The machine: its clock, name, ports, accounting, power. */
REFUSED(settimeofday) REFUSED(clock_settime) REFUSED(clock_adjtime) REFUSED(adjtimex) REFUSED(sethostname)
REFUSED(setdomainname) REFUSED(iopl) REFUSED(ioperm) REFUSED(acct) REFUSED(reboot) REFUSED(vhangup)
/* Placement of memory on nodes, of one's own and of others. */
REFUSED(mbind) REFUSED(set_mempolicy) REFUSED(get_mempolicy) REFUSED(move_pages) REFUSED(migrate_pages)
/* 16-bit segments: old code with a history of holes. */
REFUSED(modify_ldt)
