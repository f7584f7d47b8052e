// SPDX-License-Identifier: Apache-2.0
// Libraries that only one role of this program uses. Loaded by it and not by the linker, they cost the others nothing: they
// bring a dozen libraries of their own, which took most of the time of `penstock run -- true`.
//
//     #define UB_CALLS(X) X(ub_ctx_create_event) X(ub_ctx_delete)
//     static struct ub { UB_CALLS(LIBRARY_MEMBER) } ub;
//     #define UB_ROW(name) LIBRARY_ROW(struct ub, name)
//     static const struct library_call ub_calls[] = {UB_CALLS(UB_ROW)};
#pragma once

#include <stddef.h>

#include "base/error.h"

struct library_call {
    const char *name;
    size_t offset; // in the structure of pointers
};

#define LIBRARY_MEMBER(name) __typeof__(name) *name;
#define LIBRARY_ROW(type, name) {#name, offsetof(type, name)},

// Fills the pointers at calls. Loaded again, it is the same library. 0, or -ENOPKG.
int library_load(const char *soname, const struct library_call *list, size_t count, void *calls, struct error *err);
