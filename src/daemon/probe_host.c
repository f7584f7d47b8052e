// SPDX-License-Identifier: Apache-2.0
// Attempts on the host's files, processes, secrets and UNIX sockets. Everything aimed at was put there by the test, or is
// of the host and only opened, never changed.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/number.h"
#include "daemon/probe.h"

#define DESCRIPTORS 4096

// ---- UNIX sockets ----

static int connect_unix(const char *name, int type) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t len = strlen(name);
    if (len == 0 || len >= sizeof(to.sun_path)) return -1;
    memcpy(to.sun_path, name, len);
    if (name[0] == '@') to.sun_path[0] = '\0';
    AUTO_CLOSE int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return connect(fd, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
}

enum probe_result host_unix(struct probe *probe, const char *argument) {
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    for (size_t i = 0; i < ARRAY_LENGTH(types); i++)
        if (connect_unix(argument, types[i]) == 0) return probe_say(probe, PROBE_ESCAPED, "connected to %.100s", argument);
    return PROBE_HELD;
}

// ---- files ----

enum probe_result host_read(struct probe *probe, const char *argument) {
    AUTO_CLOSE int fd = open(argument, O_RDONLY | O_CLOEXEC);
    char byte;
    return probe_refused(probe, fd >= 0 && read(fd, &byte, 1) == 1 ? 0 : -1, "reading it");
}

enum probe_result host_write(struct probe *probe, const char *argument) {
    AUTO_CLOSE int fd = open(argument, O_WRONLY | O_APPEND | O_CLOEXEC);
    return probe_refused(probe, fd, "opening it for writing");
}

// Private folders of the sandbox take it; whether it is on the host is looked at there.
enum probe_result host_create(struct probe *probe, const char *argument) {
    (void)probe;
    int fd = open(argument, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
    return PROBE_HELD;
}

enum probe_result host_devices(struct probe *probe, const char *argument) {
    (void)argument;
    static const char *const devices[] = {"mem", "kmem", "port", "kmsg", "sda", "vda", "nvme0n1", "dm-0", "loop0", "net/tun",
                                          "kvm", "vsock", "vhost-vsock", "vhost-net", "fuse", "input/event0", "dri/card0"};
    for (size_t i = 0; i < ARRAY_LENGTH(devices); i++) {
        char path[64];
        snprintf(path, sizeof(path), "/dev/%s", devices[i]);
        AUTO_CLOSE int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 || (errno != ENOENT && errno != EACCES && errno != EPERM))
            return probe_say(probe, PROBE_ESCAPED, "%s is there", path);
    }
    return PROBE_HELD;
}

// ---- processes ----

// Calls see for each process of /proc but this one, until it says true.
static bool each_process(bool (*see)(struct probe *probe, const char *folder, const char *argument), struct probe *probe,
                         const char *argument) {
    DIR *proc = opendir("/proc");
    bool seen = false;
    for (struct dirent *entry; proc && !seen && (entry = readdir(proc));) {
        char folder[300];
        uint64_t pid;
        if (number_parse(entry->d_name, strlen(entry->d_name), 1, INT32_MAX, &pid) < 0 || (pid_t)pid == getpid()) continue;
        snprintf(folder, sizeof(folder), "/proc/%s", entry->d_name);
        seen = see(probe, folder, argument);
    }
    if (proc) closedir(proc);
    return seen;
}

static bool file_has(const char *folder, const char *file, const char *word) {
    struct buf text = BUF_INIT;
    char path[400];
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    bool has = buf_read_file(&text, path, 1 << 20) == 0 && text.len > 0 && memmem(text.data, text.len, word, strlen(word));
    buf_done(&text);
    return has;
}

static bool see_environ(struct probe *probe, const char *folder, const char *argument) {
    if (!file_has(folder, "environ", argument)) return false;
    probe_say(probe, PROBE_ESCAPED, "the secret is in %.100s/environ", folder);
    return true;
}

enum probe_result host_environ(struct probe *probe, const char *argument) {
    return each_process(see_environ, probe, argument) ? PROBE_ESCAPED : PROBE_HELD;
}

enum probe_result host_variable(struct probe *probe, const char *argument) {
    return probe_refused(probe, getenv(argument) ? 0 : -1, argument);
}

// As an argument by itself: our own processes have these words in longer ones.
static bool see_word(struct probe *probe, const char *folder, const char *argument) {
    char word[64] = "";
    struct buf text = BUF_INIT;
    char path[400];
    size_t len = (size_t)snprintf(word + 1, sizeof(word) - 1, "%.50s", argument) + 2;
    snprintf(path, sizeof(path), "%s/cmdline", folder);
    bool has = buf_read_file(&text, path, 1 << 20) == 0 && text.len > 0 && memmem(text.data, text.len, word, len);
    buf_done(&text);
    if (has) probe_say(probe, PROBE_ESCAPED, "%.60s is a process with \"%.60s\"", folder, argument);
    return has;
}

