// SPDX-License-Identifier: Apache-2.0
// Where programs find the roots that they trust. Each list ends with a NULL.
#pragma once

#include <stdbool.h>

#define TRUST_FOLDER "/run/penstock" // ours, inside

struct trust_folder {
    const char *path;
    bool hashed; // by the hash of a certificate's name; else all files are read
};

enum trust_kind {
    TRUST_ALL,   // names all roots
    TRUST_MORE,  // names roots beside others
    TRUST_THERE, // names all roots; left alone where it is not set
};
struct trust_variable {
    const char *name;
    enum trust_kind kind;
};

extern const char *const trust_bundles[]; // the first one that is there is what new files are made from
extern const struct trust_folder trust_folders[];
extern const char *const trust_stores[]; // Java's; "*" is any name
#define TRUST_VARIABLES 21
extern const struct trust_variable trust_variables[TRUST_VARIABLES + 1];
