// SPDX-License-Identifier: Apache-2.0
// Places of the file system: which folders belong to the system, which to the user, and which may be shared.
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "sandbox/home.h"

struct place_system {
    const char *path;
    bool walked; // not wholly under the package manager: searched for sockets name by name where need be
};
// Folders that are shown read-only as they are (a symbolic link as a link). Returns the count.
size_t place_systems(const struct place_system **ret_systems);

// Whether path is folder or something below it. Both absolute, without "." and "..".
bool place_within(const char *path, const char *folder);
bool place_in_system(const char *path);
// path, from folder base if it is relative, without ".", ".." and doubled slashes; symbolic links are kept. False if it
// does not fit.
bool place_normalise(const char *path, const char *base, char ret_path[PATH_MAX]);

// Whether cwd can be a working directory that the sandbox may write. 0 or -EINVAL with the reason.
int place_check_cwd(const char *cwd, const struct home_list *homes, struct error *err);
// Whether a real path may be given to --read or --write. 0 or -EINVAL with the reason.
int place_check_shared(const char *option, const char *path, struct error *err);
