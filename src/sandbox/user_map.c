// SPDX-License-Identifier: Apache-2.0
#include "sandbox/user_map.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"

static int write_map(pid_t pid, const char *file, unsigned from, unsigned to, unsigned count) {
    char path[64], line[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
    int len = snprintf(line, sizeof(line), "%u %u %u\n", from, to, count);
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    return write(fd, line, (size_t)len) == len ? 0 : -errno;
}

int user_map_write(pid_t pid, const struct user_map *map) {
    int r = write_map(pid, "uid_map", map->uid, map->uid_to, map->count);
    return r == 0 ? write_map(pid, "gid_map", map->gid, map->gid_to, map->count) : r;
}

static int namespace_of_child(pid_t pid, const struct user_map *map) {
    char path[64];
    int r = user_map_write(pid, map);
    if (r < 0) return r;
    snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

// The child lives only until the descriptor is open. If its parent dies, at whatever moment, it reads the end of hold.
int user_map_open(const struct user_map *map) {
    int ready[2], hold[2];
    if (pipe2(ready, O_CLOEXEC) < 0) return -errno;
    if (pipe2(hold, O_CLOEXEC) < 0) {
        int r = -errno;
        close(ready[0]);
        close(ready[1]);
        return r;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(hold[1]);
        char byte = unshare(CLONE_NEWUSER) == 0;
        if (write(ready[1], &byte, 1) == 1) (void)!read(hold[0], &byte, 1);
        _exit(1);
    }
    int r = pid < 0 ? -errno : 0;
    close(ready[1]);
    close(hold[0]);
    char byte = 0;
    if (r == 0 && (read(ready[0], &byte, 1) != 1 || !byte)) r = -ENOSPC; // the limit of user namespaces
    close(ready[0]);
    if (r == 0) r = namespace_of_child(pid, map);
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    close(hold[1]);
    return r;
}
