// SPDX-License-Identifier: Apache-2.0
// PID 1 of a sandbox: a program of its own, without libc so that it starts in a fraction of a millisecond, kept
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
// Penstock's end of the status socket is its life: when that closes, we end, and the kernel ends everything in here with us.
// Not by --die-with-parent: bubblewrap that dies while it makes the sandbox leaves a child that waits for it for ever. To
// bubblewrap's life we are tied as soon as we run.
//
// Usage: STATUS STDERR MASK ARGUMENTS: descriptors (STDERR -1: none), signal mask in hexadecimal. ARGUMENTS holds the
// file to execute and its argv, each word ended by a NUL: only the kernel limits them.
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "sandbox/init_part.h"

#define ARGUMENTS 5 // argv[0] to ARGUMENTS
static _Noreturn void run_command(int status, int failed, uint64_t mask, char *path, char **argv, char **environment) {
    report(status, SANDBOX_REPORT_COMMAND, (int)CALL(SYS_getpid));
    CALL(SYS_rt_sigprocmask, SIG_SETMASK, &mask, 0, MASK_BYTES);
    int error = (int)-CALL(SYS_execve, path, argv, environment);
    if (error == ENOEXEC) run_script(path, argv, environment);
    CALL(SYS_write, failed, &error, sizeof(error));
    leave(error == ENOENT ? 127 : 126);
}

static int exit_status(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

// Takes what there is of children that have ended, stopped or continued. -1: the command still runs.
static int take_children(int status, long command) {
    for (;;) {
        int state = 0;
        long pid = CALL(SYS_wait4, -1, &state, WNOHANG | WUNTRACED | WCONTINUED, 0);
        if (pid == 0) return -1;
        if (pid < 0 && pid != -EINTR) return 125;
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

// Reaps whatever is left to PID 1, until the command has ended, or penstock. Then the kernel ends the rest with us.
static int reap(int status, long command) {
    const uint64_t child = UINT64_C(1) << (SIGCHLD - 1);
    CALL(SYS_rt_sigprocmask, SIG_BLOCK, &child, 0, MASK_BYTES); // bubblewrap let it through
    int children = (int)CALL(SYS_signalfd4, -1, &child, MASK_BYTES, SFD_CLOEXEC | SFD_NONBLOCK);
    struct pollfd ready[] = {{.fd = children, .events = POLLIN}, {.fd = status}};
    struct signalfd_siginfo info;
    if (children < 0) return 125;
    for (;;) {
        int code = take_children(status, command);
        if (code >= 0) return code;
        CALL(SYS_ppoll, ready, 2, 0, 0, MASK_BYTES);
        if (ready[1].revents) return 125; // POLLHUP: nobody is there any more
        CALL(SYS_read, children, &info, sizeof(info));
    }
}

// The command has been executed, or not: the other end of this pipe says so, or closes. False: penstock has ended.
static bool executed(int failed, int status) {
    struct pollfd ready[] = {{.fd = failed, .events = POLLIN}, {.fd = status}};
    do CALL(SYS_ppoll, ready, 2, 0, 0, MASK_BYTES);
    while (!ready[0].revents && !ready[1].revents);
    return !ready[1].revents;
}

// Standard error was lent to bubblewrap's messages; all but 0, 1, 2 and the status socket is closed.
static void settle_descriptors(int status, int error) {
    if (error >= 0)
        CALL(SYS_dup3, error, 2, 0);
    else
        CALL(SYS_close, 2);
    if (status > 3) CALL(SYS_close_range, 3, status - 1, 0);
    CALL(SYS_close_range, status + 1, ~0U, 0);
}

// What `ps` shows is the memory of argv (one block): it held descriptors, which say nothing to anybody.
static void show_name(char **argv) {
    size_t size = (size_t)(argv[ARGUMENTS - 1] + strlen(argv[ARGUMENTS - 1]) - argv[0]) + 1;
    memset(argv[0], 0, size);
    if (size >= sizeof(SANDBOX_INIT_NAME)) memcpy(argv[0], SANDBOX_INIT_NAME, sizeof(SANDBOX_INIT_NAME));
}

static int run(int argc, char **argv, char **environment) {
    if (argc != ARGUMENTS) return 125;
    char **words = read_words((int)parse(argv[4], 10));
    if (!words) return 125;
    int status = (int)parse(argv[1], 10), failed[2], error = 0;
    uint64_t mask = parse(argv[3], 16);
    settle_descriptors(status, argv[2][0] == '-' ? -1 : (int)parse(argv[2], 10));
    CALL(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
    CALL(SYS_prctl, PR_SET_NAME, SANDBOX_INIT_NAME);
    show_name(argv);
    CALL(SYS_prctl, PR_SET_DUMPABLE, 0); // the command is the same user: no ptrace, no /proc/1/fd
    // The command must not hold the status socket: close-on-exec, set here because bubblewrap's execve had to keep it.
    CALL(SYS_close_range, status, status, CLOSE_RANGE_CLOEXEC);
    if (CALL(SYS_pipe2, failed, O_CLOEXEC) < 0) return 125;
    if (!released(status)) return 125;
    long command = CALL(SYS_clone, SIGCHLD, 0, 0, 0, 0); // fork
    if (command == 0) run_command(status, failed[1], mask, words[0], words + 1, environment);
    CALL(SYS_close, failed[1]);
    if (command < 0)
        error = (int)-command;
    else if (!executed(failed[0], status))
        return 125;
    else if (CALL(SYS_read, failed[0], &error, sizeof(error)) != sizeof(error))
        error = 0;
    CALL(SYS_close, failed[0]);
    report(status, error ? SANDBOX_REPORT_FAILED : SANDBOX_REPORT_STARTED, error);
    return error ? 126 : reap(status, command);
}

// The kernel's layout: argc, argv, NULL, environment, NULL.
_Noreturn void sandbox_start(long *stack) {
    char **argv = (char **)(stack + 1);
    leave(run((int)stack[0], argv, argv + stack[0] + 1));
}
