// SPDX-License-Identifier: Apache-2.0
// Children of the test: sandboxes, run by this very program's `run`, and single processes. All end with the test.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/number.h"
#include "daemon/doctor.h"
#include "daemon/self_test.h"

#define READY_MS 20000
#define LEAK 50 // the descriptor that a sandbox must not inherit

static void words_path(const struct self_test *test, char path[PATH_MAX]) { snprintf(path, PATH_MAX, "%s/words", test->folder); }

static int open_input(const struct self_test *test, bool on_terminal) {
    int fd = open(on_terminal ? test->terminal_name : "/dev/null", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0 && on_terminal) ioctl(fd, TIOCSCTTY, 0);
    return fd;
}

static _Noreturn void run_child(const struct self_test *test, char **argv, bool on_terminal, bool secret, int out) {
    char path[PATH_MAX];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setsid();
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    words_path(test, path);
    int in = open_input(test, on_terminal), words = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int leak = open(test->secret_file, O_RDONLY | O_CLOEXEC);
    if (in < 0 || words < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(words, 2) < 0 || chdir(test->project) < 0) _exit(1);
    if (leak >= 0) dup2(leak, LEAK);
    setenv("HOME", test->home, 1);
    setenv("SSH_AUTH_SOCK", "/nonexistent/agent", 1);
    setenv("HTTPS_PROXY", "http://127.0.0.1:9", 1);
    if (secret) setenv("PENSTOCK_SELF_TEST", test->secret, 1);
    execv("/proc/self/exe", argv);
    _exit(1);
}

int self_test_spawn(struct self_test *test, char *const *arguments, bool on_terminal, bool secret,
                    struct self_test_child *ret_child, struct error *err) {
    char *argv[SELF_TEST_ARGUMENTS + 2] = {"penstock"};
    int ends[2];
    for (size_t i = 0; arguments[i] && i < SELF_TEST_ARGUMENTS; i++) argv[i + 1] = arguments[i];
    if (pipe2(ends, O_CLOEXEC) < 0) return error_set(err, -errno, "no pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) run_child(test, argv, on_terminal, secret, ends[1]);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return error_set(err, -EAGAIN, "no process can be started");
    }
    *ret_child = (struct self_test_child){.pid = pid, .out = ends[0]};
    return 0;
}

void self_test_spawn_words(const struct self_test *test, char *ret_text, size_t size) {
    struct buf text = BUF_INIT;
    char path[PATH_MAX];
    words_path(test, path);
    ret_text[0] = '\0';
    if (buf_read_file(&text, path, 1 << 20) == 0 && text.len > 0) {
        while (text.len > 0 && text.data[text.len - 1] == '\n') text.data[--text.len] = '\0';
        const char *last = strrchr(text.data, '\n');
        snprintf(ret_text, size, "%s", last ? last + 1 : text.data);
    }
    buf_done(&text);
}

int self_test_spawn_ready(struct self_test *test, struct self_test_child *child, struct error *err) {
    char line[8] = "", words[512];
    size_t used = 0;
    struct pollfd wait = {.fd = child->out, .events = POLLIN};
    while (used < 6 && poll(&wait, 1, READY_MS) > 0) {
        ssize_t got = read(child->out, line + used, 6 - used);
        if (got <= 0) break;
        used += (size_t)got;
    }
    if (strcmp(line, "ready\n") == 0) return 0;
    self_test_spawn_words(test, words, sizeof(words));
    return error_set(err, -EIO, "a sandbox of the test did not start: %s", words[0] ? words : "no word from it; see penstock doctor");
}

void self_test_spawn_stop(struct self_test_child *child) {
    if (child->pid <= 0) return;
    kill(child->pid, SIGKILL);
    while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR) continue;
    close(child->out);
    *child = (struct self_test_child){0};
}

// ---- whose process is it? ----

static pid_t parent_of(pid_t pid) {
    struct buf text = BUF_INIT;
    char path[64];
    uint64_t parent = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (buf_read_file(&text, path, 4096) == 0 && text.data) {
        const char *at = strrchr(text.data, ')'); // ") S PPID", proc(5)
        if (at && strlen(at) > 4) number_parse(at + 4, strcspn(at + 4, " "), 0, INT32_MAX, &parent);
    }
    buf_done(&text);
    return (pid_t)parent;
}

static ino_t network_of(const char *pid) {
    struct stat st;
    char path[300];
    snprintf(path, sizeof(path), "/proc/%s/ns/net", pid);
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

static bool descends(pid_t pid, pid_t from) {
    for (int depth = 0; pid > 1 && depth < 8; depth++) {
        if (pid == from) return true;
        pid = parent_of(pid);
    }
    return false;
}

pid_t self_test_spawn_inside(const struct self_test_child *child) {
    DIR *proc = opendir("/proc");
    pid_t found = 0;
    for (struct dirent *entry; proc && !found && (entry = readdir(proc));) {
        uint64_t pid;
        if (number_parse(entry->d_name, strlen(entry->d_name), 1, INT32_MAX, &pid) < 0) continue;
        ino_t network = network_of(entry->d_name);
        if (network != 0 && network != network_of("self") && descends((pid_t)pid, child->pid)) found = (pid_t)pid;
    }
    if (proc) closedir(proc);
    return found;
}

bool self_test_spawn_plain(void) {
    struct doctor_finding finding = {0};
    struct doctor doctor = {.root = "", .program = "", .identity = sandbox_identity(), .user_namespace = -1, .net_namespace = -1,
                            .keeper = {.kind = ROLE_KEEPER, .pidfd = -1, .channel = -1}};
    doctor_namespace_skeleton(&doctor, &finding);
    mem_close_pointer(&doctor.user_namespace);
    mem_close_pointer(&doctor.net_namespace);
    role_stop(&doctor.keeper, 2000);
    return doctor.skeleton == IPC_SKELETON_ROUTES;
}
