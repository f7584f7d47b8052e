// SPDX-License-Identifier: Apache-2.0
// Filters when memory runs out: each allocation fails once. What is said to be a filter is the whole filter.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/call_filter.h"

#define PROGRAM_MAX 4096
#define HANG_US 150000 // libseccomp may loop without end when it has no memory
enum { SAME, ERROR, OTHER }; // exit status of a child

static unsigned long calls, failing; // failing 0: none

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__interceptor_malloc(size_t size) __attribute__((weak));
void *__interceptor_calloc(size_t count, size_t size) __attribute__((weak));
void *__interceptor_realloc(void *old, size_t size) __attribute__((weak));

static bool fails(void) { return ++calls == failing; }

void *malloc(size_t size) {
    if (fails()) return NULL;
    return __interceptor_malloc ? __interceptor_malloc(size) : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    if (fails()) return NULL;
    return __interceptor_calloc ? __interceptor_calloc(count, size) : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    if (fails()) return NULL;
    return __interceptor_realloc ? __interceptor_realloc(old, size) : __libc_realloc(old, size);
}

static int make(uint8_t bytes[PROGRAM_MAX], ssize_t *ret_len) {
    const struct scmp_arg_cmp first = SCMP_A0(SCMP_CMP_MASKED_EQ, 0xffffffff, 40), above = SCMP_A1(SCMP_CMP_GT, 10);
    const struct scmp_arg_cmp both[] = {SCMP_A0(SCMP_CMP_EQ, 3), SCMP_A2(SCMP_CMP_MASKED_EQ, 0x40, 0x40)};
    int fd = memfd_create("filter", MFD_CLOEXEC);
    struct call_filter *filter = call_filter_new(SCMP_ACT_ALLOW);
    int r = filter ? 0 : -ENOMEM;
    if (r == 0) r = call_filter_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1, &first);
    if (r == 0) r = call_filter_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(dup3), 1, &above);
    if (r == 0) r = call_filter_add(filter, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(openat), 2, both);
    if (r == 0) r = call_filter_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(bpf), 0, NULL);
    if (r == 0) r = call_filter_write(filter, fd);
    *ret_len = pread(fd, bytes, PROGRAM_MAX, 0);
    close(fd);
    call_filter_free(filter);
    return r;
}

static void test_every_allocation(void **state) {
    static uint8_t whole[PROGRAM_MAX], bytes[PROGRAM_MAX];
    const struct itimerval hang = {.it_value.tv_usec = HANG_US};
    ssize_t whole_len, len;
    unsigned long errors = 0;
    (void)state;
    calls = failing = 0;
    assert_int_equal(make(whole, &whole_len), 0);
    unsigned long total = calls;
    assert_true(whole_len > 0 && total > 50);
    for (unsigned long at = 1; at <= total; at++) {
        int status, outcome;
        pid_t pid = fork();
        if (pid == 0) {
            signal(SIGSEGV, SIG_DFL); // cmocka would go on with the next test
            signal(SIGABRT, SIG_DFL);
            close(STDERR_FILENO);
            setitimer(ITIMER_REAL, &hang, NULL);
            calls = 0;
            failing = at;
            int r = make(bytes, &len);
            _exit(r < 0 ? ERROR : len == whole_len && memcmp(bytes, whole, (size_t)len) == 0 ? SAME : OTHER);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        // A library that dies or hangs gives no filter either.
        outcome = WIFEXITED(status) ? WEXITSTATUS(status) : ERROR;
        if (outcome == OTHER) fail_msg("allocation %lu of %lu: a filter that is not whole", at, total);
        errors += outcome == ERROR;
    }
    assert_true(errors > 0);
}

static void test_refuses_what_it_cannot_prove(void **state) {
    const struct scmp_arg_cmp three[3] = {SCMP_A0(SCMP_CMP_EQ, 1), SCMP_A1(SCMP_CMP_EQ, 1), SCMP_A2(SCMP_CMP_EQ, 1)};
    const struct scmp_arg_cmp less = SCMP_A0(SCMP_CMP_LT, 5);
    struct call_filter *filter = call_filter_new(SCMP_ACT_ALLOW);
    (void)state;
    assert_non_null(filter);
    assert_int_equal(call_filter_add(filter, SCMP_ACT_KILL_PROCESS, SCMP_SYS(dup), 3, three), -E2BIG);
    assert_int_equal(call_filter_add(filter, SCMP_ACT_KILL_PROCESS, SCMP_SYS(dup), 1, &less), 0);
    int fd = memfd_create("filter", MFD_CLOEXEC);
    assert_int_equal(call_filter_write(filter, fd), -EILSEQ); // a comparison that is not known here
    close(fd);
    call_filter_free(filter);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation),
        cmocka_unit_test(test_refuses_what_it_cannot_prove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
