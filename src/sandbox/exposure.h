// SPDX-License-Identifier: Apache-2.0
// What of the host's file system a sandbox sees beside the system folders: the working directory, --read and --write.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "sandbox/sandbox.h"

struct exposure_item {
    char *source; // real path on the host
    char *target; // path inside; the same but where the user named it by another path
    bool writable;
    bool folder;
    bool kept;    // of protect.c: not the user's wish
    const char *owned_as; // path whose owner's files belong to the sandbox's user, where root started it; borrowed from
                          // the source of an item, mostly this one
};

struct exposure {
    struct exposure_item *items; // in the order of mounting: a folder before what is in it
    size_t count, size;
    bool from_root;
    bool protects; // some items protect files in writable folders and must stay where they are mounted
    char *home;    // the home folder, hidden but for the items; NULL if there is none
};

#define EXPOSURE_ITEMS_MAX 512 // of --read and --write each

// Checks and collects. 0, or -EINVAL with a message, -ENOMEM.
int exposure_init(struct exposure *exposure, const struct sandbox_spec *spec, struct error *err);
void exposure_done(struct exposure *exposure);
// Adds one at the end (exposure_init sorts). owned_as NULL: its own. 0 or -ENOMEM.
int exposure_add(struct exposure *exposure, const char *source, const char *target, bool writable,
                 const char *owned_as);
// The item that is mounted last among the first `count` of those that hold this path inside, or SIZE_MAX.
size_t exposure_top(const struct exposure *exposure, size_t count, const char *target);
// Whether a file with this real path is visible inside, as far as mounts go.
bool exposure_shows(const struct exposure *exposure, const char *path);
// Whether a folder of this path exists inside and can be written: /tmp itself, or in a writable item.
bool exposure_writable(const struct exposure *exposure, const char *path);
