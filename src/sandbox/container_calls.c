// SPDX-License-Identifier: Apache-2.0
// Compiled when penstock is built (seccomp_make.c).
//
// A container's root has capabilities in its own user namespace and a system of its own, so its filter is a list of what is
// allowed. What is not named is ENOSYS, as on a kernel that lacks it, and callers fall back; what programs know
// to be forbidden is EPERM. Beside the reasons of seccomp_rules.c:
// - no new namespaces, mounts or keys: a user namespace of its own would give the container's root every capability over new
//   kinds of kernel objects (nftables, mounts of file systems), the most fertile ground of escapes;
// - socket families as there: UNIX, INET, INET6, NETLINK;
// - chmod may set S_ISUID: what is written stays in the layer, owned by numbers that nobody has outside, where nobody goes.
#include "sandbox/container_calls.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/socket.h>

#include "base/call_filter.h"
#include "base/mem.h"

// Newer than libseccomp may be; these numbers are the same on every architecture that we build for.
#define CALL_CACHESTAT 451
#define CALL_FCHMODAT2 452
#define CALL_MAP_SHADOW_STACK 453
#define CALL_FUTEX_WAKE 454
#define CALL_FUTEX_WAIT 455
#define CALL_FUTEX_REQUEUE 456
#define CALL_MSEAL 462
#define CALL_SETXATTRAT 463
#define CALL_GETXATTRAT 464
#define CALL_LISTXATTRAT 465
#define CALL_REMOVEXATTRAT 466

