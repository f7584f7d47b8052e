// SPDX-License-Identifier: Apache-2.0
// PID 1 of a sandbox: a program of its own, static and small so that it starts in a fraction of a millisecond, kept
// inside penstock's image and executed from a memory file. (A file of the host would be within the command's reach
// through /proc/1/exe.) It stands in for bubblewrap's reaper because that one cannot tell us three things that a caller
// of the command would see: that execve failed and why, that the command stopped, and the signal that it died of.
//
// All signals stay blocked here, so that one which the terminal sends to the whole process group (Ctrl-C) ends the
// command only if the command lets it. The command gets the signal mask that penstock was started with, standard input,
// output and error, and no other descriptor.
//
// The command starts when one packet has come: penstock lets all this be made beside its own processes, and sends it when
// they are ready. If none comes before the end, nothing runs.
//
// Usage: STATUS STDERR MASK ARGUMENTS: descriptors (STDERR -1: none), signal mask in hexadecimal. ARGUMENTS holds the
// file to execute and its argv, each word ended by a NUL: only the kernel limits them.
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/sandbox_report.h"

#define ARGUMENTS 5 // argv[0] to ARGUMENTS

extern char **environ;

static void report(int status, enum sandbox_report_kind kind, int value) {
    struct sandbox_report message = {.kind = kind, .value = value};
    // The queue can only be full if nobody reads; then nobody waits for it either.
    (void)!send(status, &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static bool released(int status) {
    char byte;
    ssize_t got;
    do {
        got = recv(status, &byte, sizeof(byte), 0);
    } while (got < 0 && errno == EINTR);
    return got == sizeof(byte);
}

static uint64_t parse(const char *text, int base) { return strtoull(text, NULL, base); }

static void set_mask(uint64_t bits) {
    sigset_t mask;
    sigemptyset(&mask);
    for (int number = 1; number <= 64; number++)
        if (bits >> (number - 1) & 1) sigaddset(&mask, number);
    sigprocmask(SIG_SETMASK, &mask, NULL);
}

// As execvp: what the kernel does not know how to run is given to the shell.
static void run_script(const char *path, char **argv) {
    size_t count = 0;
    while (argv[count]) count++;
    char **script = calloc(count + 2, sizeof(char *));
    if (!script) return;
    script[0] = (char *)"/bin/sh";
    script[1] = (char *)(uintptr_t)path;
    for (size_t i = 1; i < count; i++) script[i + 1] = argv[i];
    execve(script[0], script, environ);
}

static _Noreturn void run_command(int status, int failed, uint64_t mask, const char *path, char **argv) {
    report(status, SANDBOX_REPORT_COMMAND, getpid());
    set_mask(mask);
    execve(path, argv, environ);
    if (errno == ENOEXEC) run_script(path, argv);
    int error = errno;
    (void)!write(failed, &error, sizeof(error));
    _exit(error == ENOENT ? 127 : 126);
}

static int exit_status(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

// Reaps whatever is left to PID 1, until the command itself has ended. Then the kernel ends the rest with us.
static int reap(int status, pid_t command) {
    for (;;) {
        int state;
        pid_t pid = waitpid(-1, &state, WUNTRACED | WCONTINUED);
        if (pid < 0 && errno != EINTR) return 125;
        if (pid != command) continue;
        if (WIFSTOPPED(state)) {
            report(status, SANDBOX_REPORT_STOPPED, WSTOPSIG(state));
        } else if (WIFCONTINUED(state)) {
            report(status, SANDBOX_REPORT_CONTINUED, 0);
        } else {
            report(status, SANDBOX_REPORT_EXITED, state);
            return exit_status(state);
        }
    }
}

// The words of a memory file, NULL-terminated; NULL if it has not at least two.
static char **read_words(int fd) {
    struct stat st;
    if (fstat(fd, &st) < 0 || st.st_size <= 0) return NULL;
    size_t size = (size_t)st.st_size, count = 0, used = 0;
    char *text = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (text == MAP_FAILED || text[size - 1] != '\0') return NULL;
    for (size_t i = 0; i < size; i++) count += text[i] == '\0';
    char **words = count < 2 ? NULL : calloc(count + 1, sizeof(char *));
    for (char *at = text; words && used < count; at += strlen(at) + 1) words[used++] = at;
    return words;
}

// Standard error was lent to bubblewrap's messages; all but 0, 1, 2 and the status socket is closed.
static void settle_descriptors(int status, int error) {
    if (error >= 0)
        dup2(error, 2);
    else
        close(2);
    if (status > 3) syscall(SYS_close_range, 3, status - 1, 0);
    syscall(SYS_close_range, status + 1, ~0U, 0);
}

// What `ps` shows is the memory of argv (one block): it held descriptors, which say nothing to anybody.
static void show_name(char **argv) {
    size_t size = (size_t)(argv[ARGUMENTS - 1] + strlen(argv[ARGUMENTS - 1]) - argv[0]) + 1;
    memset(argv[0], 0, size);
    if (size >= sizeof(SANDBOX_INIT_NAME)) memcpy(argv[0], SANDBOX_INIT_NAME, sizeof(SANDBOX_INIT_NAME));
}

int main(int argc, char **argv) {
    if (argc != ARGUMENTS) return 125;
    char **words = read_words((int)parse(argv[4], 10));
    if (!words) return 125;
    int status = (int)parse(argv[1], 10), failed[2], error = 0;
    uint64_t mask = parse(argv[3], 16);
    settle_descriptors(status, argv[2][0] == '-' ? -1 : (int)parse(argv[2], 10));
    prctl(PR_SET_NAME, SANDBOX_INIT_NAME);
    show_name(argv);
    prctl(PR_SET_DUMPABLE, 0); // the command is the same user: no ptrace, no /proc/1/fd
    // The command must not hold the status socket: close-on-exec, set here because bubblewrap's execve had to keep it.
    syscall(SYS_close_range, status, status, CLOSE_RANGE_CLOEXEC);
    if (pipe2(failed, O_CLOEXEC) < 0) return 125;
    if (!released(status)) return 125;
    pid_t command = fork();
    if (command == 0) run_command(status, failed[1], mask, words[0], words + 1);
    close(failed[1]);
    if (command < 0)
        error = errno;
    else if (read(failed[0], &error, sizeof(error)) != sizeof(error))
        error = 0;
    close(failed[0]);
    report(status, error ? SANDBOX_REPORT_FAILED : SANDBOX_REPORT_STARTED, error);
    return error ? 126 : reap(status, command);
}
