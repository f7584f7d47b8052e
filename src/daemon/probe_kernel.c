// SPDX-License-Identifier: Apache-2.0
// Attempts that no network namespace binds: what the sandbox's system call filter has to close.
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/number.h"
#include "daemon/probe.h"

// ---- families ----

// Any answer but "no such family" means that the kernel was asked.
enum probe_result kernel_family(struct probe *probe, const char *argument) {
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_RAW};
    uint64_t family;
    if (number_parse(argument, strlen(argument), 0, 65535, &family) < 0) return PROBE_BROKEN;
    for (size_t i = 0; i < ARRAY_LENGTH(types); i++) {
        int fd = socket((int)family, types[i] | SOCK_CLOEXEC, 0);
        if (fd >= 0 || errno != EAFNOSUPPORT)
            return probe_say(probe, PROBE_ESCAPED, "the kernel answered for family %s: %s", argument, fd >= 0 ? "a socket" : strerror(errno));
        // Bits above an int's are cut by the kernel and must be by the filter.
        if (syscall(SYS_socket, family | UINT64_C(1) << 32, types[i] | SOCK_CLOEXEC, 0) >= 0)
            return probe_say(probe, PROBE_ESCAPED, "family %s with a bit above", argument);
    }
    return PROBE_HELD;
}

// ---- round the filter ----

enum probe_result kernel_uring(struct probe *probe, const char *argument) {
    (void)argument;
    struct io_uring_params params = {0};
    return probe_refused(probe, syscall(SYS_io_uring_setup, 8, &params), "io_uring_setup");
}

enum probe_result kernel_foreign(struct probe *probe, const char *argument) {
#ifdef __x86_64__
    long result;
    if (strcmp(argument, "x32") == 0) {
        result = syscall(0x40000000 | SYS_socket, 40, SOCK_STREAM, 0);
        return result >= 0 || errno != ENOSYS ? probe_say(probe, PROBE_ESCAPED, "the kernel answered an x32 call") : PROBE_HELD;
    }
    signal(SIGSEGV, SIG_DFL); // a kernel without such calls sends it; a sanitizer would catch it
    // socket(AF_VSOCK, SOCK_STREAM, 0) with the number of i386
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(359L), "b"(40L), "c"(1L), "d"(0L) : "memory", "r8", "r9", "r10", "r11");
    return probe_say(probe, PROBE_ESCAPED, "the kernel answered a 32-bit call: %s", (int)result >= 0 ? "a socket" : strerror(-(int)result));
#else
    (void)argument;
    (void)probe;
    return PROBE_HELD; // this processor has no such calls
#endif
}

enum probe_result kernel_keys(struct probe *probe, const char *argument) {
    (void)argument;
    long session = syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_SESSION_KEYRING, 0);
    if (session >= 0) return probe_say(probe, PROBE_ESCAPED, "the session's key ring");
    return probe_refused(probe, syscall(SYS_add_key, "user", "penstock-self-test", "x", 1, KEY_SPEC_PROCESS_KEYRING), "add_key");
}

static long call_bpf(void) {
    char attribute[128] = {0};
    return syscall(SYS_bpf, 0, attribute, sizeof(attribute));
}
static long call_perf(void) {
    struct perf_event_attr attribute = {.size = sizeof(attribute), .type = PERF_TYPE_SOFTWARE, .exclude_kernel = 1};
    return syscall(SYS_perf_event_open, &attribute, 0, -1, -1, 0);
}
static long call_userfaultfd(void) { return syscall(SYS_userfaultfd, O_CLOEXEC | 1); } // 1: UFFD_USER_MODE_ONLY
static long call_syslog(void) { return syscall(SYS_syslog, 10, NULL, 0); }             // 10: size of the kernel's log
static long call_handle(void) {
    struct {
        struct file_handle head;
        unsigned char bytes[128];
    } handle = {.head = {.handle_bytes = sizeof(handle.bytes)}};
    return syscall(SYS_open_by_handle_at, AT_FDCWD, &handle, O_RDONLY);
}

static const struct {
    const char *name;
    long (*call)(void);
} surface[] = {
    {"bpf", call_bpf}, {"perf_event_open", call_perf}, {"userfaultfd", call_userfaultfd}, {"syslog", call_syslog},
    {"open_by_handle_at", call_handle},
};

// The filter says EPERM whatever the arguments; another answer comes from behind it.
enum probe_result kernel_surface(struct probe *probe, const char *argument) {
    for (size_t i = 0; i < ARRAY_LENGTH(surface); i++) {
        if (strcmp(surface[i].name, argument) != 0) continue;
        errno = 0;
        return probe_refused(probe, surface[i].call() < 0 && errno == EPERM ? -1 : 0, argument);
    }
    return PROBE_BROKEN;
}

// The standard input of the test is a terminal. Byte for byte the same request with bits above 32 set is the same ioctl.
enum probe_result kernel_terminal(struct probe *probe, const char *argument) {
    (void)argument;
    char byte = 'x';
    if (!isatty(0)) return probe_say(probe, PROBE_BROKEN, "standard input is no terminal");
    long requests[] = {TIOCSTI, (long)(TIOCSTI | UINT64_C(1) << 32), TIOCLINUX};
    for (size_t i = 0; i < ARRAY_LENGTH(requests); i++)
        if (syscall(SYS_ioctl, 0, requests[i], &byte) >= 0 || errno != EPERM)
            return probe_say(probe, PROBE_ESCAPED, "the kernel answered %s: %s", i < 2 ? "TIOCSTI" : "TIOCLINUX", strerror(errno));
    return PROBE_HELD;
}
