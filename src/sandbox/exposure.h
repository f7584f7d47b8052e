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
};

struct exposure {
    struct exposure_item *items; // in the order of mounting: a folder before what is in it
    size_t count;
    char *home; // the home folder, hidden but for the items; NULL if there is none
};

#define EXPOSURE_ITEMS_MAX 512 // of --read and --write each

// Checks and collects. 0, or -EINVAL with a message, -ENOMEM.
int exposure_init(struct exposure *exposure, const struct sandbox_spec *spec, struct error *err);
void exposure_done(struct exposure *exposure);
// Whether a file with this real path is visible inside, as far as mounts go.
bool exposure_shows(const struct exposure *exposure, const char *path);
// Whether a folder of this path exists inside and can be written: /tmp itself, or in a writable item.
bool exposure_writable(const struct exposure *exposure, const char *path);
