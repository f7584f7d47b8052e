// SPDX-License-Identifier: Apache-2.0
#include "sandbox/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "sandbox/sandbox.h"

#define TOOL_WORDS 2048 // of what it says, the last ones
#define TOOL_HIGH 200   // descriptors are moved there, before they get their numbers

#define TOOL_REAP_US UINT64_C(2000000)
#define TOOL_CHILDREN_SIZE (1 << 20)

struct tool_process {
    const struct tool *tool; // until it is started
    char name[32];
    unsigned timeout_s;
    uint64_t until_us;
    pid_t pid;
    int pidfd;
    int words[2], faults[2]; // pipes: what the program says; why it could not be executed
    bool orphans;
    struct buf before;       // our children that are none of its
    pid_t left;
    char text[TOOL_WORDS + 1];
    size_t len;
};

struct fault {
    int code;
    struct error err;
};

// ---- the child ----

static bool find_program(const char *name, char path[64]) {
    static const char *const folders[] = {"/usr/bin", "/usr/sbin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin"};
    for (size_t i = 0; i < ARRAY_LENGTH(folders); i++)
        if (snprintf(path, 64, "%s/%s", folders[i], name) < 64 && access(path, X_OK) == 0) return true;
    return false;
}

bool sandbox_has_program(const char *name) {
    char path[64];
    return find_program(name, path);
}

