// SPDX-License-Identifier: Apache-2.0
// Fault injection: linked into a second build of the program (penstock-faulty), it stands before the allocator and before
// the calls that make descriptors. The one call that the plan names fails, once, in processes of the role that the plan
// names; all others are only counted. The shipped program has nothing of this.
//
// The plan is a shared mapping of the file PROGRAM.fault, opened before a role isolates itself: tests/e2e/faults.py writes
// it and reads from it what happened. Without that file nothing fails.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum fault_kind { FAULT_MEMORY, FAULT_DESCRIPTOR, FAULT_KINDS };
enum { ROLES = 4, SITES = 6, PROCESSES = 32, STACK_WORDS = 400 };
static const char *const roles[ROLES] = {"run", "@keeper", "@resolver", "@gate"}; // argv[1]

// Same layout in tests/e2e/faults.py.
struct fault_plan {
    uint32_t role, kind; // in which, and enum fault_kind
    uint32_t at;         // which call fails, from 1; 0: none
    uint32_t calls[ROLES][FAULT_KINDS]; // made so far, by all processes of a role
    uint32_t fired;
    uint32_t signal;     // that one of them died of
    uint32_t process_count, reaped_count;
    int32_t processes[PROCESSES];                      // of any role
    struct { int32_t pid, status; } reaped[PROCESSES]; // by any process
    uint32_t sites[SITES]; // what may be return addresses on the stack of the call that failed, relative to the program
    uint32_t own;        // `signal` came while the program's own code ran, or from abort(); 0: while a library's did
};

static struct fault_plan *plan; // NULL: not started yet, or no file
static uint32_t role;
extern const char __executable_start, etext;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
// Those of AddressSanitizer, in such a build.
void *__interceptor_malloc(size_t size) __attribute__((weak));
void *__interceptor_calloc(size_t count, size_t size) __attribute__((weak));
void *__interceptor_realloc(void *old, size_t size) __attribute__((weak));

// Everything on the stack that points into the program's text: a hint at where the call came from.
__attribute__((noinline, no_sanitize("address"))) static void note_sites(void) {
    const uintptr_t *word = __builtin_frame_address(0);
    for (size_t i = 0, found = 0; i < STACK_WORDS && found < SITES; i++)
        if (word[i] > (uintptr_t)&__executable_start && word[i] < (uintptr_t)&etext)
            plan->sites[found++] = (uint32_t)(word[i] - (uintptr_t)&__executable_start);
}

static bool fails(enum fault_kind kind) {
    if (!plan || ++plan->calls[role][kind] != plan->at || plan->role != role || plan->kind != (uint32_t)kind) return false;
    plan->fired = 1;
    note_sites();
    errno = kind == FAULT_MEMORY ? ENOMEM : EMFILE;
    return true;
}

// ---- memory ----

void *malloc(size_t size) {
    if (fails(FAULT_MEMORY)) return NULL;
    return __interceptor_malloc ? __interceptor_malloc(size) : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    if (fails(FAULT_MEMORY)) return NULL;
    return __interceptor_calloc ? __interceptor_calloc(count, size) : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    if (fails(FAULT_MEMORY)) return NULL;
    return __interceptor_realloc ? __interceptor_realloc(old, size) : __libc_realloc(old, size);
}

// ---- descriptors ----

int socket(int family, int type, int protocol) {
    return fails(FAULT_DESCRIPTOR) ? -1 : (int)syscall(SYS_socket, family, type, protocol);
}

int socketpair(int family, int type, int protocol, int fds[2]) {
    return fails(FAULT_DESCRIPTOR) ? -1 : (int)syscall(SYS_socketpair, family, type, protocol, fds);
}

int accept4(int fd, __SOCKADDR_ARG address, socklen_t *restrict len, int flags) {
    return fails(FAULT_DESCRIPTOR) ? -1 : (int)syscall(SYS_accept4, fd, address.__sockaddr__, len, flags);
}

int accept(int fd, __SOCKADDR_ARG address, socklen_t *restrict len) { return accept4(fd, address, len, 0); }

