// SPDX-License-Identifier: Apache-2.0
// Ends a process, or makes a call of it fail, at one of its system calls, chosen by number:
// strike PID WORD NTH kill|orphan|ERRNO [CALL...]
// PID: a process; all that it starts from now on is followed. WORD: "self": PID itself; else the first one that executes a program
// with this argument 0 or 1 ("crun", "@shim"). NTH: of its calls, from 1 (0: none, to count). CALL: numbers of those that count
// (none: all). "orphan": NTH is of the processes that it starts, and it is ended with its next call. Says "ready", then
// "struck CALL" or, when standard input closes, "counted N", and lets everything go.
//
// Only the one is stopped at its calls; the others are followed for what they start, so that timing stays as it is. But what it
// has started waits for its next call, and for its death at that: an orphan has done nothing yet, or has just executed its
// program, when it becomes one.
#include <elf.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPTIONS (PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC)

static struct {
    const char *word;
    pid_t target; // 0: not there yet
    long nth, count;
    int error; // 0: kill
    long calls[64];
    int call_count;
    bool struck, failing, orphan;
    bool starting; // it is in a call that starts a process, or just behind
    pid_t held;    // that process
    pid_t shares;  // the last one in its memory
} strike;

static void resume(pid_t pid, int signal) {
    ptrace(pid == strike.target ? PTRACE_SYSCALL : PTRACE_CONT, pid, 0, (void *)(intptr_t)signal);
}

static bool counts(long call) {
    for (int i = 0; i < strike.call_count; i++)
        if (strike.calls[i] == call) return true;
    return strike.call_count == 0;
}

// The call that it is about to make becomes none, with this result.
static void set_call(pid_t pid, long call) {
#if defined(__x86_64__)
    ptrace(PTRACE_POKEUSER, pid, (void *)offsetof(struct user_regs_struct, orig_rax), (void *)call);
#else
    int number = (int)call;
    struct iovec part = {&number, sizeof(number)};
    ptrace(PTRACE_SETREGSET, pid, (void *)NT_ARM_SYSTEM_CALL, &part);
#endif
}

static void set_result(pid_t pid, long result) {
#if defined(__x86_64__)
    ptrace(PTRACE_POKEUSER, pid, (void *)offsetof(struct user_regs_struct, rax), (void *)result);
#else
    struct user_regs_struct registers;
    struct iovec part = {&registers, sizeof(registers)};
    ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &part);
    registers.regs[0] = (unsigned long)result;
    ptrace(PTRACE_SETREGSET, pid, (void *)NT_PRSTATUS, &part);
#endif
}

static void let_go(void) {
    if (strike.held) resume(strike.held, 0);
    strike.held = 0;
}

static bool is_child_of_target(pid_t pid) {
    char path[64], text[512] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file && !fgets(text, sizeof(text), file)) text[0] = '\0';
    if (file) fclose(file);
    const char *end = strrchr(text, ')'); // "PID (NAME) STATE PARENT"
    return end && strlen(end) > 4 && strtol(end + 4, NULL, 10) == strike.target;
}

static bool starts(long call) {
    static const long calls[] = {
        SYS_clone, SYS_clone3,
#if defined(SYS_fork)
        SYS_fork, SYS_vfork,
#endif
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (calls[i] == call) return true;
    return false;
}

// Whether this call is the one.
static bool is_due(long call) {
    if (strike.struck) return false;
    if (strike.orphan) return strike.starting && strike.nth > 0 && strike.count == strike.nth;
    return counts(call) && ++strike.count == strike.nth;
}

static void at_call(pid_t pid) {
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof(info), &info) < 0) return;
    if (info.op == PTRACE_SYSCALL_INFO_EXIT && strike.failing) {
        strike.failing = false;
        set_result(pid, -strike.error);
    }
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) return;
    bool due = is_due((long)info.entry.nr);
    if (!due && !strike.struck) {
        let_go();
        strike.starting = starts((long)info.entry.nr);
    }
    if (!due) return;
    strike.struck = true;
    if (strike.error) {
        strike.failing = true;
        let_go(); // it lives on, and so does what it starts
        set_call(pid, -1);
    } else {
        kill(pid, SIGKILL);
    }
    printf("struck %ld\n", (long)info.entry.nr);
    fflush(stdout);
}

