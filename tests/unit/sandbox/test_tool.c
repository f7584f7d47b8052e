// SPDX-License-Identifier: Apache-2.0
// Programs of the system: what is said of their end, and what may be known before it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sandbox/tool.h"

#define SOON_US 5000000 // of a program that would run for a minute

static char path[] = "PATH=/usr/bin:/bin";
static char *const environment[] = {path, NULL};

// fd becomes 3, unless it is -1.
static struct tool_process *begin(char *script, int fd) {
    char shell[] = "sh", option[] = "-c";
    char *const argv[] = {shell, option, script, NULL};
    const struct tool tool = {
        .argv = argv, .environment = environment, .fds = &fd, .fd_count = fd >= 0, .timeout_s = 60, .orphans = true};
    struct tool_process *process = NULL;
    struct error err;
    assert_int_equal(tool_start(&tool, &process, &err), 0);
    return process;
}

static void ends_as_it_says(void **state) {
    static const struct {
        const char *script, *text;
        int code;
    } rows[] = {
        {"true", NULL, 0},
        {"echo fine", NULL, 0},
        {"echo first; echo last >&2; exit 1", "sh: last", -EIO},
        {"exit 3", "sh: it says nothing", -EIO},
        {"echo caught; kill -9 $$", "sh was ended by signal 9 (Killed): caught", -EIO},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct error err = {0};
        AUTO_FREE char *script = strdup(rows[i].script);
        assert_int_equal(tool_finish(begin(script, -1), &err), rows[i].code);
        if (rows[i].text) assert_string_equal(err.text, rows[i].text);
    }
}

static void is_not_installed(void **state) {
    char name[] = "penstock-no-such-program";
    char *const argv[] = {name, NULL};
    const struct tool tool = {.argv = argv, .environment = environment, .timeout_s = 60};
    struct error err;
    (void)state;
    assert_int_equal(tool_run(&tool, &err), -ENOPKG);
    assert_string_equal(err.text, "\"penstock-no-such-program\" is not installed; apt-get install penstock-no-such-program");
}

static void takes_too_long(void **state) {
    char shell[] = "sh", option[] = "-c", script[] = "echo still here; exec sleep 60";
    char *const argv[] = {shell, option, script, NULL};
    const struct tool tool = {.argv = argv, .environment = environment, .timeout_s = 1};
    struct error err;
    (void)state;
    assert_int_equal(tool_run(&tool, &err), -ETIMEDOUT);
    assert_string_equal(err.text, "sh did not end within 1 s: still here");
}

// What it did last is known before it has ended; how it ended is still told.
static void is_known_before_its_end(void **state) {
    int done[2], go[2];
    char text[8] = "", script[] = "echo done >&3; read x; echo too late >&2; exit 4";
    struct error err;
    (void)state;
    assert_int_equal(pipe(done), 0);
    assert_int_equal(pipe(go), 0);
    struct tool_process *process = begin(script, done[1]);
    assert_true(tool_await(process, done[0]));
    assert_true(read(done[0], text, sizeof(text)) == 5);
    assert_string_equal(text, "done\n");
    assert_false(tool_await(process, go[0])); // it ends: its standard input says so at once
    assert_int_equal(tool_finish(process, &err), -EIO);
    assert_string_equal(err.text, "sh: too late");
    for (int i = 0; i < 2; i++) {
        close(done[i]);
        close(go[i]);
    }
}

// A process that it leaves is ours; the known one keeps its status for whoever waits for it, others are taken.
static void leaves(bool known) {
    int number[2];
    char text[16] = "", script[] = "(sleep 0.1; exit 7) & echo $! >&3; exit 0"; // a shell may take what is dead
    struct error err;
    assert_int_equal(pipe(number), 0);
    struct tool_process *process = begin(script, number[1]);
    assert_true(tool_await(process, number[0]));
    assert_true(read(number[0], text, sizeof(text) - 1) > 0);
    pid_t pid = (pid_t)strtol(text, NULL, 10);
    siginfo_t info = {0};
    for (int i = 0; i < 500 && info.si_pid == 0; i++) { // it becomes ours when the shell has ended, and is dead then
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0) assert_int_equal(errno, ECHILD);
        poll(NULL, 0, 10);
    }
    assert_int_equal(info.si_pid, pid);
    if (known) tool_leaves(process, pid);
    assert_int_equal(tool_finish(process, &err), 0);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, WNOHANG), known ? pid : -1);
    if (known) assert_int_equal(WEXITSTATUS(status), 7);
    close(number[0]);
    close(number[1]);
}

static void leaves_one_that_is_known(void **state) {
    (void)state;
    leaves(true);
}

static void leaves_one_that_is_not(void **state) {
    (void)state;
    leaves(false);
}

static void is_stopped(void **state) {
    char script[] = "exec sleep 60";
    uint64_t start = clock_us();
    (void)state;
    tool_stop(begin(script, -1));
    assert_true(clock_us() - start < SOON_US);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); // no child is left
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_as_it_says),          cmocka_unit_test(is_not_installed),       cmocka_unit_test(takes_too_long),
        cmocka_unit_test(is_known_before_its_end),  cmocka_unit_test(leaves_one_that_is_known),
        cmocka_unit_test(leaves_one_that_is_not),   cmocka_unit_test(is_stopped),
    };
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
