// SPDX-License-Identifier: Apache-2.0
// Where programs that read hostile bytes run (skopeo, umoci): as root of a user namespace that owns what is on disks of
// containers and nothing else, so with no right on the host.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

#define JAIL_FOLDERS 3
struct jail {
    bool network; // the host's
    struct jail_folder {
        const char *path; // of the host; a folder, or a file
        const char *name; // it is found at /mnt/NAME
        bool foreign;     // belongs to others, who are shown as the jail's own users
    } folders[JAIL_FOLDERS];
    size_t folder_count;
};
#define JAIL_PLACE "/mnt"

// Runs a program to its end, as tool_run.
int jail_run(const struct jail *jail, char *const *argv, unsigned timeout_s, struct error *err);
