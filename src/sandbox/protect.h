// SPDX-License-Identifier: Apache-2.0
// Files that the host trusts (policy, configuration, decision log) and that lie in a folder which the sandbox may write.
#pragma once

#include <limits.h>

#include "sandbox/exposure.h"

#define PROTECTS_MAX 64  // paths
#define PROTECT_ADDS 512 // items

// Whether what this name leads to is for the host alone to say. 0, or -EINVAL with a message: a symbolic link on the way is
// in a folder that the sandbox may write.
int protect_check_way(const struct exposure *exposure, const char *path, const char *cwd, struct error *err);
// Where a name leads to; link_found (may be NULL) hears of each symbolic link on the way, by its own path without links, and
// ends it with anything but 0. 0, -errno, or what link_found said.
int protect_follow(const char *path, const char *cwd, int link_found(void *data, const char *link), void *data,
                   char ret_real[PATH_MAX]);
// Adds to a sorted exposure what keeps them as they are. 0, -EINVAL with a message, -ENOMEM.
int protect_add(struct exposure *exposure, const struct sandbox_spec *spec, struct error *err);
