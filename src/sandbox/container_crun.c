// SPDX-License-Identifier: Apache-2.0
// Speaks with crun, and with our init that it starts. Neither is believed in what matters: the process that crun names has to
// be our child or in the container's group, and its namespaces are compared with those that it should have.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/number.h"
#include "sandbox/cgroup.h"
#include "sandbox/container_plan.h"
#include "sandbox/container_state.h"
#include "sandbox/report.h"
#include "sandbox/tool.h"

#define CRUN_TIMEOUT_S 60
#define READY_TIMEOUT_US UINT64_C(10000000)

struct call {
    int (*enter)(void *data, struct error *err);
    void *data;
};

static int enter_call(void *data, struct error *err) {
    const struct call *call = data;
    if (call->enter) return call->enter(call->data, err);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return error_set(err, -errno, "no mount namespace for crun: %s", strerror(errno));
    int r = cgroup_hide_second();
    return r < 0 ? error_set(err, r, "the cgroups of version 2 cannot be put aside for crun: %s", strerror(-r)) : 0;
}

int sandbox_container_settle(struct sandbox_container *container, struct error *err) {
    struct tool_process *crun = TAKE_POINTER(container->crun);
    return crun ? tool_finish(crun, err) : 0;
}

int sandbox_container_crun(const struct sandbox_container *container) {
    return container->crun ? fcntl(tool_pidfd(container->crun), F_DUPFD_CLOEXEC, 3) : -1;
}

int container_call(struct sandbox_container *container, char *const *arguments, const int *fds, size_t fd_count,
                   int (*enter)(void *data, struct error *err), void *data, struct error *err) {
    char root[4096];
    struct error ignored;
    sandbox_container_settle(container, &ignored); // what matters of it was looked at
    snprintf(root, sizeof(root), "--root=%s/" CONTAINER_STATE, container->folder);
    char name[] = "crun", manager[] = "--cgroup-manager=cgroupfs", path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    char *argv[16] = {name, root, manager}, *const environment[] = {path, NULL};
    for (size_t i = 0; arguments[i] && i + 4 < ARRAY_LENGTH(argv); i++) argv[i + 3] = arguments[i];
    struct call call = {.enter = enter, .data = data};
    int all[8];
    for (size_t i = 0; i < fd_count && i < ARRAY_LENGTH(all) - 1; i++) all[i] = fds[i];
    all[fd_count] = container->lock; // crun's own: it hands on no more than it is told to
    const struct tool tool = {.argv = argv, .environment = environment, .fds = all, .fd_count = fd_count + 1, .enter = enter_call,
                              .data = &call, .timeout_s = CRUN_TIMEOUT_S, .sealed = true, .orphans = true};
    return tool_start(&tool, &container->crun, err);
}

int container_channel(int ret_pair[2], int *ret_words, struct error *err) {
    int pair[2], words = memfd_create("penstock-words", MFD_CLOEXEC);
    if (words < 0) return error_set(err, -errno, "no memory file: %s", strerror(errno));
    int one = 1, made = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
    if (made < 0 || setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) < 0) {
        int r = -errno;
        close(words);
        if (made == 0) close(pair[0]), close(pair[1]);
        return error_set(err, r, "no socket pair: %s", strerror(-r));
    }
    ret_pair[0] = pair[0];
    ret_pair[1] = pair[1];
    *ret_words = words;
    return 0;
}

// One report of the init. 1; 0: it closed the socket. -ETIMEDOUT, -errno. Whoever is there is not trusted to say what is so.
static int receive_report(int status, struct sandbox_report *ret_report) {
    uint64_t end = clock_us() + READY_TIMEOUT_US;
    for (;;) {
        struct pollfd ready = {.fd = status, .events = POLLIN};
        uint64_t now = clock_us();
        int n = now < end ? poll(&ready, 1, (int)((end - now) / 1000) + 1) : 0;
        if (n == 0) return -ETIMEDOUT;
        if (n < 0 && errno != EINTR) return -errno;
        if (n < 0) continue;
        pid_t sender;
        n = report_receive(status, 0, ret_report, &sender);
        if (n == -EAGAIN || n == -EINTR) continue;
        return n == -ECONNRESET ? 0 : n;
    }
}

int container_await(int status, struct error *err) {
    struct sandbox_report report;
    int r = receive_report(status, &report);
    if (r == 1 && report.kind == SANDBOX_REPORT_COMMAND) return 0;
    if (r == 1) return error_set(err, -EPROTO, "crun has not put the sandbox's filter in place; use the crun of Debian 12 or later");
    if (r == 0) r = -ECHILD;
    return error_set(err, r, "the sandbox's init does not answer: %s", strerror(-r));
}

