// SPDX-License-Identifier: Apache-2.0
// Who a command of a container is, by the container's own lists.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define CONTAINER_USERS 65536 // numbers that a container has
#define CONTAINER_GROUPS 32   // more groups of one user are left out

struct container_user {
    uint32_t uid, gid;
    uint32_t groups[CONTAINER_GROUPS]; // beside gid
    size_t group_count;
    char home[256];
};

// text: "NAME|UID[:GROUP|GID]"; "": root. root: a descriptor of its root folder. 0, or a negative errno with a message.
int container_user_find(int root, const char *text, struct container_user *ret_user, struct error *err);
