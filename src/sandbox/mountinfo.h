// SPDX-License-Identifier: Apache-2.0
// The mounts of this mount namespace, as /proc/self/mountinfo lists them.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct mountinfo_layer { // of an overlay, if it is found by its name
    struct mountinfo_entry *mount;
    char *path; // in the file system of that mount
};

struct mountinfo_entry {
    unsigned long id;
    const char *device; // "254:0", of the file system and so of all its mounts
    const char *root;   // what of the file system it shows
    const char *point;  // where
    const char *type;
    char *options;      // of the file system, escaped
    struct mountinfo_layer *layers; // filled by mountinfo_layers
    size_t layer_count;
    bool layered;  // they are
    bool relative; // some layer's name is relative to a folder that nobody knows any more
};

struct mountinfo {
    struct mountinfo_entry *entries;
    size_t count, size;
    char *text;
};

int mountinfo_read(struct mountinfo *mounts, struct error *err);
void mountinfo_done(struct mountinfo *mounts);
// The mount that an existing real path is on, and what is not there would be on; NULL if the list does not have it.
struct mountinfo_entry *mountinfo_of(const struct mountinfo *mounts, const char *path);
// Whether path leads to this mount: not into one over it. True if the kernel cannot tell.
bool mountinfo_is_on(const struct mountinfo_entry *entry, const char *path);
// The lower and upper folders of an overlay; none for others. 0 or -ENOMEM.
int mountinfo_layers(const struct mountinfo *mounts, struct mountinfo_entry *entry);
// rest ("", or with a slash before it) below folder. Malloc'd; NULL when out of memory.
char *mountinfo_join(const char *folder, const char *rest);
