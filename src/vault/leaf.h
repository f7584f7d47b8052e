// SPDX-License-Identifier: Apache-2.0
// Leaf certificates, one a host: made when first asked for, or ahead; made again well before they end.
#pragma once

#include <stdint.h>

#include "base/list.h"
#include "base/name.h"
#include "vault/authority.h"

#define LEAF_MAX 512 // hosts; then the one that was not used for longest gives way

struct leaf { // in secure memory
    struct list link;
    char host[NAME_SIZE];
    uint8_t key[IPC_KEY_SIZE];
    int64_t not_before, renew_at;
    uint32_t der_len;
    uint8_t *der;
};

struct leaf_cache {
    struct authority *authority;
    struct list leaves; // the last used one first
    size_t count;
};

void leaf_cache_init(struct leaf_cache *cache, struct authority *authority);
void leaf_cache_done(struct leaf_cache *cache);
// Valid until the next call. now: seconds of the wall clock. 0, or a negative errno with a message.
int leaf_get(struct leaf_cache *cache, const char *host, int64_t now, const struct leaf **ret_leaf, struct error *err);
