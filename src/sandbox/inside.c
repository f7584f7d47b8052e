// SPDX-License-Identifier: Apache-2.0
#include "sandbox/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"

static int open_in(int root, const char *path, uint64_t flags) {
    struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
    return fd < 0 ? -errno : fd;
}

int inside_find(int root, const char *path) { return open_in(root, path, O_PATH); }

int inside_folder(int root, const char *path) { return open_in(root, path, O_RDONLY | O_DIRECTORY); }

// What is opened to be read is the file that was looked at: opening a FIFO or a device may do something.
int inside_read(int root, const char *path, size_t max, struct buf *text) {
    char self[64];
    struct stat st;
    AUTO_CLOSE int found = inside_find(root, path);
    if (found < 0) return found;
    if (fstat(found, &st) < 0) return -errno;
    if (!S_ISREG(st.st_mode)) return -EINVAL;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", found);
    AUTO_CLOSE int fd = open(self, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? -errno : buf_read_fd(text, fd, max);
}
