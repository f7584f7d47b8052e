// SPDX-License-Identifier: Apache-2.0
// The arguments that bubblewrap is started with.
#pragma once

#include "base/buf.h"
#include "sandbox/etc_file.h"
#include "sandbox/exposure.h"
#include "sandbox/unix_mask.h"

struct arguments {
    const struct sandbox_spec *spec;
    const struct exposure *exposure;
    const struct unix_mask *mask;
    const struct etc_file *etc_files;
    size_t etc_file_count;
    const struct buf *trust; // options that make the CA known
    int seccomp;
};

// Options for --args: NUL-terminated words. Errors are in text's flag.
void arguments_write(const struct arguments *arguments, struct buf *text);
