// SPDX-License-Identifier: Apache-2.0
// UNIX sockets of the host, and other ways to its services, under what a sandbox sees; and programs with privilege that
// it could rewrite; and what is penstock's own (hidden.h).
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "sandbox/exposure.h"

struct hidden;
struct mountinfo;

enum unix_mask_kind {
    UNIX_MASK_FILE,   // a socket, or hidden: /dev/null goes over it
    UNIX_MASK_FOLDER, // a folder that could not be searched, a mounted procfs, or hidden: an empty folder goes over it
    UNIX_MASK_PROGRAM, // root's set-user-ID program or one with capabilities, in a writable folder: read-only
};

struct unix_mask_entry {
    enum unix_mask_kind kind;
    char *path; // inside the sandbox
};

struct unix_mask {
    struct unix_mask_entry *entries;
    size_t count, size;
};

#define UNIX_MASK_ENTRIES_MAX 1024  // bubblewrap takes 9000 arguments
#define UNIX_MASK_FILES_MAX 2000000 // names searched under what the user shares
#define UNIX_MASK_SYSTEM_MAX 20000  // names searched in a system folder, which is left at that
#define UNIX_MASK_DEPTH_MAX 128

// Finds what must be hidden. 0, -E2BIG with a message that names the folder (nothing may be started then), -ENOMEM.
int unix_mask_collect(const struct exposure *exposure, const struct hidden *hidden, const struct mountinfo *mounts,
                      struct unix_mask *mask, struct error *err);
// One more, unless it is there. 0, -E2BIG, -ENOMEM.
int unix_mask_add(struct unix_mask *mask, enum unix_mask_kind kind, const char *path);
void unix_mask_done(struct unix_mask *mask);
