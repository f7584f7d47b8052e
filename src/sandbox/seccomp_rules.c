// SPDX-License-Identifier: Apache-2.0
// Compiled when penstock is built (seccomp_make.c).
//
// Network namespaces bind IP, packet and abstract UNIX sockets. This filter closes what they do not bind, and the calls
// that would go round the filter itself. It is a list of what is denied: programs in a sandbox are any programs, and
// what needs a capability is denied by the user namespace already.
//
// - socket, socketpair: UNIX, INET, INET6, NETLINK only. AF_VSOCK reaches the hypervisor and its neighbours from any
// network
//   namespace; AF_ALG, AF_BLUETOOTH, AF_CAN and so on are kernel surface of no use here. The kernel takes the family as
//   an int, so only the low 32 bits are compared: a filter on 64 bits is passed with a bit set above them.
// - io_uring has opcodes for socket, connect and open that a filter never sees. ENOSYS, so that libuv and others fall
// back.
// - Foreign ABIs (i386, x32, 32-bit ARM) have other numbers for the same calls: the process is killed, which a person
// sees as
//   "Bad system call" instead of as a strange fault.
// - Key rings are not kept apart by namespaces: a command of the same user would read the session's keys.
// - TIOCSTI and TIOCLINUX put bytes into the terminal's input, which the shell outside would run. Also by the low 32
// bits.
// - Kernel surface with a long record of faults that tools in a sandbox do not need: bpf, perf_event_open, userfaultfd.
//   syslog reads the host's kernel log where dmesg_restrict is 0. Loading of modules and kernels, file handles (a way
//   to open files by inode), swap, clock and reboot need capabilities of the host and are named so that a kernel fault
//   in those checks does not matter.
// - Privilege that would outlive the sandbox. Files in a shared folder are the host's: a program with the set-user-ID bit
//   (root's, where root owns the folder) or with a file capability would work there for anybody. So no call can set
//   S_ISUID or S_ISGID: chmod and its kin, open and creat where they create, mknod. mkdir ignores these bits by itself;
//   a folder that inherits S_ISGID from its parent gives nothing. openat2 has its mode in memory, where a filter cannot
//   look: ENOSYS, and callers fall back to openat. The name of an extended attribute is in memory too, so none can be
//   set: EOPNOTSUPP is what a file system without them says, and what cp -a, tar, rsync and Python pass over.
// - fixed_mounts: files in writable folders are protected by mounts over them. rename and unlink respect a mount of the
//   caller's own mount namespace only; a command that made a nested one, left all mounts behind with pivot_root and kept
//   a descriptor of the folder would move the file away. So no mount namespace can be made then; clone3 has its flags in
//   memory: ENOSYS, and callers fall back to clone.
// Left open on purpose: ptrace and pidfd calls (bound by the PID namespace; debuggers need them), unshare, clone and
// mount (nested sandboxes of browsers, Bazel and bubblewrap; a nested namespace gets no power over ours, and mounts
// that hide something are locked together in it).
#include "sandbox/seccomp_rules.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <seccomp.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/call_filter.h"
#include "base/mem.h"

// Newer than libseccomp and headers may be; these numbers are the same on every architecture that we build for.
#define CALL_FCHMODAT2 452
#define CALL_SETXATTRAT 463

static const struct {
    int call, error;
} denied[] = {
    {SCMP_SYS(openat2), ENOSYS},
    {SCMP_SYS(setxattr), EOPNOTSUPP},
    {SCMP_SYS(lsetxattr), EOPNOTSUPP},
    {SCMP_SYS(fsetxattr), EOPNOTSUPP},
    {CALL_SETXATTRAT, EOPNOTSUPP},
    {SCMP_SYS(io_uring_setup), ENOSYS},
    {SCMP_SYS(io_uring_enter), ENOSYS},
    {SCMP_SYS(io_uring_register), ENOSYS},
    {SCMP_SYS(socketcall), ENOSYS},
    {SCMP_SYS(keyctl), ENOSYS},
    {SCMP_SYS(add_key), ENOSYS},
    {SCMP_SYS(request_key), ENOSYS},
    {SCMP_SYS(bpf), EPERM},
    {SCMP_SYS(perf_event_open), EPERM},
    {SCMP_SYS(userfaultfd), EPERM},
    {SCMP_SYS(syslog), EPERM},
    {SCMP_SYS(init_module), EPERM},
    {SCMP_SYS(finit_module), EPERM},
    {SCMP_SYS(delete_module), EPERM},
    {SCMP_SYS(kexec_load), EPERM},
    {SCMP_SYS(kexec_file_load), EPERM},
    {SCMP_SYS(open_by_handle_at), EPERM},
    {SCMP_SYS(swapon), EPERM},
    {SCMP_SYS(swapoff), EPERM},
    {SCMP_SYS(acct), EPERM},
    {SCMP_SYS(reboot), EPERM},
    {SCMP_SYS(settimeofday), EPERM},
    {SCMP_SYS(clock_settime), EPERM},
    {SCMP_SYS(quotactl), EPERM},
    {SCMP_SYS(quotactl_fd), EPERM},
};