static void default_signals(void) {
    sigset_t none;
    for (int number = 1; number < 65; number++) signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

// Standard input is one end of the pipe as well: crun gives it to the container's user, whatever it is.
static int place_descriptors(const struct tool *tool, int words) {
    int high[16];
    if (tool->fd_count > ARRAY_LENGTH(high)) return -E2BIG;
    for (size_t i = 0; i < tool->fd_count; i++) {
        high[i] = fcntl(tool->fds[i], F_DUPFD_CLOEXEC, TOOL_HIGH);
        if (high[i] < 0) return -errno;
    }
    for (int fd = 0; fd < 3; fd++)
        if (dup2(words, fd) < 0) return -errno;
    for (size_t i = 0; i < tool->fd_count; i++)
        if (dup2(high[i], 3 + (int)i) < 0) return -errno;
    return 0;
}

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U // has to be asked for where vm.memfd_noexec is 1; Linux before 6.3 lacks it
#endif

static int sealed_copy(const char *name, const char *path, struct stat *ret_file) {
    struct stat st;
    AUTO_CLOSE int file = open(path, O_RDONLY | O_CLOEXEC);
    AUTO_CLOSE int copy = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
    if (copy < 0 && errno == EINVAL) copy = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0 || copy < 0 || fstat(file, &st) < 0) return -1;
    for (off_t done = 0; done < st.st_size;) {
        ssize_t n = sendfile(copy, file, NULL, (size_t)(st.st_size - done));
        if (n <= 0) return -1;
        done += n;
    }
    if (fcntl(copy, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) return -1;
    *ret_file = st;
    return fcntl(copy, F_DUPFD_CLOEXEC, TOOL_HIGH);
}

static struct { // of the next program that is run sealed
    int copy;
    struct stat file;
} ahead = {.copy = -1};

void tool_ahead(const char *name) {
    char path[64];
    if (ahead.copy < 0 && find_program(name, path)) ahead.copy = sealed_copy(name, path, &ahead.file);
}

static bool is_ahead(const char *path) {
    struct stat now;
    const struct stat *then = &ahead.file;
    return ahead.copy >= 0 && stat(path, &now) == 0 && now.st_dev == then->st_dev && now.st_ino == then->st_ino &&
           now.st_size == then->st_size && now.st_ctim.tv_sec == then->st_ctim.tv_sec && now.st_ctim.tv_nsec == then->st_ctim.tv_nsec;
}

// Returns if that cannot be; the program itself is as good then.
static void execute_sealed(const struct tool *tool, const char *path) {
    struct stat file;
    int copy = is_ahead(path) ? ahead.copy : sealed_copy(tool->argv[0], path, &file);
    if (copy >= 0) execveat(copy, "", tool->argv, tool->environment, AT_EMPTY_PATH);
}

// Ends with its parent, and if that died before we said so: nobody is there to read then.
static void die_with_parent(const struct tool_process *process) {
    struct pollfd faults = {.fd = process->faults[1]};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (poll(&faults, 1, 0) > 0 && (faults.revents & POLLERR)) _exit(125);
}

// The first process of a PID namespace: with it ends what the program has left.
static void supervise(const struct tool_process *process) {
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        die_with_parent(process);
        return;
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    _exit(pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 125);
}

static _Noreturn void run_child(const struct tool_process *process) {
    const struct tool *tool = process->tool;
    struct fault fault = {0};
    char path[64];
    close(process->faults[0]);
    close(process->words[0]);
    die_with_parent(process);
    default_signals();
    bool apart = !tool->apart || unshare(CLONE_NEWPID) == 0;
    if (tool->apart) supervise(process);
    int faults = fcntl(process->faults[1], F_DUPFD_CLOEXEC, TOOL_HIGH), words = fcntl(process->words[1], F_DUPFD_CLOEXEC, TOOL_HIGH);
    bool found = find_program(tool->argv[0], path);
    if (!found)
        fault.code = error_set(&fault.err, -ENOPKG, "\"%s\" is not installed; apt-get install %s", tool->argv[0], tool->argv[0]);
    else if (!apart) fault.code = error_set(&fault.err, -EPERM, "no PID namespace for %s", tool->argv[0]);
    else if (tool->enter) fault.code = tool->enter(tool->data, &fault.err);
    die_with_parent(process); // again: a change of user takes it away
    if (fault.code == 0) {
        fault.code = place_descriptors(tool, words);
        if (fault.code == 0 && tool->sealed) execute_sealed(tool, path);
        if (fault.code == 0) execve(path, tool->argv, tool->environment);
        if (fault.code == 0) fault.code = -errno;
        error_set(&fault.err, fault.code, "\"%s\" cannot be executed: %s", path, strerror(-fault.code));
    }
    (void)!write(faults, &fault, sizeof(fault));
    _exit(125);
}

// ---- the parent ----

bool tool_children(struct buf *text) {
    buf_append(text, " ", 1);
    bool known = buf_read_file(text, "/proc/thread-self/children", TOOL_CHILDREN_SIZE) == 0;
    buf_append(text, "", 1);
    return known && !text->failed;
}

// How many the program has left, that is, are not among those before; the dead are taken, but for the one that is known.
static size_t count_left(const char *before, pid_t known) {
    struct buf now = BUF_INIT;
    char word[32], *place = NULL;
    size_t count = 0;
    char *rest = tool_children(&now) ? now.data : NULL;
    for (char *one = rest ? strtok_r(rest, " ", &place) : NULL; one; one = strtok_r(NULL, " ", &place)) {
        pid_t pid = (pid_t)strtol(one, NULL, 10);
        snprintf(word, sizeof(word), " %.20s ", one);
        count += pid != known && !strstr(before, word) && waitpid(pid, NULL, WNOHANG) == 0;
    }
    buf_done(&now);
    return count;
}

// What a program that fails has left is nobody's; of one that does not, the container's first process stays.
static void take_left(const struct tool_process *process, bool good) {
    uint64_t end = clock_us() + TOOL_REAP_US;
    size_t stay = good && process->left == 0 ? 1 : 0;
    while (count_left(process->before.data, process->left) > stay && clock_us() < end) poll(NULL, 0, 1);
}

// The last bytes stay. False: there is no more now.
static bool take_words(struct tool_process *process) {
    char chunk[TOOL_WORDS];
    ssize_t n = read(process->words[0], chunk, sizeof(chunk));
    if (n <= 0) return false;
    size_t keep = process->len + (size_t)n > TOOL_WORDS ? TOOL_WORDS - (size_t)n : process->len;
    memmove(process->text, process->text + process->len - keep, keep);
    memcpy(process->text + keep, chunk, (size_t)n);
    process->len = keep + (size_t)n;
    return true;
}

// 1: fd can be read; 0: the program has ended.
static int await(struct tool_process *process, int fd) {
    struct pollfd events[3] = {
        {.fd = process->pidfd, .events = POLLIN}, {.fd = process->words[0], .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    for (;;) {
        uint64_t now = clock_us();
        int ready = now < process->until_us ? poll(events, 3, (int)((process->until_us - now) / 1000) + 1) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return ready < 0 ? -errno : -ETIMEDOUT;
        if (events[2].revents) return 1;
        if (events[0].revents) return 0;
        if (events[1].revents && !take_words(process)) events[1].fd = -1; // closed
    }
}

bool tool_await(struct tool_process *process, int fd) { return await(process, fd) == 1; }

int tool_pidfd(const struct tool_process *process) { return process->pidfd; }

void tool_leaves(struct tool_process *process, pid_t pid) { process->left = pid; }

static int await_end(struct tool_process *process, int *ret_status) {
    int r = await(process, -1);
    if (r < 0) kill(process->pid, SIGKILL);
    while (waitpid(process->pid, ret_status, 0) < 0 && errno == EINTR) {
    }
    while (take_words(process)) {
    }
    return r;
}

static const char *last_line(struct tool_process *process) {
    char *text = process->text;
    text[process->len] = '\0';
    while (process->len > 0 && text[process->len - 1] == '\n') text[--process->len] = '\0';
    char *line = strrchr(text, '\n');
    return process->len == 0 ? "it says nothing" : line ? line + 1 : text;
}

static int conclude(struct tool_process *process, int r, int status, struct error *err) {
    const char *name = process->name;
    struct fault fault;
    if (r == -ETIMEDOUT)
        return error_set(err, r, "%s did not end within %u s: %.700s", name, process->timeout_s, last_line(process));
    if (r < 0) return error_set(err, r, "%s cannot be waited for: %s", name, strerror(-r));
    if (read(process->faults[0], &fault, sizeof(fault)) == (ssize_t)sizeof(fault))
        return error_set(err, fault.code, "%s", fault.err.text);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
    if (WIFSIGNALED(status))
        return error_set(err, -EIO, "%s was ended by signal %d (%s): %.800s", name, WTERMSIG(status), strsignal(WTERMSIG(status)),
                         last_line(process));
    return error_set(err, -EIO, "%s: %.800s", name, last_line(process));
}

static void process_free(struct tool_process *process) {
    for (size_t i = 0; i < 2; i++) {
        mem_close_pointer(&process->words[i]);
        mem_close_pointer(&process->faults[i]);
    }
    mem_close_pointer(&process->pidfd);
    buf_done(&process->before);
    free(process);
}

int tool_start(const struct tool *tool, struct tool_process **ret_process, struct error *err) {
    struct tool_process *process = NEW(struct tool_process);
    if (!process) return error_set(err, -ENOMEM, "out of memory");
    *process = (struct tool_process){.tool = tool, .timeout_s = tool->timeout_s, .pid = -1, .pidfd = -1, .words = {-1, -1}, .faults = {-1, -1}};
    snprintf(process->name, sizeof(process->name), "%s", tool->argv[0]);
    process->until_us = clock_us() + tool->timeout_s * UINT64_C(1000000);
    if (pipe2(process->words, O_CLOEXEC) < 0 || pipe2(process->faults, O_CLOEXEC | O_NONBLOCK) < 0) {
        int r = error_set(err, -errno, "no pipe: %s", strerror(errno));
        process_free(process);
        return r;
    }
    fcntl(process->words[0], F_SETFL, O_NONBLOCK);
    process->orphans = tool->orphans && tool_children(&process->before);
    process->pid = fork();
    if (process->pid == 0) run_child(process);
    int r = process->pid < 0 ? -errno : 0;
    if (tool->sealed && ahead.copy >= 0) close(TAKE_FD(ahead.copy)); // once only
    process->tool = NULL;
    close(TAKE_FD(process->words[1]));
    close(TAKE_FD(process->faults[1]));
    process->pidfd = r < 0 ? -1 : (int)syscall(SYS_pidfd_open, process->pid, 0);
    if (r == 0 && process->pidfd < 0) {
        r = -errno;
        kill(process->pid, SIGKILL);
        waitpid(process->pid, NULL, 0);
    }
    if (r < 0) {
        error_set(err, r, "%s cannot be started: %s", process->name, strerror(-r));
        process_free(process);
        return r;
    }
    *ret_process = process;
    return 0;
}

int tool_finish(struct tool_process *process, struct error *err) {
    int status = 0;
    int r = await_end(process, &status);
    r = conclude(process, r, status, err);
    if (process->orphans) take_left(process, r == 0);
    process_free(process);
    return r;
}

void tool_stop(struct tool_process *process) {
    struct error ignored;
    kill(process->pid, SIGKILL);
    tool_finish(process, &ignored);
}

int tool_run(const struct tool *tool, struct error *err) {
    struct tool_process *process;
    int r = tool_start(tool, &process, err);
    return r < 0 ? r : tool_finish(process, err);
}