#define C(name) SCMP_SYS(name)
static const int allowed[] = {
    // Files.
    C(access), C(chdir), C(chmod), C(chown), C(chroot), C(close), C(close_range), C(copy_file_range), C(creat), C(dup),
    C(dup2), C(dup3), C(faccessat), C(faccessat2), C(fadvise64), C(fallocate), C(fchdir), C(fchmod), C(fchmodat),
    CALL_FCHMODAT2, C(fchown), C(fchownat), C(fcntl), C(fdatasync), C(fgetxattr), C(flistxattr), C(flock), C(fremovexattr),
    C(fsetxattr), C(fstat), C(fstatfs), C(fsync), C(ftruncate), C(futimesat), C(getcwd), C(getdents), C(getdents64),
    C(getxattr), C(inotify_add_watch), C(inotify_init), C(inotify_init1), C(inotify_rm_watch), C(lchown), C(lgetxattr),
    C(link), C(linkat), C(listxattr), C(llistxattr), C(lremovexattr), C(lseek), C(lsetxattr), C(lstat), C(mkdir),
    C(mkdirat), C(mknod), C(mknodat), C(name_to_handle_at), C(newfstatat), C(open), C(openat), C(openat2), C(pread64),
    C(preadv), C(preadv2), C(pwrite64), C(pwritev), C(pwritev2), C(read), C(readahead), C(readlink), C(readlinkat),
    C(readv), C(removexattr), C(rename), C(renameat), C(renameat2), C(rmdir), C(sendfile), C(setxattr), C(splice), C(stat),
    C(statfs), C(statx), C(symlink), C(symlinkat), C(sync), C(sync_file_range), C(syncfs), C(tee), C(truncate), C(umask),
    C(unlink), C(unlinkat), C(utime), C(utimensat), C(utimes), C(vmsplice), C(write), C(writev), CALL_CACHESTAT,
    CALL_SETXATTRAT, CALL_GETXATTRAT, CALL_LISTXATTRAT, CALL_REMOVEXATTRAT, C(fanotify_mark), C(ustat), C(sysfs),
    // Memory.
    C(brk), C(madvise), C(membarrier), C(memfd_create), C(memfd_secret), C(mincore), C(mlock), C(mlock2), C(mlockall),
    C(mmap), C(mprotect), C(mremap), C(msync), C(munlock), C(munlockall), C(munmap), C(pkey_alloc), C(pkey_free),
    C(pkey_mprotect), C(process_madvise), C(process_mrelease), C(remap_file_pages), CALL_MAP_SHADOW_STACK, CALL_MSEAL,
    C(get_mempolicy), C(mbind), C(set_mempolicy), C(set_mempolicy_home_node),
    // Processes and threads.
    C(arch_prctl), C(capget), C(capset), C(execve), C(execveat), C(exit), C(exit_group), C(fork), C(futex), C(futex_waitv),
    CALL_FUTEX_WAKE, CALL_FUTEX_WAIT, CALL_FUTEX_REQUEUE, C(get_robust_list), C(get_thread_area), C(getcpu), C(getegid),
    C(geteuid), C(getgid), C(getgroups), C(getpgid), C(getpgrp), C(getpid), C(getppid), C(getpriority), C(getresgid),
    C(getresuid), C(getrlimit), C(getrusage), C(getsid), C(gettid), C(getuid), C(ioprio_get), C(ioprio_set), C(kcmp),
    C(kill), C(pidfd_getfd), C(pidfd_open), C(pidfd_send_signal), C(prctl), C(prlimit64), C(process_vm_readv),
    C(process_vm_writev), C(ptrace), C(rseq), C(sched_get_priority_max), C(sched_get_priority_min), C(sched_getaffinity),
    C(sched_getattr), C(sched_getparam), C(sched_getscheduler), C(sched_rr_get_interval), C(sched_setaffinity),
    C(sched_setattr), C(sched_setparam), C(sched_setscheduler), C(sched_yield), C(seccomp), C(set_robust_list),
    C(set_thread_area), C(set_tid_address), C(setfsgid), C(setfsuid), C(setgid), C(setgroups), C(setpgid), C(setpriority),
    C(setregid), C(setresgid), C(setresuid), C(setreuid), C(setrlimit), C(setsid), C(setuid), C(tgkill), C(tkill), C(vfork),
    C(wait4), C(waitid), C(landlock_create_ruleset), C(landlock_add_rule), C(landlock_restrict_self), C(sysinfo), C(times),
    C(uname), C(getrandom), C(modify_ldt), C(restart_syscall),
    // Signals and time.
    C(alarm), C(clock_adjtime), C(clock_getres), C(clock_gettime), C(clock_nanosleep), C(adjtimex), C(getitimer),
    C(gettimeofday), C(nanosleep), C(pause), C(rt_sigaction), C(rt_sigpending), C(rt_sigprocmask), C(rt_sigqueueinfo),
    C(rt_sigreturn), C(rt_sigsuspend), C(rt_sigtimedwait), C(rt_tgsigqueueinfo), C(setitimer), C(sigaltstack), C(signalfd),
    C(signalfd4), C(time), C(timer_create), C(timer_delete), C(timer_getoverrun), C(timer_gettime), C(timer_settime),
    C(timerfd_create), C(timerfd_gettime), C(timerfd_settime),
    // Waiting and talking.
    C(accept), C(accept4), C(bind), C(connect), C(epoll_create), C(epoll_create1), C(epoll_ctl), C(epoll_ctl_old),
    C(epoll_pwait), C(epoll_pwait2), C(epoll_wait), C(epoll_wait_old), C(eventfd), C(eventfd2), C(getpeername),
    C(getsockname), C(getsockopt), C(listen), C(pipe), C(pipe2), C(poll), C(ppoll), C(pselect6), C(recvfrom), C(recvmmsg),
    C(recvmsg), C(select), C(sendmmsg), C(sendmsg), C(sendto), C(setsockopt), C(shutdown), C(io_cancel), C(io_destroy),
    C(io_getevents), C(io_pgetevents), C(io_setup), C(io_submit),
    // IPC, in a namespace of its own.
    C(mq_getsetattr), C(mq_notify), C(mq_open), C(mq_timedreceive), C(mq_timedsend), C(mq_unlink), C(msgctl), C(msgget),
    C(msgrcv), C(msgsnd), C(semctl), C(semget), C(semop), C(semtimedop), C(shmat), C(shmctl), C(shmdt), C(shmget),
};

static const int forbidden[] = { // EPERM
    C(acct), C(add_key), C(bpf), C(clock_settime), C(delete_module), C(finit_module), C(fsconfig), C(fsmount), C(fsopen),
    C(fspick), C(init_module), C(kexec_file_load), C(kexec_load), C(keyctl), C(lookup_dcookie), C(mount), C(mount_setattr),
    C(move_mount), C(move_pages), C(migrate_pages), C(open_by_handle_at), C(open_tree), C(perf_event_open), C(pivot_root),
    C(quotactl), C(quotactl_fd), C(reboot), C(request_key), C(setdomainname), C(sethostname), C(setns), C(settimeofday),
    C(swapoff), C(swapon), C(syslog), C(umount2), C(unshare), C(userfaultfd), C(vhangup), C(fanotify_init), C(iopl),
    C(ioperm),
};
#undef C

#define LOW_32_BITS UINT64_C(0xffffffff)
#define FAMILIES 32 // by number; above, by bits

