// SPDX-License-Identifier: Apache-2.0
// One row a call and condition. No role opens, executes, forks, or reaches a process other than by descriptors it was given.
#include "net/isolate_table.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "net/net.h"

enum {
    K = 1 << ISOLATE_KEEPER,
    G = 1 << ISOLATE_GATE,
    R = 1 << ISOLATE_RESOLVER,
    V = 1 << ISOLATE_VAULT,
    NET = G | R,      // roles that talk to the network
    LOOP = G | R | V, // roles with an event loop
    ALL = K | G | R | V,
};

#define CALL(name, roles) {SCMP_SYS(name), (roles), ISOLATE_ALLOW, {{0}}}
#define REFUSE(name) {SCMP_SYS(name), ALL, ISOLATE_REFUSE, {{0}}}
#define EQUAL(argument, value) {(argument), ISOLATE_EQUAL, (uint64_t)(value), 0}
#define MASKED(argument, mask, value) {(argument), ISOLATE_MASKED, (uint64_t)(value), (uint64_t)(mask)}
#define ABOVE(argument, value) {(argument), ISOLATE_ABOVE, (uint64_t)(value), 0}
#define CALL_IF(name, roles, ...) {SCMP_SYS(name), (roles), ISOLATE_ALLOW, {__VA_ARGS__}}
#define REFUSE_IF(name, roles, ...) {SCMP_SYS(name), (roles), ISOLATE_REFUSE, {__VA_ARGS__}}

#ifndef F_GET_SEALS
#define F_GET_SEALS 1034
#endif
#define SOCKET_TYPE 0xf // without SOCK_CLOEXEC and SOCK_NONBLOCK

const struct isolate_call isolate_calls[] = {
    // descriptors
    CALL(read, ALL), CALL(readv, ALL), CALL(write, ALL), CALL(writev, ALL), CALL(pwrite64, K), CALL(close, ALL), CALL(lseek, ALL),
    CALL(fstat, ALL), CALL_IF(newfstatat, ALL, MASKED(3, AT_EMPTY_PATH, AT_EMPTY_PATH)), // glibc's fstat
    CALL(dup, NET), CALL(pipe2, NET), CALL(splice, NET), CALL(eventfd2, LOOP),
    CALL_IF(fcntl, ALL, EQUAL(1, F_GETFL)), CALL_IF(fcntl, ALL, EQUAL(1, F_SETFL)),
    CALL_IF(fcntl, ALL, EQUAL(1, F_GETFD)), CALL_IF(fcntl, ALL, EQUAL(1, F_SETFD)),
    CALL_IF(fcntl, ALL, EQUAL(1, F_DUPFD_CLOEXEC)), CALL_IF(fcntl, NET, EQUAL(1, F_SETPIPE_SZ)),
    CALL_IF(fcntl, NET, EQUAL(1, F_GETPIPE_SZ)), CALL_IF(fcntl, NET, EQUAL(1, F_GET_SEALS)),
    CALL_IF(ioctl, ALL, EQUAL(1, FIONREAD)), CALL_IF(ioctl, ALL, EQUAL(1, FIONBIO)),
    CALL_IF(ioctl, NET, EQUAL(1, SIOCOUTQ)), CALL_IF(ioctl, NET, EQUAL(1, SIOCATMARK)),
    // waiting
    CALL(poll, ALL), CALL(ppoll, ALL), CALL(select, ALL), CALL(pselect6, ALL), CALL(epoll_create1, LOOP), CALL(epoll_ctl, LOOP),
    CALL(epoll_wait, LOOP), CALL(epoll_pwait, LOOP), CALL(epoll_pwait2, LOOP), CALL(timerfd_create, LOOP),
    CALL(timerfd_settime, LOOP), CALL(restart_syscall, ALL), CALL(futex, ALL),
    // sockets
    CALL_IF(socket, NET, EQUAL(0, AF_INET), MASKED(1, SOCKET_TYPE, SOCK_STREAM)),
    CALL_IF(socket, NET, EQUAL(0, AF_INET), MASKED(1, SOCKET_TYPE, SOCK_DGRAM)),
    CALL_IF(socket, NET, EQUAL(0, AF_INET6), MASKED(1, SOCKET_TYPE, SOCK_STREAM)),
    CALL_IF(socket, NET, EQUAL(0, AF_INET6), MASKED(1, SOCKET_TYPE, SOCK_DGRAM)),
    REFUSE_IF(socket, ALL, EQUAL(0, AF_UNIX)), REFUSE_IF(socket, ALL, ABOVE(0, AF_INET6)),
    CALL(connect, NET), CALL(bind, R), CALL(accept4, K | G), CALL(accept, G), CALL(shutdown, NET),
    CALL(sendto, ALL), CALL(sendmsg, ALL), CALL(sendmmsg, NET), CALL(recvfrom, ALL), CALL(recvmsg, ALL), CALL(recvmmsg, NET),
    CALL(getsockopt, ALL), CALL(setsockopt, ALL), CALL(getsockname, ALL), CALL(getpeername, NET),
    // memory: never executable
    CALL_IF(mmap, ALL, MASKED(2, PROT_EXEC, 0)), CALL_IF(mprotect, ALL, MASKED(2, PROT_EXEC, 0)), CALL(munmap, ALL),
    CALL(mremap, ALL), CALL(madvise, ALL), CALL(brk, ALL),
    // time, chance, facts
    CALL(clock_gettime, ALL), CALL(clock_getres, ALL), CALL(gettimeofday, ALL), CALL(time, ALL), CALL(clock_nanosleep, ALL),
    CALL(nanosleep, ALL), CALL(getrandom, ALL), CALL(getpid, ALL), CALL(gettid, ALL), CALL(getuid, ALL), CALL(geteuid, ALL),
    CALL(getgid, ALL), CALL(getegid, ALL), CALL(uname, ALL), CALL(sysinfo, ALL), CALL(sched_yield, ALL),
    CALL(sched_getaffinity, ALL), CALL(getrlimit, ALL), CALL_IF(prlimit64, ALL, EQUAL(2, 0)), CALL(getrusage, ALL),
    // signals and the end
    CALL(rt_sigaction, ALL), CALL(rt_sigprocmask, ALL), CALL(rt_sigreturn, ALL), CALL(sigaltstack, ALL), CALL(exit, ALL),
    CALL(exit_group, ALL),
    // what libraries try and survive
    REFUSE(open), REFUSE(openat), REFUSE(stat), REFUSE(lstat), REFUSE(access), REFUSE(faccessat), REFUSE(readlink),
    REFUSE(readlinkat), REFUSE(getcwd), REFUSE(kill), REFUSE(tgkill),
};
const size_t isolate_call_count = ARRAY_LENGTH(isolate_calls);
