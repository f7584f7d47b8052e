// SPDX-License-Identifier: Apache-2.0
// Files of a root file system that somebody else wrote: names never lead out of it, and nothing but a file is read.
#pragma once

#include <stddef.h>

#include "base/buf.h"

// root: a descriptor of its folder. O_PATH descriptor (links are followed, inside), or negative errno.
int inside_find(int root, const char *path);
// The whole of a regular file, at most max bytes: 0, or -EFBIG, -EINVAL (no file), -errno.
int inside_read(int root, const char *path, size_t max, struct buf *text);
// Opens a folder to list it.
int inside_folder(int root, const char *path);