int container_release(int status, const char *command, struct error *err) {
    struct sandbox_report report;
    (void)!send(status, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT); // if nobody is there, the wait tells
    int r = receive_report(status, &report);
    if (r == 0 && command) return 0; // execve has closed it
    if (r == 1 && !command && report.kind == SANDBOX_REPORT_STARTED) return 0;
    if (r == 0 || !command) r = -ECHILD;
    if (r < 0) return error_set(err, r, "the sandbox's init does not answer: %s", strerror(-r));
    if (report.value == ENOENT)
        return error_set(err, -ENOENT, "\"%s\" cannot be executed in the sandbox: it, or its interpreter, is not there", command);
    return error_set(err, -EACCES, "\"%s\" cannot be executed in the sandbox: %s", command, strerror(report.value));
}

static const char *const stream_names[] = {"standard input", "standard output", "standard error"};

int container_streams(const int stdio[3], int ret_streams[3], struct error *err) {
    struct stat st;
    int r = 0;
    for (int i = 0; i < 3; i++) ret_streams[i] = -1;
    for (int i = 0; r == 0 && i < 3; i++) {
        if (stdio[i] >= 0 && fstat(stdio[i], &st) == 0 && S_ISDIR(st.st_mode))
            r = error_set(err, -EINVAL, "%s is a folder, a way out of the sandbox; redirect it to a file or /dev/null", stream_names[i]);
        else ret_streams[i] = stdio[i] < 0 ? open("/dev/null", O_RDWR | O_CLOEXEC) : fcntl(stdio[i], F_DUPFD_CLOEXEC, 3);
        if (r == 0 && ret_streams[i] < 0) r = error_set(err, -errno, "%s: %s", stream_names[i], strerror(errno));
    }
    for (int i = 0; r < 0 && i < 3; i++)
        if (ret_streams[i] >= 0) close(TAKE_FD(ret_streams[i]));
    return r;
}

// Whether a process is of the container with this id.
static bool is_in_group(pid_t pid, const char *id) {
    struct buf text = BUF_INIT;
    char path[64], group[128];
    snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
    snprintf(group, sizeof(group), "/" CGROUP_PARENT "/%s\n", id);
    bool is = buf_read_file(&text, path, 65536) == 0 && text.data && strstr(text.data, group);
    buf_done(&text);
    return is;
}

// The number may be that of another process by now, which must not be taken for it.
static int adopt(pid_t pid, const char *id, pid_t *ret_pid, int *ret_pidfd) {
    siginfo_t info;
    AUTO_CLOSE int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0) return -errno;
    if (!(id ? is_in_group(pid, id) : waitid(P_PIDFD, (id_t)fd, &info, WEXITED | WNOHANG | WNOWAIT) == 0)) return -ECHILD;
    *ret_pid = pid;
    *ret_pidfd = TAKE_FD(fd);
    return 0;
}

int container_child(const char *path, const char *id, pid_t *ret_pid, int *ret_pidfd, struct error *err) {
    struct buf text = BUF_INIT;
    uint64_t number = 0;
    int r = buf_read_file(&text, path, 32);
    if (r == 0) r = number_parse(text.data ? text.data : "", strspn(text.data ? text.data : "", "0123456789"), 2, INT32_MAX, &number);
    buf_done(&text);
    if (r == 0) r = adopt((pid_t)number, id, ret_pid, ret_pidfd);
    return r < 0 ? error_set(err, r, "the sandbox's process is not known (\"%s\"): %s", path, strerror(-r)) : 0;
}

bool container_reported(int status, pid_t *ret_pid, int *ret_pidfd) {
    struct sandbox_report report;
    pid_t pid = 0;
    return report_receive(status, MSG_PEEK, &report, &pid) == 1 && pid > 0 && adopt(pid, NULL, ret_pid, ret_pidfd) == 0;
}

static bool namespace_is(pid_t pid, const char *name, ino_t wanted) {
    struct stat st;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, name);
    return stat(path, &st) == 0 && st.st_ino == wanted;
}

static ino_t namespace_number(pid_t pid, const char *name) {
    struct stat st;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, name);
    return stat(path, &st) < 0 ? 0 : st.st_ino; // no namespace has this number
}

int container_verify(pid_t pid, pid_t like, int net_namespace, struct error *err) {
    static const char *const names[] = {"net", "user", "mnt", "pid", "ipc", "uts", "cgroup"};
    struct stat st;
    bool good = like > 0 || (fstat(net_namespace, &st) == 0 && namespace_is(pid, "net", st.st_ino));
    for (size_t i = 0; good && i < ARRAY_LENGTH(names); i++) {
        ino_t own = namespace_number(getpid(), names[i]), its = namespace_number(pid, names[i]);
        good = its != 0 && own != 0 && (its != own || (i == 0 && like == 0 && its == st.st_ino));
        if (like > 0) good = good && namespace_is(like, names[i], its);
    }
    return good ? 0 : error_set(err, -EPROTO, "crun has not put the sandbox into its own namespaces; use the crun of Debian 12 or later");
}
