// SPDX-License-Identifier: Apache-2.0
// The first program of a container, and of each command that is run in one: bound read-only at /run/penstock/init, without
// libc as sandbox_init.c. crun starts it with everything in place, users, capabilities and filter; it says so, waits until
// penstock releases it, and becomes the command. So nothing of the image runs before everything else is ready, and
// crun never holds the command's standard streams: it would give whatever they are, the host's /dev/null too, to
// the container's user.
//
// Without a filter or with a way to new privileges nothing is executed, whatever crun thought of its configuration.
//
// Descriptors: 3 status socket, 4 words, 5 to 7 standard streams. Words, each ended by a NUL: how many argv has, argv, the
// environment. argv of no words: waits as PID 1 for its orphans, until SIGTERM or SIGKILL. A "+" before the number: and until
// penstock ends, however it does.
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "sandbox/init_part.h"

enum { STATUS = 3, WORDS, STREAMS };
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static const char *find_path(char **environment) {
    for (; *environment; environment++) {
        const char *at = *environment;
        if (at[0] == 'P' && at[1] == 'A' && at[2] == 'T' && at[3] == 'H' && at[4] == '=') return at + 5;
    }
    return DEFAULT_PATH;
}

static int run_file(char *path, char **argv, char **environment) {
    int error = (int)-CALL(SYS_execve, path, argv, environment);
    if (error == ENOEXEC) run_script(path, argv, environment);
    return error;
}

// As execvpe. Returns why it could not.
static int run_command(char **argv, char **environment) {
    size_t len = strlen(argv[0]);
    bool named = len == 0;
    for (size_t i = 0; i < len; i++) named |= argv[0][i] == '/';
    if (named) return run_file(argv[0], argv, environment);
    int error = ENOENT;
    for (const char *path = find_path(environment);; path++) {
        size_t folder = 0;
        while (path[folder] && path[folder] != ':') folder++;
        char *name = room(folder + len + 2);
        if (!name) return ENOMEM;
        memcpy(name, path, folder);
        if (folder) name[folder++] = '/';
        memcpy(name + folder, argv[0], len);
        int one = run_file(name, argv, environment);
        if (one == EACCES) error = one;
        else if (one != ENOENT && one != ENOTDIR) return one;
        while (*path && *path != ':') path++;
        if (!*path) return error;
    }
}

// Signals stay blocked but for the two that are waited for.
static _Noreturn void idle(void) {
    uint64_t all = ~UINT64_C(0), wanted = UINT64_C(1) << (SIGCHLD - 1) | UINT64_C(1) << (SIGTERM - 1);
    CALL(SYS_rt_sigprocmask, SIG_SETMASK, &all, 0, MASK_BYTES);
    CALL(SYS_prctl, PR_SET_DUMPABLE, 0);
    for (;;) {
        long number = CALL(SYS_rt_sigtimedwait, &wanted, 0, 0, MASK_BYTES);
        if (number == SIGTERM) leave(128 + SIGTERM);
        while (CALL(SYS_wait4, -1, 0, WNOHANG, 0) > 0) {
        }
    }
}

// The kernel ends us when our parent ends, from here on: whether it is still there is asked after that.
static bool tie(void) {
    char byte;
    CALL(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
    return CALL(SYS_recvfrom, STATUS, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT, 0, 0) == -EAGAIN;
}

static int run(char **words) {
    bool tied = words && words[0][0] == '+';
    uint64_t argc = words ? parse(words[0] + tied, 10) : 0;
    CALL(SYS_prctl, PR_SET_NAME, SANDBOX_INIT_NAME);
    if (!words || CALL(SYS_prctl, PR_GET_SECCOMP) != SECCOMP_MODE_FILTER || CALL(SYS_prctl, PR_GET_NO_NEW_PRIVS) != 1) {
        report(STATUS, SANDBOX_REPORT_FAILED, EPROTO);
        return 125;
    }
    for (int fd = 0; fd < 3; fd++) CALL(SYS_dup3, STREAMS + fd, fd, 0);
    CALL(SYS_close_range, STREAMS, ~0U, 0);
    CALL(SYS_close_range, STATUS, WORDS, CLOSE_RANGE_CLOEXEC);
    CALL(SYS_setsid);                 // crun leaves commands in one without a leader
    CALL(SYS_ioctl, 0, TIOCSCTTY, 0); // if it is a terminal that nobody else has
    report(STATUS, SANDBOX_REPORT_COMMAND, 0);
    if (!released(STATUS)) return 125;
    if (argc == 0) {
        if (tied && !tie()) return 125;
        report(STATUS, SANDBOX_REPORT_STARTED, 0);
        CALL(SYS_close_range, STATUS, WORDS, 0);
        idle();
    }
    char **argv = room((argc + 1) * sizeof(char *));
    if (!argv) return 125;
    for (uint64_t i = 0; i < argc; i++) argv[i] = words[i + 1];
    int error = run_command(argv, words + argc + 1);
    report(STATUS, SANDBOX_REPORT_FAILED, error);
    return error == ENOENT ? 127 : 126;
}

_Noreturn void sandbox_start(long *stack) {
    (void)stack;
    leave(run(read_words(WORDS)));
}
