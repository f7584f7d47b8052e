// SPDX-License-Identifier: Apache-2.0
// The upper half of all numbers, from 2^31, belongs to nobody: systemd's UID table says "hic sunt leones". It has room for
// 32,766 containers beside the numbers that are used on disks. Which range is taken is known to all processes of the
// host by a socket's abstract name, that goes with its holder. Who else holds such a name only makes us try another one.
#include "sandbox/container_range.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/random.h"
#include "sandbox/container_plan.h"

#define RANGES 32767 // the last one has the number that means none
#define TRIES 256

static int claim_one(unsigned range) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int len = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "penstock-users-%u", range);
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
    return bind(fd, (const struct sockaddr *)&name, size) < 0 ? -errno : TAKE_FD(fd);
}

int container_range_claim(uint32_t *ret_base, int *ret_claim, struct error *err) {
    int r = -EADDRINUSE;
    for (int i = 0; i < TRIES && r == -EADDRINUSE; i++) {
        unsigned range = 1 + random_u32() % (RANGES - 1); // the first one is that of disks
        r = claim_one(range);
        if (r < 0) continue;
        *ret_claim = r;
        *ret_base = CONTAINER_DISK_BASE + range * CONTAINER_USERS;
        return 0;
    }
    return error_set(err, r, "no numbers of users for the sandbox: %s; remove some sandboxes", strerror(-r));
}
