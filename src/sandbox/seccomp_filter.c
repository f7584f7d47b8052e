// SPDX-License-Identifier: Apache-2.0
#include "sandbox/seccomp_filter.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "sandbox/seccomp_program.h"

int seccomp_filter_open(bool fixed_mounts, struct error *err) {
    const struct sock_filter *code = fixed_mounts ? seccomp_program_fixed_mounts : seccomp_program;
    size_t len = (fixed_mounts ? seccomp_program_fixed_mounts_count : seccomp_program_count) * sizeof(*code);
    AUTO_CLOSE int fd = memfd_create("penstock-seccomp", MFD_CLOEXEC);
    ssize_t written = fd < 0 ? -1 : pwrite(fd, code, len, 0);
    if (written == (ssize_t)len) return TAKE_FD(fd);
    int result = written < 0 ? -errno : -ENOSPC;
    return error_set(err, result, "no memory file for the system call filter: %s", strerror(-result));
}