int pipe2(int fds[2], int flags) { return fails(FAULT_DESCRIPTOR) ? -1 : (int)syscall(SYS_pipe2, fds, flags); }

int epoll_create1(int flags) { return fails(FAULT_DESCRIPTOR) ? -1 : (int)syscall(SYS_epoll_create1, flags); }

int eventfd(unsigned value, int flags) { return fails(FAULT_DESCRIPTOR) ? -1 : (int)syscall(SYS_eventfd2, value, flags); }

int timerfd_create(clockid_t clock, int flags) {
    return fails(FAULT_DESCRIPTOR) ? -1 : (int)syscall(SYS_timerfd_create, clock, flags);
}

int memfd_create(const char *name, unsigned flags) {
    return fails(FAULT_DESCRIPTOR) ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

int signalfd(int fd, const sigset_t *set, int flags) {
    return fails(FAULT_DESCRIPTOR) ? -1 : (int)syscall(SYS_signalfd4, fd, set, _NSIG / 8, flags);
}

int dup(int fd) { return fails(FAULT_DESCRIPTOR) ? -1 : (int)syscall(SYS_dup, fd); }

int open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    unsigned mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, unsigned) : 0;
    va_end(arguments);
    return fails(FAULT_DESCRIPTOR) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    unsigned mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, unsigned) : 0;
    va_end(arguments);
    return fails(FAULT_DESCRIPTOR) ? -1 : (int)syscall(SYS_openat, folder, path, flags, mode);
}

// Descriptors that come with a message: without room the kernel drops them and says so.
ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    ssize_t got = syscall(SYS_recvmsg, fd, message, flags);
    struct cmsghdr *control = got >= 0 ? CMSG_FIRSTHDR(message) : NULL;
    if (!control || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) return got;
    if (!fails(FAULT_DESCRIPTOR)) return got;
    for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= control->cmsg_len; i++) {
        int passed;
        memcpy(&passed, CMSG_DATA(control) + i * sizeof(int), sizeof(passed));
        close(passed);
    }
    message->msg_controllen = 0;
    message->msg_flags |= MSG_CTRUNC;
    return got;
}

// ---- what became of processes ----

pid_t waitpid(pid_t pid, int *ret_status, int options) {
    int status = 0;
    pid_t got = (pid_t)syscall(SYS_wait4, pid, &status, options, NULL);
    if (got > 0 && ret_status) *ret_status = status;
    if (got > 0 && plan && plan->reaped_count < PROCESSES) {
        plan->reaped[plan->reaped_count].pid = got;
        plan->reaped[plan->reaped_count++].status = status;
    }
    return got;
}

static uintptr_t instruction_of(const ucontext_t *context) {
#if defined(__x86_64__)
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)context->uc_mcontext.pc;
#else
    (void)context;
    return (uintptr_t)&__executable_start; // nothing is a library's
#endif
}

static void died(int number, siginfo_t *info, void *context) {
    uintptr_t at = instruction_of(context);
    (void)info;
    plan->signal = (uint32_t)number;
    plan->own = number == SIGABRT || (at >= (uintptr_t)&__executable_start && at < (uintptr_t)&etext);
    note_sites();
    _exit(128 + number);
}

__attribute__((constructor)) static void start(int argc, char **argv) {
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGTRAP};
    char path[PATH_MAX + 8];
    ssize_t len = readlink("/proc/self/exe", path, PATH_MAX);
    if (len <= 0 || argc < 2) return;
    memcpy(path + len, ".fault", 7);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) return;
    void *shared = mmap(NULL, sizeof(*plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (shared == MAP_FAILED) return;
    while (role < ROLES && strcmp(roles[role], argv[1]) != 0) role++;
    if (role == ROLES) return;
    struct sigaction action = {.sa_sigaction = died, .sa_flags = SA_SIGINFO};
    for (size_t i = 0; i < sizeof(deadly) / sizeof(deadly[0]) && !__interceptor_malloc; i++) sigaction(deadly[i], &action, NULL);
    plan = shared;
    if (plan->process_count < PROCESSES) plan->processes[plan->process_count++] = getpid();
}
