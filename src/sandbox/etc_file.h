// SPDX-License-Identifier: Apache-2.0
// Files of /etc that a sandbox has its own of: resolver, hosts, name service switch, user and group.
#pragma once

#include <stddef.h>

#include "sandbox/sandbox.h"

#define ETC_FILES 5

struct etc_file {
    char *target; // where it goes inside; follows the host's symbolic links
    int fd;       // a memory file with the content, at its start, CLOEXEC
};

// Makes them; left out are those that the host has right already (each costs a mount), and those that it lacks and that
// cannot be put into its read-only /etc. 0, or a negative errno with a message.
int etc_file_make(const struct sandbox_spec *spec, const char *home, struct etc_file files[ETC_FILES],
                  size_t *ret_count, struct error *err);
void etc_file_done(struct etc_file files[ETC_FILES], size_t count);