static void at_exec(pid_t pid) {
    char path[64], text[512] = "";
    snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
    FILE *file = fopen(path, "r");
    size_t len = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    if (file) fclose(file);
    const char *second = text + strlen(text) + 1;
    if (strike.target == 0 && len > 0 && (strcmp(text, strike.word) == 0 || (second < text + len && strcmp(second, strike.word) == 0)))
        strike.target = pid;
}

// Whether it is to wait for what becomes of the one that has started it: until that knows of it, if it is in that one's memory
// (vfork), it is let go, and waits with its program.
static bool waits(pid_t pid, int event) {
    unsigned long child = 0;
    if (pid == strike.target && (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK)) {
        strike.count += strike.orphan;
        ptrace(PTRACE_GETEVENTMSG, pid, 0, &child);
        if (event == PTRACE_EVENT_VFORK) strike.shares = (pid_t)child;
        if (event == PTRACE_EVENT_VFORK && strike.held == (pid_t)child) let_go();
    }
    if (strike.struck && strike.error) return false;
    bool stops = event == PTRACE_EVENT_EXEC || (event == PTRACE_EVENT_STOP && pid != strike.shares);
    if (!stops || pid == strike.target || strike.held || !(strike.starting || strike.struck) || !is_child_of_target(pid)) return false;
    strike.held = pid;
    return true;
}

static void at_stop(pid_t pid, int status) {
    int signal = WSTOPSIG(status), event = status >> 16;
    if (signal == (SIGTRAP | 0x80)) {
        at_call(pid);
        signal = 0;
    } else if (event == PTRACE_EVENT_STOP && signal != SIGTRAP) {
        ptrace(PTRACE_LISTEN, pid, 0, 0); // stopped by a signal: it stays so
        return;
    } else if (event != 0) {
        if (event == PTRACE_EVENT_EXEC) at_exec(pid);
        if (waits(pid, event)) return;
        signal = 0;
    }
    resume(pid, signal);
}

// All that there is to hear. False: nobody is left.
static bool hear(void) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, __WALL | WNOHANG)) > 0)
        if (WIFSTOPPED(status)) at_stop(pid, status);
        else if (pid == strike.target) let_go();
    return pid == 0;
}

static void child(int signal) { (void)signal; }

static long number(const char *text) { return strtol(text, NULL, 10); }

int main(int argc, char **argv) {
    sigset_t blocked, none;
    if (argc < 5) {
        fprintf(stderr, "usage: strike PID WORD NTH kill|orphan|ERRNO [CALL...]\n");
        return 2;
    }
    pid_t pid = (pid_t)number(argv[1]);
    strike.word = argv[2];
    strike.target = strcmp(argv[2], "self") == 0 ? pid : 0;
    strike.nth = number(argv[3]);
    strike.orphan = strcmp(argv[4], "orphan") == 0;
    strike.error = strike.orphan || strcmp(argv[4], "kill") == 0 ? 0 : (int)number(argv[4]);
    for (int i = 5; i < argc && strike.call_count < 64; i++) strike.calls[strike.call_count++] = number(argv[i]);
    struct sigaction action = {.sa_handler = child};
    sigaction(SIGCHLD, &action, NULL);
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    if (ptrace(PTRACE_SEIZE, pid, 0, (void *)OPTIONS) < 0 || ptrace(PTRACE_INTERRUPT, pid, 0, 0) < 0) {
        perror("strike: ptrace");
        return 1;
    }
    printf("ready\n");
    fflush(stdout);
    struct pollfd end = {.fd = 0, .events = POLLIN};
    while (hear() && end.revents == 0) ppoll(&end, 1, NULL, &none);
    printf("counted %ld\n", strike.count);
    return 0; // and all go on without us
}