static int add_if(struct call_filter *filter, uint32_t action, int call, struct scmp_arg_cmp condition) {
    return call_filter_add(filter, action, call, 1, &condition);
}

static int fill_families(struct call_filter *filter, int call) {
    int r = 0;
    for (unsigned family = 0; r == 0 && family < FAMILIES; family++) {
        bool good = family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK;
        r = add_if(filter, good ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EAFNOSUPPORT), call,
                   SCMP_A0(SCMP_CMP_MASKED_EQ, LOW_32_BITS, family));
    }
    for (uint64_t bit = FAMILIES; r == 0 && bit <= LOW_32_BITS; bit <<= 1)
        r = add_if(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), call, SCMP_A0(SCMP_CMP_MASKED_EQ, bit, bit));
    return r;
}

// All requests but TIOCSTI (0x5412) and TIOCLINUX (0x541c), which put bytes into a terminal's input: those that differ from
// both in a bit that both have the same, and those that end in another digit.
static int fill_ioctl(struct call_filter *filter) {
    static_assert((TIOCSTI & ~0xf) == (TIOCLINUX & ~0xf), "they differ in the last digit only");
    const int call = SCMP_SYS(ioctl);
    int r = 0;
    for (uint64_t bit = 0x10; r == 0 && bit <= LOW_32_BITS; bit <<= 1)
        r = add_if(filter, SCMP_ACT_ALLOW, call, SCMP_A1(SCMP_CMP_MASKED_EQ, bit, ~(uint64_t)TIOCSTI & bit));
    for (uint64_t digit = 0; r == 0 && digit <= 0xf; digit++) {
        if (digit == (TIOCSTI & 0xf) || digit == (TIOCLINUX & 0xf)) continue;
        r = add_if(filter, SCMP_ACT_ALLOW, call, SCMP_A1(SCMP_CMP_MASKED_EQ, 0xf, digit));
    }
    if (r == 0) r = add_if(filter, SCMP_ACT_ERRNO(EPERM), call, SCMP_A1(SCMP_CMP_MASKED_EQ, LOW_32_BITS, TIOCSTI));
    if (r == 0) r = add_if(filter, SCMP_ACT_ERRNO(EPERM), call, SCMP_A1(SCMP_CMP_MASKED_EQ, LOW_32_BITS, TIOCLINUX));
    return r;
}

// CLONE_PARENT would make a child of whoever executed the command, who knows nothing of it and waits for none such.
// clone3 has its flags in memory, where a filter cannot look: ENOSYS, and callers fall back to clone.
static int fill_clone(struct call_filter *filter) {
    static const uint64_t flags[] = {CLONE_NEWNS,  CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
                                     CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET, CLONE_PARENT};
    uint64_t all = 0;
    int r = 0;
    for (size_t i = 0; r == 0 && i < ARRAY_LENGTH(flags); i++) {
        all |= flags[i];
        r = add_if(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), SCMP_A0(SCMP_CMP_MASKED_EQ, flags[i], flags[i]));
    }
    return r == 0 ? add_if(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), SCMP_A0(SCMP_CMP_MASKED_EQ, all, 0)) : r;
}

// Those of Linux itself, with and without fixed addresses (debuggers), and the question which it is.
static int fill_personality(struct call_filter *filter) {
    static const uint64_t values[] = {PER_LINUX, ADDR_NO_RANDOMIZE, 0xffffffff};
    int r = 0;
    for (size_t i = 0; r == 0 && i < ARRAY_LENGTH(values); i++)
        r = add_if(filter, SCMP_ACT_ALLOW, SCMP_SYS(personality), SCMP_A0(SCMP_CMP_EQ, values[i]));
    return r;
}

int container_calls_fill(struct call_filter *filter) {
    int r = fill_families(filter, SCMP_SYS(socket));
    if (r == 0) r = fill_families(filter, SCMP_SYS(socketpair));
    if (r == 0) r = fill_ioctl(filter);
    if (r == 0) r = fill_clone(filter);
    if (r == 0) r = fill_personality(filter);
    for (size_t i = 0; r == 0 && i < ARRAY_LENGTH(allowed); i++) r = call_filter_add(filter, SCMP_ACT_ALLOW, allowed[i], 0, NULL);
    for (size_t i = 0; r == 0 && i < ARRAY_LENGTH(forbidden); i++)
        r = call_filter_add(filter, SCMP_ACT_ERRNO(EPERM), forbidden[i], 0, NULL);
    return r;
}
