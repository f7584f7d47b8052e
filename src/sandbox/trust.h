// SPDX-License-Identifier: Apache-2.0
// Makes programs in a sandbox with bindings trust the CA that signs for bound hosts, beside those that they trust anyway.
#pragma once

#include "base/buf.h"
#include "sandbox/exposure.h"

#define TRUST_FILES_MAX 64
#define TRUST_VARIABLES_MAX 24

struct trust {
    struct buf options;         // bubblewrap's, NUL-terminated words
    int files[TRUST_FILES_MAX]; // memory files that they name
    size_t file_count;
    char *variables[TRUST_VARIABLES_MAX + 1]; // "NAME=value", NULL-terminated
    size_t variable_count;
};

// Without spec->trust: nothing. 0, or a negative errno with a message. Release with trust_done in any case.
int trust_make(const struct sandbox_spec *spec, const struct exposure *exposure, struct trust *trust, struct error *err);
void trust_done(struct trust *trust);