enum probe_result host_process(struct probe *probe, const char *argument) {
    return each_process(see_word, probe, argument) ? PROBE_ESCAPED : PROBE_HELD;
}

static pid_t take_pid(const char *argument) {
    uint64_t pid;
    return number_parse(argument, strlen(argument), 1, INT32_MAX, &pid) < 0 ? 0 : (pid_t)pid;
}

// Whether it was the host's process that got the signal is seen by the test.
enum probe_result host_kill(struct probe *probe, const char *argument) {
    pid_t pid = take_pid(argument);
    if (pid == 0) return probe_say(probe, PROBE_BROKEN, "not a process: %.20s", argument);
    // Until it has ended and the test has seen it, which takes its time on a busy machine.
    for (int i = 0; i < 100 && kill(pid, i == 0 ? SIGUSR1 : 0) == 0; i++) usleep(20000);
    return PROBE_HELD;
}

enum probe_result host_trace(struct probe *probe, const char *argument) {
    pid_t pid = take_pid(argument);
    if (pid == 0) return probe_say(probe, PROBE_BROKEN, "not a process: %.20s", argument);
    return probe_refused(probe, ptrace(PTRACE_SEIZE, pid, NULL, NULL), "tracing a process of the host");
}

static ino_t namespace_of(const char *folder, const char *kind, char path[400]) {
    struct stat st;
    snprintf(path, 400, "%s/ns/%s", folder, kind);
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

static bool see_namespace(struct probe *probe, const char *folder, const char *argument) {
    static const char *const kinds[] = {"net", "user", "mnt", "pid", "ipc"};
    (void)argument;
    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++) {
        char path[400], own[400];
        ino_t there = namespace_of(folder, kinds[i], path);
        if (there == 0 || there == namespace_of("/proc/self", kinds[i], own)) continue;
        AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || setns(fd, 0) < 0) continue;
        probe_say(probe, PROBE_ESCAPED, "entered %.100s", path);
        return true;
    }
    return false;
}

enum probe_result host_namespaces(struct probe *probe, const char *argument) {
    return each_process(see_namespace, probe, argument) ? PROBE_ESCAPED : PROBE_HELD;
}

// The namespaces that own ours.
enum probe_result host_parent(struct probe *probe, const char *argument) {
    (void)argument;
    static const char *const files[] = {"/proc/self/ns/user", "/proc/self/ns/net", "/proc/self/ns/pid"};
    for (size_t i = 0; i < ARRAY_LENGTH(files); i++) {
        AUTO_CLOSE int own = open(files[i], O_RDONLY | O_CLOEXEC);
        AUTO_CLOSE int owner = ioctl(own, NS_GET_USERNS);
        AUTO_CLOSE int parent = ioctl(own, NS_GET_PARENT);
        if ((owner >= 0 && i > 0 && setns(owner, CLONE_NEWUSER) == 0) || (parent >= 0 && setns(parent, 0) == 0))
            return probe_say(probe, PROBE_ESCAPED, "entered what owns %s", files[i]);
    }
    return PROBE_HELD;
}

static bool see_root(struct probe *probe, const char *folder, const char *argument) {
    char path[PROBE_TEXT_SIZE];
    snprintf(path, sizeof(path), "%.100s/root%.300s", folder, argument);
    if (access(path, R_OK) < 0) return false;
    probe_say(probe, PROBE_ESCAPED, "%.140s is there", path);
    return true;
}

enum probe_result host_roots(struct probe *probe, const char *argument) {
    return each_process(see_root, probe, argument) ? PROBE_ESCAPED : PROBE_HELD;
}

// ---- what came with us ----

// But for the standard three, the pipe to the test's own parent is the only one.
enum probe_result host_descriptors(struct probe *probe, const char *argument) {
    (void)argument;
    for (int fd = 3; fd < DESCRIPTORS; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (flags >= 0 && !(flags & FD_CLOEXEC)) return probe_say(probe, PROBE_ESCAPED, "descriptor %d was inherited", fd);
    }
    return PROBE_HELD;
}

enum probe_result host_memory(struct probe *probe, const char *argument) {
    uint64_t key;
    if (number_parse(argument, strlen(argument), 1, INT32_MAX, &key) < 0)
        return probe_say(probe, PROBE_BROKEN, "not a key: %.20s", argument);
    return probe_refused(probe, shmget((key_t)key, 0, 0), "a shared memory segment of the host");
}

// What set-user-ID programs and capabilities could give.
enum probe_result host_rights(struct probe *probe, const char *argument) {
    (void)argument;
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) return probe_say(probe, PROBE_ESCAPED, "set-user-ID programs give rights");
    return probe_refused(probe, file_has("/proc/self", "status", "CapEff:\t0000000000000000") ? -1 : 0, "having capabilities");
}
