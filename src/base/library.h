// SPDX-License-Identifier: Apache-2.0
// Libraries that only one role of this program uses. Loaded by it and not by the linker, they cost the others nothing: they
// bring a dozen libraries of their own, which took most of the time of `penstock run -- true`.
//
//     #define NFT_CALLS(X) X(nft_ctx_new) X(nft_ctx_free)
//     static struct nft { NFT_CALLS(LIBRARY_MEMBER) } nft;
//     #define NFT_ROW(name) LIBRARY_ROW(struct nft, name)
//     static const struct library_call nft_calls[] = {NFT_CALLS(NFT_ROW)};
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
