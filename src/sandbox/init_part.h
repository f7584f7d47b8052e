// SPDX-License-Identifier: Apache-2.0
// What both of the programs that are PID 1 inside consist of.
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "sandbox/sandbox_call.h"
#include "sandbox/sandbox_report.h"

#define MASK_BYTES 8 // of the kernel's signal masks

_Noreturn void sandbox_start(long *stack);

void *memset(void *to, int byte, size_t len) {
    for (volatile unsigned char *at = to; len > 0; len--) *at++ = (unsigned char)byte;
    return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t len) {
    volatile unsigned char *at = to;
    for (const unsigned char *source = from; len > 0; len--) *at++ = *source++;
    return to;
}

size_t strlen(const char *text) {
    size_t len = 0;
    while (((const volatile char *)text)[len]) len++;
    return len;
}

static _Noreturn void leave(int status) {
    for (;;) CALL(SYS_exit_group, status);
}

// Zeroed memory, or NULL.
static void *room(size_t size) {
    long at = CALL(SYS_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at < 0 && at > -4096 ? NULL : (void *)at;
}

static void report(int status, enum sandbox_report_kind kind, int value) {
    struct sandbox_report message = {.kind = kind, .value = value};
    // The queue can only be full if nobody reads; then nobody waits for it either.
    CALL(SYS_sendto, status, &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0);
}

static bool released(int status) {
    char byte;
    long got;
    do {
        got = CALL(SYS_recvfrom, status, &byte, sizeof(byte), 0, 0, 0);
    } while (got == -EINTR);
    if (got != sizeof(byte)) return false;
    // A penstock that died meanwhile is not there any more to end the command.
    return CALL(SYS_recvfrom, status, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT, 0, 0) == -EAGAIN;
}

// Digits of penstock's own.
static uint64_t parse(const char *text, unsigned base) {
    uint64_t number = 0;
    for (; *text; text++) number = number * base + (unsigned)(*text <= '9' ? *text - '0' : *text - 'a' + 10);
    return number;
}

// As execvp: what the kernel does not know how to run is given to the shell.
static void run_script(char *path, char **argv, char **environment) {
    static char shell[] = "/bin/sh";
    size_t count = 0;
    while (argv[count]) count++;
    char **script = room((count + 2) * sizeof(char *));
    if (!script) return;
    script[0] = shell;
    script[1] = path;
    for (size_t i = 1; i < count; i++) script[i + 1] = argv[i];
    CALL(SYS_execve, shell, script, environment);
}

// The words of a memory file, NULL-terminated; NULL if it has not at least two.
static char **read_words(int fd) {
    long size = CALL(SYS_lseek, fd, 0, SEEK_END), count = 0;
    if (size <= 0) return NULL;
    long at = CALL(SYS_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    char *text = (char *)at;
    if ((at < 0 && at > -4096) || text[size - 1] != '\0') return NULL;
    for (long i = 0; i < size; i++) count += text[i] == '\0';
    char **words = count < 2 ? NULL : room(((size_t)count + 1) * sizeof(char *));
    for (long used = 0; words && used < count; text += strlen(text) + 1) words[used++] = text;
    return words;
}
