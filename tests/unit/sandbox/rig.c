// SPDX-License-Identifier: Apache-2.0
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"

extern char **environ;

static void write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) _exit(1);
    close(fd);
}

// U1 and N1: one user, no setgroups, a network namespace that it owns.
static void keeper(const struct sandbox_identity *identity, int ready) {
    char map[64];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (identity->from_root && (setgroups(0, NULL) < 0 || setresgid(identity->gid, identity->gid, identity->gid) < 0 ||
                                setresuid(identity->uid, identity->uid, identity->uid) < 0))
        _exit(1);
    prctl(PR_SET_DUMPABLE, 1);
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0) _exit(1);
    write_file("/proc/self/setgroups", "deny");
    snprintf(map, sizeof(map), "%u %u 1\n", identity->uid, identity->uid);
    write_file("/proc/self/uid_map", map);
    snprintf(map, sizeof(map), "%u %u 1\n", identity->gid, identity->gid);
    write_file("/proc/self/gid_map", map);
    if (write(ready, "r", 1) == 1) pause();
    _exit(1);
}

void rig_init(struct rig *rig) {
    int ready[2];
    char byte, path[64];
    rig->identity = sandbox_identity();
    snprintf(rig->cwd, sizeof(rig->cwd), "/tmp/penstock-rig-XXXXXX");
    assert_non_null(mkdtemp(rig->cwd));
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    rig->keeper = fork();
    if (rig->keeper == 0) keeper(&rig->identity, ready[1]);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    snprintf(path, sizeof(path), "/proc/%d/ns/user", rig->keeper);
    rig->user_namespace = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof(path), "/proc/%d/ns/net", rig->keeper);
    rig->net_namespace = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(rig->user_namespace >= 0 && rig->net_namespace >= 0);
}

void rig_done(struct rig *rig) {
    kill(rig->keeper, SIGKILL);
    waitpid(rig->keeper, NULL, 0);
    close(rig->user_namespace);
    close(rig->net_namespace);
    rig_remove(rig->cwd);
}

void rig_remove(const char *folder) {
    char *argv[] = {(char *)"rm", (char *)"-rf", (char *)(uintptr_t)folder, NULL};
    pid_t pid = fork();
    if (pid == 0) {
        execv("/bin/rm", argv);
        _exit(99);
    }
    waitpid(pid, NULL, 0);
}

struct sandbox_spec rig_spec(const struct rig *rig, char *argv[4], const char *script) {
    argv[0] = (char *)"sh";
    argv[1] = (char *)"-c";
    argv[2] = (char *)(uintptr_t)script;
    argv[3] = NULL;
    return (struct sandbox_spec){.argv = argv, .environment = environ, .cwd = rig->cwd, .identity = rig->identity};
}

static void drain(int out, int err, struct rig_result *result) {
    struct pollfd fds[2] = {{.fd = out, .events = POLLIN}, {.fd = err, .events = POLLIN}};
    struct buf *bufs[2] = {&result->out, &result->err};
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
        for (int i = 0; i < 2; i++) {
            char chunk[65536];
            if (fds[i].fd < 0 || !fds[i].revents) continue;
            ssize_t n = read(fds[i].fd, chunk, sizeof(chunk));
            if (n > 0 && bufs[i]->len < 16 << 20) buf_append(bufs[i], chunk, (size_t)n);
            if (n <= 0) fds[i].fd = -1;
        }
    }
}

void rig_run_spec(const struct rig *rig, const struct sandbox_spec *spec, struct rig_result *ret_result) {
    int out[2], err[2], saved_out = fcntl(1, F_DUPFD_CLOEXEC, 3), saved_err = fcntl(2, F_DUPFD_CLOEXEC, 3), state;
    struct sandbox_process *process = NULL;
    *ret_result = (struct rig_result){.status = -1};
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    fflush(NULL);
    dup2(out[1], 1);
    dup2(err[1], 2);
    ret_result->start =
        sandbox_process_start(spec, rig->user_namespace, rig->net_namespace, &process, &ret_result->error);
    dup2(saved_out, 1);
    dup2(saved_err, 2);
    close(saved_out);
    close(saved_err);
    close(out[1]);
    close(err[1]);
    drain(out[0], err[0], ret_result);
    close(out[0]);
    close(err[0]);
    if (!process) return;
    assert_int_equal(waitpid(sandbox_process_pid(process), &state, 0), sandbox_process_pid(process));
    ret_result->status = sandbox_process_status(process, state);
    sandbox_process_free(process);
}

void rig_run(const struct rig *rig, const char *script, struct rig_result *ret_result) {
    char *argv[4];
    struct sandbox_spec spec = rig_spec(rig, argv, script);
    rig_run_spec(rig, &spec, ret_result);
}

void rig_result_done(struct rig_result *result) {
    buf_done(&result->out);
    buf_done(&result->err);
}

void rig_expect(const struct rig *rig, const char *script, const char *output) {
    struct rig_result result;
    rig_run(rig, script, &result);
    if (result.start != 0 || result.status != 0)
        print_error("%s\nstart %d (%s) status %d\n%s%s", script, result.start, result.error.text, result.status,
                    result.out.data ? result.out.data : "", result.err.data ? result.err.data : "");
    assert_int_equal(result.start, 0);
    assert_string_equal(result.out.data ? result.out.data : "", output);
    assert_int_equal(result.status, 0);
    rig_result_done(&result);
}

bool rig_is_root(void) { return geteuid() == 0; }

int rig_both(int group(void)) {
    if (!rig_is_root()) return group();
    print_message("as root\n");
    int failed = group(), state;
    pid_t pid = fork();
    if (pid == 0) {
        if (setgroups(0, NULL) < 0 || setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0)
            _exit(1);
        prctl(PR_SET_DUMPABLE, 1);
        if (chdir("/tmp") < 0 || setenv("HOME", "/nonexistent", 1) < 0) _exit(1);
        print_message("as nobody\n");
        exit(group());
    }
    if (waitpid(pid, &state, 0) != pid || !WIFEXITED(state)) return 1;
    return failed || WEXITSTATUS(state);
}
