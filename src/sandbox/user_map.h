// SPDX-License-Identifier: Apache-2.0
// A user namespace that is only a table of numbers, for idmapped mounts and programs without rights.
#pragma once

#include <sys/types.h>

struct user_map {
    uid_t uid, uid_to; // the first one, and what it becomes
    gid_t gid, gid_to;
    unsigned count;
};

int user_map_write(pid_t pid, const struct user_map *map); // of a process in a new user namespace. 0, or negative errno
// A descriptor of the namespace, or a negative errno.
int user_map_open(const struct user_map *map);
