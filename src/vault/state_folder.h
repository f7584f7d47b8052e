// SPDX-License-Identifier: Apache-2.0
// Where Penstock keeps what must survive: /var/lib/penstock for root, $XDG_STATE_HOME/penstock for a user, or what
// PENSTOCK_STATE_FOLDER says. Its folders are their owner's alone, files in it appear whole or not at all, and what
// others could have read or changed is refused.
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"

struct state_folder {
    int fd;
    char path[PATH_MAX]; // for messages
};

// The state folder itself; make: it and those above are made if they are missing. 0, or a negative errno with a message.
int state_folder_path(bool make, char ret_path[PATH_MAX], struct error *err);
// Opens the folder NAME in the state folder; make: it and those above are made if they are missing. 0; -ENOENT (without
// a message) if it is missing; a negative errno with a message.
int state_folder_open(const char *name, bool make, struct state_folder *ret_folder, struct error *err);
void state_folder_close(struct state_folder *folder);
// Waits for the folder's lock, at most some seconds. A descriptor that holds it until closed, or a negative errno.
int state_folder_lock(const struct state_folder *folder, struct error *err);
// Whether an open file is a regular one that nobody but its owner can use, and the owner is this user. 0, or -EPERM
// with a message that says how to mend it.
int state_folder_check(int fd, uid_t owner, const char *path, struct error *err);
// Reads a whole file of the folder, checked, of at most size bytes. -ENOENT without a message.
int state_folder_read(const struct state_folder *folder, const char *name, void *bytes, size_t size, size_t *ret_len,
                      struct error *err);
// Puts a file of mode 0600 in its place, in one step, and onto the disk.
int state_folder_write(const struct state_folder *folder, const char *name, const void *bytes, size_t len,
                       struct error *err);
