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

struct running {
    const struct tool *tool;
    int words[2], faults[2]; // pipes: what the program says; why it could not be executed
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
static void die_with_parent(const struct running *running) {
    struct pollfd faults = {.fd = running->faults[1]};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (poll(&faults, 1, 0) > 0 && (faults.revents & POLLERR)) _exit(125);
}

// The first process of a PID namespace: with it ends what the program has left.
static void supervise(const struct running *running) {
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        die_with_parent(running);
        return;
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    _exit(pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 125);
}

static _Noreturn void run_child(const struct running *running) {
    const struct tool *tool = running->tool;
    struct fault fault = {0};
    char path[64];
    close(running->faults[0]);
    close(running->words[0]);
    die_with_parent(running);
    default_signals();
    bool apart = !tool->apart || unshare(CLONE_NEWPID) == 0;
    if (tool->apart) supervise(running);
    int faults = fcntl(running->faults[1], F_DUPFD_CLOEXEC, TOOL_HIGH), words = fcntl(running->words[1], F_DUPFD_CLOEXEC, TOOL_HIGH);
    bool found = find_program(tool->argv[0], path);
    if (!found)
        fault.code = error_set(&fault.err, -ENOPKG, "\"%s\" is not installed; apt-get install %s", tool->argv[0], tool->argv[0]);
    else if (!apart) fault.code = error_set(&fault.err, -EPERM, "no PID namespace for %s", tool->argv[0]);
    else if (tool->enter) fault.code = tool->enter(tool->data, &fault.err);
    die_with_parent(running); // again: a change of user takes it away
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

// The numbers of our children, each between two blanks. False: they are not known (the kernel has no CONFIG_PROC_CHILDREN).
static bool read_children(struct buf *text) {
    buf_append(text, " ", 1);
    bool known = buf_read_file(text, "/proc/thread-self/children", TOOL_CHILDREN_SIZE) == 0;
    buf_append(text, "", 1);
    return known && !text->failed;
}

// How many the program has left, that is, are not among those before; the dead are taken.
static size_t count_left(const char *before) {
    struct buf now = BUF_INIT;
    char word[32], *place = NULL;
    size_t count = 0;
    char *rest = read_children(&now) ? now.data : NULL;
    for (char *one = rest ? strtok_r(rest, " ", &place) : NULL; one; one = strtok_r(NULL, " ", &place)) {
        snprintf(word, sizeof(word), " %.20s ", one);
        count += !strstr(before, word) && waitpid((pid_t)strtol(one, NULL, 10), NULL, WNOHANG) == 0;
    }
    buf_done(&now);
    return count;
}

// What a program that fails has left is nobody's; of one that does not, the container's first process stays.
static void take_left(const char *before, bool good) {
    uint64_t end = clock_us() + TOOL_REAP_US;
    while (count_left(before) > (good ? 1 : 0) && clock_us() < end) poll(NULL, 0, 1);
}

// The last bytes stay. False: there is no more now.
static bool take_words(struct running *running) {
    char chunk[TOOL_WORDS];
    ssize_t n = read(running->words[0], chunk, sizeof(chunk));
    if (n <= 0) return false;
    size_t keep = running->len + (size_t)n > TOOL_WORDS ? TOOL_WORDS - (size_t)n : running->len;
    memmove(running->text, running->text + running->len - keep, keep);
    memcpy(running->text + keep, chunk, (size_t)n);
    running->len = keep + (size_t)n;
    return true;
}

static int await_end(struct running *running, pid_t pid, int *ret_status) {
    AUTO_CLOSE int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    uint64_t end = clock_us() + running->tool->timeout_s * UINT64_C(1000000);
    struct pollfd events[2] = {{.fd = pidfd, .events = POLLIN}, {.fd = running->words[0], .events = POLLIN}};
    int r = pidfd < 0 ? -errno : 0;
    while (r == 0) {
        uint64_t now = clock_us();
        int ready = now < end ? poll(events, 2, (int)((end - now) / 1000) + 1) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) r = ready < 0 ? -errno : -ETIMEDOUT;
        else if (events[0].revents) break;
        else if (!take_words(running)) events[1].fd = -1; // closed
    }
    if (r < 0) kill(pid, SIGKILL);
    while (waitpid(pid, ret_status, 0) < 0 && errno == EINTR) {
    }
    while (take_words(running)) {
    }
    return r;
}

static const char *last_line(struct running *running) {
    char *text = running->text;
    text[running->len] = '\0';
    while (running->len > 0 && text[running->len - 1] == '\n') text[--running->len] = '\0';
    char *line = strrchr(text, '\n');
    return running->len == 0 ? "it says nothing" : line ? line + 1 : text;
}

static int conclude(struct running *running, int r, int status, struct error *err) {
    const char *name = running->tool->argv[0];
    struct fault fault;
    if (r == -ETIMEDOUT)
        return error_set(err, r, "%s did not end within %u s: %.700s", name, running->tool->timeout_s, last_line(running));
    if (r < 0) return error_set(err, r, "%s cannot be waited for: %s", name, strerror(-r));
    if (read(running->faults[0], &fault, sizeof(fault)) == (ssize_t)sizeof(fault))
        return error_set(err, fault.code, "%s", fault.err.text);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
    return error_set(err, -EIO, "%s: %.800s", name, last_line(running));
}

int tool_run(const struct tool *tool, struct error *err) {
    struct running running = {.tool = tool};
    struct buf before = BUF_INIT;
    int status = 0;
    if (pipe2(running.words, O_CLOEXEC) < 0) return error_set(err, -errno, "no pipe: %s", strerror(errno));
    if (pipe2(running.faults, O_CLOEXEC | O_NONBLOCK) < 0) {
        int r = -errno;
        close(running.words[0]);
        close(running.words[1]);
        return error_set(err, r, "no pipe: %s", strerror(-r));
    }
    fcntl(running.words[0], F_SETFL, O_NONBLOCK);
    bool known = tool->orphans && read_children(&before);
    pid_t pid = fork();
    if (pid == 0) run_child(&running);
    int r = pid < 0 ? -errno : 0;
    if (tool->sealed && ahead.copy >= 0) close(TAKE_FD(ahead.copy)); // once only
    close(running.words[1]);
    close(running.faults[1]);
    if (r == 0) r = await_end(&running, pid, &status);
    r = conclude(&running, r, status, err);
    if (known) take_left(before.data, r == 0);
    buf_done(&before);
    close(running.words[0]);
    close(running.faults[0]);
    return r;
}
