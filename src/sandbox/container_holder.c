// SPDX-License-Identifier: Apache-2.0
// Who holds a sandbox's folder: whoever has it open with a lock on it, as the kernel shows for each of a process's descriptors. So
// a copy of the holder is found too that it had made before it died, which no list of locks names.
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/number.h"
#include "sandbox/cgroup.h"
#include "sandbox/sandbox.h"

static bool is_locked_by(int process, const char *descriptor) {
    struct buf text = BUF_INIT;
    char path[64];
    snprintf(path, sizeof(path), "fdinfo/%.20s", descriptor);
    AUTO_CLOSE int fd = openat(process, path, O_RDONLY | O_CLOEXEC);
    bool locked = fd >= 0 && buf_read_fd(&text, fd, 65536) == 0 && text.data && strstr(text.data, "FLOCK");
    buf_done(&text);
    return locked;
}

static bool holds(int process, const struct stat *folder) {
    int fd = openat(process, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *descriptors = fd < 0 ? NULL : fdopendir(fd);
    bool held = false;
    if (!descriptors && fd >= 0) close(fd);
    for (struct dirent *entry; descriptors && !held && (entry = readdir(descriptors));) {
        struct stat st;
        held = entry->d_name[0] != '.' && fstatat(dirfd(descriptors), entry->d_name, &st, 0) == 0 && st.st_ino == folder->st_ino &&
               st.st_dev == folder->st_dev && is_locked_by(process, entry->d_name);
    }
    if (descriptors) closedir(descriptors);
    return held;
}

// As long as the process of this descriptor lives its number is no other's, so what was looked at is what is ended.
static bool end_holder(int processes, const char *name, const struct stat *folder) {
    uint64_t pid;
    if (number_parse(name, strlen(name), 2, INT_MAX, &pid) < 0 || (pid_t)pid == getpid()) return false;
    AUTO_CLOSE int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    AUTO_CLOSE int process = pidfd < 0 ? -1 : openat(processes, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return process >= 0 && holds(process, folder) && syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) == 0;
}

int sandbox_container_end_holders(const char *id, const char *folder) {
    struct stat st;
    int count = 0;
    DIR *processes = stat(folder, &st) < 0 ? NULL : opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') count += end_holder(dirfd(processes), entry->d_name, &st);
    if (processes) closedir(processes);
    if (count > 0) cgroup_kill(id); // one that stands still with the container does not end before
    return count;
}
