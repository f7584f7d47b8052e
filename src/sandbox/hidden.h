// SPDX-License-Identifier: Apache-2.0
// What of penstock's own no sandbox may see, whatever the user shares: keys and stored secrets, files with secrets, the log.
#pragma once

#include "sandbox/exposure.h"
#include "sandbox/unix_mask.h"

#define HIDDEN_MAX 8192 // files and folders, with those in hidden folders

struct hidden_file {
    dev_t device;
    ino_t inode;
};

struct hidden {
    struct hidden_file *files; // sorted, so that one is found whatever its name
    size_t count, size;
    char **roots; // real paths of the folders and files that are hidden with what is in them; file: secrets are none
    size_t root_count;
    struct hidden_file *folders; // of file: secrets, where a new file takes the place of the old one
    size_t folder_count;
};

// spec->hides and the state folders of the machine's people, with what is in them; and spec->secrets, which are refused
// where the sandbox sees them. 0, or a negative errno with a message.
int hidden_collect(const struct sandbox_spec *spec, const struct exposure *exposure, struct hidden *hidden, struct error *err);
void hidden_done(struct hidden *hidden);
bool hidden_has(const struct hidden *hidden, dev_t device, ino_t inode);
bool hidden_is_folder_of_secret(const struct hidden *hidden, dev_t device, ino_t inode);
bool hidden_may_have(const struct hidden *hidden, ino_t inode); // on one device or another
// Those of spec->hides by name as well: the system's folders are not walked, and an overlay's names have other inodes than its
// files. 0, -ENOMEM, -E2BIG.
int hidden_mask_named(const struct sandbox_spec *spec, const struct exposure *exposure, struct unix_mask *mask);
