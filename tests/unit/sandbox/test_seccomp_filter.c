// SPDX-License-Identifier: Apache-2.0
// The filter, loaded into a child as bubblewrap loads it, and system calls made through it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/seccomp_filter.h"

#define HIGH (1UL << 32) // a bit that the kernel cuts off

static bool fixed_mounts; // which filter

static int load(void) {
    struct error err = {{0}};
    struct stat st;
    int fd = seccomp_filter_open(fixed_mounts, &err);
    if (fd < 0 || fstat(fd, &st) < 0) return -1;
    static struct sock_filter code[8192];
    if (st.st_size > (off_t)sizeof(code) || read(fd, code, (size_t)st.st_size) != st.st_size) return -1;
    struct sock_fprog program = {.len = (unsigned short)((size_t)st.st_size / sizeof(code[0])), .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -1 : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

// errno of the call under the filter (0: it succeeded), or minus the signal that it died of.
static int call4(long number, unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
    int pair[2], result = 999, state;
    assert_int_equal(pipe(pair), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (load() < 0) _exit(9);
        result = syscall(number, a, b, c, d) < 0 ? errno : 0;
        _exit(write(pair[1], &result, sizeof(result)) != sizeof(result));
    }
    close(pair[1]);
    assert_int_equal(waitpid(pid, &state, 0), pid);
    ssize_t n = read(pair[0], &result, sizeof(result));
    close(pair[0]);
    if (WIFSIGNALED(state)) return -WTERMSIG(state);
    assert_int_equal(n, sizeof(result));
    return result;
}

static int call(long number, unsigned long a, unsigned long b, unsigned long c) { return call4(number, a, b, c, 0); }

static void test_families(void **state) {
    (void)state;
    static const int open_families[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
    for (size_t i = 0; i < 4; i++) {
        int type = open_families[i] == AF_NETLINK ? SOCK_RAW : SOCK_DGRAM;
        assert_int_equal(call(SYS_socket, (unsigned long)open_families[i], (unsigned long)type, 0), 0);
        assert_int_equal(call(SYS_socket, HIGH | (unsigned long)open_families[i], (unsigned long)type, 0), 0);
    }
    for (unsigned long family = 0; family < 64; family++) {
        if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK) continue;
        assert_int_equal(call(SYS_socket, family, SOCK_STREAM, 0), EAFNOSUPPORT);
    }
    // Each in a form that differs only where the kernel does not look, or looks as an int.
    assert_int_equal(call(SYS_socket, HIGH | AF_VSOCK, SOCK_STREAM, 0), EAFNOSUPPORT);
    assert_int_equal(call(SYS_socket, 0xffffffff00000000UL | AF_PACKET, SOCK_RAW, 0), EAFNOSUPPORT);
    for (int bit = 5; bit < 32; bit++)
        assert_int_equal(call(SYS_socket, 1UL << bit | AF_INET, SOCK_STREAM, 0), EAFNOSUPPORT);
}

static void test_socketpair(void **state) {
    (void)state;
    int pair[2];
    pid_t pid = fork();
    if (pid == 0) {
        if (load() < 0) _exit(9);
        int good = socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0;
        int tipc = socketpair(30, SOCK_STREAM, 0, pair) < 0 && errno == EAFNOSUPPORT;
        _exit(good && tipc ? 0 : 1);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
}

static void test_denied(void **state) {
    (void)state;
    assert_int_equal(call(SYS_io_uring_setup, 1, 0, 0), ENOSYS);
    assert_int_equal(call(SYS_io_uring_enter, 1, 0, 0), ENOSYS);
    assert_int_equal(call(SYS_io_uring_register, 1, 0, 0), ENOSYS);
    assert_int_equal(call(SYS_keyctl, 0, (unsigned long)-3, 0), ENOSYS);
    assert_int_equal(call(SYS_add_key, 0, 0, 0), ENOSYS);
    assert_int_equal(call(SYS_request_key, 0, 0, 0), ENOSYS);
    assert_int_equal(call(SYS_bpf, 0, 0, 0), EPERM);
    assert_int_equal(call(SYS_perf_event_open, 0, 0, 0), EPERM);
    assert_int_equal(call(SYS_userfaultfd, 0, 0, 0), EPERM);
    assert_int_equal(call(SYS_syslog, 3, 0, 0), EPERM);
}

// Descriptor -1: a request that passes the filter ends with EBADF.
static void test_terminal(void **state) {
    (void)state;
    assert_int_equal(call(SYS_ioctl, (unsigned long)-1, TIOCSTI, 0), EPERM);
    assert_int_equal(call(SYS_ioctl, (unsigned long)-1, HIGH | TIOCSTI, 0), EPERM);
    assert_int_equal(call(SYS_ioctl, (unsigned long)-1, TIOCLINUX, 0), EPERM);
    assert_int_equal(call(SYS_ioctl, (unsigned long)-1, 0xabcdUL << 32 | TIOCLINUX, 0), EPERM);
    assert_int_equal(call(SYS_ioctl, (unsigned long)-1, TIOCGWINSZ, 0), EBADF);
    assert_int_equal(call(SYS_ioctl, (unsigned long)-1, TCGETS, 0), EBADF);
}

// Descriptor -1 or a missing path: what passes the filter ends with EBADF or ENOENT.
static void test_modes(void **state) {
    (void)state;
    static const unsigned long privileged[] = {04000, 02000, 06000, 04755, 02755, 07777, HIGH | 04000, 0x10000 | 02755};
    static const unsigned long plain[] = {0, 0755, 01777, 0644, HIGH | 0755, 0777};
    const unsigned long path = (unsigned long)"/nonexistent/penstock", none = (unsigned long)-1;
    for (int pass = 0; pass < 2; pass++) {
        const unsigned long *modes = pass ? plain : privileged;
        size_t count = pass ? sizeof(plain) / sizeof(plain[0]) : sizeof(privileged) / sizeof(privileged[0]);
        int on_path = pass ? ENOENT : EPERM, on_file = pass ? EBADF : EPERM;
        for (size_t i = 0; i < count; i++) {
            unsigned long mode = modes[i];
#ifdef SYS_chmod
            assert_int_equal(call(SYS_chmod, path, mode, 0), on_path);
            assert_int_equal(call(SYS_creat, path, mode, 0), on_path);
            assert_int_equal(call(SYS_mknod, path, mode, 0), on_path);
            assert_int_equal(call(SYS_open, path, O_CREAT | O_WRONLY, mode), on_path);
            assert_int_equal(call(SYS_open, path, O_TMPFILE | O_WRONLY, mode), on_path);
            assert_int_equal(call(SYS_open, path, O_WRONLY, mode), ENOENT); // no mode then, whatever is there
#endif
            assert_int_equal(call(SYS_fchmod, none, mode, 0), on_file);
            assert_int_equal(call(SYS_fchmodat, none, path, mode), on_path);
            assert_int_equal(call4(452, none, path, mode, 0), on_path); // fchmodat2, Linux 6.6
            assert_int_equal(call(SYS_mknodat, none, path, mode), on_path);
            assert_int_equal(call4(SYS_openat, none, path, O_CREAT | O_WRONLY, mode), on_path);
            assert_int_equal(call4(SYS_openat, none, path, HIGH | O_CREAT, mode), on_path);
            assert_int_equal(call4(SYS_openat, none, path, O_TMPFILE | O_WRONLY, mode), on_path);
            assert_int_equal(call4(SYS_openat, none, path, O_DIRECTORY, mode), ENOENT); // a part of O_TMPFILE's bits
            assert_int_equal(call4(SYS_openat, none, path, O_RDWR, mode), ENOENT);
        }
    }
    assert_int_equal(call4(SYS_openat2, (unsigned long)-1, path, 0, 0), ENOSYS);
}

static void test_attributes(void **state) {
    (void)state;
    const unsigned long path = (unsigned long)"/nonexistent/penstock", name = (unsigned long)"user.x";
    assert_int_equal(call4(SYS_setxattr, path, name, name, 1), EOPNOTSUPP);
    assert_int_equal(call4(SYS_lsetxattr, path, name, name, 1), EOPNOTSUPP);
    assert_int_equal(call4(SYS_fsetxattr, (unsigned long)-1, name, name, 1), EOPNOTSUPP);
    assert_int_equal(call4(463, (unsigned long)-100, path, 0, name), EOPNOTSUPP); // setxattrat, Linux 6.13
    assert_int_equal(call4(SYS_getxattr, path, name, 0, 0), ENOENT);
    assert_int_equal(call(SYS_removexattr, path, name, 0), ENOENT);
}

static void test_mount_namespaces(void **state) {
    (void)state;
    for (int pass = 0; pass < 2; pass++) {
        fixed_mounts = pass;
        assert_int_equal(call(SYS_unshare, CLONE_NEWUSER | CLONE_NEWNS, 0, 0), pass ? EPERM : 0);
        assert_int_equal(call(SYS_unshare, HIGH | CLONE_NEWUSER | CLONE_NEWNS, 0, 0), pass ? EPERM : EINVAL);
        assert_int_equal(call(SYS_unshare, CLONE_NEWUSER, 0, 0), 0);
        assert_int_equal(call(SYS_unshare, CLONE_FS, 0, 0), 0);
        assert_int_equal(call(SYS_unshare, CLONE_NEWUSER | 0x00100000, 0, 0), pass ? EPERM : EINVAL);
        assert_int_equal(call(SYS_clone3, 0, 0, 0), pass ? ENOSYS : EINVAL);
        assert_int_equal(call(SYS_clone, CLONE_NEWNS | CLONE_FS, 0, 0), pass ? EPERM : EINVAL); // no such pair
    }
    fixed_mounts = false;
}

#ifdef __x86_64__
// The signal that getpid by the i386 gate died of, or 0.
static int i386_call(bool filtered) {
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL); // cmocka has a handler
        if (filtered && load() < 0) _exit(9);
        long result;
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory");
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static void test_foreign_abis(void **state) {
    (void)state;
    assert_int_equal(call(0x40000000 + SYS_getpid, 0, 0, 0), -SIGSYS); // x32
    // A kernel without IA32 emulation sends SIGSEGV, with the filter and without.
    int without = i386_call(false);
    assert_true(without == 0 || without == SIGSEGV);
    assert_int_equal(i386_call(true), without == 0 ? SIGSYS : SIGSEGV);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),     cmocka_unit_test(test_socketpair),
        cmocka_unit_test(test_denied),       cmocka_unit_test(test_terminal),
        cmocka_unit_test(test_modes),        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_mount_namespaces),
#ifdef __x86_64__
        cmocka_unit_test(test_foreign_abis),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
