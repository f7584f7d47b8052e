// SPDX-License-Identifier: Apache-2.0
// How large the buffers of the sandbox's TCP sockets may grow. What a sandbox that does not read makes the kernel hold is the
// number of its connections times this, so it is small; but bulk needs more (a third of the CPU time for each byte, several
// times the speed), so it is large while there are few connections. Sockets take the limits as they are when they grow, and
// the largest window that they can ever announce as they are when they connect. The files are opened before the keeper is
// isolated; writing to them needs CAP_NET_ADMIN, which it keeps.
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/skeleton.h"

static const struct {
    const char *path, *small, *large;
} buffers_files[SKELETON_BUFFERS] = {
    {"/proc/sys/net/ipv4/tcp_rmem", "4096 65536 131072", "4096 131072 4194304"},
    {"/proc/sys/net/ipv4/tcp_wmem", "4096 65536 98304", "4096 65536 1048576"},
};

int skeleton_buffers_set(const int fds[SKELETON_BUFFERS], bool large) {
    for (size_t i = 0; i < SKELETON_BUFFERS; i++) {
        const char *text = large ? buffers_files[i].large : buffers_files[i].small;
        if (pwrite(fds[i], text, strlen(text), 0) < 0) return -errno;
    }
    return 0;
}

int skeleton_buffers_open(int ret_fds[SKELETON_BUFFERS], struct error *err) {
    int result = 0;
    for (size_t i = 0; i < SKELETON_BUFFERS && result == 0; i++) {
        ret_fds[i] = open(buffers_files[i].path, O_WRONLY | O_CLOEXEC);
        if (ret_fds[i] < 0) result = -errno;
    }
    if (result == 0) result = skeleton_buffers_set(ret_fds, true);
    if (result == 0) return 0;
    return error_set(err, result,
                     "cannot set net/ipv4/tcp_rmem and tcp_wmem in the sandbox's namespace: %s; use Linux 4.15 or later with a "
                     "writable /proc/sys/net", strerror(-result));
}