#define LOW_32_BITS UINT64_C(0xffffffff)
#define FAMILIES 32 // by number; above, by bits

static bool family_allowed(unsigned family) {
    return family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK;
}

static int deny_if(struct call_filter *filter, int error, int call, struct scmp_arg_cmp condition) {
    return call_filter_add(filter, SCMP_ACT_ERRNO((uint32_t)error), call, 1, &condition);
}

// "Not one of these" has no rule of its own in libseccomp: every number below 32 that is not allowed is named, and each
// higher bit of the int denies by itself.
static int deny_families(struct call_filter *filter, int call) {
    int r = 0;
    for (unsigned family = 0; r == 0 && family < FAMILIES; family++)
        if (!family_allowed(family))
            r = deny_if(filter, EAFNOSUPPORT, call, SCMP_A0(SCMP_CMP_MASKED_EQ, LOW_32_BITS, family));
    for (uint64_t bit = FAMILIES; r == 0 && bit <= LOW_32_BITS; bit <<= 1)
        r = deny_if(filter, EAFNOSUPPORT, call, SCMP_A0(SCMP_CMP_MASKED_EQ, bit, bit));
    return r;
}

static int deny_ioctl(struct call_filter *filter, uint64_t request) {
    return deny_if(filter, EPERM, SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_MASKED_EQ, LOW_32_BITS, request));
}

// Which argument is the mode, and which the flags that say whether there is one (NO_FLAGS: there always is).
#define NO_FLAGS UINT_MAX
static const struct {
    int call;
    unsigned mode, flags;
} modes[] = {
    {SCMP_SYS(chmod), 1, NO_FLAGS},  {SCMP_SYS(fchmod), 1, NO_FLAGS}, {SCMP_SYS(fchmodat), 2, NO_FLAGS},
    {CALL_FCHMODAT2, 2, NO_FLAGS},   {SCMP_SYS(creat), 1, NO_FLAGS},  {SCMP_SYS(open), 2, 1},
    {SCMP_SYS(openat), 3, 2},        {SCMP_SYS(mknod), 1, NO_FLAGS},  {SCMP_SYS(mknodat), 2, NO_FLAGS},
};

#define TMPFILE_FLAG (O_TMPFILE & ~O_DIRECTORY)

static int deny_bits(struct call_filter *filter, int call, unsigned argument, uint64_t bit) {
    return deny_if(filter, EPERM, call, SCMP_CMP(argument, SCMP_CMP_MASKED_EQ, bit, bit));
}

static int deny_mode(struct call_filter *filter, size_t index, uint64_t bit) {
    static const uint64_t creating[] = {O_CREAT, TMPFILE_FLAG};
    if (modes[index].flags == NO_FLAGS) return deny_bits(filter, modes[index].call, modes[index].mode, bit);
    int r = 0;
    for (size_t i = 0; r == 0 && i < ARRAY_LENGTH(creating); i++) {
        const struct scmp_arg_cmp set[] = {
            SCMP_CMP(modes[index].flags, SCMP_CMP_MASKED_EQ, creating[i], creating[i]),
            SCMP_CMP(modes[index].mode, SCMP_CMP_MASKED_EQ, bit, bit),
        };
        r = call_filter_add(filter, SCMP_ACT_ERRNO(EPERM), modes[index].call, ARRAY_LENGTH(set), set);
    }
    return r;
}

static int deny_privilege(struct call_filter *filter) {
    int r = 0;
    for (size_t i = 0; r == 0 && i < ARRAY_LENGTH(modes); i++) {
        r = deny_mode(filter, i, S_ISUID);
        if (r == 0) r = deny_mode(filter, i, S_ISGID);
    }
    return r;
}

#define UNSHARE_EMPTY_MOUNTS UINT64_C(0x00100000) // UNSHARE_EMPTY_MNTNS of newer kernels, which implies CLONE_NEWNS

static int deny_mount_namespaces(struct call_filter *filter) {
    int r = deny_bits(filter, SCMP_SYS(unshare), 0, CLONE_NEWNS);
    if (r == 0) r = deny_bits(filter, SCMP_SYS(unshare), 0, UNSHARE_EMPTY_MOUNTS);
    if (r == 0) r = deny_bits(filter, SCMP_SYS(clone), 0, CLONE_NEWNS);
    if (r == 0) r = call_filter_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0, NULL);
    return r;
}

int seccomp_rules_fill(struct call_filter *filter, bool fixed_mounts) {
    int r = deny_families(filter, SCMP_SYS(socket));
    if (r == 0) r = deny_families(filter, SCMP_SYS(socketpair));
    if (r == 0) r = deny_ioctl(filter, TIOCSTI);
    if (r == 0) r = deny_ioctl(filter, TIOCLINUX);
    if (r == 0) r = deny_privilege(filter);
    if (r == 0 && fixed_mounts) r = deny_mount_namespaces(filter);
    for (size_t i = 0; r == 0 && i < ARRAY_LENGTH(denied); i++)
        r = call_filter_add(filter, SCMP_ACT_ERRNO((uint32_t)denied[i].error), denied[i].call, 0, NULL);
    return r;
}
