// SPDX-License-Identifier: Apache-2.0
// System calls without libc, for the sandbox's init alone: with libc its program is a hundred times as large, and takes as
// many times longer to be put into a memory file and started. Results are the kernel's: negative errno.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
static inline long sandbox_call6(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
__asm__(".pushsection .text\n.globl _start\n_start:\n"
        "xor %ebp, %ebp\nmov %rsp, %rdi\nand $-16, %rsp\ncall sandbox_start\nhlt\n.popsection\n");
#elif defined(__aarch64__)
static inline long sandbox_call6(long number, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}
__asm__(".pushsection .text\n.globl _start\n_start:\n"
        "mov x29, 0\nmov x30, 0\nmov x0, sp\nbl sandbox_start\nbrk 0\n.popsection\n");
#else
#error "write the system call and the entry of this architecture here"
#endif

#define SANDBOX_CALL(number, a, b, c, d, e, f, ...) \
    sandbox_call6((number), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define CALL(...) SANDBOX_CALL(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

// What the compiler calls by itself.
void *memset(void *to, int byte, size_t len);
void *memcpy(void *restrict to, const void *restrict from, size_t len);
size_t strlen(const char *text);
